"""Verdicts on joint fits as a classifier: laws that hold, and laws that the bins refute.

`uv run python benchmarks/joint_verdicts.py [--healthy 40] [--each 10] [--seed 0] [--bins 8]`

Stretched exponentials of 48 delays, fitted with `across={"rate": "diffusion", "beta": "shared"}`, a signal of 20 to 100
times the noise, stated errors wrong by a factor of up to 3 either way in each bin, and noise "scaled". Planted are
rates that go as q^3, one bin that is three times too fast, rates that scatter by 30 %, and betas that fall with q. A
healthy fit whose joint verdict is "misfit" is a false alarm; a planted one whose verdict is another was missed.
"""

from __future__ import annotations

import argparse
from collections import Counter

import jax
import numpy as np

import bayesfit

D = 2.0e4
TAU = np.geomspace(1e-4, 10.0, 48)
PRIORS = {"contrast_prior": "TruncatedNormal(0.2, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}
ACROSS = {"rate": "diffusion", "beta": "shared"}
KINDS = ("healthy", "rate as q^3", "one bin 3 times off", "rates scatter by 30 %", "beta falls with q")


def simulated(kind: str, bins: int, rng: np.random.Generator):
    """Curves of one kind."""
    q = np.geomspace(2e-3, 2e-2, bins)
    rate, beta = D * q**2, np.full(bins, rng.uniform(0.7, 1.0))
    if kind == "rate as q^3":
        rate = rate * q / np.sqrt(q[0] * q[-1])
    elif kind == "one bin 3 times off":
        rate[rng.integers(bins)] *= 3.0
    elif kind == "rates scatter by 30 %":
        rate = rate * np.exp(0.3 * rng.standard_normal(bins))
    elif kind == "beta falls with q":
        beta = np.linspace(1.0, 0.7, bins)
    contrast = rng.uniform(0.1, 0.3, bins)[:, None]
    sigma = contrast / np.exp(rng.uniform(np.log(20), np.log(100), (bins, 1))) * np.ones(TAU.size)
    g2 = 1.0 + contrast * np.exp(-2.0 * (rate[:, None] * TAU) ** beta[:, None])
    wrong = np.exp(rng.uniform(-np.log(3), np.log(3), (bins, 1)))
    return bayesfit.curves(TAU, g2 + sigma * rng.standard_normal(g2.shape), wrong * sigma, q=q, **PRIORS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--healthy", type=int, default=40)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--bins", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for number, kind in enumerate(KINDS):
        count, smallest = Counter(), []
        for repeat in range(given.each if number else given.healthy):
            rng = np.random.default_rng([given.seed, number, repeat])
            result = bayesfit.fit(simulated(kind, given.bins, rng), across=ACROSS, draws=250, seed=repeat)
            found = result["across"]
            count[str(found.joint_verdict.values)] += 1
            smallest.append(float(found.p_chi2.min()))
            if (found.joint_verdict == "misfit") == (number == 0):
                print(f"    {kind}, {repeat}: {found.joint_verdict.values}: {found.joint_reason.values}", flush=True)
        print(f"{kind:24} {dict(count)}; p of chi2 {min(smallest):.1g} to {max(smallest):.1g}", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    main()
