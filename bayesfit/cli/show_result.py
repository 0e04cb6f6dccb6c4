"""How the commands print and draw a result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from bayesfit.compute.errors import SettingsError

if TYPE_CHECKING:
    import xarray as xr
    from rich.console import Console

WIDE = 200  # characters of a table that shows everything
FEW = 3  # datasets of a series of which all tables are printed
NOTICES = 8  # of a series


def print_understood(datasets: list[xr.Dataset]) -> None:
    """Print two lines for each dataset, of many only for the first: what its file was taken for."""
    from rich.console import Console

    from bayesfit.cli.numbers import console_width, wraps
    from bayesfit.data.describe import describe

    console = Console(width=console_width(), highlight=False)
    for data in datasets if len(datasets) <= FEW else datasets[:1]:
        for line in (f"{data.attrs['file']}: {describe(data)[0]}", f"  {describe(data)[1]}"):
            console.print(line, markup=False, soft_wrap=not wraps())
    if len(datasets) > FEW:
        typer.echo(f"and {len(datasets) - 1} more files: `bayesfit inspect` says what each is taken for")


class Wanted(NamedTuple):
    """What to print of a result: these parameters (by default those of the curve), in a `wide` table of everything or
    one that fits the screen, of `every` bin or of those that need attention where there are very many, with one
    `verdict` only, sorted by the column `sort`; of the result at this path, for hints that name it."""

    parameters: tuple[str, ...] = ()
    wide: bool = False
    every: bool = False
    verdict: str | None = None
    sort: str | None = None
    path: str = "RESULT"


USUAL = Wanted()


def print_result(result: xr.DataTree, wanted: Wanted = USUAL, title: str = "") -> None:
    """Print a table of the bins, the number of bins with each verdict, and what is to be said of all of them."""
    from rich.console import Console

    from bayesfit.cli.bin_table import bin_tables, chosen_bins
    from bayesfit.cli.numbers import console_width, counted, legend, wraps
    from bayesfit.cli.tables import common_lines, common_table
    from bayesfit.result.datasets import is_series
    from bayesfit.result.summary import summary, tally

    if is_series(result):
        return _print_series(result, wanted)
    console = Console(width=WIDE if wanted.wide else console_width(), highlight=False)
    chosen = chosen_bins(summary(result), wanted)
    for table in bin_tables(result, _names(result, wanted), chosen, None if wanted.wide else console.width, title):
        console.print(table)
    if not wanted.wide and not wanted.parameters:
        console.print(
            f"everything: `bayesfit show {wanted.path} --wide`", style="dim", markup=False, soft_wrap=not wraps()
        )
    for words in (chosen.words, *_notices(result)):
        if words:
            console.print(words, markup=False, soft_wrap=not wraps())
    console.print(counted(tally(result)))
    for line in legend(tally(result)):
        console.print(line)
    if "across" in result:
        console.print(common_table(result, wide=wanted.wide))
        for line in common_lines(result):
            console.print(line, markup=False, soft_wrap=not wraps())


def _notices(result: xr.DataTree) -> list[str]:
    """What is to be said of all bins: what was done to the data, the noise model and why, wrong errors, advice, and
    quantities that belong to no single bin."""
    from bayesfit.cli.tables import derived_lines
    from bayesfit.result.summary import advice, wrong_errors

    attrs = result.attrs
    _, _, done = str(attrs.get("understood", "")).partition("\n")
    return [
        done or attrs.get("data_notes", ""),
        attrs.get("noise_chosen", ""),
        wrong_errors(result),
        advice(result),
        *derived_lines(result),
    ]


def _names(result: xr.DataTree, wanted: Wanted) -> tuple[str, ...]:
    """The parameters to print, the most important first."""
    derived = [result.attrs[key] for key in ("stokes_einstein",) if key in result.attrs]
    return wanted.parameters or (*(str(name) for name in result["diagnostics"].parameter.values), *derived)


def _print_series(result: xr.DataTree, wanted: Wanted) -> None:
    """Print a few lines for each dataset of a series, or its table if more than that is asked for."""
    from rich.console import Console

    from bayesfit.cli.numbers import console_width, counted
    from bayesfit.result.datasets import one_dataset
    from bayesfit.result.summary import tally

    labels = result["steps"].coords["dataset"].values.tolist()
    console = Console(width=console_width(), highlight=False)
    for label in labels:
        one = one_dataset(result, label)
        if len(labels) <= FEW or wanted != USUAL._replace(path=wanted.path):
            print_result(one, wanted, f"dataset {label}")
        else:
            console.print(f"dataset {label}: {counted(tally(one))}")
    if len(labels) > FEW and wanted == USUAL._replace(path=wanted.path):
        _print_common(result, console)
    if left_out := result.attrs.get("datasets_left_out"):
        typer.echo(f"interrupted: not fitted were {left_out}")


def _print_common(result: xr.DataTree, console: Console) -> None:
    """Print what is to be said of the datasets of a series, each notice once, and what their verdicts mean."""
    from bayesfit.cli.numbers import counted, legend, wraps
    from bayesfit.result.datasets import one_dataset
    from bayesfit.result.summary import tally

    every = [one_dataset(result, label) for label in result["steps"].coords["dataset"].values.tolist()]
    said = Counter(words for one in every for words in _notices(one) if words)
    for words, count in said.most_common(NOTICES):
        console.print(f"{count} of {len(every)} datasets: {words}", markup=False, soft_wrap=not wraps())
    if len(said) > NOTICES:
        console.print(f"and {len(said) - NOTICES} more notices: `bayesfit show RESULT --all`")
    total = sum((Counter(tally(one)) for one in every), Counter[str]())
    console.print(f"in all: {counted(dict(total.most_common()))}")
    for line in legend(dict(total)):
        console.print(line)


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

    from bayesfit.cli.numbers import console_width
    from bayesfit.cli.tables import law_lines, law_table
    from bayesfit.result.datasets import is_series, one_dataset

    if is_series(fitted):
        for label in fitted["steps"].coords["dataset"].values.tolist():
            typer.echo(f"dataset {label}")
            print_law(one_dataset(fitted, label))
        return
    Console(width=console_width()).print(law_table(fitted))
    for line in law_lines(fitted):
        typer.echo(line)


def draw(result: xr.DataTree, bins: list[int] | None, path: Path) -> list[Path]:
    """Draw a result of any kind; returns the paths of the pictures."""
    from bayesfit.report.plots import plot_fit, plot_law
    from bayesfit.report.plots_across import plot_across
    from bayesfit.report.series_pictures import plot_series
    from bayesfit.report.size_pictures import plot_sizes
    from bayesfit.result.datasets import is_series

    if is_series(result):
        plot_series(result, path)
        return [path]
    if "law" in result.attrs:
        plot_law(result, path)
        return [path]
    drawn = [path]
    plot_fit(result, bins, path)
    if "distribution" in result:
        drawn.append(path.with_stem(f"{path.stem}_sizes"))
        plot_sizes(result, bins, drawn[-1])
    if "across" in result:
        drawn.append(path.with_stem(f"{path.stem}_across"))
        plot_across(result, drawn[-1])
    return drawn


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
