"""A series of datasets of the same bins, fitted one after the other: one result with a `dataset` dimension."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from bayesfit.api.automatic_noise import AUTO, first_noise
from bayesfit.api.fit import at_work, check_options, fit
from bayesfit.api.sequential_prior import check_sequential, priors_in_common, priors_of_bins
from bayesfit.compute.devices import TRACING
from bayesfit.compute.errors import SettingsError
from bayesfit.compute.journal import is_kept
from bayesfit.compute.work import Report, reported_as
from bayesfit.data.stack import check_agreement, check_same_bins, labels_of, oriented
from bayesfit.modelling.noise import SCALED
from bayesfit.posterior.pooling import parse_across
from bayesfit.posterior.pooling_interface import Pooling
from bayesfit.posterior.prepare import prepare
from bayesfit.result.datasets import joined


def series(
    datasets: Sequence[xr.Dataset],
    model: Any = "stretched_exponential",
    *,
    names: Sequence[str | float] | None = None,
    sequential_prior: float | None = None,
    progress: bool | Report = False,
    on_interrupt: Literal["raise", "return"] = "raise",
    **options: Any,
) -> xr.DataTree:
    """Fit a series of datasets, such as those of an ageing specimen or of one specimen at several temperatures: each by
    itself, or with the posterior of one as the prior of the next.

    Args:
        datasets: what `bayesfit.read`, `bayesfit.curves`, `bayesfit.average` or `bayesfit.stack` returned, in the
            order of the series, with the same bins (q to 0.1 %). Delays may differ.
        model: as for `fit`.
        names: names of the datasets, numbers (temperatures, ages) or words; by default those of their files.
        sequential_prior: with None, every dataset is fitted by itself. With a number of 1 or more, the posterior of a
            bin whose verdict is "ok" is its prior in the next dataset, with all standard deviations on the
            unconstrained scale multiplied by this number; it says how much the specimen may change from step to step.
            The posterior is matched by independent normal distributions on that scale, which are widened until their
            product is nowhere narrower than the posterior. All bins have priors of one family. So beside bins that are
            "ok", the others have normal distributions with the mean and sd of their original priors; if no bin is "ok",
            all keep their original priors. Parameters of the noise always keep theirs. In joint fits (`across`), the
            posterior of what the bins have in common becomes the prior. Contractions and verdicts compare with the
            original priors.
        progress: as for `fit`; also says which dataset is being fitted.
        on_interrupt: as for `fit`; "return" gives the datasets that are done and the one that was being fitted.
        options: all other arguments of `fit`. Noise "auto" is chosen by the first dataset, and then that of all.

    Returns:
        DataTree with the groups that `fit` gives, each with a dimension `dataset`, and `steps` with what differs from
        dataset to dataset (file, priors). `diagnostics.prior_is_posterior` says where the prior is a posterior;
        `one_dataset` gives the result of one dataset.

    Raises:
        InputError, SettingsError, ModelError: before any sampling; one line that says what and where.

    Example:
        >>> import bayesfit
        >>> datasets = [bayesfit.simulate(bins=2, diffusion=d, seed=1)[0] for d in (1e4, 2e4)]
        >>> result = bayesfit.series(datasets, "single_exponential", names=[20, 40], draws=200)
        >>> result.posterior.rate.dims
        ('chain', 'draw', 'dataset', 'q_bin')
        >>> sorted(bayesfit.one_dataset(result, 40).posterior.sizes.items())
        [('chain', 4), ('draw', 200), ('q_bin', 2)]
    """
    datasets = oriented(datasets)
    check_agreement(datasets)
    check_same_bins(datasets)
    labels = labels_of(datasets, names)
    widen = _widening(sequential_prior)
    check_options(options)
    with at_work(progress, on_interrupt) as report:
        steps = _with_one_noise([_Step(data, model, options) for data in datasets])
        if widen is not None:
            check_sequential(steps[0].problem, steps[0].poolings)
        results = _fitted(steps, labels, widen, report, on_interrupt == "return" and not is_kept())
    whole = joined(results, labels[: len(results)])
    if widen is not None:
        whole.attrs["sequential_prior"] = widen
    if len(results) < len(labels):
        whole.attrs["datasets_left_out"] = ", ".join(map(str, labels[len(results) :]))
    return whole


def _widening(given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1.0 <= given < np.inf:
        raise SettingsError(
            f"got {given!r}, expected a number of 1 or more",
            field="sequential_prior",
            remedy="Leave it out to fit each by itself",
        )
    return float(given)


class _Step:
    """One dataset with the user's choices, which are checked: the `problem` with its original priors, and its
    `poolings`."""

    def __init__(self, curves: xr.Dataset, model: Any, options: Mapping[str, Any]) -> None:
        self.curves, self.model, self.options = curves, model, dict(options)
        self.poolings: tuple[Pooling, ...] = parse_across(options.get("across") or {}, curves)
        shared = {parameter.name for pooling in self.poolings for parameter in pooling.parameters}
        priors, fixed = (
            {name: value for name, value in (options.get(kind) or {}).items() if name not in shared}
            for kind in ("priors", "fixed")
        )
        named = {name for kind in ("priors", "fixed", "across") for name in options.get(kind) or {}}
        noise = options.get("noise", AUTO)
        self.first = first_noise(curves, model, named).noise if noise == AUTO else noise
        with TRACING:
            self.problem = prepare(curves, model, self.first, priors, fixed)

    def priors_after(self, result: xr.DataTree, widen: float) -> tuple[dict[str, Any], np.ndarray]:
        """The priors that follow from the result of the step before; and in which bins (q_bin,) they are its
        posterior."""
        if self.poolings:
            priors = priors_in_common(result, self.problem, self.poolings, self.options.get("priors") or {}, widen)
            return priors, np.full(self.curves.sizes["q_bin"], bool(priors))
        return priors_of_bins(result, self.problem, self.curves, self.options.get("seed", 0), widen)

    def fit(self, priors: Mapping[str, Any], report: Report) -> xr.DataTree:
        """The result of this dataset, with these priors in place of the user's."""
        priors = {**(self.options.get("priors") or {}), **priors}
        return fit(self.curves, self.model, **{**self.options, "priors": priors}, progress=report)


def _with_one_noise(steps: list[_Step]) -> list[_Step]:
    """The steps, with the same noise model first where the datasets would have different ones: then not all of them can
    be counted."""
    if len({step.first for step in steps}) > 1:
        return [_Step(step.curves, step.model, {**step.options, "noise": SCALED.name}) for step in steps]
    return steps


def _fitted(
    steps: list[_Step], labels: np.ndarray, widen: float | None, report: Report, partly: bool
) -> list[xr.DataTree]:
    """The results of the steps; after an interruption, those up to the interrupted one, if they are wanted `partly`."""
    results: list[xr.DataTree] = []
    for step, label in zip(steps, labels, strict=True):
        priors: dict[str, Any] = {}
        bins = np.zeros(step.curves.sizes["q_bin"], bool)
        try:
            if results and widen is not None:
                priors, bins = step.priors_after(results[-1], widen)
            if results:
                step.options["noise"] = json.loads(results[0].attrs["settings"])["noise"]
            result = step.fit(priors, reported_as(str(label), report))
        except KeyboardInterrupt:
            if not results or not partly:
                raise
            return results
        words = {"long_name": "the bin's prior is its posterior in the dataset before"}
        result["diagnostics"] = result["diagnostics"].to_dataset().assign(prior_is_posterior=("q_bin", bins, words))
        results.append(result)
        if "interrupted" in result["diagnostics"].verdict.values:
            break
    return results
