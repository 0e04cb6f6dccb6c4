"""NumPyro's NUTS on a joint posterior, all chains side by side, some transitions at a time.

Between these the host shows progress, looks at convergence, and stops cleanly on Ctrl-C.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import hmc
from numpyro.infer.util import ParamInfo

from bayesfit.compute.devices import on_one_device
from bayesfit.compute.work import Progress, Report, Stop
from bayesfit.posterior.joint import Joint, compiled, draw_all
from bayesfit.sample.draws import STATS, Arrays, Draws, Look, Schedule
from bayesfit.sample.joint_starts import Frame, Start

CHUNK = 50  # transitions
WARMUP = {True: 200, False: 500}  # where the frame is that of a mode's curvature, and where not
TARGET_ACCEPT = 0.8
TREE_DEPTH = 10  # at most
FEW = 30  # dimensions up to which the metric adapts as a whole, where the frame has not been turned
THINNINGS = (1, 2, 4, 8)


class Plan(NamedTuple):
    """How NUTS adapts: transitions of the warm-up, and whether its metric is dense."""

    warmup: int
    dense: bool


class Kept(NamedTuple):
    """The draws that are kept: where the chains were, `u` (draw, chain, dimension), statistics (chain, draw), of how
    many transitions each is one, and what they are worth."""

    u: np.ndarray
    stats: Arrays
    thin: int
    look: Look


def plan_for(joint: Joint, start: Start) -> Plan:
    """The plan for a start."""
    return Plan(WARMUP[start.turned], dense=not start.turned and joint.dimensions <= FEW)


def sample_joint(
    joint: Joint, start: Start, keys: np.ndarray, schedule: Schedule, seed: int, report: Report, stop: Stop
) -> tuple[Draws, Arrays]:
    """Draws of every parameter of every bin, and of what the bins have in common (chain, draw, ...). A run whose worst
    parameter misses the schedule's target goes on to chains of twice the length, of which every second draw is kept,
    and so on, unless that spoils what was enough. After a wish to stop, draws that were not made are NaN."""
    plan, draws = plan_for(joint, start), schedule.draws
    chain_keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), len(start.u))
    first = start.u, start.potential, start.gradient, np.asarray(jax.random.key_data(chain_keys))
    state = on_one_device(_begin, *first, static=plan, identity="NUTS")
    made: list[Arrays] = []
    best = now = _kept(made, start.frame, plan, draws, 1)
    for thin in THINNINGS[: 1 if schedule.fixed else None]:
        while (count := CHUNK * len(made) - plan.warmup) < draws * thin and not stop.asked:
            report(_progress(joint, max(count, 0) // thin, draws, now.look))
            state, chunk = compiled(_advance, joint, start.frame, state, static=plan)
            made.append({name: np.asarray(array) for name, array in chunk.items()})
        now = _kept(made, start.frame, plan, draws, thin)
        best = best if now.look.spoils(best.look) else now
        if stop.asked or now.look.reaches(schedule.reachable):
            break
    found = _drawn(joint, start, best, draws, keys, seed)
    report(_progress(joint, len(best.u), draws, best.look, done=True))
    return found


def _progress(joint: Joint, made: int, draws: int, look: Look, done: bool = False) -> Progress:
    bins_done = joint.count if done else 0
    return Progress("sample", joint.count, bins_done, made, draws, look.convergence[0], share=made / draws)


def _kernel(plan: Plan) -> tuple[Any, Any]:
    """NumPyro's functions that begin a chain (u, potential, gradient, key), and that advance it."""

    def potential(joint: Joint, frame: Frame) -> Any:
        return lambda u: joint.potential(joint.point(frame.vector(u)))

    start, step = hmc(potential_fn_gen=lambda *args: potential(*args) if args else None, algo="NUTS")

    def begin(u: Any, potential: Any, gradient: Any, key: Any) -> Any:
        first = ParamInfo(u, potential, gradient)
        options = {"target_accept_prob": TARGET_ACCEPT, "max_tree_depth": TREE_DEPTH}
        return start(first, plan.warmup, dense_mass=plan.dense, rng_key=key, **options)

    return begin, step


