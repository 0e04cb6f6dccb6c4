"""Where the chains of a joint fit begin, and in which coordinates they move.

Of many draws from the prior of what the bins have in common, those are taken whose values lie nearest to the bins' own
least-squares fits. L-BFGS leads from each of them to the nearest mode. If these modes are not one, more draws are
tried: what the bins do not determine by themselves may send all the first ones astray. The curvature at the best mode
gives the preconditioner.

During this descent, scales that bins have in common (the scatter about a law, the spread of a distribution) are fixed
at a tenth, and the deviations of the bins begin at their most likely values given such a scale and the bins' own fits.
The density of such a model has no useful mode: it rises without bound as a scale goes to 0, and its curvature at any
point is misleading elsewhere. So here the preconditioner is diagonal, and a longer warm-up does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from bayesfit.compute.hardware import cores
from bayesfit.compute.workers import in_turn
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.deviations import DEVIATIONS
from bayesfit.posterior.joint import OWN, Joint, compiled, program_of
from bayesfit.posterior.joint import start_compiling as _start
from bayesfit.sample.least_squares import PointEstimate
from bayesfit.sample.preconditioner import Preconditioner, Start, bounded, root

PRIOR_DRAWS = 1024
LEAST_SD = 0.05  # of a bin's own fit, relative
UNKNOWN_SD = 10.0  # relative, if a bin's own fit has no finite sd
SMALL = -2.3  # log of a tenth, the first guess of a scale
STEP = 1e-5  # of the finite differences of gradients
HESSIAN_STEP = 1e-2  # of the finite differences for the Hessian, in sd of each coordinate
DESCENT = 300  # steps of L-BFGS, before it begins again in coordinates scaled by the curvature where it is
AGAIN = 3  # times that it may do so
HIGHEST = 1e30  # replaces a potential that is not finite during the descent
DENSE = 300  # dimensions up to which the preconditioner is a full matrix
HALVINGS = 8
BOUND = 8.0  # coordinate of a fitted value that lies on the edge of its prior
WORSE = 10.0  # nats: a chain whose mode is so far above the best one begins at the best one
ONE_MODE = 1.0  # nats by which the potentials of modes differ that are taken for one
FIRST = 6  # draws that are tried first, at least
MORE = 32  # draws that are tried if the first ones do not lead to one mode

Vector = Float[np.ndarray, " param"]
Vectors = Float[np.ndarray, "chain param"]
Slope = Callable[[Vector], tuple[float, Vector]]  # the potential and its gradient


def slopes(joint: Joint) -> Slope:
    """The compiled function that gives the potential and its gradient."""
    program = program_of(Joint.slope, joint, np.zeros(joint.dimensions))

    def slope(vector: Vector) -> tuple[float, Vector]:
        value, gradient = program(vector)
        return float(value), np.asarray(gradient)

    return slope


def start_compiling(joint: Joint, names: Iterable[str], hierarchical: bool, chains: int) -> None:
    """Begin to compile in the background, for least-squares fits that have parameters of these names."""
    _start(Joint.slope, joint, np.zeros(joint.dimensions))
    _start(prior_draws, joint, np.zeros((PRIOR_DRAWS, 2), np.uint32))
    count = _first_count(hierarchical, chains)
    positions = {name: np.zeros((count, *shape)) for name, shape in joint.sites}
    fitted = {name: np.zeros(joint.count) for name in names}
    _start(_with_own, joint, positions, fitted, np.zeros(joint.count), np.ones(count))


class Modes(NamedTuple):
    """Modes that chains begin at, and the potentials there."""

    z: Vectors
    potential: Float[np.ndarray, " chain"]

    @property
    def best(self) -> Vector:
        """The mode of the lowest potential."""
        return self.z[np.argmin(self.potential)]


def find_modes(joint: Joint, points: PointEstimate, hierarchical: bool, chains: int, seed: int) -> Modes:
    """A mode for each chain, the best ones found."""
    found = modes_from(joint, _starts(joint, points, _first_count(hierarchical, chains), seed))
    if not hierarchical and not np.ptp(found.potential) < ONE_MODE:
        others = modes_from(joint, _starts(joint, points, MORE, seed, together=True))
        found = Modes(*(np.concatenate(both) for both in zip(found, others, strict=True)))
    return _best(found, chains) if len(found.z) > chains else found


def _first_count(hierarchical: bool, chains: int) -> int:
    """How many draws are tried first."""
    return chains if hierarchical else max(chains, FIRST)


def start_about(joint: Joint, modes: Modes, hierarchical: bool, seed: int) -> Start:
    """One starting point for each chain, about its mode."""
    slope, sets, best = slopes(joint), _independent_sets(joint), modes.best
    noise = np.random.default_rng([seed, 1]).standard_normal(modes.z.shape)
    sd = bounded(_curvatures(slope, best, sets)) ** -0.5
    if not turned(joint, hierarchical):
        how = "modes given small scales, coordinates measured one by one" if hierarchical else "modes"
        return _about(slope, Preconditioner(best, sd), modes.z, _free(joint) * noise)._replace(how=how)
    preconditioner = Preconditioner(best, root(_hessian(slope, best, HESSIAN_STEP * sd)))
    return _about(slope, preconditioner, modes.z, noise)._replace(turned=True, how="modes and their curvature")


def turned(joint: Joint, hierarchical: bool) -> bool:
    """Whether the preconditioner is made from the full Hessian."""
    return not hierarchical and joint.dimensions <= DENSE


def _free(joint: Joint) -> Vector:
    """1 for each coordinate that descents move, 0 for scales."""
    return np.asarray(joint.vector({name: np.full(s, not is_scale(name), float) for name, s in joint.shapes.items()}))


def modes_from(joint: Joint, starts: Vectors) -> Modes:
    """The mode that each start leads to, and the potential there, which is infinite where it is not finite."""
    slope, sets, free = slopes(joint), _independent_sets(joint), _free(joint)
    modes = np.array(list(in_turn([partial(_descend, slope, start, free, sets) for start in starts], cores())))
    potentials = np.array([slope(mode)[0] for mode in modes])
    return Modes(modes, np.where(np.isfinite(potentials), potentials, np.inf))


def _best(modes: Modes, chains: int) -> Modes:
    """So many modes, from the best one to the worst one that counts."""
    order = np.argsort(modes.potential, kind="stable")
    counting = order[: max(1, np.sum(modes.potential < np.min(modes.potential) + WORSE))]
    chosen = counting[np.linspace(0, counting.size - 1, chains).round().astype(int)]
    return Modes(modes.z[chosen], modes.potential[chosen])


def _about(slope: Slope, preconditioner: Preconditioner, modes: Vectors, noise: Vectors) -> Start:
    """Starting points of the chains, drawn around the modes, which are given in z."""
    positions = zip(preconditioner.inverse(modes), noise, strict=True)
    u = np.array([_near(slope, preconditioner, *position) for position in positions])
    at = [slope(preconditioner.vector(position)) for position in u]
    gradient = [preconditioner.gradient(gradient) for _, gradient in at]
    return Start(preconditioner, u, np.array([value for value, _ in at]), np.array(gradient), False, "")


def _near(slope: Slope, preconditioner: Preconditioner, mode: Vector, noise: Vector) -> Vector:
    """A mode plus noise; the noise is halved until the potential is no higher than it would be for a normal
    distribution."""
    highest = slope(preconditioner.vector(mode))[0] + 2.0 * mode.size + 20.0
    for halving in range(HALVINGS):
        u = mode + noise * 0.5**halving
        if slope(preconditioner.vector(u))[0] < highest:
            return u
    return mode


def is_scale(name: str) -> bool:
    """Whether a coordinate of this name is a scale that bins have in common."""
    return name.endswith(("_scatter", "_spread"))


def _first_guess(name: str, z: Float[Array, ...]) -> Float[Array, ...]:
    """Deviations at coordinate 0, which is the most likely one, and small scales; other coordinates as they were
    drawn."""
    if name.endswith(DEVIATIONS):
        return jnp.zeros_like(z)
    return jnp.full_like(z, SMALL) if is_scale(name) else z


def prior_draws(joint: Joint, keys: UInt32[Array, "draw 2"]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Coordinates drawn from the prior of what the bins have in common, as first guesses, and the pooled values there;
    with a leading axis."""

    def one(key: UInt32[Array, " 2"]) -> tuple[dict[str, Array], dict[str, Array]]:
        _, handler = joint.run(key=jax.random.wrap_key_data(key))
        z = {name: _first_guess(name, z) for name, z in handler.z.items()}
        values, _ = joint.run(z)
        return z, values

    return jax.vmap(one)(keys)


