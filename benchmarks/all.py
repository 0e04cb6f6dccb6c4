"""The figures of speed that README and docs/performance.md quote, measured again in one run and written into that page.

`uv run --group benchmarks python benchmarks/all.py [--quick] [--page docs/performance.md]`

Each section is what a benchmark of its own measures, in sizes such that all of it takes some ten minutes on two cores.
What stands between the two markers of the page is replaced by the date, the machine, the commit, versions, and the
tables. `--quick` takes a few bins and leaves out other samplers and what takes long; it prints the tables, and writes
them where a page is named.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import against_others
import cost_laws
import gradients
import hard_bins
import shipped_file
from measures import ROOT, commit, machine, versions

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- begin: benchmarks/all.py writes what follows -->", "<!-- end: benchmarks/all.py -->"
BY = "uv run --group benchmarks python benchmarks/all.py"
PACKAGES = ("jax", "jaxlib", "numpyro", "numpy", "scipy", "arviz")


class Sizes(NamedTuple):
    """How much is measured; a section with nothing to measure is left out."""

    bins: int
    rounds: int
    few: dict[str, int]
    hard: int
    noises: tuple[str, ...]
    kinds: tuple[str, ...]
    laws: tuple[tuple[int, int], ...]
    alone: bool  # what compiles anew: the shipped file, gradients


FULL = Sizes(
    bins=512,
    rounds=2,
    few=against_others.FEW,
    hard=32,
    noises=("scaled",),  # photons would take longer than all else together
    kinds=tuple(hard_bins.KINDS),
    laws=((8, 72), (128, 72), (2048, 72), (128, 1024)),
    alone=True,
)
QUICK = Sizes(bins=8, rounds=1, few={}, hard=4, noises=("scaled",), kinds=("healthy",), laws=(), alone=False)


def from_prompt(sizes: Sizes) -> list[str]:
    return [shipped_file.sentence(*shipped_file.runs())] if sizes.alone else []


def others(sizes: Sizes) -> list[str]:
    found = list(against_others.rows(sizes.bins, sizes.rounds, sizes.few))
    missing = [name for name in sizes.few if not find_spec(name)]
    left_out = [f"\nNot installed, and left out: {', '.join(missing)}."] if missing else []
    return [*against_others.as_table(found), *left_out]


def hard(sizes: Sizes) -> list[str]:
    head = [f"{sizes.hard} bins of each kind.", ""]
    return head + hard_bins.as_table(list(hard_bins.rows(sizes.hard, sizes.noises, sizes.kinds)))


def one_gradient(sizes: Sizes) -> list[str]:
    return fenced(gradients.lines()) if sizes.alone else []


def growth(sizes: Sizes) -> list[str]:
    return fenced(list(cost_laws.lines(sizes.laws))) if sizes.laws else []


SECTIONS: dict[str, Callable[[Sizes], list[str]]] = {
    "From prompt to result": from_prompt,
    "Against other tools": others,
    "Hard bins": hard,
    "What a gradient costs": one_gradient,
    "How costs grow": growth,
}


def fenced(lines: list[str]) -> list[str]:
    """A block of text as it was printed."""
    return ["```text", *lines, "```"]


def measured(sizes: Sizes) -> Iterator[str]:
    """The lines that stand between the markers."""
    at, load, started = commit(), os.getloadavg()[0], time.monotonic()
    tables: list[str] = []
    for title, section in SECTIONS.items():
        print(f"{time.monotonic() - started:5.0f} s: {title}", file=sys.stderr, flush=True)
        if lines := section(sizes):
            tables += ["", f"### {title}", "", *lines]
    minutes = (time.monotonic() - started) / 60
    installed = [name for name in ("nutpie", "emcee") if find_spec(name)]
    yield f"## Measured on {date.today()}"
    yield ""
    yield f"On {machine()} (load {load:.1f} before), commit {at}; {versions(*PACKAGES, *installed)};"
    yield f"by `{BY}{' --quick' * (sizes is QUICK)}`, which took {minutes:.0f} minutes."
    yield from tables


def around(page: Path) -> tuple[str, str]:
    """What stands before and after the markers of a page, which stay with it."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: expected a line {BEGIN} and after it a line {END}")
    return before + begin, end + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few bins, to see that all of it works")
    parser.add_argument("--page", type=Path, help="where to write the tables; docs/performance.md, unless --quick")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    page = given.page or (None if given.quick else PAGE)
    before, after = around(page) if page else ("", "")
    lines = "\n".join(measured(QUICK if given.quick else FULL))
    print(lines)
    if page:
        page.write_text(f"{before}\n\n{lines}\n\n{after}")


if __name__ == "__main__":
    main()
