"""NumPyro's NUTS kernel over all (bin, chain) lanes, in chunks.

Each lane is one chain of one bin, in the whitened coordinates u of its bin's frame, z = center + frame @ u. The host
drives chunks of transitions, and between chunks reports progress and looks whether it should stop.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import hmc

from bayesfit import _convergence
from bayesfit._devices import Spread, batches, gather, place, take
from bayesfit._estimate import Estimate, estimate
from bayesfit._jump import Mixture, jump
from bayesfit._posterior import Bin, Posterior

BINS = 16
FEW_BINS = 128  # up to here one device makes the estimates: a second one would cost more to compile than it saves
LANES = 64
CHUNK = 50
MAX_TREE_DEPTH = 8
LARGEST_RHAT = 1.01
LEAST_ESS = 400.0


class Lane(NamedTuple):
    """What one chain of one bin needs; with a leading axis, of many."""

    bin: Bin
    center: Any
    frame: Any
    start: Any
    proposals: Mixture
    key: Any


class Transition(NamedTuple):
    """What one transition leaves: constrained values, and the sampler's statistics."""

    values: dict[str, Any]
    potential: Any
    energy: Any
    n_steps: Any
    acceptance_rate: Any
    step_size: Any
    diverging: Any
    jumped: Any


@dataclass
class Progress:
    """How far the work is: bins done of all, draws of the present batch, its worst R-hat, divergences, seconds left,
    and the share of the whole stage that is done."""

    stage: str
    bins: int
    bins_done: int = 0
    draws_done: int = 0
    draws: int = 0
    worst_rhat: float = float("nan")
    divergences: int = 0
    seconds_left: float = float("nan")
    share: float = 0.0


Report = Callable[[Progress], None]


@dataclass
class Draws:
    """Draws of every bin: `values` and `stats` hold arrays (bin, chain, draw), NaN where a draw was not made."""

    values: dict[str, np.ndarray] = field(default_factory=dict)
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    made: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), int))
    thin: np.ndarray = field(default_factory=lambda: np.zeros(0, int))

    @property
    def done(self) -> np.ndarray:
        """Draws that every chain of a bin has made (bin,)."""
        return self.made.min(axis=1)

    def replace(self, places: np.ndarray, longer: Draws) -> None:
        """Put the draws of a longer run in the place of these bins', those of them that it has finished."""
        finished = longer.done >= self.done[places]
        for mine, theirs in ((self.values, longer.values), (self.stats, longer.stats)):
            for name, array in theirs.items():
                mine[name][places[finished]] = array[finished]
        self.thin[places[finished]] = longer.thin[finished]


@dataclass(frozen=True)
class Schedule:
    """How each chain runs: `warmup` transitions, then `draws` kept ones, every `thin`-th."""

    chains: int
    draws: int
    warmup: int
    target_accept: float
    thin: int = 1

    @property
    def transitions(self) -> int:
        """All transitions of a chain."""
        return self.warmup + self.draws * self.thin

    def kept(self, transition: np.ndarray) -> np.ndarray:
        """Which of these transitions, counted from 0, are kept."""
        after = transition - self.warmup + 1
        return (after > 0) & (after % self.thin == 0) & (transition < self.transitions)


class Stop:
    """Set by the first Ctrl-C (or SIGTERM); the second one raises."""

    def __init__(self) -> None:
        self.asked = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Turn the first SIGINT or SIGTERM into a wish to stop at the next chunk; only in the main thread."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def bin_keys(seed: int, identity: np.ndarray) -> Any:
    """One random key a bin, from the seed and the bin's own data: never from its place. (bin,)"""
    base = jax.random.key(seed)
    fold = jax.vmap(lambda words: jax.random.fold_in(jax.random.fold_in(base, words[0]), words[1]))
    return fold(jnp.asarray(identity))


def estimate_bins(posterior: Posterior, bins: Bin, keys: Any, chains: int, report: Report, stop: Stop) -> Estimate:
    """Estimates of all bins (leading axis), as NumPy arrays; of those that were done if a stop was asked for."""
    run = _estimator(posterior, chains, jax.local_device_count())
    count = len(bins.y)
    devices = 1 if count <= FEW_BINS else None
    data = np.asarray(jax.random.key_data(keys))
    parts = []
    for index in batches(count, BINS, devices):
        if stop.asked:
            break
        parts.append(gather(run(place(take(bins, index), devices), place(data[index], devices))))
        report(Progress("estimate", count, min(count, len(parts) * index.size)))
    if not parts:
        raise KeyboardInterrupt
    return jax.tree.map(lambda *arrays: np.concatenate(arrays)[:count], *parts)