def _starts(joint: Joint, points: PointEstimate, count: int, seed: int, *, together: bool = False) -> Vectors:
    """The positions of so many prior draws that are nearest to the bins' own fits: separately for each pooling, or in
    all poolings together."""
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(seed), PRIOR_DRAWS)))
    drawn, values = compiled(prior_draws, joint, keys)
    distances = [_distance(np.asarray(values[own.parameter]), points, own.parameter) for own in joint.poolings]
    if together:
        distances = [np.sum(distances, axis=0)] * len(distances)
    start: dict[str, Any] = {}
    for pooling, distance in zip(joint.poolings, distances, strict=True):
        best = np.argsort(distance, kind="stable")[:count]
        start |= {name: jnp.asarray(np.asarray(drawn[name])[best]) for name in joint.site_shapes((pooling,))}
    solution = {name: np.asarray(value) for name, value in points.solution.values.items()}
    return np.asarray(compiled(_with_own, joint, start, solution, np.asarray(points.solution.chi2), np.ones(count)))


def _distance(values: Float[np.ndarray, "draw bin"], points: PointEstimate, name: str) -> Float[np.ndarray, " draw"]:
    """The distance of pooled values from the bins' own fits, in their standard errors: the sum over bins of log(1 +
    r^2), as for a Cauchy distribution, so that bins far off count less; 0 if the fits do not have the parameter."""
    if name not in points.solution.values:
        return np.zeros(len(values))
    fitted, sd = np.asarray(points.solution.values[name]), np.asarray(points.solution.sd[name])
    if np.all(fitted > 0) and np.all(values > 0):
        values, fitted, sd = np.log(values), np.log(fitted), sd / fitted
    sd = np.where(np.isfinite(sd), np.maximum(sd, LEAST_SD), UNKNOWN_SD)
    return np.sum(np.log1p(((values - fitted) / sd) ** 2), axis=-1)


