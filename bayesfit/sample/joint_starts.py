"""Where the chains of a joint fit begin, and in which coordinates they move.

Of many prior draws of what the bins have in common those are taken whose values lie nearest to the bins' own
least-squares fits, and each goes downhill to the nearest mode. There the curvature makes the coordinates round.

Scales that bins have in common (the scatter about a law, the spread of a distribution) are held at a tenth on the way,
from the bins' values that such a scale and their own fits make likely: the density of such a model has no useful mode,
and its curvature at any point misleads elsewhere. The coordinates are then measured one by one, and a longer warm-up
does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.deviations import DEVIATIONS
from bayesfit.posterior.joint import OWN, Joint, compiled, program_of
from bayesfit.sample.least_squares import PointEstimate

SCOUTS = 1024
LEAST_SD = 0.05  # of a bin's own fit, relative
SMALL = -2.3  # log of a tenth, the first guess of a scale
STEP = 1e-5  # of the finite differences of gradients
DESCENT = 300  # steps of L-BFGS
HIGHEST = 1e30  # what stands for a potential that is not finite on the way down
DENSE = 300  # dimensions up to which the coordinates are turned, and not only stretched
CURVATURE = 0.1, 1e14  # bounds; priors have a curvature of about 1
LONGEST = 3.0  # sd in any direction, for the same reason
HALVINGS = 8
BOUND = 8.0  # coordinate of a fitted value that lies on the edge of its prior
WORSE = 10.0  # nats above the best mode at which a chain begins there instead

Array = np.ndarray
Slope = Callable[[Array], tuple[float, Array]]  # the potential and its gradient


class Frame(NamedTuple):
    """Round coordinates u: vector = centre + root u, or root * u, where `root` has shape (dimension,)."""

    centre: Any
    root: Any

    def vector(self, u: Any) -> Any:
        """Coordinates (..., dimension) of the posterior."""
        turned = u @ self.root.T if self.root.ndim == 2 else u * self.root
        return self.centre + turned


class Start(NamedTuple):
    """`u` (chain, dimension): where each chain begins in its `frame`, with `potential` (chain,) and `gradient` (chain,
    dimension) there; `turned` where the frame is that of a mode's whole curvature; `how`, in words."""

    frame: Frame
    u: Array
    potential: Array
    gradient: Array
    turned: bool
    how: str


def slopes(joint: Joint) -> Slope:
    """The compiled potential and its gradient, at a vector (dimension,)."""
    joint = jax.device_put(joint, jax.local_devices()[0])
    program = program_of(Joint.slope, joint, np.zeros(joint.dimensions))

    def slope(vector: Array) -> tuple[float, Array]:
        value, gradient = program(joint, vector)
        return float(value), np.asarray(gradient)

    return slope


def find_start(joint: Joint, points: PointEstimate, hierarchical: bool, chains: int, seed: int) -> Start:
    """Begin one chain at each of the best places found."""
    free = np.asarray(joint.vector({name: np.full(s, not is_scale(name), float) for name, s in joint.shapes.items()}))
    slope, colours = slopes(joint), _colours(joint)
    modes = [_descend(slope, start, free, colours) for start in _nearest(joint, points, chains, seed)]
    potentials = np.array([slope(mode)[0] for mode in modes])
    best = modes[int(np.argmin(np.where(np.isfinite(potentials), potentials, np.inf)))]
    found, noise = np.array(modes), np.random.default_rng([seed, 1]).standard_normal((chains, best.size))
    if not hierarchical:
        near = np.where(np.isfinite(potentials), potentials, np.inf) < np.nanmin(potentials) + WORSE
        found = np.where(near[:, None], found, best)
    sd = _bounded(_diagonal(slope, best, colours)) ** -0.5
    if hierarchical or best.size > DENSE:
        frame = Frame(best, sd)
        how = "modes given small scales, coordinates measured one by one" if hierarchical else "modes"
        return _begun(slope, frame, _inverse(frame, found), free * noise, False, how)
    frame = Frame(best, _root(_hessian(slope, best, 1e-2 * sd)))
    return _begun(slope, frame, _inverse(frame, found), noise, True, "modes and their curvature")


