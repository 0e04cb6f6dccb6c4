"""Time of files of few bins: `fit_many`, which fits them side by side, against `fit` on one after the other.

`uv run python benchmarks/side_by_side.py`
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax

import bayesfit
from bayesfit.result.files import content_hash

OPTIONS: dict[str, Any] = {"model": "stretched_exponential", "noise": "scaled"}


def timed(fit: Callable[[], list[Any]]) -> tuple[float, list[str]]:
    """Wall time in s, and the hashes of the results."""
    started = time.monotonic()
    results = fit()
    return time.monotonic() - started, [content_hash(result) for result in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--bins", type=int, default=2, help="in each file")
    given = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 2)
    datasets = [bayesfit.simulate(bins=given.bins, seed=seed)[0] for seed in range(given.files)]
    bayesfit.fit_many(datasets, **OPTIONS)  # compiles
    bayesfit.fit(datasets[0], **OPTIONS)
    together, hashes = timed(lambda: bayesfit.fit_many(datasets, **OPTIONS))
    alone, wanted = timed(lambda: [bayesfit.fit(data, **OPTIONS) for data in datasets])
    if hashes != wanted:
        raise SystemExit("other bits side by side")
    files = f"{given.files} files of {given.bins} bins"
    print(f"{files}: {alone:.1f} s one by one, {together:.1f} s side by side: ratio {alone / together:.2f}, equal bits")


if __name__ == "__main__":
    main()
