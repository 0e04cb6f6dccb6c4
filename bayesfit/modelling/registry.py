"""Finds models and pipelines by name: those shipped with the package, and those of entry points of other packages."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from types import ModuleType
from typing import Any

from bayesfit.compute.errors import ModelError, SettingsError, nearest
from bayesfit.modelling.pipeline import Pipeline

Installed = dict[str, EntryPoint | None]  # by name; None for a file of the package


def list_models() -> list[str]:
    """Names of the models that are installed: those shipped, and those of the entry-point group `bayesfit.models`."""
    return sorted(installed("bayesfit.models"))


def list_pipelines() -> list[str]:
    """Names of the pipelines that are installed, also those of the entry-point group `bayesfit.pipelines`."""
    return sorted(installed("bayesfit.pipelines"))


def describe_model(name: str) -> tuple[str, str]:
    """Description and formula of an installed model, also of one that can only be made with options.

    Raises:
        SettingsError: no model has this name. ModelError: it cannot be loaded.
    """
    module = module_of(name, "bayesfit.models", "model")
    words = getattr(module, "model", module)
    return getattr(words, "description", ""), getattr(words, "formula", "")


def get_pipeline(name: str) -> Pipeline:
    """The pipeline of that name.

    Raises:
        SettingsError: no pipeline has this name.
    """
    pipeline = module_of(name, "bayesfit.pipelines", "pipeline")
    if isinstance(pipeline, ModuleType):
        pipeline = getattr(pipeline, "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        raise ModelError("its module has no `pipeline`", field=f"pipeline {name!r}")
    return pipeline


def installed(package: str) -> Installed:
    """Everything in the package, and in the entry-point group of the same name."""
    shipped = (module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__))
    files = {name: None for name in shipped if not name.startswith("_")}
    return {**files, **{entry.name: entry for entry in _entry_points(package, tuple(sys.path))}}


@lru_cache(maxsize=8)
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """The entry points of a group. They are looked up once for each search path, since that takes tens of
    milliseconds."""
    return entry_points(group=group)


def module_of(name: str, package: str, attribute: str) -> Any:
    """The module of that name in the package, or what an entry point of that name stands for.

    Raises:
        SettingsError: nothing has this name; the message calls it an `attribute`. ModelError: it cannot be loaded.
    """
    known = installed(package)
    if name not in known:
        raise SettingsError(f"unknown {attribute} {name!r}", field=attribute, remedy=nearest(name, known))
    try:
        entry = known[name]
        return importlib.import_module(f"{package}.{name}") if entry is None else entry.load()
    except Exception as error:
        problem = f"cannot be loaded: {type(error).__name__}: {error}"
        raise ModelError(problem, field=f"{attribute} {name!r}") from error
