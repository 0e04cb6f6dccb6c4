"""One chain of one bin: what it needs, its state, and how it advances.

A transition is a trajectory of NUTS followed by one independence proposal. At any time a chain needs the potential at
one position: that of its trajectory's next leaf or, if the trajectory has ended, the proposed one. Chains advance by
rounds of a few such evaluations; only the first evaluation of a round may end a transition and begin the next. The
draws of a chain depend only on its own key and on the number of the transition, and not on how transitions are divided
into rounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32
from numpyro.infer.hmc_util import dual_averaging

from bayesfit.compute.keys import AMPLITUDES, TRANSITIONS, key_for
from bayesfit.posterior.bin_data import Bin
from bayesfit.sample.escalation import MAX_TREE_DEPTH
from bayesfit.sample.independence import Proposal, accept_or_reject, propose
from bayesfit.sample.mixture import Mixture
from bayesfit.sample.nuts import Number, Point, Tree, Vector, add_leaf, choose, ended_tree, new_tree, next_position
from bayesfit.sample.target import Target

FIRST_STEP_SIZE = 0.7
EVALUATIONS = 4  # of the potential, per round
ROUNDS = 64  # per chunk

_begin_adapting, _adapt = dual_averaging()


class Chain(NamedTuple):
    """The inputs of one chain; with a leading axis, of many chains.

    Its positions u are preconditioned: z = location + factor @ u, where `factor` is lower triangular. `start` is its
    first position, and `mixture` is the distribution of its independence proposals. Its random key is made from `key`
    (the data of the bin's key), its `number` and the escalation `step`. The step size adapts for `warmup` transitions
    to a mean acceptance rate of `target_accept`, and trees grow to `tree_depth` at most.
    """

    bin: Bin
    location: Float[Any, " param"]
    factor: Float[Any, "param param"]
    start: Float[Any, " param"]
    mixture: Mixture
    key: UInt32[Any, " 2"]
    number: Int[Any, ""]
    step: Int[Any, ""]
    warmup: Int[Any, ""]
    target_accept: Float[Any, ""]
    tree_depth: Int[Any, ""]


class Corrected(NamedTuple):
    """Where a chain stands whose potential is an approximation: the point, all constrained `values` there, and the log
    of the density over the approximation."""

    point: Point
    values: dict[str, Number]
    log_ratio: Number


class ChainState(NamedTuple):
    """The state of a chain: its trajectory, the number of transitions made (-1 before it is at its start), the step
    size, and the state of the step size's adaptation; and if its potential is an approximation, where its last
    transition ended, else None."""

    tree: Tree
    transitions: Int[Array, ""]
    step_size: Number
    adaptation: Any
    corrected: Corrected | None = None


class Transition(NamedTuple):
    """The output of a round. `made` says whether the round has ended a transition; only then do the other fields mean
    something. They are the position u and the potential there; the trajectory's energy, number of leapfrog steps, mean
    acceptance rate, step size, and whether it diverged; whether the independence proposal was accepted; and the
    constrained values by name, the drawn amplitudes among them."""

    made: Bool[Array, ""]
    u: Vector
    potential: Number
    energy: Number
    n_steps: Int[Array, ""]
    acceptance_rate: Number
    step_size: Number
    diverging: Bool[Array, ""]
    independence_accepted: Bool[Array, ""]
    values: dict[str, Number] | None


def advance(target: Target, chain: Chain, state: ChainState, fresh: Bool[Array, ""]) -> tuple[ChainState, Transition]:
    """Advance one chain by `ROUNDS` rounds, from its start if it is `fresh`. Returns its new state, and the output of
    each round with a leading axis."""
    uses = jnp.array([AMPLITUDES, TRANSITIONS])
    amplitudes, transitions = jax.vmap(lambda use: key_for(chain.key, use, chain.number, chain.step))(uses)
    state = choose(fresh, begin(target, chain), state)
    first = state.transitions
    keys_trees, keys_proposals = _keys(transitions, first + jnp.arange(ROUNDS + 1))
    proposals = jax.vmap(lambda key: propose(key, chain.mixture))(keys_proposals[:ROUNDS])

    def one_round(state: ChainState, _: None) -> tuple[ChainState, Transition]:
        done = state.transitions - first
        proposal = jax.tree.map(lambda array: array[done], proposals)
        proposal = proposal._replace(u=jnp.where(state.transitions < 0, chain.start, proposal.u))
        key = jax.random.fold_in(amplitudes, state.transitions)
        after, left = _round(target, chain, state, Next(proposal, keys_trees[done + 1], key))
        if target.corrected is not None:
            return after, left
        return after, left._replace(values=target.constrain(_position(chain, left.u), chain.bin, key))

    return jax.lax.scan(one_round, state, None, length=ROUNDS)


def begin(target: Target, chain: Chain) -> ChainState:
    """The state of a chain that is about to move to its start, before its first transition."""
    zeros = jnp.zeros_like(chain.start)
    nowhere = Point(jnp.asarray(chain.start), zeros, jnp.array(jnp.inf), zeros)
    step_size = jnp.array(FIRST_STEP_SIZE)
    return ChainState(
        tree=ended_tree(nowhere, MAX_TREE_DEPTH),
        transitions=-jnp.ones((), jnp.int32),
        step_size=step_size,
        adaptation=_begin_adapting(jnp.log(10.0 * step_size)),
        corrected=None if target.corrected is None else _before_any(target, chain, nowhere),
    )


def _before_any(target: Target, chain: Chain, nowhere: Point) -> Corrected:
    """Where a chain stands before its first transition; whatever comes is accepted."""
    shapes = jax.eval_shape(target.constrain, chain.start, chain.bin, jax.random.key(0))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return Corrected(nowhere, zeros, jnp.array(-jnp.inf))


def _position(chain: Chain, u: Vector) -> Vector:
    """The position z in the posterior's own coordinates."""
    return chain.location + chain.factor @ u


class Next(NamedTuple):
    """What the end of a transition needs: its independence proposal, the key of the tree that grows next, and that of
    the amplitudes drawn."""

    proposal: Proposal
    key_tree: Key[Array, ""]
    key_amplitudes: Key[Array, ""]


def _keys(key: Key[Array, ""], numbers: Int[Array, " number"]) -> Key[Array, "2 number"]:
    """The keys of transitions with these numbers: one for its trajectory and one for its independence proposal."""
    return jax.vmap(lambda number: jax.random.split(jax.random.fold_in(key, number)), out_axes=1)(numbers)


def _round(target: Target, chain: Chain, state: ChainState, coming: Next) -> tuple[ChainState, Transition]:
    """Evaluate the potential `EVALUATIONS` times. The first time is at the proposed position if the trajectory has
    ended; all others are at the trajectory's next leaf."""

    def one(number: Int[Array, ""], carried: tuple[ChainState, Transition]) -> tuple[ChainState, Transition]:
        state, transition = carried
        tree = state.tree
        u = jnp.where(tree.ended, coming.proposal.u, next_position(tree, state.step_size))
        value, gradient = jax.value_and_grad(target.potential)(_position(chain, u), chain.bin)
        gradient = chain.factor.T @ gradient
        grown = state._replace(tree=add_leaf(tree, state.step_size, value, gradient, chain.tree_depth))

        def decide() -> tuple[ChainState, Transition]:
            proposed = Point(coming.proposal.u, jnp.zeros_like(u), value, gradient)
            after, left = _end(target, chain, state, coming, proposed)
            return choose(tree.ended, after, grown), left

        return jax.lax.cond(number == 0, decide, lambda: (grown, transition))

    left = jax.eval_shape(_left, state, state.tree.pick, jnp.array(False))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), left)
    return jax.lax.fori_loop(0, EVALUATIONS, one, (state, nothing))


