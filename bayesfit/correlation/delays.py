"""The delays of a multi-tau correlator.

With d delays a level, level 0 has 1 to 2 d frames; each further level sums twice as many frames as the one before, and
has d + 1 to 2 d of its sums (Schaetzel, Drewel & Stimac, J. Mod. Opt. 35, 711 (1988)).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int


def own_delays(level: int, per_level: int) -> range:
    """The delays of a level, in its own sums of frames."""
    return range(per_level + 1 if level else 1, 2 * per_level + 1)


def delays(longest: int, per_level: int) -> tuple[Int[np.ndarray, " tau"], Int[np.ndarray, " tau"]]:
    """Delays in frames, up to the longest, and how many frames are summed at each."""
    levels = range(max(longest, 1).bit_length())
    found = [(own << level, 1 << level) for level in levels for own in own_delays(level, per_level)]
    frames, summed = np.array(found).T
    return frames[frames <= longest], summed[frames <= longest]
