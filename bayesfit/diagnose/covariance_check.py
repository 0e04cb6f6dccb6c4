"""Theory's covariance of counted pairs against the one that was measured, by what each makes of a parameter's error.

A fit with theory's weights is, near its solution, the linear estimator a = C J^T T^-1 y, with C the covariance of the
posterior, J the derivatives of the curve, and T theory's covariance of the points y. If T is right its data noise has
the covariance C J^T T^-1 J C; if the measured covariance S is, it is C J^T T^-1 S T^-1 J C. The root of the ratio of
their diagonals is by how much theory's error of a parameter is too small. With S from n samples and T right, n - 1
times the square of the ratio is a chi-square variable of n - 1 degrees of freedom. In a joint fit the other bins are
part of a bin's prior, so C is again that of the posterior, and the ratio is of the noise that the bin's own data bring.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from bayesfit.compute.devices import Spread, named, take
from bayesfit.data.covariance import FEWEST_SAMPLES
from bayesfit.diagnose.outcome import Outcome
from bayesfit.modelling.neighbour_whitening import whitening_matrix
from bayesfit.modelling.photon_layout import WEIGHTS
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.photon_noise import of_bins

LARGEST_RATIO = 1.3
LEAST_P = 5e-3
OfBins = Float[np.ndarray, " q_bin"]


class SdRatios(NamedTuple):
    """By parameter name, the measured over theory's sd of each bin, NaN where none was measured; and in words what is
    wrong with a bin, "" if nothing is."""

    ratios: dict[str, OfBins]
    words: list[str]


def sd_ratios(outcome: Outcome) -> SdRatios:
    """The ratios of all bins of a fit with noise "photons"; there are none without a measured covariance."""
    measured = "g2_cov" in outcome.curves and "cov_samples" in outcome.curves
    if outcome.problem.counting is None or not measured or not outcome.draws.values:
        return SdRatios({}, [""] * outcome.bins)
    samples = outcome.curves.cov_samples.values
    places = np.flatnonzero((samples >= FEWEST_SAMPLES) & (outcome.draws.done > 1))
    posterior = outcome.problem.posterior
    names = [*posterior.curve_names, *posterior.marginal]
    found = np.full((outcome.bins, len(names)), np.nan)
    if places.size:
        draws = {name: array[places] for name, array in outcome.draws.values.items()}
        bins, made = take(outcome.problem.bins, places), outcome.draws.done[places]
        middle = {name: _means(array, made) for name, array in draws.items()}
        weighted, precision = of_bins(_program(posterior, tuple(names)), bins, middle)
        for row, place in enumerate(places):
            own = np.array([draws[name][row][:, : made[row]].ravel() for name in names])
            found[place] = _ratio(
                outcome, int(place), np.cov(own).reshape(2 * (len(names),)), weighted[row], precision[row]
            )
    return SdRatios(dict(zip(names, found.T, strict=True)), _words(names, found, samples))


def _means(array: Float[np.ndarray, "bin chain draw"], made: np.ndarray) -> OfBins:
    return np.array([row[:, :count].mean() for row, count in zip(array, made, strict=True)])


def _ratio(
    outcome: Outcome, place: int, posterior: np.ndarray, weighted: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    """The ratios (param,) of one bin, from the covariance of its posterior, J^T T^-1 (param, tau) and J^T T^-1 J."""
    covariance = outcome.curves.g2_cov.values[place]
    valid = outcome.curves.valid.values[place]
    valid = valid & (np.diagonal(covariance) > 0)
    weights = posterior @ weighted[:, : valid.size][:, valid]
    by_data = np.einsum("pt,ts,ps->p", weights, covariance[np.ix_(valid, valid)], weights)
    by_theory = np.einsum("pq,qr,pr->p", posterior, precision, posterior)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(by_data / by_theory)


@lru_cache(maxsize=32)
def _program(posterior: Posterior, names: tuple[str, ...]) -> Spread:
    """J^T T^-1 per unit of g2 (param, tau), and J^T T^-1 J (param, param), at the values of all parameters."""

    def one(bin: Bin, values: dict[str, Float[Array, ""]]) -> tuple[Array, Array]:
        vector = jnp.stack([values[name] for name in names])

        def standardised(vector: Array) -> Array:
            at = {**bin.fixed, **values, **dict(zip(names, vector, strict=True))}
            return posterior.mean(at, bin) * bin.inverse_error

        dispersion = bin.fixed.get("dispersion", values.get("dispersion", 1.0))
        root = jnp.where(bin.valid[:, None], whitening_matrix(bin.layout[:, WEIGHTS:]), 0.0)
        jacobian = jax.jacfwd(standardised)(vector)
        white = root @ jacobian
        return (white.T @ root) * bin.inverse_error / dispersion, white.T @ white / dispersion

    return Spread(one, named("sd_ratios", f"{posterior.identity} {names}" if posterior.identity else None))


def _words(names: list[str], found: Float[np.ndarray, "q_bin param"], samples: OfBins) -> list[str]:
    """What is wrong with each bin, by its own ratios or by those of all bins together."""
    freedom = np.where(np.isfinite(found), np.maximum(samples - 1.0, 1.0)[:, None], 0.0)
    square = np.nansum(freedom * np.nan_to_num(found) ** 2, axis=0)
    total = freedom.sum(axis=0)
    pooled = np.sqrt(square / np.maximum(total, 1.0))
    everywhere = _disputed(pooled, total)
    words = []
    for row, own in zip(found, freedom, strict=True):
        here = _disputed(row, own)
        ratios, where = (row, "") if here.any() else (pooled, " in all bins together")
        each = [f"{names[i]} {ratios[i]:.2f}" for i in np.flatnonzero(here if here.any() else everywhere)]
        known = np.isfinite(row).any() and each
        words.append(
            f"the measured covariance of g2 gives larger errors than theory's{where}, by the factors {', '.join(each)}"
            if known
            else ""
        )
    return words


def _disputed(ratio: Float[np.ndarray, " param"], freedom: Float[np.ndarray, " param"]) -> np.ndarray:
    """Where a ratio is too large, and not by chance; Bonferroni's correction is for several parameters."""
    with np.errstate(invalid="ignore"):
        p = special.chdtrc(np.maximum(freedom, 1.0), freedom * ratio**2)
        return (ratio > LARGEST_RATIO) & (p * ratio.size < LEAST_P) & (freedom > 0)
