"""Peak memory, time and size of the result of `bayesfit run` on one file of many bins.

`uv run python benchmarks/many_bins.py --bins 500 2000 10000`
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bayesfit

PROGRAM = Path(sys.executable).parent / "bayesfit"


def write(path: Path, bins: int) -> None:
    """A file of so many simulated bins."""
    curves, _ = bayesfit.simulate(bins=bins, seed=1)
    arrays = {name: curves[name].values for name in ("tau", "q", "g2", "g2_err")}
    np.savez(path, **arrays)


def measured(folder: Path, bins: int) -> tuple[float, float, float]:
    """Wall time in s, peak memory in MiB, and size of the result in MiB."""
    path = folder / f"bins_{bins}.npz"
    write(path, bins)
    command = [str(PROGRAM), "run", str(path), "-o", str(folder), "--noise", "scaled"]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        raise SystemExit(f"{bins} bins: the run failed")
    return time.monotonic() - started, used.ru_maxrss / 1024, path.with_suffix(".nc").stat().st_size / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bins", type=int, nargs="+", default=[500, 2000])
    print(f"{'bins':>6} {'s':>7} {'ms a bin':>9} {'peak MiB':>9} {'KiB a bin':>10} {'result MiB':>11}")
    with tempfile.TemporaryDirectory() as folder:
        measured(Path(folder), 8)  # compiles
        for bins in parser.parse_args().bins:
            seconds, peak, size = measured(Path(folder), bins)
            each = f"{1000 * seconds / bins:9.1f} {peak:9.0f} {1024 * peak / bins:10.0f}"
            print(f"{bins:6} {seconds:7.0f} {each} {size:11.1f}", flush=True)


if __name__ == "__main__":
    main()