def _begin(u: Any, potential: Any, gradient: Any, key_data: Any, *plan: Any) -> Any:
    """The chains' first states, at `u` (chain, dimension)."""
    begin, _ = _kernel(Plan(*plan))
    return jax.vmap(begin)(u, potential, gradient, key_data)


def _advance(joint: Joint, frame: Frame, state: Any, *plan: Any) -> tuple[Any, Any]:
    """The chains' states after CHUNK transitions, and what was drawn on the way (chain, CHUNK, ...)."""
    begin, step = _kernel(Plan(*plan))
    one_of = state.z[0], state.potential_energy[0], state.z_grad[0], jax.random.PRNGKey(0)
    jax.eval_shape(begin, *one_of)  # `step` adapts as the last call of `begin` has said

    def one(state: Any, _: Any) -> tuple[Any, Any]:
        state = jax.vmap(lambda chain: step(chain, model_args=(joint, frame)))(state)
        return state, {
            "u": state.z,
            "potential": state.potential_energy,
            "energy": state.energy,
            "n_steps": state.num_steps,
            "acceptance_rate": state.accept_prob,
            "step_size": state.adapt_state.step_size,
            "diverging": state.diverging,
        }

    state, found = jax.lax.scan(one, state, length=CHUNK)
    return state, jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), found)


def _kept(made: list[Arrays], frame: Frame, plan: Plan, draws: int, thin: int) -> Kept:
    """Every `thin`-th of the transitions after the warm-up, at most `draws` a chain."""
    names = made[0] if made else ()
    after = {name: np.concatenate([chunk[name] for chunk in made], axis=1)[:, plan.warmup :] for name in names}
    stats = {name: array[:, thin - 1 :: thin][:, :draws] for name, array in after.items()}
    u = np.moveaxis(stats.pop("u", np.zeros((1, 0, 0))), 0, 1)
    never = {"independence_accepted": np.zeros(u.shape[1::-1], bool)}
    look = Look.at(_series(frame, u), {**stats, **never}, 2**TREE_DEPTH - 1, last=True)
    return Kept(u, stats, thin, look)


def _series(frame: Frame, u: np.ndarray) -> np.ndarray:
    """All coordinates as series (series, chain, draw)."""
    return np.moveaxis(np.asarray(frame.vector(u)), (0, 1, 2), (2, 1, 0)) if u.size else np.zeros((1, 1, 0))


def _drawn(joint: Joint, start: Start, kept: Kept, draws: int, keys: np.ndarray, seed: int) -> tuple[Draws, Arrays]:
    """What the bins' result is made of, of `draws` a chain."""
    done, chains = len(kept.u), len(start.u)
    values, common = values_at(joint, start.frame, kept.u if done else start.u[None], draws, done, keys, seed)
    shape = (joint.count, chains, draws)
    whole = {name: np.full(shape, nothing) for name, nothing in STATS.items()}
    for name, array in kept.stats.items():
        whole[name][:, :, :done] = array
    each = np.ones(joint.count, int)
    convergences = np.tile(kept.look.convergence, (joint.count, 1))
    return Draws(values, whole, done * each, kept.thin * each, each, TREE_DEPTH * each, convergences), common


def values_at(
    joint: Joint, frame: Frame, u: np.ndarray, draws: int, done: int, keys: np.ndarray, seed: int
) -> tuple[Arrays, Arrays]:
    """Every parameter of every bin (bin, chain, draw), amplitudes drawn, and what the bins have in common (chain, draw,
    ...), from where the chains were (draw, chain, dimension); NaN after the `done` ones."""
    count, chains = u.shape[:2]
    vectors = np.asarray(frame.vector(u)).reshape(count * chains, -1)
    key_data = np.asarray(jax.random.key_data(jax.random.fold_in(jax.random.key(seed), 3)))
    made, common = compiled(draw_all, joint, vectors, np.asarray(keys), key_data)

    def by_chain(array: Any) -> np.ndarray:
        array = np.asarray(array).reshape(count, chains, *array.shape[1:])
        whole = np.full((chains, draws, *array.shape[2:]), np.nan)
        whole[:, :done] = np.swapaxes(array, 0, 1)[:, :done]
        return whole

    return (
        {name: np.moveaxis(by_chain(array), -1, 0) for name, array in made.items()},
        {name: by_chain(array) for name, array in common.items()},
    )
