"""Time, peak memory and size of the result of `bayesfit run` on one file of many bins.

`uv run python benchmarks/many_bins.py --bins 500 2000 10000`
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from measures import Used, command

import bayesfit


class Run(NamedTuple):
    """What a run has used, and the file of its result."""

    used: Used
    result: Path


def measured(folder: Path, data: xr.Dataset) -> Run:
    """One run on a file of these curves, in a folder."""
    path = folder / "curves.npz"
    np.savez(path, **{name: data[name].values for name in ("tau", "q", "g2", "g2_err")})
    result = path.with_suffix(".nc")
    result.unlink(missing_ok=True)  # or it would be found finished
    return Run(command("run", path, "-o", folder, "--noise", "scaled"), result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bins", type=int, nargs="+", default=[500, 2000])
    given = parser.parse_args()
    print(
        f"{'bins':>6} {'s':>7} {'ms a bin':>9} {'processor':>10} {'peak MiB':>9} {'KiB a bin':>10} {'result MiB':>11}"
    )
    for bins in [8, *given.bins]:  # the first one compiles
        with tempfile.TemporaryDirectory() as folder:
            used, result = measured(Path(folder), bayesfit.simulate(bins=bins, seed=1)[0])
            size = result.stat().st_size / 2**20
        if bins != 8:
            each = f"{1000 * used.wall / bins:9.1f} {1000 * used.processor / bins:10.1f} {used.peak:9.0f}"
            print(f"{bins:6} {used.wall:7.0f} {each} {1024 * used.peak / bins:10.0f} {size:11.1f}", flush=True)


if __name__ == "__main__":
    main()
