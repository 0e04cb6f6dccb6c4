"""Checks of a pooling in a joint fit: its curve over q, the distance of every bin from it, and whether these distances
refute it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from bayesfit.diagnose.interval import ENDS
from bayesfit.diagnose.profile_likelihood import Pooled, Profiled, Starts, profiled
from bayesfit.diagnose.residual_checks import NUMBERS, numbers_of, refuted
from bayesfit.diagnose.rules import LEAST_P
from bayesfit.posterior.deviations import DEVIATIONS
from bayesfit.posterior.joint import Joint
from bayesfit.posterior.pooling_interface import Pooling
from bayesfit.posterior.pooling_scales import Scale
from bayesfit.sample.draws import Draws
from bayesfit.sample.least_squares import PointEstimate

CURVE_POINTS = 100
LARGEST_TELLING_SD = 2.0  # of a bin's own value, on the pooling's scale; with a larger sd, a bin alone says nothing

OfBins = Float[np.ndarray, " q_bin"]
Arrays = dict[str, np.ndarray]


class Fit(NamedTuple):
    """What the checks of its poolings need of a joint fit: its posterior; `q` of the bins, NaN where unknown, has unit
    1/angstrom; the bins' least-squares `points` and their degrees of `freedom`; the `draws` of the bins, and those of
    what they have in `common`, name to (chain, draw, ...)."""

    joint: Joint
    q: OfBins
    points: PointEstimate
    freedom: Int[np.ndarray, " q_bin"]
    draws: Draws
    common: Arrays


class Checked(NamedTuple):
    """The checks of one pooling in the bins that were used.

    `q` and `curve`: mean and central 95 % band of the law without scatter, or of what stands in its place, over q.
    `common`: the common value in each bin. `residual`: the bins' distances from it, standard normal where the pooling
    holds; NaN where the pooling agrees with any values. `own`: the bins' own values, each at the maximum of its profile
    likelihood, with 95 % intervals. `numbers`: see `NUMBERS`.
    """

    pooling: Pooling
    q: Float[np.ndarray, " point"]
    curve: Float[np.ndarray, "3 point *group"]
    common: OfBins
    residual: OfBins
    own: Float[np.ndarray, "3 q_bin"]
    numbers: dict[str, float]


class InCommon(NamedTuple):
    """What the bins have in common by one pooling: `curve` over the grid, see `Checked`; its `value` in each bin, at
    the mean on the `scale` on which distances from it are measured, and the `place` of that mean on the scale."""

    pooling: Pooling
    curve: Float[np.ndarray, "3 point *group"]
    scale: Scale
    value: OfBins
    place: OfBins

    @property
    def can_be_refuted(self) -> bool:
        """Whether bins may be far from it: a pooling may agree with any values."""
        return self.pooling.refutation is not None and bool(np.all(np.isfinite(self.value)))


def check_poolings(fit: Fit) -> list[Checked]:
    """The checks of each pooling of a joint fit."""
    grid = np.geomspace(fit.q.min(), fit.q.max(), CURVE_POINTS) if np.all(fit.q > 0) else np.full(2, np.nan)
    all_common = [_common(pooling, grid, fit) for pooling in fit.joint.all_poolings]
    scales = {common.pooling.parameter: common.scale for common in all_common if common.can_be_refuted}
    return [_checked(common, grid, scales, fit) for common in all_common]


def _common(pooling: Pooling, grid: Float[np.ndarray, " point"], fit: Fit) -> InCommon:
    drawn = pooling.drawn(fit.q, grid, fit.draws.values[pooling.parameter], _finite(fit.common))
    curve = np.stack([drawn.curve.mean(axis=0), *np.quantile(drawn.curve, ENDS, axis=0)])
    scale, prior = pooling.residual_scale(drawn.bins), fit.joint.priors[pooling.parameter]
    place = np.mean(scale.to(drawn.bins, prior), axis=0)
    value = np.asarray(scale.back(place, prior))
    return InCommon(pooling, curve, scale, value, np.asarray(scale.to(value, prior)))


def _checked(common: InCommon, grid: Float[np.ndarray, " point"], scales: dict[str, Scale], fit: Fit) -> Checked:
    """The check of one pooling; `scales` are those of all poolings that can be refuted, by parameter."""
    pooling, curve, scale, value, place = common
    if not common.can_be_refuted:
        nothing = np.full((4, value.size), np.nan)
        return Checked(pooling, grid, curve, value, nothing[0], nothing[1:], dict.fromkeys(NUMBERS, np.nan))
    found = _profiled(pooling, scales, value, fit)
    residual = found.residual / _wrong_errors(fit)
    telling = np.where(found.sd < LARGEST_TELLING_SD, found.sd, np.nan)
    sds = (0.0, *special.ndtri(ENDS))
    own = [scale.back(place + found.distance + sd * telling, fit.joint.priors[pooling.parameter]) for sd in sds]
    numbers = numbers_of(residual, _inferred(pooling, fit.joint), fit.q)
    return Checked(pooling, grid, curve, value, residual, np.stack([np.asarray(array) for array in own]), numbers)


def pooling_refuted(checked: Checked, bins: Int[np.ndarray, " q_bin"]) -> str:
    """In words what refutes a pooling, with the bins that are farthest off; "" where nothing does."""
    refutation = checked.pooling.refutation
    return "" if refutation is None else refuted(*refutation, checked.numbers, checked.residual, bins)


def _finite(common: Arrays) -> Arrays:
    """Draws (sample, ...) of what the bins have in common, without those that were not made; one of NaN where none
    was."""
    flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in common.items()}
    made = np.all([np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in flat.values()], axis=0)
    made[0] |= not made.any()
    return {name: array[made] for name, array in flat.items()}


def _profiled(pooling: Pooling, scales: dict[str, Scale], common: OfBins, fit: Fit) -> Profiled:
    """The profile likelihood of the pooled parameter in each bin, with all that the bins have in common at its
    posterior mean."""
    means = {name: np.nanmean(values, axis=(1, 2)) for name, values in fit.draws.values.items()}
    values = {other.parameter: means[other.parameter] for other in fit.joint.all_poolings}
    sd = fit.common.get(pooling.scatter_site or "")
    scatter = 0.0 if sd is None else float(np.nanmean(sd))
    unknown = np.full(common.size, np.nan)
    solution = fit.points.solution
    starts = Starts(
        {name: means[name] for name in fit.joint.per_bin.names},
        np.asarray(solution.values.get(pooling.parameter, unknown)),
        np.asarray(solution.sd.get(pooling.parameter, unknown)),
    )
    pooled = Pooled(pooling.parameter, values | {pooling.parameter: common}, scales, scatter)
    return profiled(fit.joint, pooled, starts)


def _wrong_errors(fit: Fit) -> OfBins:
    """The factor by which residuals are too large where the noise model takes the stated errors as they are and the
    bin's own best curve refutes these: the square root of its reduced chi-square; else 1."""
    chi2 = np.asarray(fit.points.solution.chi2)
    if fit.joint.per_bin.noise.parameters:
        return np.ones(chi2.size)
    wrong = special.chdtrc(fit.freedom, chi2) < LEAST_P
    return np.where(wrong, np.sqrt(chi2 / fit.freedom), 1.0)


def _inferred(pooling: Pooling, joint: Joint) -> int:
    """How many numbers the pooling infers, the bins' own deviations not counted."""
    shapes = joint.site_shapes((pooling,))
    return sum(int(np.prod(shape)) for name, shape in shapes.items() if not name.endswith(DEVIATIONS))
