"""The driver of one large target: NumPyro's NUTS, all chains side by side, advanced by chunks of transitions.

Between chunks the host assesses the draws, reports progress, and stops cleanly on Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, UInt32
from numpyro.infer.hmc import hmc
from numpyro.infer.util import ParamInfo

from bayesfit.compute.devices import TRACING, on_one_device, start_on_one_device
from bayesfit.compute.work import Progress
from bayesfit.compute.workers import side_by_side
from bayesfit.sample.draws import STATS, Arrays, Schedule
from bayesfit.sample.escalation import Step
from bayesfit.sample.loop import Run, Table
from bayesfit.sample.preconditioner import Preconditioner, Start
from bayesfit.sample.snapshots import as_part, assessment_of, of_assessment, of_run, of_tree, part_of, put_run, tree_of
from bayesfit.sample.target import LargeTarget, Target

CHUNK = 50  # transitions
TOGETHER = 2  # chains that one program advances
TREE_DEPTH = 10  # at most
CONSTRAINED_TOGETHER = 32  # draws

Vector = Float[Array, " param"]


class Plan(NamedTuple):
    """How a target is sampled: whether the mass matrix is dense, and how many transitions per kept draw the longest
    chains make."""

    dense: bool
    longest: int = 1


class Adaptation(NamedTuple):
    """How a kernel adapts: the transitions of the warm-up, the mean acceptance rate that the step size aims at, and
    whether the mass matrix is dense."""

    warmup: int
    target_accept: float
    dense: bool

    @classmethod
    def of(cls, schedule: Schedule, plan: Plan) -> Adaptation:
        """The adaptation of a schedule."""
        return cls(schedule.warmup, schedule.target_accept, plan.dense)


def start_compiling(large: LargeTarget, start: Start, schedule: Schedule, plan: Plan) -> None:
    """Begin to compile in the background, for a start of these shapes; the target must be kept on disk."""
    target, chains = large.target, len(start.u)
    static = target, Adaptation.of(schedule, plan)
    first, keys = ParamInfo(start.u, start.potential, start.gradient), np.zeros((chains, 2), np.uint32)
    with TRACING:
        states = jax.eval_shape(partial(_begin, target=target, adaptation=static[1]), first, keys)
    width = min(TOGETHER, chains)
    state = jax.tree.map(lambda leaf: np.zeros((width, *leaf.shape[1:]), leaf.dtype), states)
    vectors = np.zeros((chains * schedule.draws, target.size))
    start_on_one_device(_advance, large.data, start.preconditioner, state, static=static, identity=target.identity)
    start_on_one_device(_begin, first, keys, static=static, identity="NUTS")
    start_on_one_device(_constrain_all, large.data, vectors, static=(target,), identity=target.identity)


class NumPyroNuts:
    """The chains of one target, from their `start`; `keys` are the data of their random keys. `kept` holds the draws
    that are kept, and `thin` how many transitions there are for each."""

    def __init__(
        self, large: LargeTarget, start: Start, keys: UInt32[np.ndarray, "chain 2"], schedule: Schedule, plan: Plan
    ) -> None:
        self.large, self.preconditioner, self.schedule = large, start.preconditioner, schedule
        self.size = large.target.size
        step = Step("NumPyro's NUTS", TREE_DEPTH, schedule.target_accept, plan.longest * schedule.draws, last=True)
        self.steps = (step,)
        self.adaptation = Adaptation.of(schedule, plan)
        first = ParamInfo(start.u, start.potential, start.gradient)
        self.state = _run(large.target, _begin, first, keys, static=(large.target, self.adaptation), identity="NUTS")
        self.run, self.ended, self.thin, self.worst_rhat = Run(0), False, 1, float("nan")
        self.run.restart(len(start.u), self.size + len(STATS))
        self.kept: Table = np.zeros((len(start.u), 0, self.size + len(STATS)))

    def start(self) -> list[Run]:
        """The one run, until it has ended."""
        return [] if self.ended else [self.run]

    def advance(self) -> None:
        """Advance all chains by a chunk."""
        self.state, made = self._advanced()
        never = np.zeros(made["potential"].shape)  # NumPyro makes no independence proposals
        columns = [made.get(name, never)[..., None] for name in STATS]
        self.run.add([*np.concatenate([made["u"], *columns], axis=-1)])

    def _advanced(self) -> tuple[Any, Arrays]:
        """The chains' states after a chunk, and what they drew. A program of two chains advances each pair, side by
        side on the cores that there are, so that draws do not depend on their number."""
        target, chains = self.large.target, len(self.kept)
        static = target, self.adaptation
        width = min(TOGETHER, chains) if target.kept_on_disk else chains

        def advanced(chosen: Int[np.ndarray, " chosen"]) -> Any:
            state = jax.tree.map(lambda array: np.asarray(array)[chosen], self.state)
            arguments = self.large.data, self.preconditioner, state
            made = _run(target, _advance, *arguments, static=static, identity=target.identity)
            return jax.tree.map(np.asarray, made)

        groups = np.resize(np.arange(chains), (-(-chains // width), width))  # some chains twice if they do not go up
        made = side_by_side([partial(advanced, chosen) for chosen in groups])
        return jax.tree.map(lambda *arrays: np.concatenate(arrays)[:chains], *made)

    def series(self, table: Table) -> Float[np.ndarray, "series chain draw"]:
        """All coordinates of the target."""
        return np.moveaxis(np.asarray(self.preconditioner.vector(self._positions(table))), (0, 1, 2), (2, 1, 0))

    def _positions(self, table: Table) -> Float[np.ndarray, "draw chain param"]:
        return np.moveaxis(table[..., : self.size], 0, 1)

    def keep(self, run: Run, table: Table) -> None:
        """Keep these draws."""
        self.kept, self.thin = table, run.thin

    def escalate(self, run: Run) -> None:
        """There is only one step."""
        raise NotImplementedError

    def retire(self, run: Run) -> None:
        """The run has ended."""
        self.ended = True

    def progress(self, seconds: float) -> Progress:
        """How far the work is."""
        draws = self.schedule.draws
        made = min(draws, max(self.run.made - self.schedule.warmup, 0) // self.run.thin)
        made = self.kept.shape[1] if self.ended else made
        bins, words = self.large.bins, "" if self.ended else self.run.escalated(self.steps)
        share, said = made / draws, (f"all bins together: {words}",) if words else ()
        left = seconds * (1.0 / share - 1.0) if share > 0 else float("nan")
        found = self.worst_rhat, 0, left
        return Progress("sample", bins, bins * self.ended, made, draws, *found, share=share, escalated=said)

    def results(self) -> Arrays:
        """The kept draws, once the run has ended."""
        return self._kept() if self.ended else {}

    def _kept(self) -> Arrays:
        return {"kept": self.kept, "thin": np.array(self.thin), "best": of_assessment(self.run.best)}

    def snapshot(self) -> Arrays:
        """The run, the chains' states, and the draws that are kept so far."""
        return {**self._kept(), **as_part(of_run(self.run), "run"), **of_tree(self.state, "state")}

    def restore(self, results: Sequence[Arrays], snapshot: Arrays) -> None:
        """Go on from a snapshot, or from the results of a run that has ended."""
        last = snapshot or results[-1]
        self.kept, self.thin, self.ended = last["kept"], int(last["thin"]), not snapshot
        if snapshot:
            put_run(self.run, part_of(snapshot, "run"))
            self.state = tree_of(snapshot, "state", self.state)
        self.run.best = assessment_of(last["best"])

    def values(self) -> Any:
        """The constrained values of the kept draws, as from `constrained`; NaN for draws that were not made before a
        stop."""
        return constrained(self.large, self.preconditioner, self._positions(self.kept), self.schedule.draws)


