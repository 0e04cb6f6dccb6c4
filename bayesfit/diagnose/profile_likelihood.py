"""Does each bin agree with what the bins have in common? Every bin is freed in turn: the pooled parameter takes the
bin's own best value, while all that the bins have in common stays at its posterior mean.

With f(d) the lowest potential of a bin whose value lies d from the common one, over the bin's own other coordinates,
the residual is the signed root of a likelihood ratio, r^2 = 2 (min over d of [f(d) + d^2 / (2 s^2)] - min over d of
f(d)), where s is the scatter that the pooling allows; without any, the first term is f(0). Where f is a parabola of width
w this is d / sqrt(w^2 + s^2), and it is the same in every parametrisation. It knows the noise model, as the distance of
a least-squares fit in its standard errors does not, and it is small where a bin says little. Where the pooling holds, the
residuals are standard normal, and the sum of their squares is a chi-square with one degree of freedom a bin, less one
for each number that the pooling infers (Wilks, Ann. Math. Stat. 9, 60 (1938)); a little less than that, since what other
poolings infer is held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from bayesfit.posterior.coordinates import Values, to_coordinate
from bayesfit.posterior.density import Bin
from bayesfit.posterior.joint import Joint, compiled, program_of
from bayesfit.posterior.pooling import constrained

NUDGE = 1e-3  # of the finite differences, in units of the coordinates
UNITS = (1e-3, 1.0)  # of the distance from the common value: a guess of the bin's own width
FARTHEST = 10.0  # distance at which own values are looked for

Array = np.ndarray
Arrays = dict[str, Array]
Slope = Callable[[Array], tuple[float, Array]]  # a function's value and gradient


class Freed(NamedTuple):
    """What bins say when they are freed, (q_bin,): `distance` of the bin's own value from the common one, on the pooling's
    scale; `sd` of it, from the curvature there, NaN where that is no minimum; `residual`, the signed root of the
    likelihood ratio."""

    distance: Array
    sd: Array
    residual: Array


def scale_to(kind: str, joint: Joint, parameter: str, value: Any) -> Any:
    """A parameter's value on the scale of this kind: "log", "plain", or "pooled", that of its prior's coordinate."""
    if kind == "pooled":
        return to_coordinate(joint.priors[parameter], value)
    return jnp.log(value) if kind == "log" else value


def scale_back(kind: str, joint: Joint, parameter: str, z: Any) -> Any:
    """The value where a parameter is at z on the scale of this kind."""
    if kind == "pooled":
        return constrained(joint.priors[parameter], z)
    return jnp.exp(z) if kind == "log" else z


def freed_bins(
    joint: Joint,
    pooled: Arrays,
    parameter: str,
    kind: str,
    scatter: float,
    own: Arrays,
    guess: tuple[Array, Array],
) -> Freed:
    """Every bin freed in one parameter.

    Args:
        pooled: every pooled parameter's value in each bin (q_bin,), by name.
        kind: the parameter's scale.
        scatter: the sd on it that the pooling allows; 0 where it allows none.
        own: the bins' own other parameters (q_bin,) to start from.
        guess: the bins' own values and their standard errors (q_bin,) to start from; NaN where there is none.
    """
    static = parameter, kind
    starts, distances, units = map(np.asarray, compiled(_starts, joint, pooled, own, guess, static=static))
    joint, pooled = jax.device_put((joint, pooled), jax.local_devices()[0])
    first = np.concatenate([[0.0], starts[0]])
    program = program_of(_slope, joint, pooled, first, 0, 1.0, 1.0, static=static)

    def at(place: int, unit: float, penalty: float) -> Slope:
        def slope(x: Array) -> tuple[float, Array]:
            value, gradient = program(joint, pooled, x, place, unit, penalty)
            return float(value), np.asarray(gradient)

        return slope

    units = np.clip(np.nan_to_num(units, nan=UNITS[1]), *UNITS)
    distances = np.clip(np.nan_to_num(distances), -FARTHEST, FARTHEST)
    rows = []
    for place, (z, distance, unit) in enumerate(zip(starts, distances, units, strict=True)):
        x, sd, residual = _freed(at(place, scatter, 1.0), at(place, unit, 0.0), z, distance / unit)
        rows.append((unit * x, unit * sd, residual))
    return Freed(*np.reshape(rows, (-1, 3)).T)


def _starts(joint: Joint, pooled: Values, own: Values, guess: tuple[Any, Any], parameter: str, kind: str) -> Any:
    """Coordinates of each bin's own parameters, and the guess as a distance from the common value, with its sd."""

    def one(own: Values, bin: Bin, guess: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        values = {**own, **bin.fixed}
        z = joint.own.unconstrain_curve(values, bin), joint.own.unconstrain_noise(values, bin)

        def to(value: Any) -> Any:
            return scale_to(kind, joint, parameter, value)

        distance = to(guess[0]) - to(bin.fixed[parameter])
        return jnp.concatenate(z), distance, guess[1] * jnp.abs(jax.grad(to)(guess[0]))

    return jax.vmap(one)(own, joint.at(pooled), guess)


def _slope(
    joint: Joint, pooled: Values, x: Any, place: Any, unit: Any, penalty: Any, parameter: str, kind: str
) -> tuple[Any, Any]:
    """One bin's potential and its gradient, at the distance x[0] in this unit and the bin's own coordinates x[1:]; with
    the prior of that distance where the unit is the pooling's scatter."""
    bin = jax.tree.map(lambda array: array[place], joint.at(pooled))

    def potential(x: Any) -> Any:
        middle = scale_to(kind, joint, parameter, bin.fixed[parameter])
        value = scale_back(kind, joint, parameter, middle + unit * x[0])
        there = bin._replace(fixed={**bin.fixed, parameter: value})
        return joint.own.potential(x[1:], there) + 0.5 * penalty * x[0] ** 2

    return jax.value_and_grad(potential)(x)


def _freed(held: Slope, free: Slope, z: Array, guess: float) -> tuple[float, float, float]:
    """Distance, its sd and the residual of one bin, from where its own coordinates are with the common value."""
    with np.errstate(all="ignore"):
        at_common, highest = _lowest(held, np.concatenate([[0.0], z]))
        starts = (np.concatenate([[first], at_common[1:]]) for first in (0.0, guess))
        x, lowest = min((_lowest(free, start) for start in starts), key=lambda found: found[1])
        root = np.sqrt(2.0 * max(highest - lowest, 0.0))
        return x[0], _sd(free, x), np.sign(x[0]) * root


def _lowest(slope: Slope, start: Array) -> tuple[Array, float]:
    """Where a function is lowest near a start, and its value there."""
    found = minimize(slope, start, jac=True, method="BFGS")
    before, _ = slope(start)
    return (found.x, float(found.fun)) if found.fun < before else (start, before)


def _sd(slope: Slope, x: Array) -> float:
    """Standard deviation of the first coordinate of the normal with the function's curvature at x, from differences of
    its gradient, which must not be differentiated again; NaN where the curvature is not positive."""
    steps = NUDGE * np.eye(x.size)
    rows = np.array([(slope(x + step)[1] - slope(x - step)[1]) / (2.0 * NUDGE) for step in steps])
    try:
        root = np.linalg.cholesky(0.5 * (rows + rows.T))
    except np.linalg.LinAlgError:
        return np.nan
    return float(np.linalg.norm(np.linalg.solve(root, np.eye(x.size)[0])))