def _with_own(
    joint: Joint,
    start: dict[str, Array],
    solution: dict[str, Float[Array, " bin"]],
    chi2: Float[Array, " bin"],
    ones: Float[Array, " chain"],
) -> Float[Array, "chain param"]:
    """Positions made of these coordinates of the pooled parameters, and of the bins' own fits for all other
    parameters."""

    def one(z: dict[str, Array], _: Array) -> Float[Array, " param"]:
        pooled, _ = joint.run(z)
        own = jax.vmap(lambda bin, values, chi2: _own_coordinates(joint, bin, values, chi2))
        return joint.vector({**z, OWN: own(joint.at({**_shared(joint, solution), **pooled}), solution, chi2)})

    return jax.vmap(one)(start, ones)


def _shared(joint: Joint, solution: Mapping[str, Array]) -> dict[str, Array]:
    """The fitted values of the shared amplitudes that are integrated out."""
    return {name: solution[name] for name in (() if joint.amplitudes is None else joint.amplitudes.names)}


def _own_coordinates(
    joint: Joint, bin: Bin, values: dict[str, Array], chi2: Float[Array, ""]
) -> Float[Array, " param"]:
    rms = jnp.sqrt(chi2 / jnp.maximum(jnp.sum(bin.valid), 1))
    curve = joint.per_bin.unconstrain_curve({**values, **bin.fixed}, bin)
    noise = joint.per_bin.unconstrain_noise({**joint.per_bin.noise.start(rms, bin), **bin.fixed}, bin)
    return jnp.nan_to_num(jnp.concatenate([curve, noise]), posinf=BOUND, neginf=-BOUND)


def _independent_sets(joint: Joint) -> Float[np.ndarray, "set param"]:
    """Sets of coordinates, as vectors of 0 and 1. Given all others, the coordinates of a set are independent of each
    other, such as one parameter in different bins."""
    nothing = {name: np.zeros(shape) for name, shape in joint.shapes.items()}
    sets = [{name: np.ones(shape)} for name, shape in joint.shapes.items() if name != OWN]
    bins, parameters = joint.shapes[OWN]
    sets += [{OWN: np.tile(np.eye(parameters)[place], (bins, 1))} for place in range(parameters)]
    return np.array([joint.vector({**nothing, **chosen}) for chosen in sets])


def _curvatures(slope: Slope, z: Vector, sets: Float[np.ndarray, "set param"]) -> Vector:
    """The second derivative of the potential along each coordinate, by central differences for one set at a time."""
    rows = [chosen * (slope(z + STEP * chosen)[1] - slope(z - STEP * chosen)[1]) for chosen in sets]
    return np.sum(rows, axis=0) / (2.0 * STEP)


def _descend(slope: Slope, start: Vector, free: Vector, sets: Float[np.ndarray, "set param"]) -> Vector:
    """The mode that L-BFGS reaches from a start. Coordinates that are not `free` stay fixed."""
    for _ in range(1 + AGAIN):
        start, arrived = _descent(slope, start, free * bounded(_curvatures(slope, start, sets)) ** -0.5)
        if arrived:
            break
    return start


def _descent(slope: Slope, start: Vector, scale: Vector) -> tuple[Vector, bool]:
    """Where L-BFGS ends in coordinates of these scales, and whether it stays there."""
    from scipy.optimize import minimize

    def scaled(u: Vector) -> tuple[float, Vector]:
        value, gradient = slope(start + scale * u)
        return value if np.isfinite(value) else HIGHEST, np.nan_to_num(scale * gradient)

    with np.errstate(all="ignore"):
        found = minimize(scaled, np.zeros_like(start), jac=True, method="L-BFGS-B", options={"maxiter": DESCENT})
    lower = found.fun < scaled(np.zeros_like(start))[0]
    return (start + scale * found.x if lower else start), found.nit < DESCENT


def _hessian(slope: Slope, z: Vector, steps: Vector) -> Float[np.ndarray, "param param"]:
    """The second derivatives of the potential, by central differences of gradients."""
    rows = [(slope(z + step)[1] - slope(z - step)[1]) / (2.0 * step.sum()) for step in np.diag(steps)]
    return 0.5 * (np.array(rows) + np.array(rows).T)
