"""Which of several models predicts the points of each bin best: leave-one-out cross-validation, and stacking."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.kinds import expect_result, expect_table
from bayesfit.compute.single_precision import as_stored
from bayesfit.diagnose.stacking import stacking_weights
from bayesfit.result.tree import provenance
from bayesfit.sample.convergence import ess_mean

Array = np.ndarray

LARGEST_K = 0.7
LEAST_DRAWS = 8  # per chain; with fewer, there is no effective sample size
LEAST_POINTS = 2
DATA = {
    "q_bin": "observed_data",
    "tau": "observed_data",
    "valid": "constant_data",
    "g2": "observed_data",
    "g2_err": "constant_data",
}
BINWISE = {
    "elpd": "expected log predictive density of the bin's points, each left out in turn (PSIS-LOO)",
    "se": "standard error of elpd",
    "p_loo": "effective number of parameters",
    "pareto_k": "largest Pareto k of the bin's points",
    "bad_k": "points whose Pareto k is above min(1 - 1/log10(draws), 0.7)",
    "elpd_diff": "elpd less that of the bin's best model",
    "diff_se": "standard error of elpd_diff, from its points",
    "weight": "stacking weight",
    "rank": "place by elpd; 0 is the best",
}
POINTWISE = {"elpd_i": "log predictive density of the point left out, in units of g2", "pareto_k_i": "Pareto k"}


def compare(results: Mapping[str, xr.DataTree]) -> xr.Dataset:
    """Compare models bin by bin by how well they predict each point from the others.

    The log predictive densities of left-out points come from one posterior by Pareto-smoothed importance sampling
    (Vehtari, Gelman & Gabry 2017), as ArviZ computes it, with the relative efficiency of the likelihood of each point.
    They are densities in g2, so both curve models and noise models can be compared. With correlated noise, each is the
    density of a point given all others (Buerkner, Gabry & Vehtari 2021). If the amplitudes were integrated out for
    sampling, the likelihood is still that of a point given all parameters, with contrast and baseline as they were
    drawn back into the posterior. A point is left out of the whole model, amplitudes and noise included.

    The weights are those of stacking (Yao, Vehtari, Simpson & Gelman 2018): the mixture of the models' predictive
    distributions that has the highest leave-one-out log score. Two models that predict equally well can share the
    weight in any proportion, so a small weight alone says nothing against a model: look at `elpd_diff` and `diff_se`.
    With fewer than 100 points, or if models differ by less than 4, `diff_se` is too small (Sivula et al. 2025).

    Args:
        results: name to result, as `fit(..., include=("log_likelihood",))` returned or `load` read it; fits of the same
            data with different curve models, noise models or priors.

    Returns:
        Dataset (model, q_bin), in nats: `elpd`, `se`, `p_loo`, `pareto_k` (the largest of the bin's points), `bad_k`
        (the number of points whose k is too large for their density to be trusted), `elpd_diff` and `diff_se` against
        the bin's best model, `weight`, `rank` (0 is the best), `verdict`; and for each point (model, q_bin, tau)
        `elpd_i` and `pareto_k_i`. In a bin where a model has no draws, fewer than 8 per chain, or a likelihood that is
        not finite, all of these but `verdict` are NaN for all models.

    Raises:
        SettingsError: no result is given, or one lacks the group `log_likelihood`; the message names the model.
        InputError: the results are not of the same data; the message names the model, the bin and what differs.
    """
    _check_groups(results)
    _check_data(results)
    valid = next(iter(results.values()))["constant_data"].valid.transpose("q_bin", "tau").values.astype(bool)
    elpd, k, p_loo, bad = np.stack([_pointwise(result, valid) for result in results.values()], axis=1)
    together = np.isfinite(np.where(valid, elpd, 0.0)).all(axis=(0, 2)) & valid.any(axis=1)
    elpd[:, ~together] = k[:, ~together] = np.nan
    binwise = {name: np.where(together, x, np.nan) for name, x in _binwise(elpd, k, p_loo, bad).items()}
    return _dataset(results, binwise, {"elpd_i": elpd, "pareto_k_i": k})


def _check_groups(results: Mapping[str, xr.DataTree]) -> None:
    expect_table(results, "results")
    if not results:
        raise SettingsError("there is nothing to compare", field="results", remedy="Give results by name")
    for name, result in results.items():
        expect_result(result, "fit", field=f"model {name!r}")
        if "log_likelihood" not in result.children:
            raise SettingsError(
                "its result has no group log_likelihood",
                field=f"model {name!r}",
                remedy='Fit again with include=("log_likelihood",)',
            )


def _check_data(results: Mapping[str, xr.DataTree]) -> None:
    """Refuse results whose data differ from those of the first, in the precision in which results are saved."""
    (reference, first), *others = results.items()
    for name, result in others:
        for field, group in DATA.items():
            ours, theirs = _field(first, field, group), _field(result, field, group)
            same = ours.shape == theirs.shape and (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
            if not np.all(same):
                raise InputError(
                    f"the data of model {name!r} are not those of model {reference!r}",
                    field=field,
                    bin=int(np.argwhere(~same)[0, 0]) if np.ndim(same) == 2 else None,
                    remedy="Compare fits of the same data, with the same points left out",
                )


def _field(result: xr.DataTree, field: str, group: str) -> Array:
    """One array of the data, in the precision in which results are saved."""
    array = result[group].dataset[field]
    return as_stored(array.transpose(*(dim for dim in ("q_bin", "tau") if dim in array.dims)).values)


def _pointwise(result: xr.DataTree, valid: Array) -> Array:
    """For each point left out: log density, Pareto k, effective number of parameters, and whether k is too large; (4,
    q_bin, tau), NaN where a point is not valid or a bin has no usable draws."""
    log_likelihood = result["log_likelihood"].g2
    whole = np.full((4, *valid.shape), np.nan)
    for bin, points in enumerate(valid):
        draws = _finished(log_likelihood.isel(q_bin=bin).transpose("tau", "chain", "draw").values[points])
        if draws is not None:
            elpd, k, p_loo = leave_one_out(draws)
            whole[:, bin, points] = elpd, k, p_loo, k > largest_good_k(draws[0].size)
    return whole


def _finished(log_likelihood: Array) -> Array | None:
    """The draws (point, chain, draw) in float64, without those at the end that were never made, which are NaN. None if
    too few are left, or a likelihood is not finite."""
    missing = np.isnan(log_likelihood).any(axis=(0, 1))
    count = missing.size - int(np.argmin(missing[::-1])) if not missing.all() else 0
    made = log_likelihood[..., :count].astype(float)
    if len(made) < LEAST_POINTS or count < LEAST_DRAWS or not np.isfinite(made).all():
        return None
    return made


def leave_one_out(log_likelihood: Float[np.ndarray, "point chain draw"]) -> Float[np.ndarray, "3 point"]:
    """Log predictive density of each point left out, Pareto k, and effective number of parameters; (3, point).

    Args:
        log_likelihood: (point, chain, draw), finite.
    """
    flat = log_likelihood.reshape(len(log_likelihood), -1)
    smoothed = [_smoothed(*point) for point in zip(flat, relative_efficiency(log_likelihood), strict=True)]
    elpd = _log_sum(flat + [log_weights for log_weights, _ in smoothed])
    with_it = _log_sum(flat) - np.log(flat.shape[-1])
    return np.array([elpd, [k for _, k in smoothed], with_it - elpd])


def _log_sum(x: Array) -> Array:
    """log(sum(exp(x))) over the last axis."""
    peak = x.max(axis=-1)
    return np.log(np.exp(x - peak[..., None]).sum(axis=-1)) + peak


def relative_efficiency(log_likelihood: Float[np.ndarray, "*point chain draw"]) -> Float[np.ndarray, "*point"]:
    """Effective sample size of the likelihood's mean over the number of draws; (..., chain, draw) to (...)."""
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=(-2, -1), keepdims=True))
    return ess_mean(likelihood) / np.prod(log_likelihood.shape[-2:])


