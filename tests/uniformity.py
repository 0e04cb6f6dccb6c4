"""Whether ranks are uniform: simultaneous bands about their distribution function, and the p-value to match.

A rank is a whole number from 0 to `largest`. Where ranks are uniform, the count of those below place k (k = 1, ...,
largest) is binomial; the test statistic is the smallest two-sided binomial tail probability over all places
(Saeilynoja, Buerkner & Vehtari, Statistics and Computing 32, 32 (2022), arXiv:2103.10522). Its distribution is exact
here: counts that stay within bounds are a Poisson process within bounds, given where it ends (Moscovich & Nadler,
Statistics & Probability Letters 123, 177 (2017)).
"""

from functools import lru_cache

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

SMALLEST = 1e-12  # p-values are differences from 1, to about this


def counts_below(ranks, largest):
    """How many ranks (rank,) lie below each place 1, ..., largest; (place,)."""
    return np.cumsum(np.bincount(ranks, minlength=largest + 1))[:largest]


def p_value(ranks, largest):
    """Probability that uniform ranks stray as far as these (rank,) do."""
    tails = _tails(len(ranks), largest)
    statistic = np.min(tails[np.arange(largest), counts_below(ranks, largest)])
    return max(1.0 - _inside(tails > statistic * (1.0 + 1e-9)), SMALLEST)


@lru_cache(maxsize=8)
def band(count, largest, alpha=0.01):
    """Lowest and highest counts at each place (place,) that uniform ranks all keep to with probability 1 - alpha."""
    tails = _tails(count, largest)
    low, high = np.log(alpha) - 15.0, np.log(alpha)
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if 1.0 - _inside(tails > np.exp(middle)) > alpha else (middle, high)
    return _bounds(tails > np.exp(low))


def holm(p):
    """Name to p-value, adjusted for their number by Holm's step-down method (Scand. J. Stat. 6, 65 (1979))."""
    adjusted, least = {}, 0.0
    for place, name in enumerate(sorted(p, key=p.get)):
        least = adjusted[name] = max(least, min((len(p) - place) * p[name], 1.0))
    return adjusted


@lru_cache(maxsize=8)
def _tails(count, largest):
    """Two-sided binomial tail probability of each count 0, ..., `count` at each place; (place, count + 1)."""
    below, share = np.arange(count + 1), np.arange(1, largest + 1)[:, None] / (largest + 1)
    choose = gammaln(count + 1) - gammaln(below + 1) - gammaln(count - below + 1)
    mass = np.exp(choose + xlogy(below, share) + xlog1py(count - below, -share))
    lower, upper = np.cumsum(mass, axis=1), np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(2.0 * np.minimum(lower, upper), 1.0)


def _bounds(allowed):
    """First and last count that is allowed at each place (place, count); both (place,)."""
    return allowed.argmax(axis=1), allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)


def _inside(allowed):
    """Probability that uniform ranks have allowed counts at every place (place, count)."""
    if not allowed.any(axis=1).all():
        return 0.0
    count, places = allowed.shape[1] - 1, len(allowed) + 1
    kernel, whole = _poisson(count, count / places), _poisson(count, count)[-1]
    path, start = np.ones(1), 0
    for low, high in zip(*_bounds(allowed), strict=True):
        path = np.convolve(path, kernel[: high - start + 1])
        path, start = path[max(low - start, 0) : high - start + 1], max(low, start)
    return float(path @ kernel[count - start - np.arange(path.size)] / whole)


def _poisson(count, rate):
    """Poisson probabilities of 0, ..., `count`."""
    number = np.arange(count + 1)
    return np.exp(xlogy(number, rate) - rate - gammaln(number + 1))
