"""Numbers, units and verdicts as the terminal shows them."""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr

COLOURS = {"ok": "green", "not_identified": "yellow", "misfit": "magenta", "prior_conflict": "magenta"}
COLOURS |= {"unusable_data": "bright_black", "approximate": "cyan"}
OF_FILES = 200  # characters of a line that does not go to a terminal


def console_width() -> int | None:
    """Characters of a line: what COLUMNS says, else what the terminal has (None), else those of files."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return None if sys.stdout.isatty() else OF_FILES


def wraps() -> bool:
    """Whether sentences are broken into lines: not in files, where other programs look for them."""
    return console_width() != OF_FILES


def number(value: float, sign: str = "") -> str:
    """A number with two decimals, after a sign; "-" where there is none."""
    return f"{sign}{value:.2f}" if math.isfinite(value) else "-"


def heading_of(result: xr.DataTree, name: str) -> str:
    """A parameter with its unit, as the heading of a column."""
    units = result["posterior"][name].attrs.get("units", "1")
    return name if units in ("1", "") else f"{name} [{units}]".replace("[", r"\[")


def interval(median: float, low: float, high: float) -> str:
    """A median with its interval, with as many digits as the width of the interval makes meaningful."""
    if not all(map(math.isfinite, (median, low, high))):
        return "-"
    width = max(high - low, 1e-12 * abs(median), 1e-300)
    digits = min(max(math.ceil(math.log10(max(abs(low), abs(high), 1e-300) / width)) + 2, 2), 8)
    median_, low_, high_ = (f"{value:#.{digits}g}".rstrip(".") for value in (median, low, high))
    return f"{median_} ({low_} to {high_})"


def legend(counts: dict[str, int]) -> list[str]:
    """What each verdict but "ok" means, in its colour."""
    from bayesfit.diagnose.rules import VERDICTS

    names = [name for name in counts if name != "ok" and name in VERDICTS]
    return [f"  [{COLOURS.get(name, 'red')}]{name}[/]: {VERDICTS[name]}" for name in names]


def counted(counts: dict[str, int]) -> str:
    """How many bins have each verdict, in its colour."""
    return ", ".join(f"{count} [{COLOURS.get(name, 'red')}]{name}[/]" for name, count in counts.items())
