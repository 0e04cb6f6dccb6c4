"""A slow simulator as a model: run at some hundred points, learnt once, and fitted as any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayesfit.backends.arrays import ensure_numpy
from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.hardware import cores
from bayesfit.compute.kinds import expect_curves
from bayesfit.compute.operations import computing
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import Progress, Report
from bayesfit.data.curves import by_bin
from bayesfit.modelling.model import Model, Parameter
from bayesfit.surrogates.allowance import check_delays
from bayesfit.surrogates.learning import Asked, learn
from bayesfit.surrogates.model import model_of
from bayesfit.surrogates.runs import Runs
from bayesfit.surrogates.simulator import Simulator
from bayesfit.surrogates.space import Space
from bayesfit.surrogates.workers import Effort

FEWEST_DELAYS = 4


def surrogate(
    simulator: Callable[[dict[str, float]], Any] | str | Sequence[str],
    space: Mapping[str, Any],
    tau: Any,
    budget: int = 300,
    seed: int = 0,
    *,
    data: xr.Dataset | None = None,
    name: str = "surrogate",
    parameters: Sequence[Parameter] = (),
    workers: int | None = None,
    time_limit: float = 600.0,
    retries: int = 2,
    cache: str | Path | None = None,
    progress: bool | Report = False,
) -> Model:
    """A model that is learnt from runs of a simulator.

    The simulator is run at scrambled Sobol points in the quantiles of the priors. Of several emulators (polynomials,
    Gaussian processes, networks) the one is kept that predicts held-out runs best; its held-out errors stay with the
    model. A fit with it compares them with the errors of the data: above 0.3 of the data's standard deviation they
    widen these, above 1 the fit is refused.

    Args:
        simulator: a function of the parameters, a table by name, that returns |g1|^2 at every delay of tau, where it is
            1 at tau = 0; or "FILE.py:FUNCTION"; or a command as a list of words, in which {input} stands for a JSON
            file of the parameters and {output} for the file that it writes: a list in JSON, an array of NumPy, or text.
        space: parameter name to prior, as `fit` takes it, one for all bins.
        tau: delays of the curve (tau,), rising and above 0, have unit s. Those of the data may be others between them.
        budget: how many times the simulator is run at most, at least 10 times the number of parameters plus 10.
        seed: of the design; a larger budget with the same seed begins with the same runs.
        data: curves that the model is meant for. Half of the budget then goes to draws from their posterior, where it
            is learnt again, until it is good there.
        name: of the model.
        parameters: descriptions of the parameters, where they are more than names.
        workers: how many runs are made side by side, each in a process of its own; by default one for each core.
        time_limit, retries: seconds that a run may take, and how often one that fails is begun again.
        cache: folder in which every run is kept as soon as it is made, so that none is made twice; by default one for
            each simulator, by the hash of its source, in `bayesfit/simulations` under XDG_CACHE_HOME (~/.cache).
        progress: as for `fit`.

    Returns:
        Model of Siegert's form, with these parameters and priors. `bayesfit.save(model, "NAME.npz")` keeps it, and
        `bayesfit.get_model("NAME.npz")`, or `--model NAME.npz`, has it again.

    Raises:
        SettingsError: a prior, the budget or the cache cannot be used, or a parameter does nothing. InputError: too
        many runs fail, or a curve has another length.

    Example:
        >>> import bayesfit
        >>> space = {"rate": "LogUniform(0.1, 1e3)", "beta": "Uniform(0.5, 1.5)"}
        >>> bayesfit.surrogate("simulate.py:curve", space, tau)  # doctest: +SKIP
    """
    delays, whole = _delays(tau), {"budget": budget, "seed": seed, "retries": retries, "workers": workers or cores()}
    count = {field: _whole(value, field) for field, value in whole.items()}
    known = Space.parse(space, parameters)
    asked = Asked(known, delays, count["budget"], count["seed"], _curves(data, delays))
    effort = Effort(count["workers"], _positive(time_limit, "time_limit"), count["retries"])
    runs = Runs.begin(Simulator.parse(simulator), asked.space.names, delays, cache, effort)
    with computing(), progress_bar(progress is True) as bar:
        report = progress if callable(progress) else bar
        told = replace(runs, report=lambda done, of: report(Progress("simulate", of, done, unit="runs")))
        return model_of(learn(asked, told, name), runs)


def _delays(given: Any) -> np.ndarray:
    """The delays of the simulator's curve.

    Raises:
        InputError: they are none.
    """
    tau = np.asarray(ensure_numpy(given))
    if tau.dtype.kind not in "fiu" or tau.ndim != 1 or tau.size < FEWEST_DELAYS:
        raise InputError(f"got {tau.dtype} {tau.shape}, expected {FEWEST_DELAYS} delays or more", field="tau")
    tau = tau.astype(float)
    if not (np.all(np.isfinite(tau)) and tau[0] > 0 and np.all(np.diff(tau) > 0)):
        raise InputError("expected rising delays above 0", field="tau", remedy="Leave out 0: the curve is 1 there")
    return tau


def _curves(given: xr.Dataset | None, tau: np.ndarray) -> xr.Dataset | None:
    if given is None:
        return None
    expect_curves(given, "data")
    data = by_bin(given)
    check_delays(tau, data)
    return data


def _whole(value: Any, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**31:
        raise SettingsError(f"got {value!r}, expected a whole number", field=field)
    return int(value)


def _positive(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 < value < np.inf:
        raise SettingsError(f"got {value!r}, expected a number above 0", field=field)
    return float(value)
