"""How the commands print and draw a result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bayesfit.compute.errors import SettingsError

if TYPE_CHECKING:
    import xarray as xr

WIDTH, COLUMNS = 200, 4  # characters of a table that goes to a file; parameters side by side


def print_understood(datasets: list[xr.Dataset]) -> None:
    """Print two lines for each dataset: what its file was taken for."""
    from bayesfit.data.describe import describe

    for data in datasets:
        typer.echo(f"{data.attrs['file']}: " + "\n  ".join(describe(data)))


def print_result(result: xr.DataTree, parameters: tuple[str, ...] = (), title: str = "") -> None:
    """Print tables of the bins, with a few parameters side by side, and the number of bins with each verdict. If no
    parameters are named, those of the curve are printed."""
    from rich.console import Console

    from bayesfit.cli.tables import common_lines, common_table, derived_lines, table
    from bayesfit.result.datasets import is_series, one_dataset
    from bayesfit.result.summary import advice, of_bins, tally, wrong_errors

    if is_series(result):
        for label in result["steps"].coords["dataset"].values.tolist():
            print_result(one_dataset(result, label), parameters, f"dataset {label}")
        if left_out := result.attrs.get("datasets_left_out"):
            typer.echo(f"interrupted: not fitted were {left_out}")
        return
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    derived = [result.attrs[key] for key in ("stokes_einstein",) if key in result.attrs]
    names = parameters or (*(str(name) for name in result["diagnostics"].parameter.values), *derived)
    names = tuple(name for name in names if name in of_bins(result))
    for start in range(0, max(len(names), 1), COLUMNS):
        console.print(table(result, names[start : start + COLUMNS], title))
    typer.echo(", ".join(f"{count} {name}" for name, count in tally(result).items()))
    for words in (result.attrs.get("noise_chosen"), wrong_errors(result), advice(result)):
        if words:
            typer.echo(words)
    for line in derived_lines(result):
        typer.echo(line)
    if "across" in result:
        console.print(common_table(result))
        for line in common_lines(result):
            typer.echo(line)


def in_words(settings: dict[str, Any]) -> str:
    """Settings as the command line takes them."""
    flat = {
        f"{name}.{inner}" if inner else name: value
        for name, given in settings.items()
        for inner, value in (given.items() if isinstance(given, dict) else (("", given),))
    }
    return " ".join(f"--set {name}={value}" for name, value in flat.items())


def print_law(fitted: xr.DataTree) -> None:
    """Print the parameters of a law, what it was fitted to, and its verdict; for a series, those of each dataset."""
    from rich.console import Console

    from bayesfit.cli.tables import law_lines, law_table
    from bayesfit.result.datasets import is_series, one_dataset

    if is_series(fitted):
        for label in fitted["steps"].coords["dataset"].values.tolist():
            typer.echo(f"dataset {label}")
            print_law(one_dataset(fitted, label))
        return
    Console(width=None if sys.stdout.isatty() else WIDTH).print(law_table(fitted))
    for line in law_lines(fitted):
        typer.echo(line)


def draw(result: xr.DataTree, bins: list[int] | None, path: Path) -> list[Path]:
    """Draw a result of any kind; returns the paths of the pictures."""
    from bayesfit.report.plots import plot_fit, plot_law, plot_series
    from bayesfit.report.plots_across import plot_across
    from bayesfit.result.datasets import is_series

    if is_series(result):
        plot_series(result, path)
        return [path]
    if "law" in result.attrs:
        plot_law(result, path)
        return [path]
    plot_fit(result, bins, path)
    if "across" not in result:
        return [path]
    beside = path.with_stem(f"{path.stem}_across")
    plot_across(result, beside)
    return [path, beside]


def print_paths(drawn: list[Path]) -> None:
    """Print one line per picture."""
    for path in drawn:
        typer.echo(str(path))


def units_of(arguments: list[str]) -> dict[str, str]:
    """Units by parameter, from arguments PARAMETER=UNIT."""
    units: dict[str, str] = {}
    for argument in arguments:
        name, equals, unit = (part.strip() for part in argument.partition("="))
        if not equals or not name or not unit:
            raise SettingsError(f"got {argument!r}", field="--unit", remedy="Write --unit D=um^2/s")
        units[name] = unit
    return units
