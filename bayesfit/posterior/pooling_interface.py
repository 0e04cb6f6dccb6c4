"""The interface of every pooling: a way to relate the values of a parameter in the bins of a dataset.

There are four: `CompletePooling`, where all bins, or groups of them, share one value; `PartialPooling`, where the bins'
values are drawn from one normal distribution; `SmoothPooling`, where they follow a random walk in log q; `LawPooling`,
where a law in q gives them, with or without scatter.

Each is a piece of a NumPyro program over all bins: it samples what the bins have in common and returns the parameter's
value in each bin, (q_bin,). Given these values, the posterior of a bin's other parameters stays as it is. Poolings are
pytrees, whose arrays are data of a compiled program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from bayesfit.compute.errors import InputError
from bayesfit.modelling.law import Refutation
from bayesfit.modelling.model import Parameter
from bayesfit.posterior.pooling_scales import Linear, Logarithmic, Scale

OfBins = Float[np.ndarray, " q_bin"]


class Drawn(NamedTuple):
    """Posterior draws of the values that a pooling gives its parameter: `bins`, in each bin, and `curve`, over a grid
    of q. Groups of bins with values of their own have one curve each."""

    bins: Float[np.ndarray, "sample q_bin"]
    curve: Float[np.ndarray, "sample point *group"]


@dataclass(frozen=True)
class Pooling(ABC):
    """How one `parameter` is pooled. The properties here are those of most kinds; each kind states where it differs."""

    parameter: str
    kind: ClassVar[str]

    @property
    def hierarchical(self) -> bool:
        """Whether the bins scatter by a standard deviation that is inferred, so that the posterior may be a funnel."""
        return False

    @property
    def shares_value(self) -> bool:
        """Whether what the bins have in common is the parameter itself, with its own prior."""
        return False

    @property
    def needs_prior(self) -> bool:
        """Whether it uses the parameter's own prior, which then must be the same in all bins."""
        return True

    @property
    def groups(self) -> tuple[Any, ...] | None:
        """The names of the groups of bins that have values of their own; None where all bins are one group."""
        return None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the bins have in common, described; empty where that is the parameter itself."""
        return ()

    @property
    def in_own_unit(self) -> tuple[str, ...]:
        """The names of those `parameters` that have the unit of the pooled parameter."""
        return ()

    @property
    def scatter_site(self) -> str | None:
        """The name of the standard deviation of the bins about their common value, on `residual_scale`; None where
        there is none."""
        return None

    @property
    def identity(self) -> str | None:
        """What its program is made of, in words; None if names and numbers cannot describe it."""
        return f"{self.parameter} {self.kind}"

    @property
    def words(self) -> str:
        """How the parameter is pooled, in words."""
        return self.kind

    @property
    @abstractmethod
    def refutation(self) -> Refutation | None:
        """What to say if the bins' residuals refute the pooling; None if it agrees with any values of the bins."""

    @abstractmethod
    def of_bins(self, places: Int[np.ndarray, " used"]) -> Self:
        """The pooling of the bins at these places alone.

        Raises:
            InputError: one of them lacks q or a group, or has a q that the law does not know; there are too few.
        """

    @abstractmethod
    def values(self, prior: dist.Distribution) -> Float[Array, " q_bin"]:
        """Sample what the bins have in common; returns the value in each bin. `prior` is the parameter's own."""

    @abstractmethod
    def drawn(
        self,
        q: OfBins,
        grid: Float[np.ndarray, " point"],
        of_bins: Float[np.ndarray, "q_bin chain draw"],
        common: Mapping[str, np.ndarray],
    ) -> Drawn:
        """Draws of the values that the pooling gives in each bin and over a grid of q.

        Args:
            q, grid: q of the bins and of the grid, have unit 1/angstrom.
            of_bins: the parameter's draws in each bin.
            common: name to draws (sample, ...) of what the bins have in common.
        """

    def residual_scale(self, values: Float[np.ndarray, "sample q_bin"]) -> Scale:
        """The scale on which the bins' own values are compared with the common ones, of which these are draws."""
        return Logarithmic() if np.all(values > 0) else Linear()

    def suited_to(self, prior: dist.Distribution) -> Self:
        """The pooling with the scale of its deviations chosen by the parameter's own prior."""
        return self

    def with_fits(self, prior: dist.Distribution, values: OfBins, sd: OfBins) -> Self:
        """The pooling in coordinates that suit the bins' own values and their standard errors."""
        return self

    def priors_of_law(self) -> dict[str, dist.Distribution]:
        """The priors of what a law samples, by name; empty where there is no law."""
        return {}

    def refuse_choices(self, priors: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """Raise SettingsError where a user gives priors or values of what follows from a law."""
        return


def check_has_q(q: OfBins, places: Int[np.ndarray, " used"], field: str) -> None:
    """Raise InputError where q of one of the bins at these places is unknown or not positive."""
    for bin in places[~(q[places] > 0)]:
        what = "the bin has no q" if np.isnan(q[bin]) else f"q is {q[bin]:g}, not above 0"
        raise InputError(what, field=field, bin=int(bin), remedy="Give q to bayesfit.curves, or leave the bin out")
