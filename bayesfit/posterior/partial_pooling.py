"""Partial pooling: the bins' values of a parameter scatter about a common one, independently or as a random walk in
q."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, override

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from bayesfit.compute.errors import InputError
from bayesfit.modelling.law import Refutation
from bayesfit.modelling.model import Parameter
from bayesfit.posterior.complete_pooling import constant_in_q
from bayesfit.posterior.deviations import DEVIATIONS, Fits, Steps, fits_on, independent, random_walk
from bayesfit.posterior.pooling_interface import Drawn, OfBins, Pooling, check_has_q
from bayesfit.posterior.pooling_scales import Scale, Unconstrained

SPREAD = 1.0  # scale of the half-normal prior of the bins' standard deviation, on the unconstrained scale


@dataclass(frozen=True)
class NormalPooling(Pooling):
    """Values that scatter about a common one by a normal distribution on the unconstrained scale of the parameter's
    prior: scale(value) = scale(NAME_mean) + NAME_spread * deviation, with NAME_spread ~ HalfNormal(SPREAD).

    The abstract part of `PartialPooling` and `SmoothPooling`, which state how the deviations are distributed.
    """

    scale: ClassVar[Scale] = Unconstrained()

    @property
    @override
    def hierarchical(self) -> bool:
        return True

    @property
    @override
    def in_own_unit(self) -> tuple[str, ...]:
        return (f"{self.parameter}_mean",)

    @override
    def values(self, prior: dist.Distribution) -> Float[Array, " q_bin"]:
        mean = numpyro.sample(f"{self.parameter}_mean", prior)
        spread = numpyro.sample(f"{self.parameter}_spread", dist.HalfNormal(SPREAD))
        middle = self.scale.to(mean, prior)
        return self.scale.back(middle + spread * self.deviations(spread, middle), prior)

    @abstractmethod
    def deviations(self, spread: Float[Array, ""], middle: Float[Array, ""]) -> Float[Array, " q_bin"]:
        """Sample the deviations; `middle` is the common value on the unconstrained scale."""


@partial(jax.tree_util.register_dataclass, data_fields=("fits",), meta_fields=("parameter", "count"))
@dataclass(frozen=True)
class PartialPooling(NormalPooling):
    """Values of `count` bins that are drawn independently from a common normal distribution; `fits` are the bins' own
    fits, None until they are known."""

    kind = "pooled"
    count: int
    fits: Fits | None = None

    @property
    @override
    def parameters(self) -> tuple[Parameter, ...]:
        name = self.parameter
        return (
            Parameter(f"{name}_mean", "", "", f"{name} in the middle of the bins' common distribution"),
            Parameter(f"{name}_spread", "", "", f"sd of the bins' {name}, on its unconstrained scale"),
        )

    @property
    @override
    def scatter_site(self) -> str:
        return f"{self.parameter}_spread"

    @property
    @override
    def refutation(self) -> Refutation:
        return Refutation(f"the bins' {self.parameter} has no common normal distribution", "'smooth'")

    @override
    def of_bins(self, places: Int[np.ndarray, " used"]) -> PartialPooling:
        return replace(self, count=places.size)

    @override
    def deviations(self, spread: Float[Array, ""], middle: Float[Array, ""]) -> Float[Array, " q_bin"]:
        return independent(self.parameter + DEVIATIONS, self.count, spread, middle, self.fits)

    @override
    def drawn(
        self,
        q: OfBins,
        grid: Float[np.ndarray, " point"],
        of_bins: Float[np.ndarray, "q_bin chain draw"],
        common: Mapping[str, np.ndarray],
    ) -> Drawn:
        return constant_in_q(common[f"{self.parameter}_mean"], q.size, grid.size)

    @override
    def residual_scale(self, values: Float[np.ndarray, "sample q_bin"]) -> Scale:
        return self.scale

    @override
    def with_fits(self, prior: dist.Distribution, values: OfBins, sd: OfBins) -> PartialPooling:
        return replace(self, fits=fits_on(self.scale, prior, values, sd))


@partial(jax.tree_util.register_dataclass, data_fields=("q", "steps", "fits"), meta_fields=("parameter",))
@dataclass(frozen=True)
class SmoothPooling(NormalPooling):
    """Values that follow a random walk in log q, which begins at NAME_mean in the bin of the smallest q. The variance
    of a step is NAME_spread^2 times the step in log q. `steps` are known once `of_bins` has chosen the bins."""

    kind = "smooth"
    q: OfBins
    steps: Steps | None = None
    fits: Fits | None = None

    @property
    @override
    def parameters(self) -> tuple[Parameter, ...]:
        name = self.parameter
        return (
            Parameter(f"{name}_mean", "", "", f"{name} at the smallest q"),
            Parameter(f"{name}_spread", "", "", f"sd of {name} over a factor e in q, on its unconstrained scale"),
        )

    @property
    @override
    def refutation(self) -> None:
        return None

    @override
    def of_bins(self, places: Int[np.ndarray, " used"]) -> SmoothPooling:
        field = f"across.{self.parameter}"
        check_has_q(self.q, places, field)
        q = self.q[places]
        if q.size < 2:
            raise InputError("'smooth' needs two usable bins", field=field, remedy="Leave it out, or take 'shared'")
        order = np.argsort(q, kind="stable")
        return replace(self, q=q, steps=Steps(order, np.sqrt(np.diff(np.log(q[order])))))

    @override
    def deviations(self, spread: Float[Array, ""], middle: Float[Array, ""]) -> Float[Array, " q_bin"]:
        assert self.steps is not None
        return random_walk(self.parameter + DEVIATIONS, self.steps, spread, middle, self.fits)

    @override
    def drawn(
        self,
        q: OfBins,
        grid: Float[np.ndarray, " point"],
        of_bins: Float[np.ndarray, "q_bin chain draw"],
        common: Mapping[str, np.ndarray],
    ) -> Drawn:
        values = np.moveaxis(of_bins, 0, -1).reshape(-1, q.size)
        made = np.isfinite(values).all(axis=1)
        made[0] |= not made.any()
        values = values[made]
        return Drawn(values, values @ interpolation(np.log(q), np.log(grid)).T)

    @override
    def with_fits(self, prior: dist.Distribution, values: OfBins, sd: OfBins) -> SmoothPooling:
        return replace(self, fits=fits_on(self.scale, prior, values, sd))


def interpolation(x: OfBins, wanted: Float[np.ndarray, " point"]) -> Float[np.ndarray, "point q_bin"]:
    """Weights of the linear interpolation between the x: between its steps, the mean of a random walk is linear."""
    return np.stack([np.interp(wanted, np.sort(x), row) for row in np.eye(x.size)[np.argsort(x)].T], axis=1)
