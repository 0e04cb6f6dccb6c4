"""Does each bin agree with what the bins have in common? The profile likelihood of the pooled parameter, bin by bin.

In each bin in turn the pooled parameter may differ from the common value by d, while all that the bins have in common
stays at its posterior mean. With f(d) the lowest potential of the bin over its own other parameters, the residual is
the signed root of a likelihood ratio,

    r^2 = 2 (min over d of [f(d) + d^2 / (2 s^2)] - min over d of f(d)),

where s is the scatter that the pooling allows; without any, the first term is f(0). Where f is a parabola of width w,
r = d / sqrt(w^2 + s^2). It is the same in every parametrisation. Unlike the distance of a least-squares fit in its
standard errors it knows the noise model, and it is small where a bin says little. Where the pooling holds, the
residuals are standard normal, and the sum of their squares is a chi-square with one degree of freedom per bin, less one
for each number that the pooling infers (Wilks, Ann. Math. Stat. 9, 60 (1938)); a little less than that, since what
other poolings infer is kept constant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayesfit.compute.hardware import cores
from bayesfit.compute.workers import in_turn
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.coordinates import Values
from bayesfit.posterior.joint import Joint, compiled, program_of
from bayesfit.posterior.pooling_scales import Scale

CLOSE = {"ftol": 1e-13, "gtol": 1e-5}  # of the minimum
NUDGE = 1e-3  # of the finite differences, in units of the coordinates
WIDTHS = (1e-3, 1.0)  # smallest and largest guess of a bin's own width, on the pooling's scale
FARTHEST = 10.0  # distance from the common value up to which a bin's own value is searched for

OfBins = Float[np.ndarray, " q_bin"]
Host = np.ndarray
Slope = Callable[[Host], tuple[float, Host]]  # a function's value and gradient


class Pooled(NamedTuple):
    """The parameter whose profile likelihood is wanted; the `values` of every pooled parameter in each bin (q_bin,), by
    name; the `scales` on which distances are measured, of this parameter and of all others that are profiled, which
    have one program; and the `scatter` that the pooling allows on its scale, 0 for none."""

    parameter: str
    values: dict[str, OfBins]
    scales: dict[str, Scale]
    scatter: float


class Starts(NamedTuple):
    """Where to start: the bins' own other parameters, name to (q_bin,), and `guess` of the pooled parameter in each bin
    with its standard error `sd`, NaN where there is none."""

    own: dict[str, OfBins]
    guess: OfBins
    sd: OfBins


class Given(NamedTuple):
    """`Starts` as a program takes them, and the place of the parameter among all that may be profiled."""

    own: Values
    guess: OfBins
    sd: OfBins
    parameter: Host


class Profiled(NamedTuple):
    """The maximum of each bin's profile likelihood: its `distance` from the common value, on the pooling's scale; the
    `sd` by the curvature there, NaN where that is not positive; and the `residual`, the signed root of the likelihood
    ratio."""

    distance: OfBins
    sd: OfBins
    residual: OfBins


Measures = tuple[tuple[str, Scale], ...]  # what may be profiled, and the scales on which distances are measured


class Where(NamedTuple):
    """The arguments of one bin's potential that stay as they are: the place of the parameter among all that may be
    profiled and that of the bin, the `width` in which the distance is measured, and the weight of that distance's
    standard normal prior."""

    parameter: int | Int[Array, ""]
    place: int | Int[Array, ""]
    width: float | Float[Array, ""]
    penalty: float | Float[Array, ""]


def profiled(joint: Joint, pooled: Pooled, starts: Starts) -> Profiled:
    """The profile likelihood of one pooled parameter in every bin."""
    static = (tuple(pooled.scales.items()),)
    parameter = list(pooled.scales).index(pooled.parameter)
    given = Given(starts.own, starts.guess, starts.sd, np.array(parameter))
    found = compiled(_coordinates, joint, pooled.values, given, static=static)
    own, distances, widths = map(np.asarray, found)
    first = np.concatenate([[0.0], own[0]])

    def at(place: int, width: float, penalty: float) -> Slope:
        where = Where(parameter, place, width, penalty)
        program = program_of(_slope, joint, pooled.values, where, first, static=static)

        def slope(x: Host) -> tuple[float, Host]:
            value, gradient = program(x)
            return float(value), np.asarray(gradient)

        return slope

    widths = np.clip(np.nan_to_num(widths, nan=WIDTHS[1]), *WIDTHS)
    distances = np.clip(np.nan_to_num(distances), -FARTHEST, FARTHEST)

    def of_bin(place: int) -> tuple[float, float, float]:
        width = float(widths[place])
        pulled, free = at(place, pooled.scatter, 1.0), at(place, width, 0.0)
        x, sd, residual = _likelihood_ratio(pulled, free, own[place], distances[place] / width)
        return width * x, width * sd, residual

    rows = list(in_turn([partial(of_bin, place) for place in range(len(own))], cores()))
    return Profiled(*np.reshape(rows, (-1, 3)).T)


def _coordinates(
    joint: Joint, pooled: Values, given: Given, measures: Measures
) -> tuple[Float[Array, "q_bin param"], Float[Array, " q_bin"], Float[Array, " q_bin"]]:
    """Coordinates of each bin's own parameters, and the guess as a distance from the common value, with its sd."""

    def one(bin: Bin, own: Values, guess: Any, sd: Any) -> tuple[Array, Array, Array]:
        values = {**own, **bin.fixed}
        z = joint.per_bin.unconstrain_curve(values, bin), joint.per_bin.unconstrain_noise(values, bin)

        def distance(name: str, scale: Scale) -> tuple[Array, Array]:
            to = partial(scale.to, prior=joint.priors[name])
            return to(guess) - to(bin.fixed[name]), sd * jnp.abs(jax.grad(to)(guess))

        distances, sds = zip(*(distance(*measure) for measure in measures), strict=True)
        return jnp.concatenate(z), jnp.stack(distances)[given.parameter], jnp.stack(sds)[given.parameter]

    return jax.vmap(one)(joint.at(pooled), given.own, given.guess, given.sd)


