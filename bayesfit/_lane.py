"""One lane, that is one chain of one bin: what it needs, where it stands, and how it goes on.

A transition is a trajectory of NUTS and one global move. It may end in any leapfrog; lanes are therefore advanced by
rounds of a few leapfrogs, after each of which those whose trajectory has ended make their global move and begin anew.
A lane's draws depend on its own key and on the number of the transition alone, never on how the rounds fall.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc_util import dual_averaging

from bayesfit._jump import Mixture, jump
from bayesfit._nuts import Point, Tree, choose, grow, plant
from bayesfit._posterior import Bin, Posterior
from bayesfit._programs import record

MAX_TREE_DEPTH = 8
FIRST_STEP_SIZE = 0.7
LEAPFROGS = 3
ROUNDS = 64

_begin_adapting, _adapt = dual_averaging()


@record
class Lane(NamedTuple):
    """What one lane needs; with a leading axis, of many. Positions are u, with z = center + frame @ u; `key` is the
    data of a random key; `warmup` and `target_accept` say how the step size is adapted."""

    bin: Bin
    center: Any
    frame: Any
    start: Any
    proposals: Mixture
    key: Any
    warmup: Any
    target_accept: Any


@record
class Walk(NamedTuple):
    """Where a lane stands: trajectory, number of transitions made, step size, and the step size's adaptation."""

    tree: Tree
    count: Any
    step_size: Any
    adaptation: Any


@record
class Transition(NamedTuple):
    """What a round leaves. Only where `made` is True has it ended a transition, and the rest means something: position
    u (param,), potential there, the trajectory's energy, leapfrogs, mean acceptance rate, step size, whether it
    diverged, and whether the global move was taken."""

    made: Any
    u: Any
    potential: Any
    energy: Any
    n_steps: Any
    acceptance_rate: Any
    step_size: Any
    diverging: Any
    jumped: Any


def advance(posterior: Posterior, lane: Lane, walk: Walk, fresh: Any) -> tuple[Walk, Transition]:
    """`ROUNDS` rounds of one lane, from its start where `fresh`: where it stands then, and what each round left."""
    potential = jax.value_and_grad(lambda u: posterior.potential(lane.center + lane.frame @ u, lane.bin))
    walk = choose(fresh, begin(lane, potential), walk)

    def one_round(walk: Walk, _: None) -> tuple[Walk, Transition]:
        tree = jax.lax.fori_loop(0, LEAPFROGS, lambda _, tree: grow(tree, walk.step_size, potential), walk.tree)
        after, transition = _end(lane, walk._replace(tree=tree), potential)
        return choose(tree.ended, after, walk._replace(tree=tree)), transition

    return jax.lax.scan(one_round, walk, None, length=ROUNDS)


def standing(lanes: Lane) -> Walk:
    """Zeros in the shapes of the walks of many lanes (leading axis), as NumPy arrays."""
    shapes = jax.eval_shape(jax.vmap(lambda lane: begin(lane, lambda u: (jnp.sum(u), u))), lanes)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def begin(lane: Lane, potential: Callable[[Any], tuple[Any, Any]]) -> Walk:
    """A lane at its start, before its first transition."""
    point = Point(lane.start, jnp.zeros_like(lane.start), *potential(lane.start))
    step_size = jnp.array(FIRST_STEP_SIZE)
    return Walk(
        tree=plant(_key(lane, 0)[0], point, MAX_TREE_DEPTH),
        count=jnp.zeros((), jnp.int32),
        step_size=step_size,
        adaptation=_begin_adapting(jnp.log(10.0 * step_size)),
    )


def _key(lane: Lane, count: Any) -> Any:
    """The keys of a transition: of its trajectory, of its global move."""
    return jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(lane.key), count))


def _end(lane: Lane, walk: Walk, potential: Callable[[Any], tuple[Any, Any]]) -> tuple[Walk, Transition]:
    """The end of a transition and the beginning of the next."""
    tree, count = walk.tree, walk.count + 1
    acceptance = tree.acceptance / tree.steps
    step_size, adaptation = _step_size(lane, walk, acceptance)
    point, jumped = jump(_key(lane, walk.count)[1], tree.pick, lane.proposals, potential)
    transition = Transition(
        made=tree.ended,
        u=point.u,
        potential=point.potential,
        energy=tree.energy,
        n_steps=tree.steps,
        acceptance_rate=acceptance,
        step_size=walk.step_size,
        diverging=tree.diverging,
        jumped=jumped,
    )
    return Walk(plant(_key(lane, count)[0], point, MAX_TREE_DEPTH), count, step_size, adaptation), transition


def _step_size(lane: Lane, walk: Walk, acceptance: Any) -> tuple[Any, Any]:
    """Step size and its adaptation after a transition: dual averaging during warm-up, its average from then on."""
    adapting = walk.count < lane.warmup
    adaptation = choose(adapting, _adapt(lane.target_accept - acceptance, walk.adaptation), walk.adaptation)
    log_step, log_average, *_ = adaptation
    last = walk.count + 1 >= lane.warmup
    return jnp.where(adapting, jnp.exp(jnp.where(last, log_average, log_step)), walk.step_size), adaptation
