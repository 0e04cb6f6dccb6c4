"""`bayesfit doctor`: is this installation whole, what does it compute on, and does it compute right?"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from bayesfit.cli.app import DONE, FAILED, app
from bayesfit.cli.options import Cache, CpuDevices, Device, MemoryFraction, hardware_of, start


@app.command()
def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    device: Device = None,
    memory_fraction: MemoryFraction = None,
    cpu_devices: CpuDevices = None,
    cache: Cache = None,
) -> None:
    """Print versions, devices, precision and the cache, and check a tiny fit against its known answer.

    Exit code: 0 the fit is right; 1 it is not.
    """
    start(hardware_of(context))
    found = {**_versions(), **_devices(), **_cache()}
    fit, right = _fit()
    found |= fit
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(found)
    raise typer.Exit(DONE if right else FAILED)


def _versions() -> dict[str, Any]:
    """This package, Python, and the packages that results depend on."""
    import platform

    from bayesfit.result.tree import PACKAGES, provenance

    found = provenance()
    names = (f"{name} {found[f'{name}_version']}" for name in PACKAGES if name != "bayesfit")
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return {
        "bayesfit": found["bayesfit_version"],
        "python": f"{platform.python_version()} on {system}",
        "packages": ", ".join(names),
    }


def _devices() -> dict[str, Any]:
    """What is computed on, and how precisely."""
    import jax
    import numpy as np

    from bayesfit.compute.hardware import cores, workers

    devices = workers()
    with jax.enable_x64(True):
        smallest = float(jax.jit(lambda x: (1.0 + x) - 1.0)(np.finfo(float).eps))
    exact = smallest == np.finfo(float).eps
    return {
        "devices": f"{len(devices)} x {devices[0].platform} ({devices[0].device_kind})",
        "cores": cores(),
        "precision": "float64" if exact else f"less than float64: 1 + 2.2e-16 is 1 + {smallest:.2g}",
    }


def _cache() -> dict[str, Any]:
    """Where compiled programs are kept, and how many."""
    from bayesfit.compute.program_files import folder

    place = folder()
    kept = [path.stat().st_size for path in place.iterdir() if path.is_file()] if place and place.is_dir() else []
    return {
        "cache": "none" if place is None else str(place),
        "cached programs": f"{len(kept)}, {sum(kept) / 1e6:.1f} MB",
    }


def _fit() -> tuple[dict[str, Any], bool]:
    """A tiny fit beside its known answer, and whether it is right."""
    from time import monotonic

    from bayesfit.api.self_check import self_check

    started = monotonic()
    check = self_check()
    drawn, exact = f"{check.mean:.4f} ± {check.sd:.4f}", f"{check.exact_mean:.4f} ± {check.exact_sd:.4f}"
    words = f"log rate {drawn} from {check.ess:.0f} draws, exact {exact}"
    verdict = "right" if check.right else "WRONG"
    return {"fit": f"{verdict}: {words}", "seconds": round(monotonic() - started, 1)}, check.right


def _print(found: dict[str, Any]) -> None:
    """A table of two columns."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(show_header=False)
    for name, value in found.items():
        colour = "red" if str(value).startswith(("WRONG", "less than")) else "green" if name == "fit" else ""
        shown.add_row(name, f"[{colour}]{value}[/]" if colour else str(value))
    Console().print(shown)
