"""How time and memory per bin grow with the number of bins and of delays; programs compiled before.

`uv run python benchmarks/cost_laws.py [bins|delays]` (both by default). Simulated stretched exponentials with wrong
errors, default settings. Every row is a process of its own, so that its peak memory is its own; the time is that of a
second fit in it.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

from measures import machine

BINS = [8, 32, 128, 512, 2048, 8192]
DELAYS = [32, 64, 128, 256, 512, 1024]


def peak() -> float:
    """Largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(bins: int, delays: int) -> None:
    import bayesfit

    first, _ = bayesfit.simulate(bins=min(bins, 256), delays=delays, seed=1, wrong_errors=True)
    bayesfit.fit(first, seed=0)
    before = peak()
    data, _ = bayesfit.simulate(bins=bins, delays=delays, seed=2, wrong_errors=True)
    marks = {}
    started = time.perf_counter()
    result = bayesfit.fit(data, seed=1, progress=lambda p: marks.__setitem__(p.stage, time.perf_counter() - started))
    seconds = time.perf_counter() - started
    found = result["diagnostics"]
    good = int(((found.r_hat <= 1.01) & (found.ess_bulk >= 400) & (found.ess_tail >= 400)).sum())
    more = (peak() - before) / bins
    print(
        f"{bins:6} {delays:7} {1e3 * marks['point estimate'] / bins:9.2f} {1e3 * seconds / bins:10.2f} "
        f"{peak():9.0f} {1024 * more:10.0f} {good:6} of {bins}",
        flush=True,
    )


def lines(sizes: Iterable[tuple[int, int]]) -> Iterator[str]:
    """A head, and a row for each number of bins and of delays."""
    yield f"{'bins':>6} {'delays':>7} {'point':>9} {'posterior':>10} {'peak MiB':>9} {'KiB/bin':>10}  converged"
    for bins, delays in sizes:
        command = [sys.executable, __file__, str(bins), str(delays)]
        yield subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()


def main() -> None:
    if len(sys.argv) == 3:
        measure(int(sys.argv[1]), int(sys.argv[2]))
        return
    which = sys.argv[1:] or ["bins", "delays"]
    sizes = [(bins, 72) for bins in BINS] if "bins" in which else []
    sizes += [(256, delays) for delays in DELAYS] if "delays" in which else []
    print(f"{machine()}; times are in ms per bin")
    for line in lines(sizes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
