"""Curves made of counted photon pairs, for the calibration: drawn and weighed here without the engine's noise model.

Where many pairs are expected they are normal with theory's covariance; the normal number behind each is turned into a
number of pairs by the deviance residual. Where few are expected a number of pairs is drawn from all their
probabilities.
"""

import numpy as np
from scipy import optimize, special, stats

import bayesfit
from bayesfit.data.counting import Counting, as_counted
from bayesfit.modelling.averaged_delays import averages, neighbour_factors
from bayesfit.modelling.lag_sums import lag_grid
from bayesfit.modelling.photon_covariance import speckle_covariance

PIXELS, FRAME_TIME = 64.0, 1e-3
COUNTS = 1e-3, 1.0  # photons per pixel and frame, from bin to bin
FEW = 50.0  # expected pairs


def numbered(tau, g2, counts):
    """Curves with the numbers of their counting, as pairs."""
    frames = 4.0 * tau[-1] / FRAME_TIME
    numbers = {"counts": counts, "pixels": PIXELS, "frames": frames, "attrs": {"frame_time": FRAME_TIME}}
    return as_counted(bayesfit.curves(tau, g2, np.full(np.shape(g2), 0.1), **numbers))


def draw_counts(count, rng):
    """Photons per pixel and frame of so many bins."""
    return np.exp(rng.uniform(*np.log(COUNTS), count))


def seen(tau, curves):
    """Curves (..., tau) as a correlator sees them that sums frames as the delays say."""
    counting = Counting.of(numbered(tau, np.ones((1, tau.size)), 0.1))
    factors = neighbour_factors(counting.lags, counting.summed)[None]
    return averages(np.reshape(curves, (-1, tau.size)), factors).reshape(np.shape(curves))


def correlation(tau, counts, shape, values):
    """R of a bin: covariance over that of counted pairs alone, with the mean about 1."""
    counting = Counting.of(numbered(tau, np.ones((1, tau.size)), counts))
    decay, contrast = shape(lag_grid(counting.frames) * FRAME_TIME), np.array([values["contrast"]])
    (mean,), (covariance,) = speckle_covariance(decay[:, None], contrast, counting)
    (pairs,) = counting.pairs
    size = np.sqrt(pairs / mean)
    eigenvalues, vectors = np.linalg.eigh(covariance * size[:, None] * size)
    return np.eye(tau.size) + (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T, pairs


def deviance(n, mu):
    """sign(n - mu) sqrt(2 (n log(n / mu) - n + mu))."""
    return np.sign(n - mu) * np.sqrt(2.0 * np.maximum(special.xlogy(n, n / mu) - n + mu, 0.0))


def spread(dispersion, pairs):
    """Standard deviation of deviance residuals by dispersion."""
    return np.sqrt(1.0 + (dispersion - 1.0) * pairs / (pairs + 10.0))


def log_probability(n, mu, sd):
    """Log probability of numbers of pairs whose deviance residuals have this standard deviation."""
    at_most = special.xlogy(n, n) - n - special.gammaln(n + 1.0)  # where mu = n
    return at_most - 0.5 * (deviance(n, mu) / sd) ** 2 - np.log(sd)


def draw_pairs(mu, pairs, matrix, dispersion, rng):
    """Numbers of pairs (tau,) where mu are expected."""
    sd = spread(dispersion, pairs)
    z = np.linalg.cholesky(matrix) @ rng.standard_normal(mu.size)
    return np.array([_pairs(*row) for row in zip(mu, sd, z, np.diag(matrix), strict=True)])


def _pairs(mu, sd, z, variance):
    """The number of pairs whose residual is sd z. Only pairs matter where theory's variance is 1; else the residual is
    partly that of the square root, which has a normal distribution of any variance."""
    if mu < FEW:
        n = np.arange(int(mu + 15.0 * np.sqrt(mu) + 30.0))
        share = np.cumsum(np.exp(log_probability(n, mu, sd)))
        return float(np.searchsorted(share / share[-1], stats.norm.cdf(z / np.sqrt(variance))))

    def beyond(n):
        return deviance(n, mu) / variance + (1.0 - 1.0 / variance) * 2.0 * (np.sqrt(n) - np.sqrt(mu)) - sd * z

    top = mu + 60.0 * sd * abs(z) * np.sqrt(mu) + 100.0 + (sd * z) ** 2
    return 0.0 if beyond(0.0) > 0 else optimize.brentq(beyond, 0.0, top, xtol=1e-6 * np.sqrt(mu), maxiter=1000)
