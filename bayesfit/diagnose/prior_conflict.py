"""Prior and data in conflict: a posterior in the far tail of its own prior, with the likely cause in words.

The measure is the probability, under the prior, of a value at least as far out (both tails together), at the median
posterior draw. Where the prior is right and the data determine the parameter, this is uniform, so that `LEAST_TAIL` is
the share of false alarms per parameter; where they do not determine it, it is larger (Box, J. R. Stat. Soc. A 143, 383
(1980); Evans & Moshonov, Bayesian Anal. 1, 893 (2006)). An end of the prior where its density is no lower than
elsewhere, such as that at 0 of a half-normal or both ends of a uniform one, is not a tail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from bayesfit.diagnose.interval import LEVELS

LEAST_TAIL = 1e-4
IN_MOST = 0.5  # share of the bins that must have a conflict for it to be the dataset's
STEP = (0.7, 1.3)  # how far a baseline is off if 1 was subtracted, or was not
BASELINES = {-1: ("g2 - 1 given for g2", 0), 1: ("g2 given for g2 - 1", 1)}

Draws = Float[np.ndarray, " ..."]
Quantiles = Float[np.ndarray, " quantile"]


def conflicts(
    tails: Mapping[str, float], draws: Mapping[str, Draws], quantiles: Mapping[str, Quantiles]
) -> dict[str, str]:
    """The parameters whose posterior lies in the far tail of the prior, each with its reason in words.

    Args:
        tails: parameter name to the prior's probability of a value as far out; NaN where it cannot be computed.
        draws, quantiles: parameter name to posterior draws, and to evenly spaced quantiles of the prior.
    """
    return {name: _words(name, draws[name], quantiles[name]) for name, tail in tails.items() if tail < LEAST_TAIL}


def _words(name: str, draws: Draws, quantiles: Quantiles) -> str:
    value = float(np.median(draws))
    low, middle, high = np.interp(LEVELS, (np.arange(quantiles.size) + 0.5) / quantiles.size, quantiles)
    side = "below" if value < middle else "above"
    where = f"{name} {value:.3g} lies far {side} its prior ({low:.3g} to {high:.3g})"
    return f"{where}: {_cause(name, value - middle)}"


def _cause(name: str, off: float) -> str:
    """The likely cause of a parameter that is off from the middle of its prior by `off`, and the remedy."""
    if name == "baseline" and STEP[0] < abs(off) < STEP[1]:
        words, reference = BASELINES[int(np.sign(off))]
        setting = f'--set priors.baseline="Normal({reference}, 0.1)"'
        return f"{words}? Then {setting}, or baseline_reference={reference} in bayesfit.curves"
    remedy = f"or set priors.{name}"
    if name in ("baseline", "contrast"):
        return f"is g2 normalised? Else mend that, {remedy}"
    if "rate" in name:
        return f"is tau in s? Else mend that, {remedy}"
    if name.startswith("D"):
        return f"are tau in s and q in 1/angstrom? Else mend that, {remedy}"
    return f"mend what makes it so, {remedy}"


def in_most_bins(found: list[dict[str, str]], judged: int) -> str:
    """The conflict of most of the `judged` bins, in the words of the first of them; "" where there is none."""
    counts = Counter(name for one in found for name in one)
    name, count = counts.most_common(1)[0] if counts else ("", 0)
    if not count or count < IN_MOST * judged:
        return ""
    words = next(one[name] for one in found if name in one)
    return f"in {count} of {judged} bins, {words}" if judged > 1 else words
