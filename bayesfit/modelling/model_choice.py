"""Models as users ask for them: by name, by name and options, or from a file of their own."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from bayesfit.compute.errors import BayesfitError, InputError, ModelError, SettingsError, nearest
from bayesfit.compute.kinds import in_words
from bayesfit.modelling.file_checks import readable
from bayesfit.modelling.model import Model
from bayesfit.modelling.options import call, plain
from bayesfit.modelling.registry import list_models, module_of

_LOADED: dict[tuple[str, str], ModuleType] = {}
_MADE: dict[tuple[str, str], Model] = {}
OF_NUMBERS = {".npz": "bayesfit.surrogates.model"}  # files without a program, by ending: whose `make` reads them
HOW_TO_GIVE = 'Give model = {{name = "...", {option} = ...}}, or --set model.{option}=...'


def get_model(model: str | Path | Mapping[str, Any] | Model) -> Model:
    """The model of that name, or the one in the file at that path: a program (`./my_model.py`), or what was learnt of a
    simulator (`learnt.npz`).

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
    if (ending := Path(text).suffix) in OF_NUMBERS:
        field = f"model {Path(text).stem!r}"
        return _model_from(importlib.import_module(OF_NUMBERS[ending]), {**options, "file": text}, field, Path(text))
    if isinstance(name, Path) or text.endswith(".py") or "/" in text:
        path = readable(text)
        return _model_from(_module_at(path), options, f"model {path.stem!r}", path)
    module = module_of(text, "bayesfit.models", "model")
    return _model_from(module, options, f"model {text!r}")


def source_of(model: Model) -> str:
    """Where a model was defined: its module's file, or "" where it has none."""
    module = sys.modules.get(model.program.__module__)
    return str(getattr(module, "__file__", None) or getattr(model.program, "__globals__", {}).get("__file__", ""))


def source_hash(model: Model) -> str:
    """The SHA-256 of the file in which a model was defined, "" where there is none."""
    path = Path(source_of(model))
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def loaded_model(sha256: str, options: Mapping[str, Any]) -> Model | None:
    """The model of a file with this hash, if this process has already run it; no file is run."""
    for (path, known), module in _LOADED.items():
        if known == sha256:
            return _model_from(module, options, f"model {Path(path).stem!r}", Path(path))
    return None


def _model_from(source: Any, options: Mapping[str, Any], field: str, file: Path | None = None) -> Model:
    """The `model` of a module, or what its `make` makes of options; or the model that an entry point stands for."""
    model = getattr(source, "model", None) if isinstance(source, ModuleType) else source
    make = getattr(source, "make", None) if isinstance(source, ModuleType) else source
    if callable(make) and (options or not isinstance(model, Model)):
        return _made(make, options, field, file)
    if not isinstance(model, Model):
        remedy = "Add `model = bayesfit.Model(...)`"
        raise ModelError("its module has no `model` and no `make`", field=field, file=file, remedy=remedy)
    if options:
        raise SettingsError(f"takes no options, got {next(iter(options))!r}", field=field)
    return model


def _made(make: Callable[..., Any], options: Mapping[str, Any], field: str, file: Path | None) -> Model:
    """The model that `make` returns for these options, or an equal one that was made before. A model that does not
    state its `options` is a new one every time, and gets those given here."""
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
    """Run a model file; the same content at the same path gives the same module, so that compiled programs are found
    again."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InputError(str(error.strerror or error).lower(), file=path) from error
    key = (str(path.resolve()), hashlib.sha256(source).hexdigest())
    if key not in _LOADED:
        _LOADED[key] = _run_model(path, source, f"bayesfit_model_{key[1][:12]}")
    return _LOADED[key]


def _run_model(path: Path, source: bytes, name: str) -> ModuleType:
    """Run a file as a module. It is compiled here and not by the import system, which would keep bytecode beside the
    file, and might take an old one."""
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