@lru_cache(maxsize=32)
def _estimator(posterior: Posterior, chains: int, devices: int) -> Spread:
    return Spread(lambda bin, data: estimate(posterior, bin, jax.random.wrap_key_data(data), chains))


def start_compiling(posterior: Posterior, bins: Bin, schedule: Schedule) -> None:
    """Begin to compile everything in the background, the estimates first."""
    devices = jax.local_device_count()
    few = 1 if len(bins.y) <= FEW_BINS else None
    index = next(batches(1, BINS, few))
    words = np.asarray(jax.random.key_data(jax.random.key(0)))
    estimator = _estimator(posterior, schedule.chains, devices)
    arguments = place(take(bins, index), few), place(np.tile(words, (index.size, 1)), few)
    estimator.start(*arguments)
    first = take(bins, next(batches(1, LANES)))
    width, size = len(first.y), len(posterior.names)
    eye = np.broadcast_to(np.eye(size), (width, size, size))
    empty = estimator.shapes(*arguments)[0]
    proposals = jax.tree.map(lambda leaf: np.zeros((width, *leaf.shape[1:])), empty.proposals)
    lanes = place(Lane(first, eye[:, 0], eye, eye[:, 0], proposals, np.tile(words, (width, 1))))
    begin, advance = _kernel(posterior, schedule.warmup, schedule.target_accept, devices)
    begin.start(lanes)
    advance.start(begin.shapes(lanes), lanes)


def sample_bins(
    posterior: Posterior, bins: Bin, estimates: Estimate, keys: Any, schedule: Schedule, report: Report, stop: Stop
) -> Draws:
    """Draws of all bins (leading axis of `bins`, `estimates` and `keys`)."""
    begin, advance = _kernel(posterior, schedule.warmup, schedule.target_accept, jax.local_device_count())
    count, chains = len(bins.y), schedule.chains
    bin_of, chain_of = np.divmod(np.arange(count * chains), chains)
    data = np.asarray(jax.random.key_data(jax.vmap(lambda k: _chain_keys(k, chains))(keys)))
    result = Draws(made=np.zeros((count, chains), int), thin=np.full(count, schedule.thin))
    tell = _teller(count, schedule, report)
    for index in batches(count * chains, LANES):
        if stop.asked:
            break
        b, c = bin_of[index], chain_of[index]
        lanes = Lane(
            take(bins, b),
            estimates.center[b],
            estimates.frame[b],
            estimates.starts[b, c],
            take(estimates.proposals, b),
            data[b, c],
        )
        real = np.unique(index).size
        transitions = _run_batch(begin, advance, lanes, schedule, partial(tell, int(index[0]), real), stop)
        _store(result, transitions, b[:real], c[:real], count, schedule)
    return result


def _teller(bins: int, schedule: Schedule, report: Report) -> Callable[..., None]:
    """A function that reports how far the sampling is, given the batch and the transitions it has made."""
    started = time.monotonic()

    def tell(first: int, lanes: int, done: int, chunks: list[Transition]) -> None:
        chains = schedule.chains
        share = (first + lanes * done / schedule.transitions) / (bins * chains)
        state = _progress(bins, first // chains, lanes // chains, chunks, schedule)
        state.share, state.seconds_left = share, (time.monotonic() - started) * (1.0 / share - 1.0)
        report(state)

    return tell


def _chain_keys(key: Any, chains: int) -> Any:
    return jax.vmap(lambda chain: jax.random.fold_in(key, chain))(jnp.arange(chains))


def _run_batch(
    begin: Spread,
    advance: Spread,
    lanes: Lane,
    schedule: Schedule,
    tell: Callable[[int, list[Transition]], None],
    stop: Stop,
) -> Transition | None:
    """The kept transitions of one batch of lanes, (lane, draw), as NumPy arrays; fewer if a stop was asked for."""
    parts = place(lanes)
    state = begin(parts)
    chunks: list[Transition] = []
    for done in range(0, schedule.transitions, CHUNK):
        advanced = advance(state, parts)
        state = [part[0] for part in advanced]
        made = gather([part[1] for part in advanced])
        kept = schedule.kept(np.arange(done, done + CHUNK))
        if kept.any():
            chunks.append(jax.tree.map(lambda array, kept=kept: array[:, kept], made))
        tell(min(done + CHUNK, schedule.transitions), chunks)
        if stop.asked:
            break
    if not chunks:
        return None
    return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=1), *chunks)


