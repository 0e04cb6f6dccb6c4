"""A fast approximation to a joint posterior: a normal distribution fitted to it by variational inference.

NumPyro's SVI maximises the evidence lower bound (ELBO) with optax's Adam, in the preconditioned coordinates in which
the chains would begin (Kucukelbir et al., J. Mach. Learn. Res. 18, 14 (2017)). The fitted distribution is not the
posterior: variances come out too small where the posterior is not normal in these coordinates. How far off it is, is
measured by the Pareto k of its importance ratios (Yao et al., ICML (2018)): above 0.7 not even its means are to be
trusted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal

from bayesfit.compute.devices import on_one_device
from bayesfit.compute.work import Progress, Report
from bayesfit.sample.draws import STATS, Arrays, Draws
from bayesfit.sample.joint_nuts import NORMAL, JointData, by_bin
from bayesfit.sample.joint_starts import DENSE
from bayesfit.sample.numpyro_nuts import CONSTRAINED_TOGETHER, TREE_DEPTH, constrained
from bayesfit.sample.preconditioner import Preconditioner, Start
from bayesfit.sample.target import LargeTarget, Target

STEPS, PARTICLES = 2000, 8
LEARNING_RATE = 0.03
FIRST_SCALE = 0.5
LARGEST_K = 0.7


class Approximation(NamedTuple):
    """Draws from the fitted normal distribution, what bins have in common, and the Pareto k of the importance
    ratios."""

    draws: Draws
    common: Arrays
    k: float


class Fitted(NamedTuple):
    """Draws u of a fitted normal distribution, the log density of the target there, up to a constant, and its own."""

    u: Float[Array, "draw param"]
    log_target: Float[Array, " draw"]
    log_normal: Float[Array, " draw"]


def approximate(large: LargeTarget, start: Start, draws: int, report: Report) -> Approximation:
    """As many independent draws from the fitted normal distribution as chains would keep."""
    report(Progress("variational fit", large.bins, 0))
    chains, target = len(start.u), large.target
    static = target, STEPS, chains * draws
    found: Fitted = on_one_device(_fit, large.data, start.preconditioner, static=static, identity=target.identity)
    u, log_target, log_normal = map(np.asarray, found)
    values, common = constrained(large, start.preconditioner, u.reshape(draws, chains, -1), draws)
    stats = {name: np.full((large.bins, chains, draws), not_made) for name, not_made in STATS.items()}
    stats["potential"][:] = stats["energy"][:] = -log_target.reshape(draws, chains).T
    one, not_assessed = np.ones(large.bins, int), np.full((large.bins, 3), np.nan)
    report(Progress("variational fit", large.bins, large.bins))
    record = Draws(by_bin(values), stats, draws * one, one, one, TREE_DEPTH * one, not_assessed)
    return Approximation(record, common, pareto_k(log_target - log_normal))


def pareto_k(log_ratios: Float[np.ndarray, " draw"]) -> float:
    """The Pareto k of importance ratios, as ArviZ fits it."""
    from arviz_stats.base.array import array_stats

    _, k = array_stats.psislw(-log_ratios)
    return float(k)


def _fit(data: JointData, preconditioner: Preconditioner, target: Target, steps: int, count: int) -> Fitted:
    """Fit a normal distribution to the target, and draw from it."""
    import optax
    from numpyro.optim import optax_to_numpyro

    shape = preconditioner.location.shape

    def log_density(u: Float[Array, " param"]) -> Float[Array, ""]:
        with numpyro.handlers.block():  # hides its sites from the guide
            return -target.potential(preconditioner.vector(u), data)

    def program() -> None:
        flat = dist.ImproperUniform(dist.constraints.real_vector, (), shape)
        numpyro.factor("density", log_density(numpyro.sample("u", flat)))

    make: Any = AutoMultivariateNormal if shape[0] <= DENSE else AutoDiagonalNormal
    guide = make(program, init_loc_fn=init_to_value(values={"u": jnp.zeros(shape)}), init_scale=FIRST_SCALE)
    rate = optax.cosine_decay_schedule(LEARNING_RATE, steps, alpha=0.01)
    svi = SVI(program, guide, optax_to_numpyro(optax.adam(rate)), Trace_ELBO(num_particles=PARTICLES))
    begin, draw = jax.random.split(data.key_for(NORMAL))
    state, _ = jax.lax.scan(lambda state, _: svi.stable_update(state), svi.init(begin), length=steps)
    fitted = guide.get_posterior(svi.get_params(state))
    u = fitted.sample(draw, (count,))
    return Fitted(u, jax.lax.map(log_density, u, batch_size=CONSTRAINED_TOGETHER), fitted.log_prob(u))
