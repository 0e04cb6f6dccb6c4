"""Few statistics of a curve in place of its many points, where the covariance of these is known from few samples.

A sample covariance of n samples is singular for n points and more, and the price of its inverse grows with their
number. So a curve y is compressed to K statistics A y, which keep nearly all that it says of a decay, and the sample
covariance S to A S A^T. Any A that is chosen without y leaves the likelihood of A y valid. Here its rows are the
baseline, and the K - 1 leading principal components of exponentials, compressed and stretched, of all rates that the
delays can see, each point with the weight of its variance as a smooth function of the delay.

A. Heavens, R. Jimenez & O. Lahav, MNRAS 317, 965 (2000), compress by one model at one point; this is for all decays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

MOST, FEWEST, SHARE = 8, 4, 4  # statistics of a bin: a share of its samples
ROOTS = 32  # eigenvectors of the covariance, from which curves are simulated
RATES, BETAS = 60, (0.5, 0.7, 1.0, 1.4)
REACH = 0.3, 3.0  # slowest rate over 1 / longest delay, and fastest rate over 1 / shortest delay
SMOOTH = 3  # degree of the polynomial that the logarithm of the variance is in that of the delay

# The columns of a layout: of each statistic its white factors; of each statistic a 1 in the row, which is that of a
# valid point, where it is put; roots of the covariance in units of g2_err^2, and what they leave of each standard
# deviation; and in the first two rows, how many samples and statistics there are.
WHITEN, PLACES = slice(0, MOST), slice(MOST, 2 * MOST)
OF_ROOTS = slice(2 * MOST, 2 * MOST + ROOTS)
REST, NUMBERS = 2 * MOST + ROOTS, 2 * MOST + ROOTS + 1
COLUMNS = NUMBERS + 1

Matrix = Float[np.ndarray, "tau tau"]
OfPoints = Float[np.ndarray, " point"]


class Estimated(NamedTuple):
    """A covariance (tau, tau) of g2, estimated from so many samples."""

    covariance: Matrix
    samples: float

    @property
    def statistics(self) -> int:
        """How many statistics a curve is compressed to."""
        return int(np.clip(self.samples // SHARE, FEWEST, MOST))


def compression(tau: OfPoints, variance: OfPoints, count: int) -> Float[np.ndarray, "statistic point"]:
    """A for valid points (point,) at these delays: `count` statistics, or as many as there are points."""
    log_tau = np.log(tau)
    middle, half = np.mean(log_tau), max(np.ptp(log_tau) / 2.0, 1e-9)
    degree = int(min(SMOOTH, max(tau.size // 4, 0)))
    curve = np.polynomial.Polynomial.fit((log_tau - middle) / half, np.log(variance), degree, domain=[-1, 1])
    weight = np.exp(-0.5 * curve((log_tau - middle) / half))
    rates = np.geomspace(REACH[0] / tau[-1], REACH[1] / tau[0], RATES)
    decays = np.exp(-2.0 * np.multiply.outer(rates, tau)[None] ** np.array(BETAS)[:, None, None])
    flat = weight / np.linalg.norm(weight)
    rest = weight * decays.reshape(-1, tau.size)
    rest -= np.outer(rest @ flat, flat)
    components = np.linalg.svd(rest, full_matrices=False)[2][: min(count, tau.size) - 1]
    return np.vstack([flat, components]) * weight


def layout_of(
    tau: OfPoints, valid: Bool[np.ndarray, " tau"], estimated: Estimated, padded: int
) -> Float[np.ndarray, "padded column"]:
    """The layout of one bin, whose points are standardised by the roots of the covariance's diagonal."""
    layout, places = np.zeros((padded, COLUMNS)), np.flatnonzero(valid)
    if not places.size:
        return layout
    own = estimated.covariance[np.ix_(places, places)]
    error = np.sqrt(np.diagonal(own))
    rows = compression(tau[places], error**2, estimated.statistics)
    white = np.linalg.solve(np.linalg.cholesky(rows @ own @ rows.T), rows)
    count = len(white)
    layout[places, WHITEN.start : WHITEN.start + count] = (white * error).T
    layout[places[:count], PLACES.start + np.arange(count)] = 1.0
    values, vectors = np.linalg.eigh(own / np.outer(error, error))
    roots = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :ROOTS]
    layout[places, OF_ROOTS.start : OF_ROOTS.start + roots.shape[1]] = roots
    layout[places, REST] = np.sqrt(np.maximum(1.0 - np.sum(roots**2, axis=1), 0.0))
    layout[:2, NUMBERS] = estimated.samples, count
    return layout
