"""One lane, that is one chain of one bin: what it needs, where it stands, and how it goes on.

A transition is a trajectory of NUTS and one global move. Every lane needs the potential at one position at a time: that
of its trajectory's next leaf, or, where the trajectory has ended, the one that the global move offers. Lanes are
advanced by rounds of a few such evaluations, in the first of which alone a transition may end and the next begin. A
lane's draws depend on its own key and on the number of the transition alone, never on how the rounds fall.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc_util import dual_averaging

from bayesfit.compute.keys import AMPLITUDES, TRANSITIONS, key_for
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior
from bayesfit.sample.independence import Mixture, Offer, jump, offer
from bayesfit.sample.nuts import Point, Tree, choose, grow, plant, reach

MAX_TREE_DEPTH, SHORT_TREE_DEPTH, SHORTEST_TREE_DEPTH = 6, 4, 2
FIRST_STEP_SIZE = 0.7
EVALUATIONS = 4
KNOWN = 6  # the attempt, after all others, of bins whose survey tells the whole
ROUNDS = 64

_begin_adapting, _adapt = dual_averaging()


class Lane(NamedTuple):
    """What one lane needs; with a leading axis, of many. Positions are u, with z = center + frame @ u; `key` is the
    data of the bin's random key, from which with `chain` and `attempt` the lane's own is made; `warmup` and
    `target_accept` say how the step size is adapted, `tree_depth` how deep trees grow."""

    bin: Bin
    center: Any
    frame: Any
    start: Any
    proposals: Mixture
    key: Any
    chain: Any
    attempt: Any
    warmup: Any
    target_accept: Any
    tree_depth: Any


class Walk(NamedTuple):
    """Where a lane stands: trajectory, number of transitions made, step size, and the step size's adaptation."""

    tree: Tree
    count: Any
    step_size: Any
    adaptation: Any


class Transition(NamedTuple):
    """What a round leaves. Only where `made` is True has it ended a transition, and the rest means something: position
    u (param,), potential there, the trajectory's energy, leapfrogs, mean acceptance rate, step size, whether it
    diverged, whether the global move was taken, and parameter name to value, the amplitudes drawn."""

    made: Any
    u: Any
    potential: Any
    energy: Any
    n_steps: Any
    acceptance_rate: Any
    step_size: Any
    diverging: Any
    independence_accepted: Any
    values: Any


def advance(posterior: Posterior, lane: Lane, walk: Walk, fresh: Any) -> tuple[Walk, Transition]:
    """`ROUNDS` rounds of one lane, from its start where `fresh`: where it stands then, and what each round left."""
    amplitudes = key_for(lane.key, AMPLITUDES, lane.chain, lane.attempt)
    lane = lane._replace(key=jax.random.key_data(key_for(lane.key, TRANSITIONS, lane.chain, lane.attempt)))
    walk = choose(fresh, begin(lane), walk)
    first = walk.count
    offers = jax.vmap(lambda number: offer(_key(lane, first + number)[1], lane.proposals))(jnp.arange(ROUNDS))

    def one_round(walk: Walk, _: None) -> tuple[Walk, Transition]:
        ahead = jax.tree.map(lambda array: array[walk.count - first], offers)
        ahead = ahead._replace(u=jnp.where(walk.count < 0, lane.start, ahead.u))
        after, left = _round(posterior, lane, walk, ahead)
        key = jax.random.fold_in(amplitudes, walk.count)
        return after, left._replace(values=posterior.constrain(lane.center + lane.frame @ left.u, lane.bin, key))

    return jax.lax.scan(one_round, walk, None, length=ROUNDS)


def tree_depth(attempt: Any) -> Any:
    """The largest depth of trees, attempt by attempt: short ones once the global moves are fitted to draws, and those
    of one round where they are fitted to a survey that tells the whole (`KNOWN`), so that there are many moves."""
    depths = [MAX_TREE_DEPTH, *[SHORT_TREE_DEPTH] * (KNOWN - 1), SHORTEST_TREE_DEPTH]
    return np.array(depths, np.int32)[attempt]


