"""A quick look at a joint posterior: a normal distribution fitted to it by variational inference.

NumPyro's SVI maximises the evidence's lower bound with optax's Adam, in the round coordinates in which the chains
would begin (Kucukelbir et al., J. Mach. Learn. Res. 18, 14 (2017)). It is no posterior: variances come out too small
where the posterior is no normal in these coordinates. How far it is off is measured by the Pareto k of its importance
ratios (Yao et al., ICML (2018)): above 0.7 even its means are not to be trusted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal
from numpyro.optim import optax_to_numpyro

from bayesfit.compute.work import Progress, Report
from bayesfit.posterior.joint import Joint, compiled
from bayesfit.sample.draws import STATS, Draws
from bayesfit.sample.joint_nuts import TREE_DEPTH, values_at
from bayesfit.sample.joint_starts import DENSE, Frame, Start

STEPS, PARTICLES = 2000, 8
LEARNING_RATE = 0.03
FIRST_SCALE = 0.5
LARGEST_K = 0.7

Arrays = dict[str, np.ndarray]


class Look(NamedTuple):
    """What came of it: draws, what bins have in common, and the Pareto k of the importance ratios."""

    draws: Draws
    common: Arrays
    k: float


def look_at(joint: Joint, start: Start, keys: np.ndarray, draws: int, seed: int, report: Report) -> Look:
    """Independent draws from the fitted normal, as many as chains would keep."""
    report(Progress("variational fit", joint.count, 0))
    chains = len(start.u)
    key_data = np.asarray(jax.random.key_data(jax.random.fold_in(jax.random.key(seed), 2)))
    found = compiled(_fit, joint, start.frame, key_data, static=(STEPS, chains * draws))
    u, log_p, log_q = map(np.asarray, found)
    values, common = values_at(joint, start.frame, u.reshape(draws, chains, -1), draws, draws, keys, seed)
    shape = (joint.count, chains, draws)
    stats = {name: np.full(shape, nothing) for name, nothing in STATS.items()}
    stats["potential"][:] = stats["energy"][:] = -log_p.reshape(draws, chains).T
    one = np.ones(joint.count, int)
    nothing_known = np.full((joint.count, 3), np.nan)
    report(Progress("variational fit", joint.count, joint.count))
    return Look(
        Draws(values, stats, draws * one, one, one, TREE_DEPTH * one, nothing_known), common, pareto_k(log_p - log_q)
    )


def pareto_k(log_ratios: np.ndarray) -> float:
    """The Pareto k of importance ratios (draw,), as ArviZ fits it."""
    from arviz_stats.base.array import array_stats

    _, k = array_stats.psislw(-log_ratios)
    return float(k)


def _fit(joint: Joint, frame: Frame, key_data: Any, steps: int, count: int) -> tuple[Any, Any, Any]:
    """Draws (count, dimension) of round coordinates, their log density, and that of the normal fitted to it."""
    shape = frame.centre.shape

    def log_density(u: Any) -> Any:
        with numpyro.handlers.block():  # its sites are none of the guide's
            return -joint.potential(joint.point(frame.vector(u)))

    def program() -> None:
        flat = dist.ImproperUniform(dist.constraints.real_vector, (), shape)
        numpyro.factor("density", log_density(numpyro.sample("u", flat)))

    make = AutoMultivariateNormal if shape[0] <= DENSE else AutoDiagonalNormal
    guide = make(program, init_loc_fn=init_to_value(values={"u": jnp.zeros(shape)}), init_scale=FIRST_SCALE)
    rate = optax.cosine_decay_schedule(LEARNING_RATE, steps, alpha=0.01)
    svi = SVI(program, guide, optax_to_numpyro(optax.adam(rate)), Trace_ELBO(num_particles=PARTICLES))
    begin, draw = jax.random.split(jax.random.wrap_key_data(key_data))
    state, _ = jax.lax.scan(lambda state, _: svi.stable_update(state), svi.init(begin), length=steps)
    fitted = guide.get_posterior(svi.get_params(state))
    u = fitted.sample(draw, (count,))
    return u, jax.lax.map(log_density, u, batch_size=32), fitted.log_prob(u)
