"""Finds models and pipelines by name, entry point or path; reads a file with the pipeline that recognises it."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import logging
import pkgutil
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import xarray as xr

from bayesfit.compute.errors import BayesfitError, InputError, ModelError, SettingsError, nearest
from bayesfit.compute.kinds import expect_path, in_words
from bayesfit.data.curves import within
from bayesfit.data.describe import describe
from bayesfit.modelling.model import Model
from bayesfit.modelling.options import call, plain
from bayesfit.modelling.pipeline import READING, Pipeline

LOG = logging.getLogger("bayesfit")
_LOADED: dict[tuple[str, str], ModuleType] = {}
_MADE: dict[tuple[str, str], Model] = {}
HOW_TO_GIVE = 'Give model = {{name = "...", {option} = ...}}, or --set model.{option}=...'


def list_models() -> list[str]:
    """Names of the models that are installed: those shipped, and those of the entry-point group `bayesfit.models`."""
    return sorted(_installed("bayesfit.models"))


def list_pipelines() -> list[str]:
    """Names of the pipelines that are installed, also those of the entry-point group `bayesfit.pipelines`."""
    return sorted(_installed("bayesfit.pipelines"))


def get_model(model: str | Path | Mapping[str, Any] | Model) -> Model:
    """The model of that name, or the one in the file at that path (`./my_model.py`).

    A table of a name, or path, and options, `{"name": "master_curve", "table": "g1.csv"}`, gives what `make` of that
    file returns for them; equal options give one model, so that compiled programs are found again.

    Raises:
        SettingsError: no model has this name, it has no such option, or it needs one that is not given. InputError:
        there is no such file, or an option cannot be used. ModelError: the file holds no model, or fails when run.
    """
    if isinstance(model, Model):
        return model
    options = dict(model) if isinstance(model, Mapping) else {"name": model}
    name = options.pop("name", None)
    if not isinstance(name, str | Path):
        remedy = "Wrap it: bayesfit.Model(NAME, program)" if callable(model) else nearest("", list_models())
        raise SettingsError(f"got {in_words(model)}, expected a model", field="model", remedy=remedy)
    text = str(name)
    if isinstance(name, Path) or text.endswith(".py") or "/" in text:
        path = _readable(text)
        return _model_from(_module_at(path), options, f"model {path.stem!r}", path)
    found = _found(text, "bayesfit.models", "model", _installed("bayesfit.models"))
    return _model_from(found, options, f"model {text!r}")


def describe_model(name: str) -> tuple[str, str]:
    """Description and formula of an installed model, also of one that can only be made with options.

    Raises:
        SettingsError: no model has this name. ModelError: it cannot be loaded.
    """
    found = _found(name, "bayesfit.models", "model", _installed("bayesfit.models"))
    words = getattr(found, "model", found)
    return getattr(words, "description", ""), getattr(words, "formula", "")


def get_pipeline(name: str) -> Pipeline:
    """The pipeline of that name.

    Raises:
        SettingsError: no pipeline has this name.
    """
    return _named(name, "bayesfit.pipelines", "pipeline", Pipeline, _installed("bayesfit.pipelines"))


def read(
    path: str | Path,
    pipeline: str | None = None,
    *,
    skip_first: int = 0,
    tau_min: Any = None,
    tau_max: Any = None,
    **options: Any,
) -> xr.Dataset:
    """Read a file of correlation data; its kind is recognised by its content.

    Args:
        path: the file.
        pipeline: name of the pipeline to use, instead of asking each.
        skip_first: how many of the first delays to leave out.
        tau_min, tau_max: delays outside this range are left out; a number or one per bin (q_bin,), has unit s. Where a
            pipeline has a range of its own, as the detector of a light scattering instrument demands one, this replaces
            it.
        options: settings of reading that the file's pipeline takes, such as `columns`, `units` and `layout` of a table;
            see its documentation.

    Returns:
        Dataset as `bayesfit.curves` gives it: dims (q_bin, tau), `g2`, `g2_err`, `valid`, coords `tau` (s),
        `q` (1/angstrom), `phi` (degree). `attrs["sha256"]` is the file's hash, and `attrs["understood"]` says in two
        lines what the file was taken for, as `bayesfit.describe` does of any dataset; they also go to the log
        "bayesfit", at level INFO.

    Raises:
        InputError: no pipeline recognises the file (says which were asked and what each missed), or it cannot be used.
        SettingsError: no pipeline has the name given, or it does not take an option.
    """
    path = _readable(path)
    _refuse_stand_ins(path)
    ranges = {name: limit for name, limit in (("tau_min", tau_min), ("tau_max", tau_max)) if limit is not None}
    options = {name: value for name, value in options.items() if value not in (None, {})}
    chosen = _recognise(path, options) if pipeline is None else _named_for(path, pipeline, options)
    _check_options(chosen, options, path)
    taken = options | {name: limit for name, limit in ranges.items() if name in chosen.options}
    try:
        data = chosen.read(path, **taken)
    except BayesfitError:
        raise
    except Exception as error:  # damaged files make the libraries under a pipeline fail with any type
        problem = f"pipeline {chosen.name!r} cannot read it: {type(error).__name__}: {error}"
        raise InputError(problem, file=path) from error
    data.attrs.update(file=str(path), sha256=_sha256(path), pipeline=chosen.name)
    data = within(data, skip_first, **ranges)
    understood = "\n".join(describe(data))
    LOG.info("%s: %s", path, understood)
    return data.assign_attrs(understood=understood)


def _named_for(path: Path, name: str, options: Mapping[str, Any]) -> Pipeline:
    """The pipeline of that name, which must recognise the file unless settings say how to read it."""
    chosen = get_pipeline(name)
    if not options and (missing := chosen.recognise(path)):
        raise InputError(f"not a file of pipeline {chosen.name!r}: {missing}", file=path)
    return chosen


def _check_options(pipeline: Pipeline, options: Mapping[str, Any], path: Path) -> None:
    """Refuse settings of reading that nobody knows, or that the file's pipeline does not take."""
    for name in options:
        if name not in {*READING, *pipeline.options}:
            raise SettingsError("unknown setting of reading", file=path, field=name, remedy=nearest(name, READING))
        if name not in pipeline.options:
            takers = " and ".join(repr(other) for other in list_pipelines() if name in get_pipeline(other).options)
            problem = f"pipeline {pipeline.name!r}, which reads this file, takes no such setting"
            raise SettingsError(problem, file=path, field=name, remedy=f"It is of {takers}" if takers else None)