def _smoothed(log_likelihood: Array, efficiency: float) -> tuple[Array, float]:
    """Log importance weights (draw,) for leaving one point out, normalised to a sum of 1, and Pareto k.

    If the tail holds equal weights, or fewer than 5, no Pareto distribution can be fitted: the weights are not
    smoothed, and k is infinite. If all weights are equal, there is nothing to smooth, and k is 0."""
    from arviz_stats.base.array import array_stats

    try:
        with np.errstate(all="ignore"):
            log_weights, k = array_stats.psislw(log_likelihood, r_eff=efficiency)
    except ValueError:
        k = 0.0 if np.ptp(log_likelihood) == 0 else np.inf
        return -log_likelihood - _log_sum(-log_likelihood), k
    return log_weights, np.inf if np.isnan(k) else float(k)


def largest_good_k(draws: int) -> float:
    """Largest Pareto k with which this number of draws estimates a density well (Vehtari et al. 2024)."""
    return min(1.0 - 1.0 / np.log10(draws), LARGEST_K)


def _binwise(elpd: Array, k: Array, p_loo: Array, bad: Array) -> dict[str, Array]:
    """The variables (model, q_bin) from those of each point (model, q_bin, tau)."""
    total = np.nansum(elpd, axis=-1)
    best = np.argmax(total, axis=0)
    behind = elpd - np.take_along_axis(elpd, best[None, :, None], axis=0)
    return {
        "elpd": total,
        "se": _error_of_sum(elpd),
        "p_loo": np.nansum(p_loo, axis=-1),
        "pareto_k": np.fmax.reduce(k, axis=-1),
        "bad_k": np.nansum(bad, axis=-1),
        "elpd_diff": np.nansum(behind, axis=-1),
        "diff_se": _error_of_sum(behind),
        "weight": stacking_weights(elpd),
        "rank": np.argsort(np.argsort(-total, axis=0, kind="stable"), axis=0),
    }


