"""The No-U-Turn sampler for many chains that never wait for one another.

A transition of NUTS takes as many leapfrog steps as its tree needs, and chains that run side by side would all have to
wait for the longest tree. Here each chain has its own tree and adds one leaf, that is one leapfrog step, at a time, so
that chains may be at different places of different transitions (Dance et al., "Efficiently vectorized MCMC on modern
accelerators", arXiv:2503.17405 (2025)).

The tree is built without recursion: the momenta at the left ends of the open subtrees are stored, one per level, and
each new leaf closes the subtrees that end with it (Phan, Pradhan & Jankowiak, arXiv:1912.11554 (2019), sec. 3). States
are picked multinomially along the trajectory, with a bias to its newer half, and the trajectory ends by the generalised
criterion (Betancourt, arXiv:1701.02434 (2017), app. A.3.2 and A.4.2). The mass matrix is the identity: the coordinates
are preconditioned beforehand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

LARGEST_ENERGY_ERROR = 1000.0

Vector = Float[Array, " param"]
Number = Float[Array, ""]


class Point(NamedTuple):
    """A point of a trajectory: position, momentum, the potential there, and its gradient."""

    u: Vector
    momentum: Vector
    potential: Number
    gradient: Vector


class Half(NamedTuple):
    """The half of a tree that is being built: its outermost point, the state picked so far, and the log weight and the
    sum of the momenta of its points; and for each level of open subtrees the first momentum and the sum of momenta up
    to the subtree."""

    tip: Point
    pick: Point
    log_weight: Number
    momenta: Vector
    first: Float[Array, "depth param"]
    before: Float[Array, "depth param"]


class Tree(NamedTuple):
    """A trajectory while it grows: the part that is complete, and the half that will double it.

    `ends` are the first and the last point of the complete part, `pick` is the state picked so far, `log_weight` and
    `momenta` are sums over its points, and `depth` is how often it has been doubled. `forward` says whether the half
    grows at the last point, and `leaf` counts the leaves that the half has. `energy` is that of the first point.
    `steps` counts the leapfrog steps, over which `acceptance` sums the acceptance probability. `ended` says whether the
    transition is over, and `diverging` whether it ended because the energy error was too large.
    """

    ends: tuple[Point, Point]
    pick: Point
    log_weight: Number
    momenta: Vector
    depth: Int[Array, ""]
    forward: Bool[Array, ""]
    half: Half
    leaf: Int[Array, ""]
    energy: Number
    key: UInt32[Array, " 2"]
    steps: Int[Array, ""]
    acceptance: Number
    diverging: Bool[Array, ""]
    ended: Bool[Array, ""]


def choose(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
    """`new` where the condition holds, else `old`, array by array of two pytrees of the same structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def new_tree(key: Key[Array, ""], point: Point, max_depth: int) -> Tree:
    """A tree of one point, with a fresh momentum."""
    key_momentum, key_forward, key = jax.random.split(key, 3)
    point = point._replace(momentum=jax.random.normal(key_momentum, point.u.shape))
    return _tree_of(point, jax.random.bernoulli(key_forward), jax.random.key_data(key), max_depth)


def ended_tree(point: Point, max_depth: int) -> Tree:
    """A tree of one point that does not grow."""
    tree = _tree_of(point, jnp.array(True), jnp.zeros(2, jnp.uint32), max_depth)
    return tree._replace(ended=jnp.array(True))


def _tree_of(point: Point, forward: Bool[Array, ""], key: UInt32[Array, " 2"], max_depth: int) -> Tree:
    zero, none = jnp.zeros(()), jnp.zeros((), jnp.int32)
    return Tree(
        ends=(point, point),
        pick=point,
        log_weight=zero,
        momenta=point.momentum,
        depth=none,
        forward=forward,
        half=_empty(point, max_depth),
        leaf=none,
        energy=_energy(point),
        key=key,
        steps=none,
        acceptance=zero,
        diverging=jnp.array(False),
        ended=jnp.array(False),
    )


def next_position(tree: Tree, step_size: Number) -> Vector:
    """The position of the leaf that the tree grows next."""
    return tree.half.tip.u + _signed(tree, step_size) * _half_step(tree, step_size)