def _run(target: Target, function: Callable[..., Any], *arguments: Any, static: tuple[Any, ...], identity: Any) -> Any:
    """The value of a function of `arguments` and, after them, `static` values; compiled in the way that the target asks
    for."""
    if target.kept_on_disk:
        return on_one_device(function, *arguments, static=static, identity=identity)
    return _jitted(function, static)(*arguments)


@lru_cache(maxsize=16)
def _jitted(function: Callable[..., Any], static: tuple[Any, ...]) -> Callable[..., Any]:
    return jax.jit(lambda *arguments: function(*arguments, *static))


def _kernel(target: Target, adaptation: Adaptation) -> tuple[Any, Any]:
    """NumPyro's functions that begin a chain and that advance it by a transition."""

    def potential(data: Any, preconditioner: Preconditioner) -> Any:
        return lambda u: target.potential(preconditioner.vector(_array(u)), data)

    by_site: Callable[[Vector], Any] = target.by_site or (lambda u: u)
    start, step = hmc(potential_fn_gen=lambda *args: potential(*args) if args else None, algo="NUTS")
    blocks = [target.names] if adaptation.dense and target.by_site else adaptation.dense

    def begin(first: ParamInfo, key: UInt32[Array, " 2"]) -> Any:
        options = {"target_accept_prob": adaptation.target_accept, "max_tree_depth": TREE_DEPTH}
        first = ParamInfo(by_site(first.z), first.potential_energy, by_site(first.z_grad))
        return start(first, adaptation.warmup, dense_mass=blocks, rng_key=key, **options)

    return begin, step