def _end(
    target: Target, chain: Chain, state: ChainState, coming: Next, proposed: Point
) -> tuple[ChainState, Transition]:
    """End a transition by accepting or rejecting its independence proposal, whose point is given, and begin the next.
    Where the potential is an approximation, the trajectory and the proposal are corrected one after the other."""
    count, begins = state.transitions + 1, state.transitions < 0
    step_size, adaptation = _step_size(chain, state)
    point, corrected = state.tree.pick, state.corrected
    key_first, key_second = jax.random.split(coming.key_amplitudes)
    if corrected is not None:
        corrected = _corrected(target, chain, corrected, point, key_first)
        point = corrected.point
    moved, accepted = accept_or_reject(point, coming.proposal, proposed, chain.mixture)
    point = choose(begins, proposed, moved)
    if corrected is not None:
        corrected = _corrected(target, chain, choose(begins, state.corrected, corrected), point, key_second)
        point = corrected.point
    after = ChainState(new_tree(coming.key_tree, point, MAX_TREE_DEPTH), count, step_size, adaptation, corrected)
    return after, _left(state._replace(corrected=corrected), point, accepted)


def _corrected(target: Target, chain: Chain, before: Corrected, point: Point, key: Key[Array, ""]) -> Corrected:
    """Where a chain stands whose potential is an approximation: at this point, to which a move has led that leaves the
    approximation invariant and is reversible, with the drawn parameters drawn anew; or where it stood before.

    The draws leave the approximation invariant, too, so that a Metropolis-Hastings step has only the ratios of the
    densities to weigh (Christen & Fox, J. Comput. Graph. Stat. 14, 795 (2005))."""
    assert target.corrected is not None
    key_values, key_accept = jax.random.split(key)
    values, log_ratio = target.corrected(_position(chain, point.u), chain.bin, key_values)
    accepted = jnp.log(jax.random.uniform(key_accept)) < log_ratio - before.log_ratio
    return choose(accepted, Corrected(point, values, log_ratio), before)


def _left(state: ChainState, point: Point, independence_accepted: Bool[Array, ""]) -> Transition:
    """The output of a transition that ends at this point, from the state of a chain whose trajectory has ended."""
    tree = state.tree
    return Transition(
        made=tree.ended & (state.transitions >= 0),
        u=point.u,
        potential=point.potential,
        energy=tree.energy,
        n_steps=tree.steps,
        acceptance_rate=tree.acceptance / tree.steps,
        step_size=state.step_size,
        diverging=tree.diverging,
        independence_accepted=independence_accepted,
        values=None if state.corrected is None else state.corrected.values,
    )


def _step_size(chain: Chain, state: ChainState) -> tuple[Number, Any]:
    """Step size and the state of its adaptation after a transition: dual averaging during the warm-up, and from then on
    the average that it has found."""
    adapting = (state.transitions >= 0) & (state.transitions < chain.warmup)
    acceptance = state.tree.acceptance / state.tree.steps
    adaptation = choose(adapting, _adapt(chain.target_accept - acceptance, state.adaptation), state.adaptation)
    log_step, log_average, *_ = adaptation
    last = state.transitions + 1 >= chain.warmup
    return jnp.where(adapting, jnp.exp(jnp.where(last, log_average, log_step)), state.step_size), adaptation
