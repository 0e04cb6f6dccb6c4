"""Which emulator: the one whose predictions of held-out runs are nearest to the runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from bayesfit.surrogates import chebyshev, gaussian_process, networks
from bayesfit.surrogates.emulator import Fitted
from bayesfit.surrogates.outputs import LINKS, linked, unlinked

GOOD_ENOUGH = 1e-4  # rms error of |g1|^2 below which nothing more is tried
EXACT, NOISY = (1e-6,), (1e-6, 0.1)  # variances of noise in the runs, from which a Gaussian process's is looked for
PREDICT = {
    "chebyshev": chebyshev.predict,
    "gaussian_process": gaussian_process.predict,
    "networks": networks.predict,
}

Coordinates = Float[np.ndarray, "run param"]
Curves = Float[np.ndarray, "run tau"]


class Choice(NamedTuple):
    """An emulator, its `link`, and its errors (run, tau): what it predicts for held-out runs less what they are."""

    fitted: Fitted
    link: str
    errors: Curves

    @property
    def rms(self) -> float:
        """The root mean square of all errors."""
        return float(np.sqrt(np.mean(self.errors**2)))


def choose(x: Coordinates, curves: Curves, random: bool = False) -> Choice:
    """The emulator with the smallest held-out error: polynomials; unless these suffice, also Gaussian
    processes; and for many parameters also networks. Of random curves, |g1|^2 itself is learnt, whose mean is asked
    for."""
    with threadpool_limits(1):  # of matrices this small, threads make the algebra ten times slower
        return _best(x, curves, ("identity",) if random else LINKS, NOISY if random else EXACT)


def _best(x: Coordinates, curves: Curves, links: tuple[str, ...], nuggets: tuple[float, ...]) -> Choice:
    best = min((choice for link in links for choice in tried(chebyshev.fit, x, curves, link)), key=lambda c: c.rms)
    if best.rms > GOOD_ENOUGH:
        processes = partial(gaussian_process.fit, nuggets=nuggets)
        best = min([best, *tried(processes, x, curves, best.link)], key=lambda c: c.rms)
        if x.shape[1] >= networks.FEWEST:
            best = min([best, *tried(networks.fit, x, curves, best.link)], key=lambda c: c.rms)
    return best


def tried(fit: Callable[..., list[Fitted]], x: Coordinates, curves: Curves, link: str) -> list[Choice]:
    """What one rung of the ladder gives."""
    return [Choice(fitted, link, unlinked(fitted.held_out, link) - curves) for fitted in fit(x, linked(curves, link))]