def _installed(package: str) -> dict[str, EntryPoint | None]:
    """Every name in the package and in its entry-point group; None for a file of the package."""
    shipped = (found.name for found in pkgutil.iter_modules(importlib.import_module(package).__path__))
    files = {name: None for name in shipped if not name.startswith("_")}
    return {**files, **{entry.name: entry for entry in _entry_points(package, tuple(sys.path))}}


@lru_cache(maxsize=8)
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Asked of the system once for each search path, since that takes tens of milliseconds."""
    return entry_points(group=group)


def _named(name: str, package: str, attribute: str, kind: type, installed: dict[str, EntryPoint | None]) -> Any:
    found = _found(name, package, attribute, installed)
    if isinstance(found, ModuleType):
        found = getattr(found, attribute, None)
    if not isinstance(found, kind):
        raise ModelError(f"its module has no `{attribute}`", field=f"{attribute} {name!r}")
    return found


def _found(name: str, package: str, attribute: str, installed: dict[str, EntryPoint | None]) -> Any:
    """The module of that name in the package, or what an entry point of that name stands for."""
    if name not in installed:
        raise SettingsError(f"unknown {attribute} {name!r}", field=attribute, remedy=nearest(name, installed))
    try:
        entry = installed[name]
        return importlib.import_module(f"{package}.{name}") if entry is None else entry.load()
    except Exception as error:
        problem = f"cannot be loaded: {type(error).__name__}: {error}"
        raise ModelError(problem, field=f"{attribute} {name!r}") from error


def _model_from(found: Any, options: Mapping[str, Any], field: str, file: Path | None = None) -> Model:
    """The `model` of a module, or what its `make` makes of options; or what an entry point stands for instead."""
    model = getattr(found, "model", None) if isinstance(found, ModuleType) else found
    make = getattr(found, "make", None) if isinstance(found, ModuleType) else found
    if callable(make) and (options or not isinstance(model, Model)):
        return _made(make, options, field, file)
    if not isinstance(model, Model):
        remedy = "Add `model = bayesfit.Model(...)`"
        raise ModelError("its module has no `model` and no `make`", field=field, file=file, remedy=remedy)
    if options:
        raise SettingsError(f"takes no options, got {next(iter(options))!r}", field=field)
    return model


def _made(make: Callable[..., Any], options: Mapping[str, Any], field: str, file: Path | None) -> Model:
    """What `make` makes of options, or the equal one that was made before. One that does not say of what it is made is
    a new one every time, and is given the options to say."""
    try:
        model = call(make, options, field, HOW_TO_GIVE)
    except BayesfitError:
        raise
    except Exception as error:
        raise ModelError(f"cannot be made: {type(error).__name__}: {error}", field=field, file=file) from error
    if not isinstance(model, Model):
        raise ModelError(f"`make` returns {type(model).__name__}, no model", field=field, file=file)
    if not model.options:
        return replace(model, options=plain(options))
    return _MADE.setdefault((f"{make.__module__} {field}", json.dumps(model.options, sort_keys=True)), model)


def _module_at(path: Path) -> ModuleType:
    """Run a model file; one content at one path gives one module, so that compiled programs are found again."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InputError(str(error.strerror or error).lower(), file=path) from error
    key = (str(path.resolve()), hashlib.sha256(source).hexdigest())
    if key not in _LOADED:
        _LOADED[key] = _run_model(path, source, f"bayesfit_model_{key[1][:12]}")
    return _LOADED[key]


