"""What every kind of emulator gives: arrays from which it predicts, and what it predicts for held-out runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Arrays = dict[str, np.ndarray]


class Fitted(NamedTuple):
    """An emulator of one `kind`: its `arrays`, what it predicts for each run when that run is `held_out` (run, tau),
    and what it is in `words`."""

    kind: str
    arrays: Arrays
    held_out: Float[np.ndarray, "run tau"]
    words: str
