"""Posteriors that can be trusted for many noisy decay curves at once."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayesfit._compare import compare as compare
    from bayesfit._curves import curves as curves
    from bayesfit._datasets import one_dataset as one_dataset
    from bayesfit._describe import describe as describe
    from bayesfit._errors import BayesfitError as BayesfitError
    from bayesfit._errors import InputError as InputError
    from bayesfit._errors import ModelError as ModelError
    from bayesfit._errors import ResultError as ResultError
    from bayesfit._errors import SettingsError as SettingsError
    from bayesfit._fit import fit as fit
    from bayesfit._fit import point_estimate as point_estimate
    from bayesfit._law import Law as Law
    from bayesfit._model import Model as Model
    from bayesfit._model import Parameter as Parameter
    from bayesfit._pipeline import Pipeline as Pipeline
    from bayesfit._plots import plot_fit as plot_fit
    from bayesfit._plots import plot_series as plot_series
    from bayesfit._plots_across import plot_across as plot_across
    from bayesfit._prepare import numpyro_program as numpyro_program
    from bayesfit._registry import get_model as get_model
    from bayesfit._registry import get_pipeline as get_pipeline
    from bayesfit._registry import list_models as list_models
    from bayesfit._registry import list_pipelines as list_pipelines
    from bayesfit._registry import read as read
    from bayesfit._repeats import average as average
    from bayesfit._report import summary as summary
    from bayesfit._result import load as load
    from bayesfit._result import one_bin as one_bin
    from bayesfit._result import save as save
    from bayesfit._series import series as series
    from bayesfit._simulate import simulate as simulate
    from bayesfit._stack import stack as stack
    from bayesfit._tables import read_table as read_table
    from bayesfit._two_stage import law as law
    from bayesfit.pipelines._stokes_einstein import stokes_einstein as stokes_einstein

_HOMES = {
    "average": "_repeats",
    "compare": "_compare",
    "curves": "_curves",
    "one_dataset": "_datasets",
    "describe": "_describe",
    "BayesfitError": "_errors",
    "InputError": "_errors",
    "ModelError": "_errors",
    "ResultError": "_errors",
    "SettingsError": "_errors",
    "fit": "_fit",
    "point_estimate": "_fit",
    "Law": "_law",
    "Model": "_model",
    "Parameter": "_model",
    "Pipeline": "_pipeline",
    "plot_fit": "_plots",
    "plot_series": "_plots",
    "plot_across": "_plots_across",
    "numpyro_program": "_prepare",
    "get_model": "_registry",
    "get_pipeline": "_registry",
    "list_models": "_registry",
    "list_pipelines": "_registry",
    "read": "_registry",
    "summary": "_report",
    "load": "_result",
    "one_bin": "_result",
    "save": "_result",
    "series": "_series",
    "simulate": "_simulate",
    "read_table": "_tables",
    "stack": "_stack",
    "law": "_two_stage",
    "stokes_einstein": "pipelines._stokes_einstein",
}

__all__ = sorted(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import bayesfit` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bayesfit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bayesfit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
