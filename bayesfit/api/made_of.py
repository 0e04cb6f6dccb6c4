"""What a fit is made of, in words and hashes by name: for the journal, which goes on only with the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from bayesfit.compute.hardware import workers
from bayesfit.compute.programs import makers
from bayesfit.modelling.model import Model
from bayesfit.modelling.model_choice import source_of
from bayesfit.modelling.settings import HARDWARE, FitSettings, RunSettings
from bayesfit.posterior.prepare import Problem
from bayesfit.result.files import content_hash


def made_of(curves: xr.Dataset, problem: Problem, settings: FitSettings, across: Mapping[str, Any]) -> dict[str, str]:
    """The data, the model, what is chosen of its parameters, and what computes it."""
    priors = {name: [prior.family, prior.values] for name, prior in problem.priors.items()}
    chosen = [priors, problem.fixed, across]
    return {
        "data": hash_of(curves),
        "seed": str(settings.seed),
        "settings": json.dumps(settings.model_dump(exclude={"seed"}), sort_keys=True),
        "model": _hash(source_text(problem.posterior.model), problem.posterior.model.options),
        "priors or fixed values": _hash(json.dumps(chosen, default=_plain)),
        "code": _hash(makers()),
        "devices": str(len(workers())),
    }


def parts_of_files(datasets: Sequence[xr.Dataset], model: Model, settings: RunSettings) -> dict[str, str]:
    """What files hold and what is to be made of them, as hashes. What it is computed on is among the `makers`."""
    return {
        "data": _hash([hash_of(data) for data in datasets]),
        "seed": str(settings.seed),
        "settings": _hash(settings.model_dump_json(exclude={*HARDWARE, "seed"})),
        "model": _hash(source_text(model)),
        "code": _hash(makers()),
    }


def hash_of_parts(parts: Mapping[str, str]) -> str:
    """One hash of all parts."""
    return _hash(sorted(parts.items()))


def hash_of(curves: xr.Dataset) -> str:
    """A hash of curves with all that is known of them, but where they were read."""
    attrs = {name: curves.attrs[name] for name in sorted(map(str, curves.attrs)) if name != "file"}
    return _hash(content_hash(xr.DataTree(curves)), attrs)


def source_text(model: Model) -> str:
    """A model's name, and the source that defines it, where there is one."""
    path = Path(source_of(model))
    return model.name + (path.read_text() if path.is_file() else "")


def _hash(*words: Any) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
