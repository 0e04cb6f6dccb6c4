"""The posterior with a surrogate against that with the model itself: the stretched exponential as a "slow simulator".

    uv run python benchmarks/surrogate_proof.py [--budgets 30 60 120] [--draws 2000]

Four bins, 40 delays, errors of 1.5e-3 at a contrast of 0.2. For each budget of runs: the largest difference of a
posterior mean from the direct fit's, in its sd; the largest difference of an sd, relative; the surrogate's largest
error in units of the data's sd; and Pareto k and the effective sample size of 600 importance weights by true runs.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import bayesfit

TAU = np.geomspace(1e-4, 1.0, 40)
SPACE = {"rate": "LogUniform(10, 1000)", "beta": "Uniform(0.5, 1)"}
SD = 1.5e-3
SIMULATOR = """
import numpy as np


def curve(p):
    return np.exp(-2.0 * (p["rate"] * np.geomspace(1e-4, 1.0, 40)) ** p["beta"])
"""


def data():
    rng = np.random.default_rng(1)
    truth = np.array([(30.0, 0.6), (60.0, 0.8), (200.0, 0.7), (500.0, 0.95)])
    shape = np.exp(-2.0 * (truth[:, :1] * TAU) ** truth[:, 1:])
    g2 = 1.0 + 0.2 * shape + SD * rng.standard_normal(shape.shape)
    return bayesfit.curves(TAU, g2, np.full(g2.shape, SD), np.linspace(0.01, 0.04, 4))


def moments(result):
    names = ("rate", "beta", "contrast", "baseline")
    draws = np.stack([result["posterior"][name].values.reshape(-1, 4) for name in names])
    return draws.mean(axis=1), draws.std(axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budgets", type=int, nargs="+", default=[30, 60, 120])
    parser.add_argument("--draws", type=int, default=2000)
    given = parser.parse_args()
    curves = data()
    how = {"noise": "scaled", "draws": given.draws, "target_ess": 0.0, "seed": 1}
    mean, sd = moments(bayesfit.fit(curves, "stretched_exponential", priors=SPACE, **how))
    print(f"{'runs':>6}{'mean [sd]':>12}{'sd':>8}{'error [data sd]':>18}{'k':>8}{'ESS of 600':>12}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "simulator.py"
        file.write_text(SIMULATOR)
        for budget in given.budgets:
            model = bayesfit.surrogate(f"{file}:curve", SPACE, TAU, budget=budget, cache=Path(folder) / "runs")
            found = bayesfit.fit(curves, model, **how)
            exact = bayesfit.fit(curves, model, exact="psis", **how)["diagnostics"]
            own_mean, own_sd = moments(found)
            off, spread = np.max(np.abs(own_mean - mean) / sd), np.max(np.abs(own_sd / sd - 1.0))
            said = found.attrs["data_surrogate_error"].split()[0]
            k, ess = float(exact.pareto_k.max()), float(exact.weights_ess.min())
            print(f"{budget:6}{off:12.3f}{100 * spread:7.1f}%{said:>18}{k:8.2f}{ess:12.0f}", flush=True)


if __name__ == "__main__":
    main()
