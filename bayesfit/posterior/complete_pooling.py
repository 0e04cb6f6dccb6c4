"""Complete pooling: all bins, or groups of them, share one value of a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, override

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from bayesfit.compute.errors import InputError
from bayesfit.modelling.law import Refutation
from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.pooling_interface import Drawn, OfBins, Pooling


@partial(jax.tree_util.register_dataclass, data_fields=("group",), meta_fields=("parameter", "groups"))
@dataclass(frozen=True)
class CompletePooling(Pooling):
    """One value for all bins, or one for each of the `groups`; `group` says which group each bin belongs to, -1 for
    none, and is 0 everywhere if all bins are one group."""

    kind = "shared"
    group: Int[AnyArray, " q_bin"]
    groups: tuple[Any, ...] | None = None

    @property
    @override
    def shares_value(self) -> bool:
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is shared: one value, or one per group."""
        return () if self.groups is None else (len(self.groups),)

    @property
    @override
    def identity(self) -> str | None:
        return f"{super().identity} {self.shape}"

    @property
    @override
    def words(self) -> str:
        return self.kind if self.groups is None else f"{self.kind} by group"

    @property
    @override
    def refutation(self) -> Refutation:
        return Refutation(f"the bins do not share {self.parameter}", "'pooled'")

    @override
    def of_bins(self, places: Int[np.ndarray, " used"]) -> CompletePooling:
        group = np.asarray(self.group)[places]
        if self.groups is None:
            return replace(self, group=group)
        for bin in places[group < 0]:
            field = f"across.{self.parameter}.by"
            raise InputError("the bin is in no group", field=field, bin=int(bin), remedy="Leave it out")
        present, group = np.unique(group, return_inverse=True)
        return replace(self, group=group, groups=tuple(self.groups[place] for place in present))

    @override
    def values(self, prior: dist.Distribution) -> Float[Array, " q_bin"]:
        if self.groups is None:
            return jnp.broadcast_to(numpyro.sample(self.parameter, prior), self.group.shape)
        return numpyro.sample(self.parameter, prior.expand([len(self.groups)]).to_event(1))[self.group]

    @override
    def drawn(
        self,
        q: OfBins,
        grid: Float[np.ndarray, " point"],
        of_bins: Float[np.ndarray, "q_bin chain draw"],
        common: Mapping[str, np.ndarray],
    ) -> Drawn:
        value = common[self.parameter]
        if self.groups is None:
            return constant_in_q(value, q.size, grid.size)
        return Drawn(value[:, self.group], np.repeat(value[:, None], grid.size, axis=1))


def constant_in_q(value: Float[np.ndarray, " sample"], bins: int, points: int) -> Drawn:
    """The same value in every bin and at every point of the grid; `bins` and `points` say how many there are."""
    return Drawn(np.repeat(value[:, None], bins, axis=1), np.repeat(value[:, None], points, axis=1))
