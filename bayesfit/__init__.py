"""Posteriors that can be trusted for many noisy decay curves at once."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayesfit import geometry as geometry
    from bayesfit.api.calibrate import calibrate as calibrate
    from bayesfit.api.compare import compare as compare
    from bayesfit.api.correlate import correlate as correlate
    from bayesfit.api.fit import fit as fit
    from bayesfit.api.fit import point_estimate as point_estimate
    from bayesfit.api.fit_many import fit_many as fit_many
    from bayesfit.api.law import law as law
    from bayesfit.api.series import series as series
    from bayesfit.api.stokes_einstein import stokes_einstein as stokes_einstein
    from bayesfit.api.surrogate import surrogate as surrogate
    from bayesfit.api.two_time import read_two_time as read_two_time
    from bayesfit.api.two_time import save_two_time as save_two_time
    from bayesfit.api.two_time import two_time as two_time
    from bayesfit.backends.arrays import ensure_numpy as ensure_numpy
    from bayesfit.backends.choice import get_backend as get_backend
    from bayesfit.backends.choice import reset_backend as reset_backend
    from bayesfit.backends.choice import set_backend as set_backend
    from bayesfit.backends.choice import use_backend as use_backend
    from bayesfit.backends.devices import get_device as get_device
    from bayesfit.backends.devices import list_devices as list_devices
    from bayesfit.backends.devices import reset_device as reset_device
    from bayesfit.backends.devices import set_device as set_device
    from bayesfit.compute.errors import BayesfitError as BayesfitError
    from bayesfit.compute.errors import InputError as InputError
    from bayesfit.compute.errors import ModelError as ModelError
    from bayesfit.compute.errors import ResultError as ResultError
    from bayesfit.compute.errors import SettingsError as SettingsError
    from bayesfit.compute.journal import checkpoint as checkpoint
    from bayesfit.compute.program_files import set_cache as set_cache
    from bayesfit.correlation.photons import Photons as Photons
    from bayesfit.data.average import average as average
    from bayesfit.data.curves import curves as curves
    from bayesfit.data.describe import describe as describe
    from bayesfit.data.simulate import simulate as simulate
    from bayesfit.data.stack import stack as stack
    from bayesfit.data.two_time import age_slices as age_slices
    from bayesfit.modelling.law import Law as Law
    from bayesfit.modelling.model import Model as Model
    from bayesfit.modelling.model import Parameter as Parameter
    from bayesfit.modelling.model_choice import get_model as get_model
    from bayesfit.modelling.pipeline import Pipeline as Pipeline
    from bayesfit.modelling.reading import read as read
    from bayesfit.modelling.registry import get_pipeline as get_pipeline
    from bayesfit.modelling.registry import list_models as list_models
    from bayesfit.modelling.registry import list_pipelines as list_pipelines
    from bayesfit.modelling.tables import read_table as read_table
    from bayesfit.posterior.prepare import numpyro_program as numpyro_program
    from bayesfit.report.calibration_picture import plot_calibration as plot_calibration
    from bayesfit.report.check_pictures import plot_compare as plot_compare
    from bayesfit.report.check_pictures import plot_diagnostics as plot_diagnostics
    from bayesfit.report.curve_pictures import plot_curves as plot_curves
    from bayesfit.report.curve_pictures import plot_residuals as plot_residuals
    from bayesfit.report.export import export as export
    from bayesfit.report.html import write_report as write_report
    from bayesfit.report.overview import overview as overview
    from bayesfit.report.parameter_pictures import plot_distribution as plot_distribution
    from bayesfit.report.parameter_pictures import plot_parameters as plot_parameters
    from bayesfit.report.plots import plot_fit as plot_fit
    from bayesfit.report.plots_across import plot_across as plot_across
    from bayesfit.report.series_pictures import plot_series as plot_series
    from bayesfit.report.size_pictures import plot_sizes as plot_sizes
    from bayesfit.report.two_time_pictures import plot_two_time as plot_two_time
    from bayesfit.result.datasets import one_dataset as one_dataset
    from bayesfit.result.files import load as load
    from bayesfit.result.files import one_bin as one_bin
    from bayesfit.result.files import save as save
    from bayesfit.result.summary import summary as summary

_HOMES = {
    "age_slices": "data.two_time",
    "read_two_time": "api.two_time",
    "save_two_time": "api.two_time",
    "two_time": "api.two_time",
    "average": "data.average",
    "calibrate": "api.calibrate",
    "checkpoint": "compute.journal",
    "compare": "api.compare",
    "correlate": "api.correlate",
    "curves": "data.curves",
    "one_dataset": "result.datasets",
    "describe": "data.describe",
    "BayesfitError": "compute.errors",
    "InputError": "compute.errors",
    "ModelError": "compute.errors",
    "ResultError": "compute.errors",
    "SettingsError": "compute.errors",
    "ensure_numpy": "backends.arrays",
    "get_backend": "backends.choice",
    "reset_backend": "backends.choice",
    "set_backend": "backends.choice",
    "use_backend": "backends.choice",
    "get_device": "backends.devices",
    "list_devices": "backends.devices",
    "reset_device": "backends.devices",
    "set_device": "backends.devices",
    "set_cache": "compute.program_files",
    "fit": "api.fit",
    "fit_many": "api.fit_many",
    "point_estimate": "api.fit",
    "Law": "modelling.law",
    "Model": "modelling.model",
    "Parameter": "modelling.model",
    "Photons": "correlation.photons",
    "Pipeline": "modelling.pipeline",
    "plot_calibration": "report.calibration_picture",
    "plot_compare": "report.check_pictures",
    "plot_curves": "report.curve_pictures",
    "plot_diagnostics": "report.check_pictures",
    "plot_distribution": "report.parameter_pictures",
    "plot_parameters": "report.parameter_pictures",
    "plot_residuals": "report.curve_pictures",
    "write_report": "report.html",
    "export": "report.export",
    "overview": "report.overview",
    "plot_fit": "report.plots",
    "plot_series": "report.series_pictures",
    "plot_sizes": "report.size_pictures",
    "plot_across": "report.plots_across",
    "plot_two_time": "report.two_time_pictures",
    "numpyro_program": "posterior.prepare",
    "get_model": "modelling.model_choice",
    "get_pipeline": "modelling.registry",
    "list_models": "modelling.registry",
    "list_pipelines": "modelling.registry",
    "read": "modelling.reading",
    "summary": "result.summary",
    "load": "result.files",
    "one_bin": "result.files",
    "save": "result.files",
    "series": "api.series",
    "simulate": "data.simulate",
    "read_table": "modelling.tables",
    "stack": "data.stack",
    "law": "api.law",
    "stokes_einstein": "api.stokes_einstein",
    "surrogate": "api.surrogate",
}

_ROOMS = ("geometry",)  # whose own names are public

__all__ = sorted([*_HOMES, *_ROOMS])
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import bayesfit` costs nothing."""
    if name in _ROOMS:
        return importlib.import_module(f"bayesfit.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'bayesfit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bayesfit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