def _begun(slope: Slope, frame: Frame, modes: Array, noise: Array, turned: bool, how: str) -> Start:
    """Chains that begin about their modes (chain, dimension)."""
    u = np.array([_near(slope, frame, *one) for one in zip(modes, noise, strict=True)])
    at = [slope(frame.vector(one)) for one in u]
    gradient = [g @ frame.root if frame.root.ndim == 2 else g * frame.root for _, g in at]
    return Start(frame, u, np.array([value for value, _ in at]), np.array(gradient), turned, how)


def _near(slope: Slope, frame: Frame, mode: Array, noise: Array) -> Array:
    """A mode and some noise, halved until the potential there is no higher than a normal distribution would have it."""
    highest = slope(frame.vector(mode))[0] + 2.0 * mode.size + 20.0
    for halving in range(HALVINGS):
        u = mode + noise * 0.5**halving
        if slope(frame.vector(u))[0] < highest:
            return u
    return mode


def is_scale(name: str) -> bool:
    """Whether a coordinate of this name is a scale that bins have in common."""
    return name.endswith(("_scatter", "_spread"))


def _first_guess(name: str, z: Any) -> Any:
    """Deviations in the middle of what is likely, and small scales; other coordinates as drawn."""
    if name.endswith(DEVIATIONS):
        return jnp.zeros_like(z)
    return jnp.full_like(z, SMALL) if is_scale(name) else z


def scout(joint: Joint, keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Coordinates drawn from the prior of what the bins have in common, as first guesses, and the pooled values there;
    with a leading axis."""

    def one(key: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        _, handler = joint.run(key=jax.random.wrap_key_data(key))
        z = {name: _first_guess(name, z) for name, z in handler.z.items()}
        values, _ = joint.run(z)
        return z, values

    return jax.vmap(one)(keys)


def _nearest(joint: Joint, points: PointEstimate, chains: int, seed: int) -> Array:
    """Vectors (chain, dimension) of the scouts that are nearest to the bins' own fits, each pooling by itself."""
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(seed), SCOUTS)))
    scouts, values = compiled(scout, joint, keys)
    start: dict[str, Any] = {}
    for pooling in joint.poolings:
        off = _distance(np.asarray(values[pooling.parameter]), points, pooling.parameter)
        best = np.argsort(off, kind="stable")[:chains]
        start |= {name: jnp.asarray(np.asarray(scouts[name])[best]) for name in joint.site_shapes((pooling,))}
    solution = {name: np.asarray(value) for name, value in points.solution.values.items()}
    return np.asarray(compiled(_with_own, joint, start, solution, np.asarray(points.solution.chi2), np.ones(chains)))


def _distance(values: Array, points: PointEstimate, name: str) -> Array:
    """How far pooled values (scout, q_bin) are from the bins' own fits, in their errors: a sum over bins in which far
    ones count less (Cauchy); 0 for a parameter that the fits do not have."""
    if name not in points.solution.values:
        return np.zeros(len(values))
    middle, sd = np.asarray(points.solution.values[name]), np.asarray(points.solution.sd[name])
    if np.all(middle > 0) and np.all(values > 0):
        values, middle, sd = np.log(values), np.log(middle), sd / middle
    sd = np.where(np.isfinite(sd), np.maximum(sd, LEAST_SD), 10.0)
    return np.sum(np.log1p(((values - middle) / sd) ** 2), axis=-1)


def _with_own(joint: Joint, start: dict[str, Any], solution: dict[str, Any], chi2: Any, ones: Any) -> Any:
    """Vectors (chain, dimension): these coordinates, and those of the bins' own parameters from their fits."""

    def one(z: dict[str, Any], _: Any) -> Any:
        pooled, _ = joint.run(z)
        own = jax.vmap(lambda bin, values, chi2: _own_coordinates(joint, bin, values, chi2))
        return joint.vector({**z, OWN: own(joint.at({**_shared(joint, solution), **pooled}), solution, chi2)})

    return jax.vmap(one)(start, ones)


