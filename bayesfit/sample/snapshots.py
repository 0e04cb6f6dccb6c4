"""What the journal keeps of sampling: records of runs and of draws as arrays by name, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from bayesfit.sample.draws import STATS, Arrays, Assessment, Draws
from bayesfit.sample.loop import Run

OF_BINS = "done", "thin", "adaptations", "tree_depth", "convergence"  # of draws, by bin


def of_run(run: Run) -> Arrays:
    """A run: its numbers, its transitions chain by chain, and its assessment."""
    tables = {f"table/{chain}": np.concatenate(parts) for chain, parts in enumerate(run.tables)}
    numbers = np.array([run.bin, run.first, run.step, run.thin])
    return {"numbers": numbers, "counts": run.counts, "best": of_assessment(run.best), **tables}


def put_run(run: Run, arrays: Mapping[str, np.ndarray]) -> None:
    """Make a run what it was."""
    run.bin, run.first, run.step, run.thin = arrays["numbers"].tolist()
    run.counts, run.best = arrays["counts"].copy(), assessment_of(arrays["best"])
    run.tables = [[arrays[f"table/{chain}"]] for chain in range(run.counts.size)]


def of_assessment(found: Assessment | None) -> Float[np.ndarray, " number"]:
    """An assessment as numbers; none at all for none."""
    if found is None:
        return np.zeros(0)
    return np.array([found.enough, found.untroubled, found.ess, *found.convergence, found.finite], float)


def assessment_of(numbers: Float[np.ndarray, " number"]) -> Assessment | None:
    """An assessment from its numbers."""
    if not numbers.size:
        return None
    enough, untroubled, ess, rhat, bulk, tail, finite = numbers.tolist()
    return Assessment(bool(enough), bool(untroubled), ess, (rhat, bulk, tail), bool(finite))


def of_draws(draws: Draws, bins: Int[np.ndarray, " chosen"]) -> Arrays:
    """The draws of some bins."""
    values = {f"values/{name}": array[bins] for name, array in draws.values.items()}
    stats = {f"stats/{name}": array[bins] for name, array in draws.stats.items()}
    return {"bins": bins, **values, **stats, **{name: getattr(draws, name)[bins] for name in OF_BINS}}


def put_draws(draws: Draws, arrays: Mapping[str, np.ndarray]) -> None:
    """Set the draws of some bins to what they were."""
    bins = arrays["bins"]
    for kind, store in (("values", draws.values), ("stats", draws.stats)):
        for name, array in part_of(arrays, kind).items():
            not_made = STATS.get(name, np.float64(np.nan))
            store.setdefault(name, np.full((len(draws.done), *array.shape[1:]), not_made))[bins] = array
    for name in OF_BINS:
        getattr(draws, name)[bins] = arrays[name]


def of_tree(tree: PyTree, name: str) -> Arrays:
    """The leaves of a pytree of arrays."""
    return {f"{name}/{place}": np.asarray(leaf) for place, leaf in enumerate(jax.tree.leaves(tree))}


def tree_of(arrays: Mapping[str, np.ndarray], name: str, like: PyTree) -> PyTree:
    """A pytree of the structure of another one, from its leaves."""
    leaves = part_of(arrays, name)
    return jax.tree.unflatten(jax.tree.structure(like), [leaves[str(place)] for place in range(len(leaves))])


def part_of(arrays: Mapping[str, np.ndarray], name: str) -> Arrays:
    """The arrays whose names begin so, without this beginning."""
    return {path.removeprefix(f"{name}/"): array for path, array in arrays.items() if path.startswith(f"{name}/")}


def as_part(arrays: Mapping[str, np.ndarray], name: str) -> Arrays:
    """Arrays under names that begin so."""
    return {f"{name}/{path}": array for path, array in arrays.items()}


def numbered(arrays: Mapping[str, np.ndarray], name: str, numbers: Iterable[int]) -> Iterable[tuple[int, Arrays]]:
    """Each of these numbers with its part of the arrays."""
    return ((int(number), part_of(arrays, f"{name}/{number}")) for number in numbers)