def _slope(
    joint: Joint, pooled: Values, where: Where, x: Float[Array, " coordinate"], measures: Measures
) -> tuple[Float[Array, ""], Float[Array, " coordinate"]]:
    """One bin's potential and its gradient, at the distance x[0], in units of the width, and the bin's own coordinates
    x[1:]."""
    bin = jax.tree.map(lambda array: array[where.place], joint.at(pooled))

    def moved(place: int, name: str, scale: Scale, distance: Float[Array, ""]) -> Float[Array, ""]:
        prior, common, chosen = joint.priors[name], bin.fixed[name], where.parameter == place
        middle, shift = (jnp.where(chosen, own, 0.0) for own in (scale.to(common, prior), where.width * distance))
        return jnp.where(chosen, scale.back(middle + shift, prior), common)

    def potential(x: Float[Array, " coordinate"]) -> Float[Array, ""]:
        values = {measure[0]: moved(place, *measure, x[0]) for place, measure in enumerate(measures)}
        there = bin._replace(fixed={**bin.fixed, **values})
        return joint.per_bin.potential(x[1:], there) + 0.5 * where.penalty * x[0] ** 2

    return jax.value_and_grad(potential)(x)


def _likelihood_ratio(pulled: Slope, free: Slope, z: Host, guess: float) -> tuple[float, float, float]:
    """Distance, its sd and the residual of one bin.

    Args:
        pulled, free: the potential with and without the pooling's prior of the distance, each in its own width.
        z: the bin's own coordinates to start from; `guess`: a distance, in the width of `free`.
    """
    with np.errstate(all="ignore"):
        at_common, highest = _lowest(pulled, np.concatenate([[0.0], z]))
        starts = (np.concatenate([[first], at_common[1:]]) for first in (0.0, guess))
        x, lowest = min((_lowest(free, start) for start in starts), key=lambda found: found[1])
        root = np.sqrt(2.0 * max(highest - lowest, 0.0))
        return x[0], _sd(free, x), np.sign(x[0]) * root


def _lowest(slope: Slope, start: Host) -> tuple[Host, float]:
    """The minimum of a function near a start, and its value there. SciPy's BFGS would set filters of warnings, which
    threads that run side by side cannot."""
    from scipy.optimize import minimize

    found = minimize(slope, start, jac=True, method="L-BFGS-B", options=CLOSE)
    before, _ = slope(start)
    return (found.x, float(found.fun)) if found.fun < before else (start, before)


def _sd(slope: Slope, x: Host) -> float:
    """Standard deviation of the first coordinate of the normal with the function's curvature at x, from differences of
    its gradient, which must not be differentiated again; NaN where the curvature is not positive."""
    steps = NUDGE * np.eye(x.size)
    rows = np.array([(slope(x + step)[1] - slope(x - step)[1]) / (2.0 * NUDGE) for step in steps])
    try:
        root = np.linalg.cholesky(0.5 * (rows + rows.T))
    except np.linalg.LinAlgError:
        return np.nan
    return float(np.linalg.norm(np.linalg.solve(root, np.eye(x.size)[0])))
