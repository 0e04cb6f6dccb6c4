"""The No-U-Turn sampler for many lanes that never wait for one another.

A transition of NUTS takes as many leapfrogs as its tree needs, and lanes that are run side by side would all wait for
the longest. Here each lane carries its own tree and grows it by one leapfrog at a time, so that lanes stand at
different places of different transitions (Dance et al., "Efficiently vectorized MCMC on modern accelerators",
arXiv:2503.17405 (2025)).

The tree is built without recursion: the momenta at the left ends of the open subtrees are kept, one a level, and each
new leaf closes the subtrees that end with it (Phan, Pradhan & Jankowiak, arXiv:1912.11554 (2019), sec. 3). States are
picked multinomially along the trajectory, with a bias to its newer half, and the trajectory ends by the generalised
criterion (Betancourt, arXiv:1701.02434 (2017), app. A.3.2 and A.4.2). The mass matrix is the identity: coordinates
come whitened.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

LARGEST_ENERGY_ERROR = 1000.0


class Point(NamedTuple):
    """A place on a trajectory: position and momentum (param,), potential, and its gradient (param,)."""

    u: Any
    momentum: Any
    potential: Any
    gradient: Any


class Half(NamedTuple):
    """The part of a tree that is being built: its outermost point, the state picked so far, log weight and sum of
    momenta; and of its open subtrees (depth, param), the first momentum and the sum of momenta up to it."""

    tip: Point
    pick: Point
    log_weight: Any
    momenta: Any
    first: Any
    before: Any


class Tree(NamedTuple):
    """A trajectory that grows: its whole part, and the half that will double it.

    `ends` are its first and last point; `pick` the state picked so far; `forward` whether the half grows at the last
    point; `leaf` how many leaves the half has; `ended` whether the transition is over.
    """

    ends: tuple[Point, Point]
    pick: Point
    log_weight: Any
    momenta: Any
    depth: Any
    forward: Any
    half: Half
    leaf: Any
    energy: Any
    key: Any
    steps: Any
    acceptance: Any
    diverging: Any
    ended: Any


def choose(condition: Any, new: Any, old: Any) -> Any:
    """`new` where the condition (a scalar) holds, else `old`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def plant(key: Any, point: Point, max_depth: int) -> Tree:
    """A tree of one point, with a fresh momentum."""
    key_momentum, key_forward, key = jax.random.split(key, 3)
    point = point._replace(momentum=jax.random.normal(key_momentum, point.u.shape))
    zero, none = jnp.zeros(()), jnp.zeros((), jnp.int32)
    return Tree(
        ends=(point, point),
        pick=point,
        log_weight=zero,
        momenta=point.momentum,
        depth=none,
        forward=jax.random.bernoulli(key_forward),
        half=_empty(point, max_depth),
        leaf=none,
        energy=_energy(point),
        key=jax.random.key_data(key),
        steps=none,
        acceptance=zero,
        diverging=jnp.array(False),
        ended=jnp.array(False),
    )


def reach(tree: Tree, step_size: Any) -> Any:
    """Position (param,) of the leaf that the tree grows next."""
    return tree.half.tip.u + _signed(tree, step_size) * _half_step(tree, step_size)


def grow(tree: Tree, step_size: Any, value: Any, gradient: Any, max_depth: Any) -> Tree:
    """The tree with one leaf more; an ended tree stays as it is.

    Args:
        tree: of one lane.
        step_size: of the leapfrog.
        value, gradient: potential and its gradient (param,) at the position that `reach` gives.
        max_depth: at which it ends, at most that for which it was planted.
    """
    key = jax.random.fold_in(jax.random.wrap_key_data(tree.key), tree.steps)
    coins = jax.random.uniform(key, (3,))
    momentum = _half_step(tree, step_size) - 0.5 * _signed(tree, step_size) * gradient
    tip = Point(reach(tree, step_size), momentum, value, gradient)
    error = _energy(tip) - tree.energy
    error = jnp.where(jnp.isnan(error), jnp.inf, error)
    half, turning = _add(tree.half, tip, -error, tree.leaf, jnp.log(coins[0]))
    diverging = error > LARGEST_ENERGY_ERROR
    grown = tree._replace(
        half=half,
        leaf=tree.leaf + 1,
        steps=tree.steps + 1,
        acceptance=tree.acceptance + jnp.minimum(1.0, jnp.exp(-error)),
        diverging=diverging,
    )
    whole = _join(grown, jnp.log(coins[1]), coins[2] < 0.5)
    over = whole.ended | (whole.depth >= max_depth)
    full = grown.leaf == 1 << tree.depth
    failed = turning | diverging
    grown = choose(full & ~failed, whole._replace(ended=over), grown._replace(ended=failed))
    return choose(tree.ended, tree, grown)


def _energy(point: Point) -> Any:
    return point.potential + 0.5 * point.momentum @ point.momentum


def _signed(tree: Tree, step_size: Any) -> Any:
    return jnp.where(tree.forward, step_size, -step_size)


def _half_step(tree: Tree, step_size: Any) -> Any:
    """The momentum in the middle of the next leapfrog."""
    tip = tree.half.tip
    return tip.momentum - 0.5 * _signed(tree, step_size) * tip.gradient


def _turning(first: Any, last: Any, total: Any) -> Any:
    """Whether a trajectory with these end momenta and this sum of momenta has begun to return; the ends count half."""
    middle = total - 0.5 * (first + last)
    return (first @ middle <= 0.0) | (last @ middle <= 0.0)


def _empty(tip: Point, depth: int) -> Half:
    nothing = jnp.zeros_like(tip.u)
    levels = jnp.zeros((depth, *tip.u.shape))
    return Half(tip, tip, -jnp.array(jnp.inf), nothing, levels, levels)


def _add(half: Half, tip: Point, log_weight: Any, leaf: Any, log_coin: Any) -> tuple[Half, Any]:
    """The half with one leaf more, and whether one of the subtrees that end with it has turned.

    A subtree that begins at leaf n is kept at the level that counts the ones of n's binary digits, the last left out;
    as many subtrees end at leaf n as its binary number has trailing ones.
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
    pick = choose(log_coin < log_weight - total, tip, half.pick)
    return Half(tip, pick, total, momenta, first, before), jnp.any(turned & closed)


def _join(tree: Tree, log_coin: Any, forward: Any) -> Tree:
    """The tree doubled by its full half, and an empty half to grow next."""
    half = tree.half
    ends = choose(tree.forward, (tree.ends[0], half.tip), (half.tip, tree.ends[1]))
    momenta = tree.momenta + half.momenta
    return tree._replace(
        ends=ends,
        pick=choose(log_coin < half.log_weight - tree.log_weight, half.pick, tree.pick),
        log_weight=jnp.logaddexp(tree.log_weight, half.log_weight),
        momenta=momenta,
        depth=tree.depth + 1,
        forward=forward,
        half=_empty(choose(forward, ends[1], ends[0]), half.first.shape[0]),
        leaf=jnp.zeros_like(tree.leaf),
        ended=_turning(ends[0].momentum, ends[1].momentum, momenta),
    )
