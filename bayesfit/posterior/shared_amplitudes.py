"""Amplitudes that all bins, or groups of them, have in common, integrated out in closed form.

Given all else, the curves of a group are linear in the amplitudes that they share, as one curve is in its own: with
normal priors and normal noise their conditional distribution is a normal, cut at the contrast's lower bound. Where the
contrast alone is shared, each bin's baseline is integrated out first, and the precisions of the bins add up.

The density at any value of these amplitudes then gives the density without them (Chib 1995, eq. 3):
p(y | rest) = p(y | a, rest) p(a) / p(a | y, rest).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jax.ops import segment_sum
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float, Int

from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.bin_data import Bin, Columns, first_of
from bayesfit.posterior.complete_pooling import CompletePooling
from bayesfit.posterior.coordinates import Values
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.linear_amplitudes import (
    AmplitudePriors,
    Amplitudes,
    Regression,
    conditional,
    log_marginal_ratio,
    regression,
)
from bayesfit.posterior.pooling_interface import Pooling

Coordinates = Float[Array, "q_bin param"]


@partial(jax.tree_util.register_dataclass, data_fields=("group",), meta_fields=("posterior", "names", "groups"))
@dataclass(frozen=True)
class SharedAmplitudes:
    """The amplitudes `names` that bins share, integrated out.

    `posterior` is that of one bin given all other pooled values, which `Bin.fixed` holds: in it these amplitudes are
    integrated out, and perhaps the bin's own baseline beside a shared contrast. `group` says which group each bin
    belongs to, and `groups` how many there are, None where all bins are one.
    """

    posterior: Posterior
    names: tuple[str, ...]
    groups: int | None
    group: Int[Array, " q_bin"]

    @property
    def count(self) -> int:
        """How many groups there are."""
        return self.groups or 1

    @property
    def only_shared(self) -> Posterior:
        """The posterior of one bin in which the shared amplitudes alone are integrated out."""
        left = tuple(name for name in self.posterior.marginal if name not in self.names)
        return replace(self.posterior, fixed=(*self.posterior.fixed, *left))

    def priors(self, bins: Bin) -> AmplitudePriors:
        """The priors of the shared amplitudes, which are those of the first bin."""
        return self.only_shared.amplitude_priors(first_of(bins))

    def conditional(self, z: Coordinates, bins: Bin) -> Amplitudes:
        """Each group's amplitudes (group,) given the coordinates of the bins."""
        at = jax.vmap(self.posterior.at)(z, bins)
        columns, scale = at.columns, at.scatter.scale
        if self.names == self.posterior.marginal:
            groups = jnp.arange(self.count)
            found = jax.vmap(lambda group: self._of_one_group(group, columns, scale, first_of(bins)))(groups)
        else:
            each = jax.vmap(
                lambda columns, scale, bin: regression(columns, scale, self.posterior.amplitude_priors(bin))
            )
            found = self._of_contrasts(each(columns, scale, bins))
        return jax.vmap(lambda found: conditional(found, self.priors(bins)))(found)

    def _of_one_group(
        self, group: Int[Array, ""], columns: Columns, scale: Float[AnyArray, " q_bin"], bin: Bin
    ) -> Regression:
        """All points of a group as those of one curve."""
        weight = jnp.where(self.group == group, 1.0 / scale, 0.0)[:, None]
        of_group = Columns(*(jnp.ravel(column * weight) for column in columns))
        return regression(of_group, 1.0, self.posterior.amplitude_priors(bin))

    def _of_contrasts(self, each: Regression) -> Regression:
        """The regression on the contrast of each group, from all its bins. Their baselines are integrated out
        already."""
        precision = segment_sum(each.precision, self.group, self.count)
        product = segment_sum(each.product, self.group, self.count)
        return Regression(precision, product, jnp.zeros(self.count), jnp.zeros(self.count), jnp.ones(self.count))

    def marginal(self, z: Coordinates, bins: Bin) -> tuple[Values, Float[Array, ""]]:
        """The shared amplitudes (q_bin,) by name at their conditional mean, and what is to be added to the bins' log
        densities there. These may be differentiated once, with the mean kept constant."""
        given, priors = self.conditional(z, bins), self.priors(bins)
        contrast, baseline = map(stop_gradient, given.mean)
        terms = jax.vmap(log_marginal_ratio, (0, 0, 0, None))(given, contrast, baseline, priors)
        shared = self._of_bins({"contrast": contrast, "baseline": baseline})
        return shared, jnp.sum(terms) + self._log_constant(priors)

    def _log_constant(self, priors: AmplitudePriors) -> Float[Array, ""] | float:
        """Minus the log mass of the contrasts' priors above their cut."""
        if priors.lower_bound is None:
            return 0.0
        return -self.count * log_ndtr((priors.contrast_mean - priors.lower_bound) / priors.contrast_sd)

    def draw(self, z: Coordinates, bins: Bin, key: Array) -> tuple[Values, Values]:
        """An exact conditional draw by name: of each bin (q_bin,), and of each group (group,), () where all are one."""
        given = self.conditional(z, bins)
        bin, keys = first_of(bins), jax.random.split(key, self.count)
        drawn = jax.vmap(lambda given, key: self.only_shared.draw_amplitudes(given, bin, key))(given, keys)
        by_group = {name: drawn[name] if self.groups else drawn[name][0] for name in self.names}
        return self._of_bins(drawn), by_group

    def _of_bins(self, values: Values) -> Values:
        return {name: values[name][self.group] for name in self.names}


def integrated(posterior: Posterior, poolings: tuple[Pooling, ...]) -> SharedAmplitudes | None:
    """The shared amplitudes that have a closed form; None where there are none, so that any shared ones are sampled.

    A shared contrast has one, and a shared baseline together with it if their groups are the same. A shared baseline by
    itself has one only if no contrast, whose prior may be cut, is integrated out in the bins.
    """
    shared = {
        pooling.parameter: pooling
        for pooling in poolings
        if isinstance(pooling, CompletePooling) and pooling.parameter in posterior.marginal
    }
    contrast, baseline = shared.get("contrast"), shared.get("baseline")
    if contrast is not None and baseline is not None and not np.array_equal(contrast.group, baseline.group):
        baseline = None
    if contrast is None and "contrast" in posterior.marginal:
        baseline = None
    chosen = tuple(pooling for pooling in (contrast, baseline) if pooling is not None)
    if not chosen:
        return None
    groups, names = chosen[0].groups, tuple(pooling.parameter for pooling in chosen)
    return SharedAmplitudes(posterior, names, None if groups is None else len(groups), jnp.asarray(chosen[0].group))