def _over_chains(target: Target, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one chain, mapped over the leading axis of its arguments. If the position is split by sites, a
    single chain is not treated as a batch of one, since XLA would round differently then: the draws are those of
    NumPyro's own `MCMC`, to the bit."""

    def over(*arguments: Any) -> Any:
        if target.by_site is None or len(jax.tree.leaves(arguments)[0]) > 1:
            return jax.vmap(function)(*arguments)
        made = function(*jax.tree.map(lambda array: array[0], arguments))
        return jax.tree.map(lambda array: array[None], made)

    return over


def _array(u: Any) -> Vector:
    """A position as an array, also where NumPyro has it by site."""
    return ravel_pytree(u)[0]


def _begin(first: ParamInfo, keys: UInt32[Array, "chain 2"], target: Target, adaptation: Adaptation) -> Any:
    """The chains' first states, from their positions, potentials and gradients."""
    begin, _ = _kernel(target, adaptation)
    return _over_chains(target, begin)(first, keys)


def _advance(
    data: Any, preconditioner: Preconditioner, state: Any, target: Target, adaptation: Adaptation
) -> tuple[Any, dict[str, Array]]:
    """The chains' states after CHUNK transitions, and what was drawn on the way (chain, CHUNK, ...)."""
    begin, step = _kernel(target, adaptation)
    one_of = jax.tree.map(lambda array: array[0], state)
    first = ParamInfo(_array(one_of.z), one_of.potential_energy, _array(one_of.z_grad))
    jax.eval_shape(begin, first, jax.random.PRNGKey(0))  # `step` takes its options from the last `begin`

    def one(state: Any, _: None) -> tuple[Any, dict[str, Array]]:
        state = _over_chains(target, lambda chain: step(chain, model_args=(data, preconditioner)))(state)
        return state, {
            "u": jax.vmap(_array)(state.z),
            "potential": state.potential_energy,
            "energy": state.energy,
            "n_steps": state.num_steps,
            "acceptance_rate": state.accept_prob,
            "step_size": state.adapt_state.step_size,
            "diverging": state.diverging,
        }

    state, made = jax.lax.scan(one, state, length=CHUNK)
    return state, jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), made)


def constrained(
    large: LargeTarget, preconditioner: Preconditioner, u: Float[np.ndarray, "draw chain param"], draws: int
) -> Any:
    """The constrained values at positions u, with leading axes (chain, draw). The second has length `draws`, with NaN
    for draws beyond those given. Positions are numbered chain by chain within each draw, and the number of a position
    is the key with which it is constrained."""
    done, chains, size = u.shape
    u = u if done else np.zeros((1, chains, size))
    vectors = np.asarray(preconditioner.vector(u)).reshape(-1, size)
    target = large.target
    made = _run(target, _constrain_all, large.data, vectors, static=(target,), identity=target.identity)

    def by_chain(array: Array) -> Float[np.ndarray, "chain draw *any"]:
        each = np.asarray(array).reshape(len(u), chains, *array.shape[1:])
        whole = np.full((chains, draws, *array.shape[1:]), np.nan)
        whole[:, :done] = np.swapaxes(each, 0, 1)[:, :done]
        return whole

    return jax.tree.map(by_chain, made)


def _constrain_all(data: Any, vectors: Float[Array, "draw param"], target: Target) -> Any:
    """The constrained values at positions z, each with its number as the key."""
    numbers = jnp.arange(len(vectors))
    one = lambda each: target.constrain(each[0], data, each[1])  # noqa: E731
    return jax.lax.map(one, (vectors, numbers), batch_size=CONSTRAINED_TOGETHER)
