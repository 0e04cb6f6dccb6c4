"""Reads a file of correlation data with the pipeline that recognises it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from bayesfit.compute.errors import BayesfitError, InputError, SettingsError, nearest
from bayesfit.data.curves import within
from bayesfit.data.describe import describe
from bayesfit.modelling.file_checks import readable, refuse_stand_ins, sha256_of
from bayesfit.modelling.pipeline import READING, Pipeline
from bayesfit.modelling.registry import get_pipeline, list_pipelines

LOG = logging.getLogger("bayesfit")


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
    path = readable(path)
    refuse_stand_ins(path)
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
    data.attrs.update(file=str(path), sha256=sha256_of(path), pipeline=chosen.name)
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


def _recognise(path: Path, options: Mapping[str, Any]) -> Pipeline:
    """The pipeline that recognises the file or, where none does, the one that takes the settings given of how to read
    it."""
    missed: dict[str, str] = {}
    for general, name in itertools.product((False, True), list_pipelines()):
        try:
            pipeline = get_pipeline(name)
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
