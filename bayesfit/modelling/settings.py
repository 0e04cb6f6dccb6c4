"""Settings, validated: from Python, from a TOML file, and from `key=value` on the command line."""

from __future__ import annotations

import json
import math
import numbers
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bayesfit.compute.errors import SettingsError, nearest


def _plain_integer(value: Any) -> Any:
    """NumPy's integers as Python's; booleans and all else as they are."""
    return int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else value


def _as_tuple(value: Any) -> Any:
    """A list, or one word, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


TYPES = ("str", "int", "float")  # what pydantic calls the kinds of a value that may be of several, beside those with -[
Integer = Annotated[int, BeforeValidator(_plain_integer)]


RENAMED = {"sample": "specimen", "carry": "sequential_prior"}  # former names of settings, and the current ones
TOGETHER = ("together", "names", "sequential_prior", "level")  # settings of several files as one
READING = ("skip_first", "tau_min", "tau_max", "columns", "units", "layout", "sheet", "optics")  # of reading a file
HARDWARE = ("device", "memory_fraction", "cpu_devices", "cache")  # of what is computed on
LEAST_ESS = 400.0  # effective sample size, bulk and tail, that verdicts ask for
HEADROOM = 2.0  # the estimated effective sample size of independent draws is often well below their number
FEWEST_KEPT = 200  # draws per chain: with fewer, R-hat of chains that mix well is too often above 1.01
MOST_KEPT = 1_000_000
KEPT_TOGETHER = 500  # of a joint fit, whose largest R-hat is that of hundreds of parameters
KEPT_OF_COUNTS = 300  # with noise "photons", where draws are chosen among
BARE_LIST = re.compile(r"\[([\w .,/-]*)\]")  # on the command line: a list of words without quotation marks
Delay = Annotated[float, Field(ge=0)] | list[Annotated[float, Field(ge=0)]]  # one, or one per bin; has unit s


class Strict(BaseModel):
    """Settings that cannot be changed, and that refuse unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _explained(error, type(self)) from None


class FitSettings(Strict):
    """How a dataset is fitted, whatever its model."""

    noise: str = "auto"
    chains: Annotated[Integer, Field(ge=1, le=64)] = 4
    draws: Annotated[Integer, Field(ge=4, le=MOST_KEPT)] | None = None
    warmup: Annotated[Integer, Field(ge=20, le=1_000_000)] = 50
    target_ess: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 400.0
    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 0
    target_accept: Annotated[float, Field(gt=0, lt=1)] = 0.6
    include: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] = ()
    method: Literal["nuts", "svi"] = "nuts"
    exact: Literal["psis", "delayed"] | None = None

    @property
    def kept(self) -> int:
        """Kept draws per chain: as many as chosen, or as the target asks for."""
        asked = math.ceil(HEADROOM * max(self.target_ess, LEAST_ESS) / self.chains)
        return self.draws or min(max(asked, FEWEST_KEPT), MOST_KEPT)

    def keeping(self, least: int) -> FitSettings:
        """The same, with at least so many kept draws per chain by default."""
        return self.model_copy(update={"draws": self.draws or max(self.kept, least)})


class HardwareSettings(Strict):
    """What the command line computes on, and where it keeps compiled programs. They are chosen before JAX starts, so
    they are none of `bayesfit.fit`."""

    device: Literal["auto", "cpu", "gpu"] = "auto"
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    cpu_devices: Annotated[Integer, Field(ge=1, le=1024)] | None = None
    cache: str | None = None


class CorrelateSettings(Strict):
    """How raw frames are correlated before they are fitted; see `bayesfit.correlate`. Masks are paths of files .npy."""

    frame_time: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    delays_per_level: Integer = 8
    normalise: str = "symmetric"
    flatten: str = "static_bins"
    frame_mask: str | None = None
    pixel_mask: str | None = None
    dataset: str | None = None
    backend: str | None = None


