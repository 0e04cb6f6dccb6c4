"""One posterior over all bins, for parameters that are linked across them.

The density is the product of the bins' own, amplitudes integrated out bin by bin, at values that the links give, times
the prior of what the bins have in common. It has up to some hundred dimensions and is one of a kind, so that NumPyro's
NUTS samples it, with an adapted metric, all chains side by side.

Chains start from prior draws of what the bins have in common: those whose values lie nearest to the bins' own
least-squares fits, with no scatter about the law and a spread of a tenth. Curvatures there mislead where scales are
inferred, so that the metric is left to the warm-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

from bayesfit import _convergence
from bayesfit._across import Link
from bayesfit._errors import SettingsError
from bayesfit._keys import AMPLITUDES, key_for
from bayesfit._point import PointEstimate
from bayesfit._posterior import Bin, Coordinates, Override, Posterior
from bayesfit._prepare import Problem
from bayesfit._sample import LARGEST_RHAT, LEAST_ESS, STATS, Draws
from bayesfit._work import Progress, Report

WARMUP = 500
TARGET_ACCEPT = 0.8
DENSE = 30  # dimensions up to which the metric is dense
THINNINGS = (1, 2, 4, 8)
SCOUTS = 1024
LEAST_SD = 0.05
SMALL = -2.3  # log of a tenth, the first guess of a scale
FIELDS = ("potential_energy", "energy", "num_steps", "accept_prob", "adapt_state.step_size", "diverging")

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Joint:
    """The joint posterior of some bins. `own` is the posterior of one bin given the linked values; `priors`: link to
    the prior that its parameter would have in one bin, and `given`: priors of what the bins have in common."""

    own: Posterior
    bins: Bin
    links: tuple[Link, ...]
    priors: Mapping[str, Any]
    given: Mapping[str, dist.Distribution]
    fixed: Mapping[str, float]

    @property
    def count(self) -> int:
        """How many bins there are."""
        return len(self.bins.y)

    def linked(self) -> dict[str, Any]:
        """The links' program: samples what the bins have in common; the value of each linked parameter (q_bin,)."""
        return {link.parameter: link.values(self.priors[link.parameter]) for link in self.links}

    def run(self, z: dict[str, Any] | None = None, key: Any = None) -> tuple[dict[str, Any], Coordinates]:
        """Linked values at coordinates `z` by name, or at a draw from the prior."""
        handler = Coordinates(Override(self.linked, dict(self.fixed), dict(self.given)), z=z, key=key)
        return handler(), handler

    def potential(self, point: dict[str, Any]) -> Any:
        """Minus the log density at a point: coordinates by name of what the bins have in common, and those of the bins
        themselves, "_own" (q_bin, param)."""
        values, handler = self.run({name: z for name, z in point.items() if name != "_own"})
        each = jax.vmap(lambda z, bin, fixed: self.own.potential(z, _at(bin, fixed)))
        potential = jnp.sum(each(point["_own"], self.bins, values)) - handler.log_density
        return jnp.where(jnp.isnan(potential), jnp.inf, potential)


def _at(bin: Bin, values: Mapping[str, Any]) -> Bin:
    return bin._replace(fixed={**bin.fixed, **values})


def joint_posterior(
    problem: Problem,
    bins: Bin,
    links: tuple[Link, ...],
    given: Mapping[str, dist.Distribution],
    fixed: Mapping[str, float],
) -> Joint:
    """The joint posterior of these bins; `given` and `fixed` are priors and values of what the bins have in common.

    Raises:
        SettingsError: a prior cannot be shared, or nothing is left to sample.
    """
    names = {link.parameter for link in links}
    whole = problem.posterior
    own = replace(
        whole,
        families=tuple((name, family) for name, family in whole.families if name not in names),
        fixed=(*whole.fixed, *sorted(names)),
        curve_names=tuple(name for name in whole.curve_names if name not in names),
        noise_names=tuple(name for name in whole.noise_names if name not in names),
    )
    bins = jax.tree.map(jnp.asarray, bins)
    bins = bins._replace(log_constant=jnp.asarray(own.log_constant(jax.tree.map(np.asarray, bins))))
    joint = Joint(own, bins, links, _own_priors(whole, bins, links), given, fixed)
    if not _dimensions(joint):
        raise SettingsError("nothing is left to sample", field="fixed", remedy="Leave a parameter of the law free")
    return joint


