"""Bins a second on a GPU, or on many devices of a processor, against the processor as it is, and against the limit that
the gradients set.

`uv run python benchmarks/devices.py [--bins 512 ...] [--delays 72] [--devices 8] [--lanes 8192]`

Simulated stretched exponentials with wrong errors, default settings; up to 100,000 bins make sense on a GPU, and need
some 350 KiB of memory each. Every row is a process of its own, which fits a few bins first to compile. Rows are the
processor with one worker a core; a GPU, if JAX finds one; and, if not, the processor made to look like so many devices.
`--lanes` gives the devices of the second row so many chains each, instead of what is usual for their kind.

The limit is the number of bins a second if nothing were computed but the gradients that the trajectories and proposals
of all transitions need, the first ones of chains included, on all devices at once. z^2 compares the bins' means of the
log rate with those of the first row: the mean square of their differences in units of the standard error, 0 for the
same bits and some 1 for the same distribution.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import xarray as xr
from measures import machine, timed

FEW = 256  # bins of the fit that compiles
HEAD = "computed on             devices  lanes    bins      s  bins/s  of limit  converged     z^2"


def evaluations_per_second(curves: xr.Dataset) -> float:
    """Log density and gradient on all devices at once, each with all its lanes."""
    import jax
    from gradients import INNER, repeated

    from bayesfit.compute.devices import Spread, place, take
    from bayesfit.compute.hardware import lanes_per_device, workers
    from bayesfit.compute.keys import bin_keys
    from bayesfit.posterior.prepare import prepare
    from bayesfit.sample.target import BinTargets

    with jax.enable_x64(True):
        problem = prepare(curves)
        size = BinTargets(problem.posterior, problem.bins, bin_keys(0, problem.identity)).target.size
        lanes = len(workers()) * lanes_per_device()
        bins = take(problem.bins, np.arange(lanes) % curves.q_bin.size)
        program, arguments = Spread(repeated(problem.posterior)), (place(bins), place(np.zeros((lanes, size))))
        jax.block_until_ready(program(*arguments))
        times = [timed(lambda: jax.block_until_ready(program(*arguments)))[0].wall for _ in range(5)]
    return lanes * INNER / min(times)


def evaluations_per_bin(result: xr.DataTree, warmup: int) -> float:
    """How many the transitions of a bin need, on average: leaves of the trajectory, and one proposal."""
    each = result["sample_stats"].n_steps.mean(("chain", "draw")) + 1
    draws = result["posterior"].sizes["draw"] * result["diagnostics"].thin + warmup
    return float((each * draws).mean()) * result["posterior"].sizes["chain"]


def row(bins: int, delays: int, devices: int, means: Path) -> str:
    """Fit so many bins on what this process computes on; leaves the means of log rates and their errors in a file."""
    import json

    import jax

    import bayesfit
    from bayesfit.compute.hardware import lanes_per_device, workers
    from bayesfit.sample.convergence import ess_mean

    if devices:
        jax.config.update("jax_num_cpu_devices", devices)
    curves, _ = bayesfit.simulate(bins=bins, delays=delays, seed=1, wrong_errors=True)
    few = curves.isel(q_bin=slice(FEW))
    bayesfit.fit(few, seed=0)
    started = time.perf_counter()
    result = bayesfit.fit(curves, seed=1)
    seconds = time.perf_counter() - started
    limit = evaluations_per_second(few) / evaluations_per_bin(result, json.loads(result.attrs["settings"])["warmup"])
    log_rate = np.log(np.moveaxis(result["posterior"].rate.values, -1, 0))
    mean, error = log_rate.mean(axis=(1, 2)), log_rate.std(axis=(1, 2)) / np.sqrt(ess_mean(log_rate))
    if not means.exists():
        np.savez(means, mean=mean, error=error)
    first = np.load(means)
    found = result["diagnostics"]
    converged = int(((found.r_hat <= 1.01) & (found.ess_bulk >= 400) & (found.ess_tail >= 400)).sum())
    z2 = float(np.mean((mean - first["mean"]) ** 2 / (error**2 + first["error"] ** 2)))
    kind = workers()[0].device_kind[:23]
    return (
        f"{kind:23} {len(workers()):7} {lanes_per_device():6} {bins:7} {seconds:6.1f} {bins / seconds:7.1f} "
        f"{bins / seconds / limit:9.0%} {converged / bins:10.3f} {z2:7.2f}"
    )


def one_row(given: argparse.Namespace) -> None:
    """Print the row that the main process asks for."""
    import jax

    from bayesfit.compute import hardware

    platform, devices, means = given.row
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if given.lanes:
        hardware.CPU_LANES = hardware.GPU_LANES = given.lanes
    print(row(given.bins[0], given.delays, int(devices), Path(means)))


def has_gpu() -> bool:
    """Whether JAX finds a GPU, which only a process of its own may ask that does not want one."""
    asked = "import sys; from bayesfit.compute.hardware import has_gpu; sys.exit(not has_gpu())"
    return subprocess.run([sys.executable, "-c", asked], stderr=subprocess.DEVNULL).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, nargs="+", default=[512])
    parser.add_argument("--delays", type=int, default=72)
    parser.add_argument("--devices", type=int, default=8, help="of the processor, where there is no GPU")
    parser.add_argument("--lanes", type=int, default=0, help="chains on each device of the second row")
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)  # platform, devices, file of means
    given = parser.parse_args()
    if given.row:
        one_row(given)
        return
    second = ("gpu", 0) if has_gpu() else ("cpu", given.devices)
    print(f"{machine()}\n{HEAD}", flush=True)
    for bins in given.bins:
        with tempfile.TemporaryDirectory() as folder:
            for (platform, devices), lanes in ((("cpu", 0), 0), (second, given.lanes)):
                one = ["--row", platform, str(devices), str(Path(folder) / "means.npz"), "--lanes", str(lanes)]
                command = [sys.executable, __file__, "--bins", str(bins), "--delays", str(given.delays), *one]
                print(
                    subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip(), flush=True
                )


if __name__ == "__main__":
    main()
