"""What a posterior costs where the data say little: starved, arrested and two-mode bins against healthy ones.

`uv run python benchmarks/hard_bins.py [--bins 64] [--noise scaled photons] [--kinds ...] [--rounds 1]
[--baseline "Normal(1, 0.1)"]`

Curves of `photons.py`, 64 pixels and 4096 frames: healthy ones with 1 photon per pixel and frame; few pairs and
starved, with 0.01 and 0.001 photons, where most delays of the latter see no pair; arrested, with decays tens of times
slower than the longest delay. Of a bin of two modes, 52 of the 64 pixels decay 150 times as fast as the others, and
one exponential is fitted, which may be either; what it costs is compared with healthy bins that are fitted so.
`photons` is what `auto` takes for such curves.

A first fit compiles, later ones are timed. Times are in ms per bin. R-hat and effective sample sizes are ArviZ's, of
the worst parameter, the smaller of bulk and tail. The price is the processor time per bin over the mean of
min(ESS, 400) / 400: what bins cost that reach 400 effective draws, where more count for nothing. Its ratio is to
healthy bins with the same noise and model. Converged are bins with an R-hat of at most 1.01 and 400 effective draws.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import photons
import xarray as xr
from measures import Mixing, Used, least, machine, mixing, table, timed

import bayesfit

PIXELS, FRAMES = 64, 4096
PRIORS: dict[str, Any] = {"contrast_prior": "TruncatedNormal(0.15, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}
ENOUGH = 400
NOISES = ("scaled", "photons")
OF_NOISE = ("error_scale", "dispersion")


class Kind(NamedTuple):
    """Photons per pixel and frame, rates (1/s), model; how many pixels are how many times as fast."""

    counts: float
    rate: tuple[float, float] = (10.0, 100.0)
    model: str = "stretched_exponential"
    fast_pixels: int = 0
    faster: float = 1.0

    def curves(self, bins: int, seed: int) -> xr.Dataset:
        """So many bins of this kind."""
        slow = self.simulated(bins, seed, PIXELS - self.fast_pixels, self.rate)
        if not self.fast_pixels:
            return slow
        low, high = self.rate
        fast = self.simulated(bins, seed + 1, self.fast_pixels, (low * self.faster, high * self.faster))
        return mixed(slow, fast)

    def simulated(self, bins: int, seed: int, pixels: int, rate: tuple[float, float]) -> xr.Dataset:
        """Bins whose pixels are alike."""
        beta = (1.0, 1.0) if self.model == "single_exponential" else (0.7, 1.3)
        how = {"contrast": (0.2, 0.2), "frames": FRAMES, "pixels": pixels, **PRIORS}
        return photons.simulate(bins, seed=seed, counts=(self.counts,) * 2, rate=rate, beta=beta, **how)[0]


KINDS = {
    "healthy": Kind(1.0),
    "few pairs": Kind(0.01),
    "starved": Kind(0.001),
    "arrested": Kind(1.0, rate=(0.01, 0.1)),
    "healthy, one exponential": Kind(1.0, model="single_exponential"),
    "two modes, one exponential": Kind(0.02, (2.0, 3.0), "single_exponential", fast_pixels=52, faster=150.0),
}


def mixed(*parts: xr.Dataset) -> xr.Dataset:
    """Bins that have the pixels of all these."""
    first, pixels = parts[0], [float(part.pixels[0]) for part in parts]
    shares = [number / sum(pixels) for number in pixels]

    def mean(values: Iterable[np.ndarray]) -> np.ndarray:
        return sum(share * value for share, value in zip(shares, values, strict=True))

    variances = (share * part.g2_err.values**2 for share, part in zip(shares, parts, strict=True))
    return bayesfit.curves(
        first.tau.values,
        mean(part.g2.values for part in parts),
        np.sqrt(mean(variances)),
        q=first.q.values,
        counts=mean(part.counts.values for part in parts),
        pixels=sum(pixels),
        frames=FRAMES,
        frames_summed=first.frames_summed.values,
        attrs=first.attrs,
        **PRIORS,
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


def rows(
    bins: int,
    noises: Sequence[str] = NOISES,
    kinds: Sequence[str] = (),
    rounds: int = 1,
    baseline: str = PRIORS["baseline_prior"],
) -> Iterator[Row]:
    """Every noise model on every kind of bins, with this prior of the baseline."""
    datasets = {kind: KINDS[kind].curves(bins, seed=5).assign_attrs(baseline_prior=baseline) for kind in kinds or KINDS}
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
    return [
        row.kind,
        row.noise,
        *(f"{1e3 * seconds:.1f}" for seconds in (row.used.wall, row.used.processor, row.price)),
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
    parser.add_argument("--baseline", default=PRIORS["baseline_prior"], help="its prior")
    given = parser.parse_args()
    print(machine())
    print("\n".join(as_table(list(rows(given.bins, given.noise, given.kinds, given.rounds, given.baseline)))))


if __name__ == "__main__":
    main()
