"""Where the chains of a joint fit begin, and in which coordinates they move.

Of many prior draws of what the bins have in common those are taken whose values lie nearest to the bins' own
least-squares fits, and each goes downhill to the nearest mode. There the curvature makes the coordinates round.

Scales that bins have in common (the scatter about a law, the spread of a distribution) are held at a tenth on the way,
with no deviations at its beginning: the density of such a model has no useful mode, and its curvature at any point
misleads elsewhere. The coordinates are then measured one by one, and a longer warm-up does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix

from bayesfit._joint import OWN, Joint, compiled
from bayesfit._point import PointEstimate
from bayesfit._posterior import Bin

SCOUTS = 1024
LEAST_SD = 0.05  # of a bin's own fit, relative
SMALL = -2.3  # log of a tenth, the first guess of a scale
STEP = 1e-5  # of the finite differences of gradients
DESCENT, MEMORY = 300, 20  # steps of L-BFGS, and how many it remembers
TOLERANCE = 1e-6
DENSE = 300  # dimensions up to which the coordinates are turned, and not only stretched
CURVATURE = 1e-2, 1e14  # bounds; priors have a curvature of about 1
WORSE = 10.0  # nats above the best mode at which a chain begins there instead

Array = np.ndarray


class Frame(NamedTuple):
    """Round coordinates u: vector = centre + root u, or root * u, where `root` has shape (dimension,)."""

    centre: Any
    root: Any

    def vector(self, u: Any) -> Any:
        """Coordinates (..., dimension) of the posterior."""
        turned = u @ self.root.T if self.root.ndim == 2 else u * self.root
        return self.centre + turned


class Start(NamedTuple):
    """`u` (chain, dimension): where each chain begins in its `frame`; `turned` where the frame is that of a mode's
    whole curvature; `how`, in words."""

    frame: Frame
    u: Array
    turned: bool
    how: str


def find_start(joint: Joint, points: PointEstimate, hierarchical: bool, chains: int, seed: int) -> Start:
    """Begin one chain at each of the best places found."""
    free = np.asarray(joint.vector({name: jnp.full(s, not is_scale(name), float) for name, s in joint.shapes.items()}))
    first = _nearest(joint, points, chains, seed)
    modes, potentials, curvature = map(np.asarray, compiled(_descend, joint, jnp.asarray(first), free, _colours(joint)))
    best = int(np.nanargmin(potentials)) if np.isfinite(potentials).any() else 0
    noise = np.random.default_rng([seed, 1]).standard_normal(modes.shape)
    if not hierarchical:
        near = np.where(np.isfinite(potentials), potentials, np.inf) < potentials[best] + WORSE
        modes = np.where(near[:, None], modes, modes[best])
    if hierarchical or joint.dimensions > DENSE:
        frame = Frame(modes[best], _bounded(curvature[best]) ** -0.5)
        how = "modes given small scales, coordinates measured one by one" if hierarchical else "modes"
        return Start(frame, _inverse(frame, modes) + free * noise, False, how)
    frame = Frame(modes[best], _root(np.asarray(compiled(_hessian, joint, modes[best], curvature[best]))))
    return Start(frame, _inverse(frame, modes) + noise, True, "modes and their curvature")


def is_scale(name: str) -> bool:
    """Whether a coordinate of this name is a scale that bins have in common."""
    return name.endswith(("_scatter", "_spread"))


def _first_guess(name: str, z: Any) -> Any:
    """No deviations, and small scales; other coordinates as drawn."""
    if name.endswith("_unit"):
        return jnp.zeros_like(z)
    return jnp.full_like(z, SMALL) if is_scale(name) else z


def scout(joint: Joint, keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Coordinates drawn from the prior of what the bins have in common, as first guesses, and the linked values there;
    with a leading axis."""

    def one(key: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        _, handler = joint.run(key=jax.random.wrap_key_data(key))
        z = {name: _first_guess(name, z) for name, z in handler.z.items()}
        values, _ = joint.run(z)
        return z, values

    return jax.vmap(one)(keys)


def _nearest(joint: Joint, points: PointEstimate, chains: int, seed: int) -> Array:
    """Vectors (chain, dimension) of the scouts that are nearest to the bins' own fits, each link by itself."""
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(seed), SCOUTS)))
    scouts, values = compiled(scout, joint, keys)
    start: dict[str, Any] = {}
    for link in joint.links:
        off = _distance(np.asarray(values[link.parameter]), points, link.parameter)
        best = np.argsort(off, kind="stable")[:chains]
        start |= {name: jnp.asarray(np.asarray(scouts[name])[best]) for name in joint.site_shapes((link,))}
    solution = {name: np.asarray(value) for name, value in points.solution.values.items()}
    return np.asarray(compiled(_with_own, joint, start, solution, np.asarray(points.solution.chi2), np.ones(chains)))


