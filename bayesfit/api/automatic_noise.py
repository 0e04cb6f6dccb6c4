"""Noise "auto": counted photon pairs where a dataset states their numbers, else the stated errors with a factor; and
where the residuals of all bins refute that, the noise model that they ask for."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, cast

import numpy as np
import xarray as xr

from bayesfit.api.stages import Choices
from bayesfit.compute.errors import InputError, warn
from bayesfit.compute.kinds import expect_curves
from bayesfit.data.counting import as_counted, missing_numbers
from bayesfit.data.curves import by_bin
from bayesfit.modelling.model_choice import get_model
from bayesfit.modelling.noise import NOISES, SCALED
from bayesfit.modelling.photons import PHOTONS
from bayesfit.modelling.settings import FitSettings

AUTO = "auto"
MOST = 2  # noise models that are fitted after the first
DESCRIBED = ("ok", "not_identified", "prior_conflict", "approximate")  # verdicts of bins that curve and noise describe

Noises = Generator[FitSettings, xr.DataTree, xr.DataTree]


class Choice(NamedTuple):
    """A noise model, why it is fitted, and whether another one may be fitted after it."""

    noise: str
    why: str
    final: bool = False


def first_noise(curves: xr.Dataset, model: Any, parameters: Iterable[str] = ()) -> Choice:
    """The noise model that a dataset is fitted with first.

    Args:
        parameters: those that the user gives priors or values of. If some are of a noise model, it is that which is
            meant.
    """
    own = {noise.name: {parameter.name for parameter in noise.parameters} for noise in NOISES.values()}
    given = set(parameters) & set().union(*own.values())
    if given:
        named = next((name for name in (PHOTONS.name, *NOISES) if given <= own[name]), SCALED.name)
        return Choice(named, f"{', '.join(sorted(given))} is given", final=True)
    if get_model(model).form != "siegert" or not curves.attrs.get("delays", 1):
        return Choice(SCALED.name, "the data are no intensity correlations")
    if missing := missing_numbers(curves):
        return Choice(SCALED.name, f"the data state no {', '.join(missing)}, so photon pairs cannot be counted")
    try:
        as_counted(by_bin(curves))
    except InputError as error:
        warn(f"noise 'scaled' is fitted, photon pairs cannot be counted: {error}")
        return Choice(SCALED.name, f"photon pairs cannot be counted: {error}")
    return Choice(PHOTONS.name, "the data state photons, pixels and frames")


def noises(curves: xr.Dataset, choices: Choices, settings: FitSettings) -> Noises:
    """The settings of the fits that are to be made, one after the other, each of which is answered by its result: those
    that are given, or with noise "auto" at most three, with the first choice and with the noise models that the
    residuals of all bins ask for.

    Returns:
        The result whose curve and noise describe most bins. With noise "auto", its attribute `noise_tried` is a list in
        JSON of what was fitted: `noise`, `why`, and `described`, the number of bins that curve and noise describe;
        `noise_chosen` says it in words.
    """
    expect_curves(curves)
    if settings.noise != AUTO:
        return (yield settings)
    tried: list[tuple[Choice, xr.DataTree]] = []
    following: Choice | None = first_noise(curves, choices.model, choices.named)
    while following is not None and len(tried) <= MOST:
        result = yield settings.model_copy(update={"noise": following.noise})
        tried.append((following, result))
        following = _next(following, result)
    return _best(tried)


def answered(asked: Noises, fit: Callable[[FitSettings], xr.DataTree]) -> xr.DataTree:
    """The result of a fit, of whose settings `fit` makes whatever is asked for."""
    settings = next(asked)
    while True:
        try:
            settings = asked.send(fit(settings))
        except StopIteration as end:
            return cast(xr.DataTree, end.value)


def _best(tried: list[tuple[Choice, xr.DataTree]]) -> xr.DataTree:
    """The fit whose curve and noise describe most bins; it says what was tried."""
    described = [_described(result) for _, result in tried]
    best = int(np.argmax(described))
    result = tried[best][1]
    records = [
        {"noise": choice.noise, "why": choice.why, "described": count}
        for (choice, _), count in zip(tried, described, strict=True)
    ]
    result.attrs["noise_tried"] = json.dumps(records)
    result.attrs["noise_chosen"] = _in_words(records, best, result["diagnostics"].sizes["q_bin"])
    return result


def _next(choice: Choice, result: xr.DataTree) -> Choice | None:
    """What the residuals of all bins ask for, if they refute a fit that came to its end."""
    diagnostics = result["diagnostics"]
    refuted, noise = diagnostics.attrs["refuted"], diagnostics.attrs["noise_to_try"]
    if choice.final or not (refuted and noise) or "interrupted" in diagnostics.verdict.values:
        return None
    return Choice(noise, refuted)


def _described(result: xr.DataTree) -> int:
    """The number of bins that curve and noise describe."""
    return int(np.isin(result["diagnostics"].verdict.values.astype(str), DESCRIBED).sum())


def _in_words(records: list[dict[str, Any]], best: int, bins: int) -> str:
    """What was chosen and why, and in how many bins each noise model that was tried describes the data."""
    chosen = f"noise '{records[best]['noise']}': {records[best]['why']}"
    if len(records) == 1:
        return chosen
    counts = ", ".join(f"'{record['noise']}' {record['described']}" for record in records)
    return f"{chosen}; bins that curve and noise describe, of {bins}: {counts}"
