"""Many arrays with a common leading axis as one table for each of their types, a row of which holds what belongs to one
item. A few tables are sent to a device, and written to, in a fraction of the time that many arrays take."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, Shaped

Tables = dict[str, Shaped[Any, "item column"]]  # by type


class Layout(NamedTuple):
    """Which columns of which table hold which array: the arrays' structure, and the type and the shape, without the
    leading axis, of each."""

    structure: Any
    types: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tree: PyTree) -> Layout:
        """The layout for arrays like these."""
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple(leaf.dtype.name for leaf in leaves), tuple(leaf.shape[1:] for leaf in leaves))

    def __str__(self) -> str:
        """In words, what a program depends on that is made for it."""
        return f"{self.types} {self.shapes}"

    def blank(self, count: int) -> Tables:
        """Tables of zeros for so many items."""
        return {name: np.zeros((count, self._columns(name)[-1].stop), name) for name in self.types}

    def tables(self, tree: PyTree) -> Tables:
        """Arrays of NumPy, or of JAX, as tables."""
        leaves = [
            leaf.reshape(len(leaf), math.prod(shape))
            for leaf, shape in zip(jax.tree.leaves(tree), self.shapes, strict=True)
        ]
        join: Any = jnp.concatenate if any(isinstance(leaf, jax.Array) for leaf in leaves) else np.concatenate
        of_type = {
            name: [leaf for leaf, of in zip(leaves, self.types, strict=True) if of == name] for name in self.types
        }
        return {name: join(parts, axis=1) for name, parts in of_type.items()}

    def arrays(self, tables: Tables) -> PyTree:
        """The arrays that are in tables."""
        columns = {name: iter(self._columns(name)) for name in tables}
        parts = [tables[name][:, next(columns[name])] for name in self.types]
        leaves = [part.reshape(len(part), *shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)

    def _columns(self, name: str) -> list[slice]:
        """The columns of each array of this type, in turn."""
        sizes = [math.prod(shape) for of, shape in zip(self.types, self.shapes, strict=True) if of == name]
        return [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
