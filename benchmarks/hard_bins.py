"""What a posterior costs where the data say little: starved, arrested and two-mode bins against healthy ones.

`uv run python benchmarks/hard_bins.py [--bins 64] [--noise scaled photons] [--kinds ...] [--rounds 1]`

Curves of `photons.py`, 64 pixels and 4096 frames: healthy ones with 1 photon per pixel and frame; few pairs and
starved, with 0.01 and 0.001 photons, where most delays of the latter see no pair; arrested, with decays tens of times
slower than the longest delay. A bin of two modes has pixels of two kinds, whose rates differ by 400 times, and is
fitted with one exponential; what it costs is compared with healthy bins that are fitted so. `photons` is what `auto`
takes for such curves.

A first fit compiles, later ones are timed. Times are in ms per bin. R-hat and effective sample sizes are ArviZ's, of
the worst parameter, the smaller of bulk and tail. The price is the processor time per bin over the mean of
min(ESS, 400) / 400: what bins cost that reach 400 effective draws, where more count for nothing. Its ratio is to
healthy bins with the same noise and model. Converged are bins with an R-hat of at most 1.01 and 400 effective draws.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import photons
import xarray as xr
from measures import Mixing, Used, least, machine, mixing, table, timed

import bayesfit

HOW: dict[str, Any] = {"pixels": 64, "frames": 4096, "contrast": (0.2, 0.2)}
ENOUGH = 400
NOISES = ("scaled", "photons")
OF_NOISE = ("error_scale", "dispersion")


class Kind(NamedTuple):
    """Photons per pixel and frame, range of the rates (1/s), model; how often as fast half of the pixels are."""

    counts: float
    rate: tuple[float, float] = (10.0, 100.0)
    model: str = "stretched_exponential"
    faster: float = 1.0

    def curves(self, bins: int, seed: int) -> xr.Dataset:
        """So many bins of this kind."""
        if self.faster == 1:
            return simulated(self, self.rate, bins, seed)
        return mixed(*(simulated(self, tuple(np.multiply(self.rate, by)), bins, seed) for by in (1.0, self.faster)))


KINDS = {
    "healthy": Kind(1.0),
    "few pairs": Kind(0.01),
    "starved": Kind(0.001),
    "arrested": Kind(1.0, rate=(0.01, 0.1)),
    "healthy, one exponential": Kind(1.0, model="single_exponential"),
    "two modes, one exponential": Kind(0.03, (1.5, 3.0), "single_exponential", faster=400.0),
}


def simulated(kind: Kind, rate: tuple[float, ...], bins: int, seed: int) -> xr.Dataset:
    """Curves with rates in this range."""
    beta = (1.0, 1.0) if kind.model == "single_exponential" else (0.7, 1.3)
    return photons.simulate(bins, seed=seed, counts=(kind.counts,) * 2, rate=rate, beta=beta, **HOW)[0]


def mixed(one: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    """Bins whose pixels are those of two, as many of each."""
    return bayesfit.curves(
        one.tau.values,
        (one.g2.values + other.g2.values) / 2,
        np.hypot(one.g2_err.values, other.g2_err.values) / 2,
        q=one.q.values,
        counts=(one.counts.values + other.counts.values) / 2,
        pixels=2 * HOW["pixels"],
        frames=HOW["frames"],
        frames_summed=one.frames_summed.values,
        attrs={"frame_time": 1e-3},
        contrast_prior="TruncatedNormal(0.15, 0.2, low=0)",
        baseline_prior="Normal(1, 0.1)",
    )


class Row(NamedTuple):
    """What bins of one kind take with one noise model, each; how they have mixed; and their verdicts."""

    noise: str
    kind: str
    used: Used
    mixing: Mixing
    verdicts: Counter[str]

    @property
    def price(self) -> float:
        """Seconds of processor time per bin with enough effective draws."""
        return self.used.processor / float(np.mean(np.minimum(np.nan_to_num(self.mixing.ess), ENOUGH)) / ENOUGH)


def measured(noise: str, kind: str, curves: xr.Dataset, rounds: int = 1) -> Row:
    """Bins of one kind with one noise model."""

    def fit() -> xr.DataTree:
        return bayesfit.fit(curves, model=KINDS[kind].model, noise=noise, seed=1)

    fit()
    times, results = zip(*(timed(fit) for _ in range(rounds)), strict=True)
    posterior, found = results[0]["posterior"], results[0]["diagnostics"]
    names = [*found.parameter.values, *(name for name in OF_NOISE if name in posterior)]
    mixed_so = mixing({name: posterior[name] for name in names})
    return Row(noise, kind, least(times).per(curves.q_bin.size), mixed_so, Counter(found.verdict.values.tolist()))


def rows(bins: int, noises: Sequence[str] = NOISES, kinds: Sequence[str] = (), rounds: int = 1) -> Iterator[Row]:
    """Every noise model on every kind of bins."""
    datasets = {kind: KINDS[kind].curves(bins, seed=5) for kind in kinds or KINDS}
    for noise in noises:
        for kind, curves in datasets.items():
            yield measured(noise, kind, curves, rounds)


def as_table(found: Sequence[Row]) -> list[str]:
    """Lines of a table in Markdown; without healthy bins of a kind to compare with, there is no ratio."""
    healthy = {(row.noise, KINDS[row.kind].model): row.price for row in found if row.kind.startswith("healthy")}
    head = [
        "bins",
        "noise",
        "wall ms",
        "processor ms",
        "price",
        "ratio",
        "R-hat",
        "ESS, median",
        "converged",
        "verdicts",
    ]
    return table(head, [cells(row, healthy.get((row.noise, KINDS[row.kind].model), np.nan)) for row in found])


def cells(row: Row, healthy: float) -> list[object]:
    """Those of one row."""
    times = (row.used.wall, row.used.processor, row.price)
    return [
        row.kind,
        row.noise,
        *(f"{1e3 * seconds:.1f}" for seconds in times),
        f"{row.price / healthy:.2f}",
        f"{np.max(row.mixing.r_hat):.3f}",
        f"{np.median(row.mixing.ess):.0f}",
        row.mixing.said(),
        ", ".join(f"{count} {verdict}" for verdict, count in row.verdicts.most_common()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=64)
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    print(machine())
    print("\n".join(as_table(list(rows(given.bins, given.noise, given.kinds, given.rounds)))))


if __name__ == "__main__":
    main()
