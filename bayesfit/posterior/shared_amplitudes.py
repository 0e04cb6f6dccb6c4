"""Amplitudes that all bins, or groups of them, have in common, integrated out in closed form.

Given all else, the curves of a group are linear in the amplitudes that they share, as one curve is in its own: with
normal priors and normal noise their conditional distribution is a normal, cut at the contrast's lower bound. Where the
contrast alone is shared, every bin's baseline is integrated out first, and the bins' precisions add up.

The density at any value of these amplitudes then gives that without them (Chib 1995, eq. 3):
p(y | rest) = p(y | a, rest) p(a) / p(a | y, rest).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jax.ops import segment_sum
from jax.scipy.special import log_ndtr

from bayesfit.posterior.coordinates import Values
from bayesfit.posterior.density import Amplitudes, Bin, Columns, Posterior, Regression


@partial(jax.tree_util.register_dataclass, data_fields=("group",), meta_fields=("whole", "names", "groups"))
@dataclass(frozen=True)
class SharedAmplitudes:
    """`whole` is the posterior of one bin in which the amplitudes `names` are integrated out, and perhaps the baseline
    beside a shared contrast; `group` (q_bin,): which of so many `groups` each bin belongs to; None: all are one. Bins
    hold in `fixed` all else that is pooled."""

    whole: Posterior
    names: tuple[str, ...]
    groups: int | None
    group: Any

    @property
    def count(self) -> int:
        """How many groups there are."""
        return self.groups or 1

    @property
    def common(self) -> Posterior:
        """The posterior in which the shared amplitudes alone are integrated out."""
        left = tuple(name for name in self.whole.marginal if name not in self.names)
        return replace(self.whole, fixed=(*self.whole.fixed, *left))

    def conditional(self, z: Any, bins: Bin) -> Amplitudes:
        """Each group's amplitudes (group,) given the bins' coordinates z (q_bin, param)."""
        columns, scale = jax.vmap(self.whole.columns)(z, bins)
        if self.names == self.whole.marginal:
            found = jax.vmap(lambda group: self._of_one_group(group, columns, scale, _first(bins)))(
                jnp.arange(self.count)
            )
        else:
            found = self._of_contrasts(jax.vmap(self.whole.regression)(columns, scale, bins))
        return jax.vmap(lambda found: self.common.amplitudes(found, _first(bins)))(found)

    def _of_one_group(self, group: Any, columns: Columns, scale: Any, bin: Bin) -> Regression:
        """All points of a group as those of one curve."""
        weight = jnp.where(self.group == group, 1.0 / scale, 0.0)[:, None]
        return self.whole.regression(Columns(*(jnp.ravel(column * weight) for column in columns)), 1.0, bin)

    def _of_contrasts(self, each: Regression) -> Regression:
        """What the bins of each group say of their contrast, added up; of the baseline nothing is left to say."""
        precision = segment_sum(each.precision, self.group, self.count)
        product = segment_sum(each.product, self.group, self.count)
        return Regression(precision, product, jnp.zeros(self.count), jnp.zeros(self.count), jnp.ones(self.count))

    def marginal(self, z: Any, bins: Bin) -> tuple[Values, Any]:
        """The shared amplitudes (q_bin,) by name at their conditional mean, and what is to be added to the bins' log
        densities there. These may be differentiated once, the mean being held."""
        given = self.conditional(z, bins)
        contrast, baseline = map(stop_gradient, (given.contrast, given.level - given.contrast * given.slope))
        bin = _first(bins)
        terms = jax.vmap(self.common.amplitude_term, (0, 0, 0, None))(given, contrast, baseline, bin)
        return self._of_bins({"contrast": contrast, "baseline": baseline}), jnp.sum(terms) + self._log_constant(bin)

    def _log_constant(self, bin: Bin) -> Any:
        """Minus the log mass of the contrasts' prior above its cut."""
        low = self.common.lower_bound(bin)
        if low is None:
            return 0.0
        mean, sd = self.common.amplitude_prior("contrast", bin)
        return -self.count * log_ndtr((mean - low) / sd)

    def draw(self, z: Any, bins: Bin, key: Any) -> tuple[Values, Values]:
        """An exact conditional draw by name: of each bin (q_bin,), and of each group (group,), () where all are one."""
        given = self.conditional(z, bins)
        bin, keys = _first(bins), jax.random.split(key, self.count)
        drawn = jax.vmap(lambda given, key: self.common.draw_amplitudes(given, bin, key))(given, keys)
        by_group = {name: drawn[name] if self.groups else drawn[name][0] for name in self.names}
        return self._of_bins(drawn), by_group

    def _of_bins(self, values: Values) -> Values:
        return {name: values[name][self.group] for name in self.names}


def _first(bins: Bin) -> Bin:
    """The first bin, whose priors of shared parameters are those of all."""
    return jax.tree.map(lambda array: array[0], bins)
