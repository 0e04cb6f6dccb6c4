"""Options that several commands have, what they ask for, and the start of JAX as they ask."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bayesfit.modelling.settings import HardwareSettings, RunSettings

Output = Annotated[Path, typer.Option("-o", "--output", help="Folder for the results, one NAME.nc a file.")]
ModelName = Annotated[str | None, typer.Option("--model", help="Model by name, or the path of a model file.")]
Noise = Annotated[str | None, typer.Option("--noise", help="Noise model by name, or auto.")]
Pipeline = Annotated[str | None, typer.Option("--pipeline", help="Pipeline by name, instead of recognising the file.")]
Config = Annotated[Path | None, typer.Option("--config", help="Settings in TOML.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, as key=value; may be repeated (fixed.beta=1).")
]
Together = Annotated[
    str | None, typer.Option(help="Several files as one result: average, stack, average_stack or series.")
]
Plot = Annotated[bool, typer.Option("--plot", help="Also draw NAME.png beside each result.")]
Page = Annotated[bool, typer.Option("--report/--no-report", help="Also write NAME.html, a page for a browser.")]
QMap = Annotated[
    Path | None,
    typer.Option("--qmap", help="The files hold raw frames: correlate them first, in the bins of this file."),
]
Advise = Annotated[
    bool, typer.Option("--advise", help="Also fit as the result advises, into NAME_advised.nc, and report both.")
]
Dask = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Fit on the workers of this Dask scheduler (bayesfit[dask])."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", envvar="BAYESFIT_DEVICE", help="auto, cpu or gpu (if there is none, the CPU)."),
]
MemoryFraction = Annotated[
    float | None,
    typer.Option("--memory-fraction", envvar="BAYESFIT_MEMORY_FRACTION", help="Share of a GPU's memory to take."),
]
CpuDevices = Annotated[
    int | None,
    typer.Option("--cpu-devices", envvar="BAYESFIT_CPU_DEVICES", help="Devices to divide the CPU into; one a core."),
]
Cache = Annotated[
    str | None,
    typer.Option("--cache", envvar="BAYESFIT_CACHE", help="Folder in which compiled programs are kept, or none."),
]

NO_CACHE = "none"  # given as the folder
NAMED = ("model", "noise", "pipeline", "together")  # settings that have an option of their own


def settings_of(context: typer.Context) -> RunSettings:
    """The settings of a run: options override `--set`, which overrides the file, which overrides the environment."""
    from bayesfit.modelling.settings import load_settings

    asked = context.params
    here, environment = hardware_options(context)
    given = {name: asked[name] for name in NAMED if name in asked}
    return load_settings(asked["config"], asked["set_"] or (), environment, **given, **here)


def started(context: typer.Context) -> RunSettings:
    """The settings of a run, of which no name is unknown, after JAX was started as they say.

    Raises:
        SettingsError: a setting is impossible, or there is no such model, noise model or pipeline.
    """
    settings = settings_of(context)
    start(settings)
    check_names(settings)
    return settings


def check_names(settings: RunSettings) -> None:
    """Refuse unknown names of noise models, models and pipelines before any file is read.

    Raises:
        SettingsError: there is no such.
    """
    from bayesfit.api.automatic_noise import AUTO
    from bayesfit.modelling.model_choice import get_model
    from bayesfit.modelling.noise import get_noise
    from bayesfit.modelling.registry import get_pipeline

    if settings.noise != AUTO:
        get_noise(settings.noise)
    if settings.model is not None:
        get_model(settings.model)
    if settings.pipeline is not None:
        get_pipeline(settings.pipeline)


def hardware_options(context: typer.Context) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the hardware that stand on the command line, and those that only the environment states."""
    from bayesfit.modelling.settings import HARDWARE

    given = {name: context.params[name] for name in HARDWARE if context.params[name] is not None}
    sources = {name: context.get_parameter_source(name) for name in given}
    here = {name for name, source in sources.items() if source is None or source.name != "ENVIRONMENT"}
    return {n: v for n, v in given.items() if n in here}, {n: v for n, v in given.items() if n not in here}


def hardware_of(context: typer.Context) -> HardwareSettings:
    """What to compute on, for commands without settings of a run."""
    from bayesfit.modelling.settings import HardwareSettings

    here, environment = hardware_options(context)
    return HardwareSettings(**{**environment, **here})


def start(settings: HardwareSettings) -> None:
    """Start JAX as the settings say, before anything else does."""
    import gc

    gc.set_threshold(200_000, 50, 50)  # imports and tracing make many small objects that live on
    from bayesfit.backends.devices import set_device
    from bayesfit.compute.program_files import set_cache

    set_device(settings.device, memory_fraction=settings.memory_fraction, cpu_devices=settings.cpu_devices)
    if settings.cache is not None:
        set_cache(settings.cache if settings.cache != NO_CACHE else None)