def _distance(values: Array, points: PointEstimate, name: str) -> Array:
    """How far linked values (scout, q_bin) are from the bins' own fits, in their errors: a sum over bins in which far
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
        linked, _ = joint.run(z)
        own = jax.vmap(lambda bin, values, chi2: _own_coordinates(joint, bin, values, chi2))
        return joint.vector({**z, OWN: own(joint.at({**_shared(joint, solution), **linked}), solution, chi2)})

    return jax.vmap(one)(start, ones)


def _shared(joint: Joint, solution: Mapping[str, Any]) -> dict[str, Any]:
    return {name: solution[name] for name in (() if joint.amplitudes is None else joint.amplitudes.names)}


def _own_coordinates(joint: Joint, bin: Bin, values: dict[str, Any], chi2: Any) -> Any:
    rms = jnp.sqrt(chi2 / jnp.maximum(jnp.sum(bin.valid), 1))
    curve = joint.own.unconstrain_curve({**values, **bin.fixed}, bin)
    noise = joint.own.unconstrain_noise({**joint.own.noise.start(rms, bin), **bin.fixed}, bin)
    return jnp.nan_to_num(jnp.concatenate([curve, noise]))


def _colours(joint: Joint) -> Array:
    """Sets (set, dimension) of coordinates of which no two depend on each other: those of different bins."""
    nothing = {name: np.zeros(shape) for name, shape in joint.shapes.items()}
    sets = [{name: np.ones(shape)} for name, shape in joint.shapes.items() if name != OWN]
    bins, parameters = joint.shapes[OWN]
    sets += [{OWN: np.tile(np.eye(parameters)[place], (bins, 1))} for place in range(parameters)]
    return np.array([joint.vector({**nothing, **chosen}) for chosen in sets])


def _gradient(joint: Joint) -> Any:
    return jax.grad(lambda vector: joint.potential(joint.point(vector)))


def _diagonal(joint: Joint, vector: Any, colours: Any) -> Any:
    """Second derivatives (dimension,) of the potential, one coordinate at a time."""
    gradient = _gradient(joint)

    def one(colour: Any) -> Any:
        return colour * (gradient(vector + STEP * colour) - gradient(vector - STEP * colour)) / (2.0 * STEP)

    return jnp.sum(jax.lax.map(one, colours), axis=0)


def _bounded(curvature: Any) -> Any:
    return jnp.clip(jnp.nan_to_num(jnp.abs(curvature), nan=1.0, posinf=1.0), *CURVATURE)


def _descend(joint: Joint, starts: Any, free: Any, colours: Any) -> tuple[Any, Any, Any]:
    """From each start (chain, dimension) down to a mode, coordinates that are not `free` held: where, the potential
    there, and the second derivatives."""
    solver: Any = optimistix.LBFGS(rtol=TOLERANCE, atol=TOLERANCE, history_length=MEMORY)

    def potential(u: Any, frame: Frame) -> Any:
        return joint.potential(joint.point(frame.vector(free * u)))

    def one(start: Any) -> tuple[Any, Any, Any]:
        frame = Frame(start, _bounded(_diagonal(joint, start, colours)) ** -0.5)
        found = optimistix.minimise(
            potential, solver, jnp.zeros_like(start), args=frame, max_steps=DESCENT, throw=False
        ).value
        better = potential(found, frame) < potential(jnp.zeros_like(start), frame)
        vector = frame.vector(jnp.where(better, free * found, 0.0))
        return vector, joint.potential(joint.point(vector)), _diagonal(joint, vector, colours)

    return jax.lax.map(one, starts)


def _hessian(joint: Joint, vector: Any, curvature: Any) -> Any:
    """Second derivatives (dimension, dimension) of the potential, by central differences of gradients a hundredth of a
    standard deviation apart."""
    gradient, steps = _gradient(joint), 1e-2 * _bounded(curvature) ** -0.5

    def one(step: Any) -> Any:
        return (gradient(vector + step) - gradient(vector - step)) / (2.0 * jnp.sum(step))

    found = jax.lax.map(one, jnp.diag(steps))
    return 0.5 * (found + found.T)


def _root(hessian: Array) -> Array:
    """A root (dimension, dimension) of the inverse of a matrix, made positive, whatever the units."""
    scale = np.asarray(_bounded(np.diagonal(hessian))) ** -0.5
    values, vectors = np.linalg.eigh(np.nan_to_num(hessian * scale * scale[:, None]))
    return scale[:, None] * vectors * np.clip(np.abs(values), 1e-8, None) ** -0.5


def _inverse(frame: Frame, vectors: Array) -> Array:
    off = vectors - frame.centre
    return np.linalg.solve(frame.root, off.T).T if frame.root.ndim == 2 else off / frame.root