def _error_of_sum(x: Array) -> Array:
    """Standard error sqrt(n var) of the sum of n independent points (..., point); points that are NaN do not count."""
    points = np.isfinite(x).sum(axis=-1)
    mean = np.nansum(x, axis=-1) / np.maximum(points, 1)
    squares = np.nansum((x - mean[..., None]) ** 2, axis=-1)
    return np.sqrt(points / np.maximum(points - 1, 1) * squares)


def _dataset(results: Mapping[str, xr.DataTree], binwise: dict[str, Array], pointwise: dict[str, Array]) -> xr.Dataset:
    first = next(iter(results.values()))
    observed = first["observed_data"].to_dataset()
    verdicts = [result["diagnostics"].verdict.values.astype(str) for result in results.values()]
    variables = {
        **{name: (("model", "q_bin"), array, {"long_name": BINWISE[name]}) for name, array in binwise.items()},
        "verdict": (("model", "q_bin"), np.array(verdicts, dtype=object), {"long_name": "verdict on the bin's fit"}),
        **{name: (("model", "q_bin", "tau"), x, {"long_name": POINTWISE[name]}) for name, x in pointwise.items()},
    }
    return xr.Dataset(
        variables,
        coords={"model": np.array(list(results), dtype=object), **observed.coords},
        attrs={
            "creator": "bayesfit",
            "input_file": first.attrs.get("input_file", ""),
            "input_sha256": first.attrs.get("input_sha256", ""),
            **provenance(),
        },
    )


def totals(comparison: xr.Dataset) -> xr.Dataset:
    """Sums over the bins that could be compared.

    Args:
        comparison: what `compare` returned, or some bins of it.

    Returns:
        Dataset (model): `elpd`, `se`, `elpd_diff` and `diff_se` against the model with the largest sum, and `wins`, the
        number of bins where the model is ahead of every other by more than twice the standard error of the difference;
        attribute `bins`: how many bins were compared.
    """
    elpd = comparison.elpd_i.transpose("model", "q_bin", "tau").values
    flat = elpd.reshape(len(elpd), -1)
    total = np.nansum(flat, axis=-1)
    behind = flat - flat[np.argmax(total)]
    values = {
        "elpd": total,
        "se": _error_of_sum(flat),
        "elpd_diff": np.nansum(behind, axis=-1),
        "diff_se": _error_of_sum(behind),
        "wins": _wins(elpd),
    }
    compared = int(np.isfinite(elpd).any(axis=(0, 2)).sum())
    return xr.Dataset(
        {name: ("model", array) for name, array in values.items()},
        coords={"model": comparison.model},
        attrs={"bins": compared},
    )


def _wins(elpd: Array) -> Array:
    """How many bins each model wins by more than two standard errors from every other; (model, q_bin, tau)."""
    ahead = elpd[:, None] - elpd[None]
    clear = np.nansum(ahead, axis=-1) > 2.0 * _error_of_sum(ahead)
    itself = np.eye(len(elpd), dtype=bool)[..., None]
    compared = np.isfinite(elpd).any(axis=-1)
    return np.sum((clear | itself).all(axis=1) & compared, axis=-1)