def add_leaf(tree: Tree, step_size: Number, value: Number, gradient: Vector, max_depth: Int[Array, ""]) -> Tree:
    """The tree with one more leaf; a tree that has ended stays as it is.

    Args:
        tree: of one chain.
        step_size: of the leapfrog integrator.
        value, gradient: the potential and its gradient at the position that `next_position` gives.
        max_depth: at which the transition ends, at most the one that `new_tree` was given.
    """
    key = jax.random.fold_in(jax.random.wrap_key_data(tree.key), tree.steps)
    uniforms = jax.random.uniform(key, (3,))
    momentum = _half_step(tree, step_size) - 0.5 * _signed(tree, step_size) * gradient
    tip = Point(next_position(tree, step_size), momentum, value, gradient)
    error = _energy(tip) - tree.energy
    error = jnp.where(jnp.isnan(error), jnp.inf, error)
    half, turning = _with_leaf(tree.half, tip, -error, tree.leaf, jnp.log(uniforms[0]))
    diverging = error > LARGEST_ENERGY_ERROR
    grown = tree._replace(
        half=half,
        leaf=tree.leaf + 1,
        steps=tree.steps + 1,
        acceptance=tree.acceptance + jnp.minimum(1.0, jnp.exp(-error)),
        diverging=diverging,
    )
    doubled = _doubled(grown, jnp.log(uniforms[1]), uniforms[2] < 0.5)
    over = doubled.ended | (doubled.depth >= max_depth)
    full = grown.leaf == 1 << tree.depth
    failed = turning | diverging
    grown = choose(full & ~failed, doubled._replace(ended=over), grown._replace(ended=failed))
    return choose(tree.ended, tree, grown)


def _energy(point: Point) -> Number:
    return point.potential + 0.5 * point.momentum @ point.momentum


def _signed(tree: Tree, step_size: Number) -> Number:
    return jnp.where(tree.forward, step_size, -step_size)


def _half_step(tree: Tree, step_size: Number) -> Vector:
    """The momentum in the middle of the next leapfrog step."""
    tip = tree.half.tip
    return tip.momentum - 0.5 * _signed(tree, step_size) * tip.gradient


def _turning(first: Vector, last: Vector, total: Vector) -> Bool[Array, ""]:
    """Whether a trajectory with these momenta at its ends, and this sum of all its momenta, has begun to return; the
    ends count half."""
    middle = total - 0.5 * (first + last)
    return (first @ middle <= 0.0) | (last @ middle <= 0.0)


def _empty(tip: Point, depth: int) -> Half:
    zeros = jnp.zeros_like(tip.u)
    levels = jnp.zeros((depth, *tip.u.shape))
    return Half(tip, tip, -jnp.array(jnp.inf), zeros, levels, levels)


def _with_leaf(
    half: Half, tip: Point, log_weight: Number, leaf: Int[Array, ""], log_uniform: Number
) -> tuple[Half, Bool[Array, ""]]:
    """The half with one more leaf, and whether one of the subtrees that end with it has turned.

    A subtree that begins at leaf n is stored at the level given by the number of ones among n's binary digits, the last
    digit left out; as many subtrees end at leaf n as its binary number has trailing ones.
    """
    total = jnp.logaddexp(half.log_weight, log_weight)
    momenta = half.momenta + tip.momentum
    level = jnp.arange(half.first.shape[0])[:, None]
    top = jax.lax.population_count(leaf >> 1)
    ending = jax.lax.population_count(leaf ^ (leaf + 1)) - 1
    begins = (level == top) & (leaf % 2 == 0)
    first = jnp.where(begins, tip.momentum, half.first)
    before = jnp.where(begins, momenta, half.before)
    turned = jax.vmap(_turning, (0, None, 0))(first, tip.momentum, momenta - before + first)
    closed = (level[:, 0] > top - ending) & (level[:, 0] <= top)
    pick = choose(log_uniform < log_weight - total, tip, half.pick)
    return Half(tip, pick, total, momenta, first, before), jnp.any(turned & closed)


def _doubled(tree: Tree, log_uniform: Number, forward: Bool[Array, ""]) -> Tree:
    """The tree joined by its full half, and an empty half to grow next."""
    half = tree.half
    ends = choose(tree.forward, (tree.ends[0], half.tip), (half.tip, tree.ends[1]))
    momenta = tree.momenta + half.momenta
    return tree._replace(
        ends=ends,
        pick=choose(log_uniform < half.log_weight - tree.log_weight, half.pick, tree.pick),
        log_weight=jnp.logaddexp(tree.log_weight, half.log_weight),
        momenta=momenta,
        depth=tree.depth + 1,
        forward=forward,
        half=_empty(choose(forward, ends[1], ends[0]), half.first.shape[0]),
        leaf=jnp.zeros_like(tree.leaf),
        ended=_turning(ends[0].momentum, ends[1].momentum, momenta),
    )