def _shared(joint: Joint, solution: Mapping[str, Any]) -> dict[str, Any]:
    return {name: solution[name] for name in (() if joint.amplitudes is None else joint.amplitudes.names)}


def _own_coordinates(joint: Joint, bin: Bin, values: dict[str, Any], chi2: Any) -> Any:
    rms = jnp.sqrt(chi2 / jnp.maximum(jnp.sum(bin.valid), 1))
    curve = joint.per_bin.unconstrain_curve({**values, **bin.fixed}, bin)
    noise = joint.per_bin.unconstrain_noise({**joint.per_bin.noise.start(rms, bin), **bin.fixed}, bin)
    return jnp.nan_to_num(jnp.concatenate([curve, noise]), posinf=BOUND, neginf=-BOUND)


def _colours(joint: Joint) -> Array:
    """Sets (set, dimension) of coordinates of which no two depend on each other: those of different bins."""
    nothing = {name: np.zeros(shape) for name, shape in joint.shapes.items()}
    sets = [{name: np.ones(shape)} for name, shape in joint.shapes.items() if name != OWN]
    bins, parameters = joint.shapes[OWN]
    sets += [{OWN: np.tile(np.eye(parameters)[place], (bins, 1))} for place in range(parameters)]
    return np.array([joint.vector({**nothing, **chosen}) for chosen in sets])


def _diagonal(slope: Slope, vector: Array, colours: Array) -> Array:
    """Second derivatives (dimension,) of the potential, one coordinate at a time."""
    rows = [colour * (slope(vector + STEP * colour)[1] - slope(vector - STEP * colour)[1]) for colour in colours]
    return np.sum(rows, axis=0) / (2.0 * STEP)


def _bounded(curvature: Array) -> Array:
    return np.clip(np.nan_to_num(np.abs(curvature), nan=1.0, posinf=1.0), *CURVATURE)


def _descend(slope: Slope, start: Array, free: Array, colours: Array) -> Array:
    """From a start (dimension,) down to a mode, coordinates that are not `free` held, each measured by the curvature at
    the start."""
    scale = free * _bounded(_diagonal(slope, start, colours)) ** -0.5

    def stretched(u: Array) -> tuple[float, Array]:
        value, gradient = slope(start + scale * u)
        return value if np.isfinite(value) else HIGHEST, np.nan_to_num(scale * gradient)

    with np.errstate(all="ignore"):
        found = minimize(stretched, np.zeros_like(start), jac=True, method="L-BFGS-B", options={"maxiter": DESCENT})
    return start + scale * found.x if found.fun < stretched(np.zeros_like(start))[0] else start


def _hessian(slope: Slope, vector: Array, steps: Array) -> Array:
    """Second derivatives (dimension, dimension) of the potential, by central differences of gradients."""
    rows = [(slope(vector + step)[1] - slope(vector - step)[1]) / (2.0 * step.sum()) for step in np.diag(steps)]
    return 0.5 * (np.array(rows) + np.array(rows).T)


def _root(hessian: Array) -> Array:
    """A root (dimension, dimension) of the inverse of a matrix, made positive, whatever the units; no column longer
    than priors allow."""
    scale = _bounded(np.diagonal(hessian)) ** -0.5
    values, vectors = np.linalg.eigh(np.nan_to_num(hessian * scale * scale[:, None]))
    root = scale[:, None] * vectors * np.clip(np.abs(values), 1e-8, None) ** -0.5
    return root * np.minimum(1.0, LONGEST / np.linalg.norm(root, axis=0))


def _inverse(frame: Frame, vectors: Array) -> Array:
    off = vectors - frame.centre
    return np.linalg.solve(frame.root, off.T).T if frame.root.ndim == 2 else off / frame.root
