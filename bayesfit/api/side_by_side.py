"""Several datasets at once, each with a result of its own: the bins of those that have one posterior and delays of one
padded length share the lanes of one program. Each result has the bits that it has alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import xarray as xr

from bayesfit.api.automatic_noise import noises
from bayesfit.api.stages import Begun, Choices, begin, fit_each
from bayesfit.compute.errors import BayesfitError
from bayesfit.compute.work import Report
from bayesfit.modelling.settings import FitSettings

Ended = xr.DataTree | BayesfitError  # the result of a dataset, or why it has none


def fit_side_by_side(
    datasets: Sequence[xr.Dataset], choices: Choices, settings: FitSettings, report: Report
) -> list[Ended]:
    """The result of each dataset, as `fit` returns it, or the error that `fit` raises. Call it with x64 on.

    Raises:
        KeyboardInterrupt: the user asked to stop.
    """
    fits = [_Fit(curves, choices, settings) for curves in datasets]
    while waiting := [fit for fit in fits if fit.ended is None]:
        for fit in waiting:
            fit.begin()
        for group in _groups([fit for fit in waiting if fit.begun is not None]):
            _fit_group(group, report)
    return [fit.ended for fit in fits if fit.ended is not None]


class _Fit:
    """The fit of one dataset: the settings that are `asked` for one after the other, the fit with the last of them, and
    how it has `ended`."""

    def __init__(self, curves: xr.Dataset, choices: Choices, settings: FitSettings) -> None:
        self.curves, self.choices = curves, choices
        self.asked = noises(curves, choices, settings)
        self.answer: xr.DataTree | None = None
        self.begun: Begun | None = None
        self.ended: Ended | None = None

    @contextmanager
    def ending(self) -> Iterator[None]:
        """An error within ends this fit alone."""
        try:
            yield
        except BayesfitError as error:
            self.ended, self.begun = error, None

    def begin(self) -> None:
        """Begin with the settings that are asked for next, or end with the result."""
        self.begun = None
        with self.ending():
            try:
                settings = next(self.asked) if self.answer is None else self.asked.send(self.answer)
            except StopIteration as end:
                self.ended = end.value
            else:
                self.begun = begin(self.curves, self.choices, settings)

    @property
    def alone(self) -> Begun:
        """The fit that was begun."""
        assert self.begun is not None
        return self.begun

    def fits(self, other: _Fit) -> bool:
        """Whether the bins of both can be fitted side by side."""
        begun = self.alone, other.alone
        return all(each.together is None and each.before.bins for each in begun) and begun[0].before.fits(
            begun[1].before
        )

    def fit_alone(self, report: Report) -> None:
        """Fit the bins of this dataset."""
        with self.ending():
            self.answer = self.alone.made(report)


def _groups(fits: Sequence[_Fit]) -> list[list[_Fit]]:
    """The fits whose bins can be fitted side by side, in the order in which the first of each group stands."""
    groups: list[list[_Fit]] = []
    for fit in fits:
        group = next((group for group in groups if group[0].fits(fit)), None)
        if group is None:
            groups.append([fit])
        else:
            group.append(fit)
    return groups


def _fit_group(group: Sequence[_Fit], report: Report) -> None:
    """Fit the bins of a group side by side; where the model fails in one of them, each dataset by itself."""
    befores = [fit.alone.before for fit in group]
    try:
        outcome = fit_each(befores[0].and_(befores[1:]), report) if len(group) > 1 else None
    except BayesfitError:
        outcome = None
    if outcome is None:
        for fit in group:
            fit.fit_alone(report)
        return
    for fit, own in zip(group, outcome.split(befores), strict=True):
        with fit.ending():
            fit.answer = fit.alone.end(own, report)
