"""The program, and what all its commands share: the exit codes, and how JAX is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bayesfit.modelling.settings import HardwareSettings

DONE, FAILED, WRONG_USE, NONE_OK, INTERRUPTED = 0, 1, 2, 3, 130
BY_SIGNAL = 128  # plus the number of the signal

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Posteriors that can be trusted for many noisy decay curves at once (XPCS, DLS).",
)


def _print_version(asked: bool) -> None:
    if asked:
        from bayesfit import __version__

        typer.echo(f"bayesfit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


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
    from bayesfit.compute.hardware import Hardware, start_jax

    start_jax(Hardware(settings.device, settings.memory_fraction, settings.cpu_devices))
