"""What is sampled, as a record. The bins of a fit are many small targets of one form; a joint fit or a law in q is one
large target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, UInt32

from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.density import Posterior

Potential = Callable[[Float[Array, " param"], Any], Float[Array, ""]]
Constrain = Callable[[Float[Array, " param"], Any, Any], Any]
Corrected = Callable[[Float[Array, " param"], Any, Any], tuple[dict[str, Array], Float[Array, ""]]]


@dataclass(frozen=True)
class Target:
    """A density on an unconstrained space of `size` dimensions.

    `potential(z, data)` is minus its logarithm, up to a constant, at the position z (param,); `constrain(z, data, key)`
    gives the constrained values there by the names of the parameters, those that have to be drawn included; `names` are
    those of the inferred ones. `data` is whatever the two take beside the position, a pytree of arrays, so that one
    compiled program serves all data of one shape. `identity` says in words what the functions are made of, None where
    that is not known; the functions themselves are left out of `repr`, which names compiled programs on disk.

    Where the potential is only an approximation in which some parameters are integrated out, `corrected(z, data, key)`
    gives what `constrain` does, and the log of the density over the approximation there; the chains of small targets
    correct for it.

    Two fields matter only to large targets. Programs that are not `kept_on_disk` are compiled by `jax.jit` for this
    process. `by_site` splits a position into the coordinates of named sites where NumPyro is to move these, as it does
    when it samples a program itself: it then draws momenta with other keys.
    """

    size: int
    names: tuple[str, ...]
    potential: Potential = field(repr=False)
    constrain: Constrain = field(repr=False)
    identity: str | None
    corrected: Corrected | None = field(default=None, repr=False)
    kept_on_disk: bool = True
    by_site: Callable[[Float[Array, " param"]], dict[str, Array]] | None = field(default=None, repr=False)


@lru_cache(maxsize=32)
def bin_target(posterior: Posterior) -> Target:
    """The target that is sampled in each bin with this posterior; its data are a `Bin`."""
    names = (*posterior.names, *posterior.marginal)
    corrected = None if posterior.noise.observed is None else posterior.corrected
    size, identity = len(posterior.names), posterior.identity
    return Target(size, names, posterior.potential, posterior.constrain, identity, corrected)


@dataclass(frozen=True)
class BinTargets:
    """The bins of a fit: the posterior that they have in common, their data, and the data of their random keys. The
    last two have a leading axis. `labels` tell the bins apart in reports of progress."""

    posterior: Posterior
    data: Bin
    keys: UInt32[np.ndarray, "bin 2"]
    labels: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many bins there are."""
        return len(self.data.y)

    @property
    def target(self) -> Target:
        """The target that all bins have in common; only their data differ."""
        return bin_target(self.posterior)


class LargeTarget(NamedTuple):
    """One target with its data; `bins` is the number of bins that it describes, which only progress reports use."""

    target: Target
    data: Any
    bins: int