class RunSettings(HardwareSettings, FitSettings):
    """All settings of a run; the keys of a TOML file."""

    model: str | dict[str, Any] | None = None
    pipeline: str | None = None
    skip_first: Annotated[Integer, Field(ge=0)] = 0
    tau_min: Delay | None = None
    tau_max: Delay | None = None
    columns: dict[str, str | int] = {}
    units: dict[str, str] = {}
    layout: str | None = None
    sheet: str | int | None = None
    optics: dict[str, float | int] = {}
    priors: dict[str, str | dict[str, Any]] = {}
    fixed: dict[str, float | int | list[float | int]] = {}
    across: dict[str, str | dict[str, Any]] = {}
    specimen: dict[str, str | float | int | dict[str, Any]] = {}
    together: Literal["average", "stack", "average_stack", "series"] | None = None
    names: Annotated[tuple[str | float | int, ...] | None, BeforeValidator(_as_tuple)] = None
    sequential_prior: Annotated[float, Field(ge=1)] | None = None
    level: Annotated[float, Field(ge=0, lt=0.5)] = 1e-3
    correlate: dict[str, Any] = {}

    @property
    def for_correlate(self) -> CorrelateSettings:
        """How raw frames are correlated.

        Raises:
            SettingsError: there is no such setting, or a value is impossible.
        """
        try:
            return CorrelateSettings(**self.correlate)
        except SettingsError as error:
            raise SettingsError(error.problem, field=f"correlate.{error.field}", remedy=error.remedy) from None

    @property
    def for_fit(self) -> dict[str, Any]:
        """The keyword arguments of `bayesfit.fit`, the model aside."""
        return self.model_dump(exclude={"model", "pipeline", "specimen", "correlate", *READING, *TOGETHER, *HARDWARE})

    @property
    def for_read(self) -> dict[str, Any]:
        """The keyword arguments of `bayesfit.read`."""
        return self.model_dump(include={"pipeline", *READING})

    def advised(self, settings: Mapping[str, Any]) -> RunSettings:
        """These settings with those that a result's advice names."""
        across = {**self.across, **settings.get("across", {})}
        return RunSettings(**{**self.model_dump(exclude_unset=True), **settings, "across": across})


def _explained(error: ValidationError, kind: type[BaseModel]) -> SettingsError:
    """The first complaint, in one line."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    field = ".".join(part for part in place[:2] if part not in TYPES and not set(part) & set("-["))
    if first["type"] == "extra_forbidden":
        return SettingsError("unknown setting", field=field, remedy=nearest(field, kind.model_fields))
    return SettingsError(f"{first['msg'][0].lower()}{first['msg'][1:]}, got {first['input']!r}", field=field)


def load_settings(
    path: Path | None = None,
    assignments: Iterable[str] = (),
    defaults: Mapping[str, Any] | None = None,
    **given: Any,
) -> RunSettings:
    """Settings of a run: defaults, overridden by a TOML file, by `key=value` assignments, and by what is given.

    Raises:
        SettingsError: the file cannot be read, a key is unknown or doubled, or a value is impossible.
    """
    table = {**(defaults or {}), **(_toml(path) if path is not None else {})}
    table = _with_current_names(assigned(assignments, table))
    given = {key: value for key, value in given.items() if value is not None}
    if "model" in given:
        given["model"] = _with_options(given["model"], table.get("model"))
    table.update(given)
    try:
        return _suited(RunSettings(**table))
    except SettingsError as error:
        if path is None:
            raise
        raise SettingsError(str(error), file=path) from None


def _with_current_names(table: dict[str, Any]) -> dict[str, Any]:
    """A table of settings whose keys have their current names. If a former name stands beside the current one, it is
    kept, and then refused as any unknown key is."""
    renamed = {old: new for old, new in RENAMED.items() if old in table and new not in table}
    return {renamed.get(name, name): value for name, value in table.items()}


def _with_options(name: str, known: Any) -> str | dict[str, Any]:
    """A model's name with those `known` options that are for this model, if there are any."""
    if isinstance(known, Mapping) and known.get("name", name) == name:
        return {**known, "name": name}
    return name


def _suited(settings: RunSettings) -> RunSettings:
    """Refuse settings of several files as one where they have no effect."""
    if settings.sequential_prior is not None and settings.together != "series":
        raise SettingsError("is of a series", field="sequential_prior", remedy='Set together = "series"')
    if "level" in settings.model_fields_set and settings.together not in ("average", "average_stack"):
        raise SettingsError("is of averages", field="level", remedy='Set together = "average"')
    if settings.names is not None and settings.together is None:
        raise SettingsError("are of several files as one", field="names", remedy='Set together = "series"')
    return settings


def assigned(assignments: Iterable[str], table: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A table with `key=value` assignments put in; a dotted key stands for a table within.

    Raises:
        SettingsError: an assignment cannot be read, or a key is set twice.
    """
    table = dict(table or {})
    seen: set[str] = set()
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals:
            raise SettingsError(f"got {assignment!r}", field="--set", remedy="Write --set key=value")
        if key in seen:
            raise SettingsError("set twice", field=key)
        seen.add(key)
        _assign(table, key, text.strip())
    return table


def _toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError((error.strerror or str(error)).lower(), file=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"not valid TOML: {error}", file=path) from error


def _assign(table: dict[str, Any], key: str, text: str) -> None:
    """Put `text` at a dotted key: a TOML value where it reads as one, a list of bare words, else the text itself."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = table.setdefault(parent, {})
        if not isinstance(inner, Mapping):
            raise SettingsError(f"{parent!r} is not a table", field=key)
        table[parent] = inner = dict(inner)
        table = inner
    table[last] = _value(text)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        bare = BARE_LIST.fullmatch(text)
        return [_value(word.strip()) for word in bare[1].split(",")] if bare else text


def as_text(settings: BaseModel) -> str:
    """Settings as JSON, for a result's attributes."""
    return json.dumps(settings.model_dump(), sort_keys=True)