def _own_priors(posterior: Posterior, bins: Bin, links: tuple[Link, ...]) -> dict[str, Any]:
    """The prior that each linked parameter has in every bin.

    Raises:
        SettingsError: it differs between bins, or depends on other parameters; a law does not ask for it.
    """
    ends = [jax.tree.map(lambda array, place=place: array[place], bins) for place in (0, -1)]
    traces = [
        numpyro.handlers.trace(numpyro.handlers.seed(posterior.overridden(posterior.parameters, bin), seed)).get_trace(
            bin
        )
        for seed, bin in enumerate(ends)
    ]
    found = {}
    for link in links:
        one, other = (trace[link.parameter]["fn"] for trace in traces)
        pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
        if link.kind != "law" and not all(np.array_equal(a, b) for a, b in pairs):
            raise SettingsError(
                "its prior is not the same in all bins, or depends on other parameters",
                field=f"across.{link.parameter}",
                remedy=f"Give one in priors.{link.parameter}",
            )
        found[link.parameter] = one
    return found


def sample_joint(
    joint: Joint, points: PointEstimate, keys: np.ndarray, chains: int, draws: int, seed: int, report: Report
) -> tuple[Draws, Arrays]:
    """Draws of every parameter of every bin, and of what the bins have in common (chain, draw, ...). A run whose worst
    parameter has not converged goes on to chains of twice the length, of which every second draw is kept, and so on."""
    kernel = NUTS(
        potential_fn=joint.potential, dense_mass=_dimensions(joint) <= DENSE, target_accept_prob=TARGET_ACCEPT
    )
    key, scouting = jax.random.split(jax.random.key(seed))
    state, start = None, _starts(joint, points, chains, scouting)
    for thin in THINNINGS:
        report(Progress("all bins together", joint.count, 0, 0, draws))
        run = MCMC(
            kernel,
            num_warmup=WARMUP,
            num_samples=draws * thin,
            thinning=thin,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        run.post_warmup_state = state
        run.run(key if state is None else state.rng_key, init_params=start, extra_fields=FIELDS)
        state, found = run.last_state, run.get_samples(group_by_chain=True)
        convergence = _convergence.worst(_series(found))
        if convergence[0] <= LARGEST_RHAT and min(convergence[1:]) >= LEAST_ESS:
            break
    values, common = _values(joint, found, keys)
    stats = _stats(run.get_extra_fields(group_by_chain=True), joint.count)
    each = (joint.count, 1)
    made = Draws(
        values,
        stats,
        done=np.full(joint.count, draws),
        thin=np.full(joint.count, thin),
        adaptations=np.ones(joint.count, int),
        convergence=np.tile(convergence, each),
    )
    report(Progress("all bins together", joint.count, joint.count, draws, draws, convergence[0], share=1.0))
    return made, common


def _dimensions(joint: Joint) -> int:
    _, handler = joint.run(key=jax.random.key(0))
    return sum(int(np.size(z)) for z in handler.z.values()) + joint.count * len(joint.own.names)


def _series(found: dict[str, Any]) -> np.ndarray:
    """All coordinates as series (series, chain, draw)."""
    parts = [np.asarray(z).reshape(*z.shape[:2], -1) for z in found.values()]
    return np.moveaxis(np.concatenate(parts, axis=-1), -1, 0)


def _stats(extra: dict[str, Any], count: int) -> Arrays:
    """The sampler's statistics (bin, chain, draw), the same for all bins."""
    names = dict(
        zip(FIELDS, ("potential", "energy", "n_steps", "acceptance_rate", "step_size", "diverging"), strict=True)
    )
    made = {names[name]: np.asarray(array) for name, array in extra.items()}
    shape = (count, *made["potential"].shape)
    return {
        name: np.broadcast_to(made.get(name, np.zeros(shape[1:])).astype(np.asarray(nothing).dtype), shape).copy()
        for name, nothing in STATS.items()
    }


def _starts(joint: Joint, points: PointEstimate, chains: int, key: Any) -> dict[str, Any]:
    """Where the chains start: the coordinates (chain, ...) of a point each."""

    def scout(key: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        _, handler = joint.run(key=key)
        z = {name: _first_guess(name, z) for name, z in handler.z.items()}
        values, _ = joint.run(z)
        return z, values

    scouts, values = jax.jit(jax.vmap(scout))(jax.random.split(key, SCOUTS))
    start: dict[str, Any] = {}
    for link in joint.links:
        off = _distance(np.asarray(values[link.parameter]), points, link.parameter)
        best = np.argsort(off, kind="stable")[:chains]
        own = {name for name in scouts if name in _sites_of(joint, link)}
        start |= {name: jnp.asarray(scouts[name][best]) for name in own}
    each = [joint.run({name: z[chain] for name, z in start.items()})[0] for chain in range(chains)]
    start["_own"] = jnp.stack([_own_start(joint, points, one) for one in each])
    return start


def _first_guess(name: str, z: Any) -> Any:
    """No deviations, and small scales; other coordinates as drawn."""
    if name.endswith("_unit"):
        return jnp.zeros_like(z)
    return jnp.full_like(z, SMALL) if name.endswith(("_scatter", "_spread")) else z


def _sites_of(joint: Joint, link: Link) -> set[str]:
    """Names of the sites that one link samples."""
    _, handler = replace(joint, links=(link,)).run(key=jax.random.key(0))
    return set(handler.z)


def _distance(values: np.ndarray, points: PointEstimate, name: str) -> np.ndarray:
    """How far linked values (scout, q_bin) are from the bins' own fits, in their errors: a sum over bins in which far
    ones count less (Cauchy); 0 for a parameter that the fits do not have."""
    if name not in points.solution.values:
        return np.zeros(len(values))
    middle, sd = np.asarray(points.solution.values[name]), np.asarray(points.solution.sd[name])
    if np.all(middle > 0) and np.all(values > 0):
        values, middle, sd = np.log(values), np.log(middle), sd / middle
    sd = np.where(np.isfinite(sd), np.maximum(sd, LEAST_SD), 10.0)
    return np.sum(np.log1p(((values - middle) / sd) ** 2), axis=-1)


def _own_start(joint: Joint, points: PointEstimate, linked: Mapping[str, Any]) -> Any:
    """Coordinates (q_bin, param) of the bins' own parameters, from their least-squares fits."""
    solution = points.solution

    def one(bin: Bin, values: Any, chi2: Any, fixed: Any) -> Any:
        bin = _at(bin, fixed)
        rms = jnp.sqrt(chi2 / jnp.maximum(jnp.sum(bin.valid), 1))
        noise = {**joint.own.noise.start(rms, bin), **bin.fixed}
        curve = joint.own.unconstrain_curve({**values, **bin.fixed}, bin)
        return jnp.concatenate([curve, joint.own.unconstrain_noise(noise, bin)])

    values = {name: jnp.asarray(value) for name, value in solution.values.items()}
    return jnp.nan_to_num(jax.vmap(one)(joint.bins, values, jnp.asarray(solution.chi2), dict(linked)))


def _values(joint: Joint, found: dict[str, Any], keys: np.ndarray) -> tuple[Arrays, Arrays]:
    """Every parameter of every bin (bin, chain, draw), amplitudes drawn, and what the bins have in common (chain, draw,
    ...), from coordinates (chain, draw, ...)."""
    shape = found["_own"].shape[:2]
    flat = {name: jnp.reshape(z, (shape[0] * shape[1], *z.shape[2:])) for name, z in found.items()}
    own = jnp.moveaxis(flat.pop("_own"), 1, 0)

    def common(z: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        values, handler = joint.run(z)
        return values, handler.values

    linked, shared = jax.jit(jax.vmap(common))(flat)

    def one(arguments: tuple[Any, ...]) -> dict[str, Any]:
        bin, z, fixed, key = arguments
        each = jax.random.split(key_for(key, AMPLITUDES), len(z))
        made = jax.vmap(lambda z, fixed, key: joint.own.constrain(z, _at(bin, fixed), key))(z, fixed, each)
        return {**made, **fixed}

    by_bin = {name: jnp.moveaxis(value, 1, 0) for name, value in linked.items()}
    made = jax.jit(lambda *arguments: jax.lax.map(one, arguments))(joint.bins, own, by_bin, jnp.asarray(keys))
    return (
        {name: np.asarray(value).reshape(joint.count, *shape) for name, value in made.items()},
        {name: np.asarray(value).reshape(*shape, *value.shape[1:]) for name, value in shared.items()},
    )
