"""Verdicts as a classifier: planted failures of each kind, and healthy bins.

`uv run python benchmarks/verdicts.py [--each 100] [--healthy 1000] [--prior 1000] [--seed 0] [--noise scaled]`

No planted failure should be called "ok"; a healthy bin that is not called "ok" is a false alarm. So is a bin whose
truth is drawn from the prior, decays outside the delays among them, that is called "misfit" or "prior_conflict". All
are fitted with the stretched exponential and noise "scaled" or another one, but for the wrong errors ("stated"), and
the two modes, which are two equal steps fitted with one exponential. A stuck chain is put into the sampler's draws: one
chain stays where it is, or moves by a hundredth of what it did, before convergence is computed. First delays that are
off can hide in the stretching of a fast decay, so that such a bin alone is "ok"; what is said of all bins names them
then.
"""

from __future__ import annotations

import argparse
from collections import Counter
from unittest.mock import patch

import jax
import numpy as np
import xarray as xr
from scipy import stats

import bayesfit
from bayesfit.sample.draws import STATS
from bayesfit.sample.loop import Run

TAU = np.geomspace(1e-3, 1e2, 66)
PRIORS = {"contrast_prior": "TruncatedNormal(0.15, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}


def healthy(rng: np.random.Generator, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Decays well inside the delays (bin, tau) and the noise's sd, a fifteenth to a hundredth of the contrast."""
    rate, beta = np.exp(rng.uniform(np.log(0.1), np.log(100), bins)), rng.uniform(0.7, 1.3, bins)
    contrast = rng.uniform(0.1, 0.3, bins)
    sigma = contrast / np.exp(rng.uniform(np.log(15), np.log(100), bins))
    return decay(rate, beta, contrast), np.repeat(sigma[:, None], TAU.size, axis=1)


def decay(rate: np.ndarray, beta: np.ndarray, contrast: np.ndarray) -> np.ndarray:
    rate, beta, contrast = (np.reshape(value, (-1, 1)) for value in (rate, beta, contrast))
    return 1 + contrast * np.exp(-2 * (rate * TAU) ** beta)


def noise(rng: np.random.Generator, sigma: np.ndarray) -> np.ndarray:
    return sigma * rng.standard_normal(sigma.shape)


def data_of(rng: np.random.Generator, g2: np.ndarray, sigma: np.ndarray, wrong: bool = True) -> xr.Dataset:
    """The record, a tenth of the points masked, errors wrong by a factor of up to 10 in each bin."""
    factor = np.exp(rng.uniform(np.log(0.3), np.log(10), (len(g2), 1))) if wrong else 1.0
    masked = rng.uniform(size=g2.shape) < 0.1
    return bayesfit.curves(TAU, np.where(masked, np.nan, g2), sigma / factor, **PRIORS)


def planted(rng: np.random.Generator, kind: str, bins: int, noise_model: str) -> tuple[xr.Dataset, dict]:
    """Data of one kind of failure, and the settings to fit them with."""
    mean, sigma = healthy(rng, bins)
    ones, settings, wrong = np.ones(bins), {"noise": noise_model}, True
    good = noise(rng, sigma)
    if kind == "wrong model: two decays":
        contrast = (mean[:, 0] - 1) / 2
        mean = decay(0.03 * ones, 1.5 * ones, contrast) + decay(30 * ones, 1.5 * ones, contrast) - 1
    elif kind == "wrong model: oscillation":
        mean = 1 + (mean - 1) * (1 + 0.4 * np.cos(3 * np.log(TAU)))
    elif kind == "wrong noise: outliers":
        hit = np.argsort(rng.uniform(size=good.shape), axis=1) < 4
        good = np.where(hit, 8 * sigma * np.sign(good), good)
    elif kind == "wrong noise: correlated":
        for point in range(1, TAU.size):
            good[:, point] = 0.85 * good[:, point - 1] + np.sqrt(1 - 0.85**2) * good[:, point]
    elif kind == "wrong noise: grows":
        good = good * np.geomspace(0.2, 3, TAU.size)
    elif kind == "wrong noise: stated errors":
        good, wrong, settings = 2 * good, False, {"noise": "stated"}
    elif kind == "decay before the window":
        mean = decay(1e5 * ones, ones, mean[:, 0] - 1)
    elif kind == "decay after the window":
        mean = decay(1e-4 * ones, ones, mean[:, 0] - 1)
    elif kind == "decay slower than its prior":
        mean = decay(np.exp(rng.uniform(np.log(1e-4), np.log(1e-3), bins)), ones, mean[:, 0] - 1)
        good, sigma = good / 10, sigma / 10
    elif kind == "flat curve":
        mean = np.ones_like(mean)
    elif kind == "contrast at zero":
        mean = 1 + (mean - 1) * 0.02 * sigma / (mean[:, :1] - 1)
    elif kind == "g2 - 1 given for g2":
        mean = mean - 1
    elif kind == "first delays off":
        good[:, :4] += sigma[:, :4] * rng.uniform(10, 60, (bins, 1)) * np.exp(-np.arange(4) / 2)
    elif kind == "two modes":
        contrast = (mean[:, 0] - 1) / 2
        mean = decay(0.1 * ones, ones, contrast) + decay(50 * ones, ones, contrast) - 1
        settings["model"] = "single_exponential"
    elif kind == "dead bin":
        mean = np.where(np.arange(TAU.size) < rng.integers(0, 4, (bins, 1)), mean, np.nan)
        mean[0, :] = decay(1.0, 1.0, 0.2)  # a record needs a bin that is alive
    return data_of(rng, mean + good, sigma, wrong), settings


KINDS = (
    "wrong model: two decays",
    "wrong model: oscillation",
    "wrong noise: outliers",
    "wrong noise: correlated",
    "wrong noise: grows",
    "wrong noise: stated errors",
    "decay before the window",
    "decay after the window",
    "decay slower than its prior",
    "flat curve",
    "contrast at zero",
    "g2 - 1 given for g2",
    "first delays off",
    "two modes",
    "stuck chain",
    "dead bin",
)


class Stuck:
    """Puts a stuck chain into the values of every bin's kept draws (chain, draw, column), behind its three coordinates
    and the statistics."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.kept = rng, Run.kept

    def __call__(self, run, schedule) -> np.ndarray:
        table = self.kept(run, schedule)
        values = table[..., 3 + len(STATS) :]
        chain, still = self.rng.integers(4), self.rng.uniform() < 0.5
        values[chain] = values[chain, 0] + (0.0 if still else 0.01) * (values[chain] - values[chain, 0])
        return table


def from_prior(rng: np.random.Generator, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Curves (bin, tau) with truths from the prior, and the noise's sd."""
    rate = np.exp(rng.uniform(np.log(0.1 / TAU[-1]), np.log(10 / TAU[0]), bins))
    beta = rng.uniform(0.2, 2.0, bins)
    contrast = stats.truncnorm.rvs(-0.75, np.inf, 0.15, 0.2, random_state=rng, size=bins)
    baseline = rng.normal(1, 0.1, (bins, 1))
    sigma = np.exp(rng.uniform(np.log(1e-3), np.log(1e-2), bins))
    return decay(rate, beta, contrast) - 1 + baseline, np.repeat(sigma[:, None], TAU.size, axis=1)


def ranges(found: xr.Dataset) -> str:
    """How many bins are advised to leave out their first delays."""
    return f"range of delays advised: {int((found.tau_min_to_try > 0).sum())}"


def verdicts(kind: str, bins: int, seed: int, noise_model: str) -> tuple[Counter, str]:
    rng = np.random.default_rng([seed, len(kind)])
    data, settings = planted(rng, kind, bins, noise_model)
    if kind == "stuck chain":
        stuck = Stuck(rng)
        with patch.object(Run, "kept", lambda *given: stuck(*given)):
            found = bayesfit.fit(data, seed=seed, target_ess=0.0, **settings)
    else:
        found = bayesfit.fit(data, seed=seed, **settings)
    names = found["diagnostics"].verdict.values
    return Counter(names[1:] if kind == "dead bin" else names), ranges(found["diagnostics"].dataset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--prior", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", default="scaled")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    mean, sigma = healthy(rng, given.healthy)
    result = bayesfit.fit(data_of(rng, mean + noise(rng, sigma), sigma), seed=given.seed, noise=given.noise)
    found = result["diagnostics"]
    alarms = found.verdict.values != "ok"
    print(f"healthy: {dict(Counter(found.verdict.values))}; false alarms {100 * alarms.mean():.1f} %", flush=True)
    for reason in found.reason.values[alarms][:10]:
        print("   ", reason)
    mean, sigma = from_prior(rng, given.prior)
    result = bayesfit.fit(data_of(rng, mean + noise(rng, sigma), sigma), seed=given.seed, noise=given.noise)
    found = result["diagnostics"]
    print(f"truths from the prior: {dict(Counter(found.verdict.values))}; {ranges(found.dataset)}", flush=True)
    for kind in KINDS:
        count, advised = verdicts(kind, given.each + (kind == "dead bin"), given.seed, given.noise)
        print(f"{kind:28} {'ok: ' + str(count['ok']):8} {dict(count)}; {advised}", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    main()