@lru_cache(maxsize=32)
def _kernel(posterior: Posterior, warmup: int, target_accept: float, devices: int) -> tuple[Spread, Spread]:
    """Compiled functions: lanes to first states, and (states, lanes) to (states, a chunk of transitions)."""

    def potential_of(bin: Bin, center: Any, frame: Any) -> Callable[[Any], Any]:
        return lambda u: posterior.potential(center + frame @ u, bin)

    init, step = hmc(potential_fn_gen=potential_of, algo="NUTS")

    def begin(lane: Lane) -> Any:
        key, _ = jax.random.split(jax.random.wrap_key_data(lane.key))
        return init(
            lane.start,
            warmup,
            step_size=0.7,
            dense_mass=False,
            target_accept_prob=target_accept,
            max_tree_depth=MAX_TREE_DEPTH,
            model_args=(lane.bin, lane.center, lane.frame),
            rng_key=key,
        )

    def advance(state: Any, lane: Lane) -> tuple[Any, Transition]:
        _, key = jax.random.split(jax.random.wrap_key_data(lane.key))

        def transition(state: Any, _: None) -> tuple[Any, Transition]:
            state = step(state, (lane.bin, lane.center, lane.frame), {})
            key_jump, key_amplitudes = jax.random.split(jax.random.fold_in(key, state.i))
            potential = potential_of(lane.bin, lane.center, lane.frame)
            state, jumped = jump(key_jump, state, lane.proposals, potential)
            values = posterior.constrain(lane.center + lane.frame @ state.z, lane.bin, key_amplitudes)
            out = Transition(
                values,
                state.potential_energy,
                state.energy,
                state.num_steps,
                state.accept_prob,
                state.adapt_state.step_size,
                state.diverging,
                jumped,
            )
            return state, out

        return jax.lax.scan(transition, state, None, length=CHUNK)

    return Spread(begin), Spread(advance)


def _store(result: Draws, transitions: Transition | None, bin: Any, chain: Any, bins: int, schedule: Schedule) -> None:
    """Put one batch's transitions in their places."""
    if transitions is None:
        return
    stats = transitions._asdict()
    made = transitions.potential.shape[1]
    for store, arrays in ((result.values, stats.pop("values")), (result.stats, stats)):
        for name, array in arrays.items():
            whole = store.setdefault(name, np.full((bins, schedule.chains, schedule.draws), np.nan))
            whole[bin, chain, :made] = array[: len(bin)]
    result.made[bin, chain] = made


def _progress(bins: int, before: int, now: int, chunks: list[Transition], schedule: Schedule) -> Progress:
    """Progress of the present batch; R-hat over its bins that have all their chains in it."""
    done = sum(chunk.potential.shape[1] for chunk in chunks)
    state = Progress("sample" if schedule.thin == 1 else "escalate", bins, before, done, schedule.draws)
    lanes = now * schedule.chains
    if now and done >= 2 * CHUNK:
        potential = np.concatenate([chunk.potential for chunk in chunks], axis=1)[:lanes]
        series = potential.reshape(now, schedule.chains, -1)
        state.worst_rhat = float(np.nanmax(_convergence.rhat(series), initial=1.0))
        state.divergences = int(sum(chunk.diverging[:lanes].sum() for chunk in chunks))
    if done >= schedule.draws:
        state.bins_done = before + now
    return state


def unconverged(draws: Draws, names: tuple[str, ...], schedule: Schedule) -> np.ndarray:
    """Places of bins whose worst parameter misses the wanted R-hat or ESS (in short runs, a quarter of the draws)."""
    wanted = min(LEAST_ESS, 0.25 * schedule.chains * schedule.draws)
    series = np.stack([draws.values[name] for name in names], axis=1)
    worst = [_convergence.rhat(series).max(axis=1), _convergence.ess_bulk(series).min(axis=1)]
    worst.append(_convergence.ess_tail(series).min(axis=1))
    return np.flatnonzero(~((worst[0] <= LARGEST_RHAT) & (worst[1] >= wanted) & (worst[2] >= wanted)))