def standing(lanes: Lane) -> Walk:
    """Zeros in the shapes of the walks of many lanes (leading axis), as NumPy arrays."""
    shapes = jax.eval_shape(jax.vmap(begin), lanes)
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def begin(lane: Lane) -> Walk:
    """A lane that is about to move to its start, before its first transition."""
    nowhere = Point(lane.start, jnp.zeros_like(lane.start), jnp.array(jnp.inf), jnp.zeros_like(lane.start))
    step_size = jnp.array(FIRST_STEP_SIZE)
    return Walk(
        tree=plant(_key(lane, 0)[0], nowhere, MAX_TREE_DEPTH)._replace(ended=jnp.array(True)),
        count=-jnp.ones((), jnp.int32),
        step_size=step_size,
        adaptation=_begin_adapting(jnp.log(10.0 * step_size)),
    )


def _key(lane: Lane, count: Any) -> Any:
    """The keys of a transition: of its trajectory, of its global move."""
    return jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(lane.key), count))


def _round(posterior: Posterior, lane: Lane, walk: Walk, ahead: Offer) -> tuple[Walk, Transition]:
    """A few evaluations of the potential. The first is at the offered position where the trajectory has ended, the
    others are all at the trajectory's next leaf, where it has not."""

    def one(number: Any, state: tuple[Walk, Transition]) -> tuple[Walk, Transition]:
        walk, transition = state
        tree = walk.tree
        u = jnp.where(tree.ended, ahead.u, reach(tree, walk.step_size))
        value, gradient = jax.value_and_grad(posterior.potential)(lane.center + lane.frame @ u, lane.bin)
        gradient = lane.frame.T @ gradient
        grown = walk._replace(tree=grow(tree, walk.step_size, value, gradient, lane.tree_depth))

        def decide() -> tuple[Walk, Transition]:
            after, left = _end(lane, walk, ahead, value, gradient)
            return choose(tree.ended, after, grown), left

        return jax.lax.cond(number == 0, decide, lambda: (grown, transition))

    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(_left, walk, walk.tree.pick))
    return jax.lax.fori_loop(0, EVALUATIONS, one, (walk, nothing))


def _end(lane: Lane, walk: Walk, ahead: Offer, value: Any, gradient: Any) -> tuple[Walk, Transition]:
    """The end of a transition, by the global move that is offered, and the beginning of the next."""
    count = walk.count + 1
    step_size, adaptation = _step_size(lane, walk)
    point, independence_accepted = jump(walk.tree.pick, ahead, value, gradient, lane.proposals)
    placed = Point(ahead.u, jnp.zeros_like(ahead.u), value, gradient)
    point = choose(walk.count < 0, placed, point)
    after = Walk(plant(_key(lane, count)[0], point, MAX_TREE_DEPTH), count, step_size, adaptation)
    return after, _left(walk, point, independence_accepted)


def _left(walk: Walk, point: Point, independence_accepted: Any = False) -> Transition:
    """What a walk whose trajectory has ended leaves at the point where its transition ends."""
    tree = walk.tree
    return Transition(
        made=tree.ended & (walk.count >= 0),
        u=point.u,
        potential=point.potential,
        energy=tree.energy,
        n_steps=tree.steps,
        acceptance_rate=tree.acceptance / tree.steps,
        step_size=walk.step_size,
        diverging=tree.diverging,
        independence_accepted=jnp.asarray(independence_accepted),
        values=None,
    )


def _step_size(lane: Lane, walk: Walk) -> tuple[Any, Any]:
    """Step size and its adaptation after a transition: dual averaging during warm-up, its average from then on."""
    adapting = (walk.count >= 0) & (walk.count < lane.warmup)
    acceptance = walk.tree.acceptance / walk.tree.steps
    adaptation = choose(adapting, _adapt(lane.target_accept - acceptance, walk.adaptation), walk.adaptation)
    log_step, log_average, *_ = adaptation
    last = walk.count + 1 >= lane.warmup
    return jnp.where(adapting, jnp.exp(jnp.where(last, log_average, log_step)), walk.step_size), adaptation
