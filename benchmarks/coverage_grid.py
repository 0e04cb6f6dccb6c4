"""Coverage through photons over a grid of pixels, photons and contrasts, with `photons` and `auto`.

`uv run python benchmarks/coverage_grid.py [--bins 1000] [--pixels 16 64] [--contrast 0.05 0.25] [--counts 1e-5 ...]`

The curves come from `photons.py`; those of all counts see the same speckles. For each cell, the share of bins whose
central 95 % interval holds the true rate, beta and contrast, a star where not within 93 to 97 %; the share of bins
in which each is identified (all of them 0: the prior comes back); the median dispersion; what `auto` chose. Cells are
added to `coverage.csv`, and those that it holds with as many bins are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import jax
import photons
import xarray as xr
from interval_coverage import LEVELS, PARAMETERS, inside

import bayesfit

PIXELS, COUNTS, CONTRASTS = (16, 64, 256, 4096), (1e-5, 1e-3, 0.01, 0.1, 1.0), (0.05, 0.25)
KEPT = Path(__file__).with_name("coverage.csv")
CELL = ("pixels", "contrast", "counts", "bins", "seed", "noise")
WANTED = 0.93, 0.97

Row = dict[str, Any]


def measured(data: xr.Dataset, truth: xr.Dataset, noise: str, cell: Row) -> tuple[Row, str]:
    """A cell with one noise model, and which noise models were fitted."""
    started = time.monotonic()
    result = bayesfit.fit(data, noise=noise, seed=cell["seed"])
    price = 1000 * (time.monotonic() - started) / data.sizes["q_bin"]
    held, found = inside(result, truth).mean(axis=-1), result["diagnostics"]
    row = {**cell, "noise": noise}
    for name, shares in zip(PARAMETERS, held, strict=True):
        row |= {f"{name} {100 * level:g}": round(share, 4) for level, share in zip(LEVELS, shares, strict=True)}
        row[f"{name} identified"] = round(float(found.identified.sel(parameter=name).mean()), 4)
    row["dispersion"] = (
        round(float(result["posterior"].dispersion.median()), 3) if "dispersion" in result.posterior else ""
    )
    tried = [each["noise"] for each in json.loads(result.attrs.get("noise_tried", "[]"))] or [noise]
    row["tried"] = " ".join(tried)
    row["ok"], row["ms"] = round(float((found.verdict == "ok").mean()), 4), round(price, 1)
    return row, row["tried"]


def add(row: Row) -> None:
    """Keep a row, and print it."""
    new = not KEPT.exists()
    with KEPT.open("a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if new:
            writer.writeheader()
        writer.writerow(row)
    cells = []
    for name in PARAMETERS:
        share = row[f"{name} 95"]
        star = " " if WANTED[0] <= share <= WANTED[1] else "*"
        cells.append(f"{100 * share:6.1f}{star} ({100 * row[f'{name} identified']:3.0f})")
    where = f"{row['pixels']:5} {row['contrast']:5} {row['counts']:7g} {row['noise']:8}"
    print(where, *cells, f"{row['dispersion']:>6} {row['ms']:6.0f} ms  {row['tried']}", flush=True)


def kept() -> set[tuple[str, ...]]:
    """The cells that were measured before."""
    if not KEPT.exists():
        return set()
    with KEPT.open(newline="") as file:
        return {tuple(row[name] for name in CELL) for row in csv.DictReader(file)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=1000)
    parser.add_argument("--pixels", type=int, nargs="+", default=PIXELS)
    parser.add_argument("--counts", type=float, nargs="+", default=COUNTS)
    parser.add_argument("--contrast", type=float, nargs="+", default=CONTRASTS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("pixels contr. counts noise    rate 95 (identified)    beta           contrast      dispersion")
    for pixels in given.pixels:
        for contrast in given.contrast:
            cells = [
                {"pixels": pixels, "contrast": contrast, "counts": counts, "bins": given.bins, "seed": given.seed}
                for counts in given.counts
            ]
            cells = [cell for cell in cells if (*map(str, cell.values()), "auto") not in kept()]
            if cells:
                _series(cells)


def _series(cells: list[Row]) -> None:
    """The cells that differ in their counts alone."""
    first = cells[0]
    found = photons.exposures(
        first["bins"],
        [(cell["counts"],) * 2 for cell in cells],
        seed=first["seed"],
        pixels=first["pixels"],
        contrast=(first["contrast"],) * 2,
        workers=2,
    )
    for cell, (data, truth) in zip(cells, found, strict=True):
        automatic, tried = measured(data, truth, "auto", cell)
        same = tried == "photons"  # then `photons` gives the same bits
        add(automatic | {"noise": "photons"} if same else measured(data, truth, "photons", cell)[0])
        add(automatic)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    main()
