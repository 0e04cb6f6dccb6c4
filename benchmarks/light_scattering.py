"""Do the rates of repeats scatter as their posteriors say? Real light scattering, 13 angles with 3 repeats each.

`uv run python benchmarks/light_scattering.py [--noise photons scaled] [--model cumulant] [--folder FOLDER]`

Each file is fitted by itself. Printed are the root mean square over the angles of the scatter of the three rates over
the standard deviations of their posteriors, which is 1 within 0.14 where these are right; the median standard deviation
of a rate over the rate; the verdicts; the range of dispersion or scale; and the time.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

import bayesfit

REPEATS = 3
SCALES = ("dispersion", "error_scale")


class Fitted(NamedTuple):
    """Mean and standard deviation of a rate, the mean of a scale of the noise, and the verdict."""

    mean: float
    sd: float
    scale: float
    verdict: str


def fitted(path: Path, model: str, noise: str) -> Fitted:
    """What one file says of its rate."""
    result = bayesfit.fit(bayesfit.read(path), model, noise=noise, seed=1)
    posterior = result["posterior"]
    scale = next((float(posterior[name].mean()) for name in SCALES if name in posterior), np.nan)
    rate = posterior.rate
    return Fitted(float(rate.mean()), float(rate.std()), scale, str(result["diagnostics"].verdict.values[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--noise", nargs="+", default=["photons", "scaled"])
    parser.add_argument("--model", default="cumulant")
    parser.add_argument("--folder", type=Path, default=Path("../shared/data/dls_alv_cgs3"))
    given = parser.parse_args()
    if not (files := sorted(given.folder.glob("*.ASC"))) or len(files) % REPEATS:
        parser.error(f"{given.folder}: expected files NAME_0001.ASC to NAME_000{REPEATS}.ASC of each angle")
    for noise in given.noise:
        started = time.monotonic()
        found = [fitted(path, given.model, noise) for path in files]
        mean, sd = (np.reshape([getattr(one, name) for one in found], (-1, REPEATS)) for name in ("mean", "sd"))
        ratio = np.sqrt(np.mean(mean.var(axis=1, ddof=1) / np.mean(sd**2, axis=1)))
        low, middle, high = np.quantile([one.scale for one in found], [0.05, 0.5, 0.95])
        verdicts = dict(Counter(one.verdict for one in found))
        print(f"{noise}: scatter of repeats {ratio:.2f} sd; sd {np.median(sd / mean):.1%} of a rate; {verdicts}")
        took = time.monotonic() - started
        print(f"  scale of the noise {low:.2f}, {middle:.2f}, {high:.2f} (5, 50, 95 %); {took:.0f} s")


if __name__ == "__main__":
    main()