def _run_model(path: Path, source: bytes, name: str) -> ModuleType:
    """Compiled here, not by the import system: that would keep bytecode beside the file, and may take an old one."""
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # where dataclasses, pickle and tracebacks look for it
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
        if not (isinstance(getattr(module, "model", None), Model) or callable(getattr(module, "make", None))):
            raise ModelError("holds no model", field="model", file=path, remedy="Add `model = bayesfit.Model(...)`")
    except BayesfitError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ModelError(f"fails when run: {type(error).__name__}: {error}", field="model", file=path) from error
    return module


def _readable(path: str | Path) -> Path:
    """A regular file with something in it; never waits on a pipe."""
    expect_path(path)
    try:
        path = Path(path).expanduser()
        status = path.stat()
    except FileNotFoundError as error:
        why = "the link points nowhere" if Path(path).is_symlink() else "no such file"
        remedy = "No file matches this pattern" if set("*?[") & set(str(path)) else None
        raise InputError(why, file=path, remedy=remedy) from error
    except OSError as error:
        raise InputError(str(error.strerror or error).lower(), file=path) from error
    except (ValueError, RuntimeError) as error:  # a null byte, an unknown home
        raise InputError(str(error).lower(), file=repr(str(path))) from error
    if not stat.S_ISREG(status.st_mode):
        if path.is_dir():
            raise InputError("is a folder", file=path, remedy=f"Give the files in it: {path / '*'}")
        raise InputError("is not a regular file", file=path)
    if status.st_size == 0:
        raise InputError("is empty", file=path)
    return path


def _recognise(path: Path, options: Mapping[str, Any]) -> Pipeline:
    """The pipeline that recognises the file or, where none does, the one that takes the settings given of how to read
    it."""
    missed: dict[str, str] = {}
    installed = _installed("bayesfit.pipelines")
    for general, name in itertools.product((False, True), sorted(installed)):
        try:
            pipeline: Pipeline = _named(name, "bayesfit.pipelines", "pipeline", Pipeline, installed)
            if pipeline.general is not general:
                continue
            missing = pipeline.recognise(path)
        except Exception as error:  # somebody's broken pipeline must not keep the others from their files
            missing = f"failed: {error}"
        if missing is None:
            return pipeline
        missed[name] = missing
    for name in list_pipelines() if options else ():
        if set(options) <= set(get_pipeline(name).options):
            return get_pipeline(name)
    asked = "; ".join(f"{name}: {why}" for name, why in sorted(missed.items()))
    raise InputError(f"no pipeline recognises it ({asked})", file=path)


def _refuse_stand_ins(path: Path) -> None:
    """Files that stand where data should: zeros, a web page, a pointer to large-file storage, a pickle."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise InputError(str(error.strerror or error).lower(), file=path) from error
    if not head.strip(b"\0"):
        raise InputError("is filled with zeros", file=path, remedy="The copy failed; fetch it again")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!", b"<html", b"<head", b"<?xml")):
        raise InputError("is a web page, not data", file=path, remedy="Download the file itself")
    if start.startswith(b"version https://git-lfs"):
        raise InputError("is a Git-LFS pointer, not data", file=path, remedy="Run git lfs pull")
    if start.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
        raise InputError("is a pickle; pickles are never loaded", file=path, remedy="Save it as CSV or HDF5")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_of(model: Model) -> str:
    """Where a model was defined: its module's file, or "" where it has none."""
    module = sys.modules.get(model.program.__module__)
    return str(getattr(module, "__file__", None) or getattr(model.program, "__globals__", {}).get("__file__", ""))
