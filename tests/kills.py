"""Kill `bayesfit run` at random moments and run it again until it ends: `uv run python tests/kills.py --kills 200`.

The result must be that of a run that nothing has stopped, whatever has been killed on the way.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bayesfit

PROGRAM = Path(sys.executable).with_name("bayesfit")
ROOT = Path(__file__).parents[1]
STARTING = 2.0  # seconds that the program takes to start, in which there is nothing to lose


def written(folder, files):
    """What is fitted: the shipped file, or a folder of so many tables of two bins each."""
    if not files:
        return ROOT / "data" / "aps_8idi_sim.hdf"
    folder.mkdir()
    for seed in range(files):
        curves, _ = bayesfit.simulate(bins=2, seed=seed)
        np.savez(folder / f"few_{seed}.npz", **{name: curves[name].values for name in ("tau", "q", "g2", "g2_err")})
    return folder


def command(measured, output, draws):
    """The run that is killed, with results in this folder."""
    more = ["--set", f"draws={draws}", "--set", f"target_ess={2 * draws}"]
    return [str(PROGRAM), "run", str(measured), "-o", str(output), *more]


def run(measured, output, draws, limit=None):
    """Run it, and kill it after so many seconds; returns whether it came to its end."""
    process = subprocess.Popen(
        command(measured, output, draws), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        return False
    if process.returncode != 0:
        raise SystemExit(f"the run failed with exit code {process.returncode}:\n{said}")
    return True


def content(output):
    """The hashes of the results, and what lies there."""
    hashed = [bayesfit.load(path).attrs["content_sha256"] for path in sorted(output.glob("*.nc"))]
    return hashed, sorted(path.name for path in output.iterdir())


def killed_until_done(measured, output, draws, longest, moments):
    """A run that is killed at random moments until it ends; returns how often."""
    kills = 0
    while not run(measured, output, draws, moments.uniform(STARTING, longest)):
        kills += 1
    return kills


def main():
    """Run and kill as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--files", type=int, default=0, help="a folder of small files in place of the shipped file")
    parser.add_argument("--draws", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    moments, kills, runs = random.Random(given.seed), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        measured = written(Path(scratch) / "measured", given.files)
        run(measured, Path(scratch) / "first", given.draws)
        started = time.monotonic()
        run(measured, Path(scratch) / "whole", given.draws)
        longest = time.monotonic() - started
        wanted = content(Path(scratch) / "whole")
        while kills < given.kills:
            folder = Path(scratch) / f"killed_{runs}"
            kills += killed_until_done(measured, folder, given.draws, longest, moments)
            runs += 1
            if content(folder) != wanted:
                raise SystemExit(f"after {kills} kills: {content(folder)} instead of {wanted}")
    print(f"{kills} kills in {runs} runs of {longest:.0f} s: each result has the bits of a run that was not killed")


if __name__ == "__main__":
    main()
