"""Price of a posterior by bayesfit and by others, against that of a least-squares fit, side by side in one run.

`uv run --group benchmarks python benchmarks/against_others.py [--bins 512] [--rounds 3] [--nutpie 16] ...`

Simulated stretched exponentials, 72 delays, errors wrong by one factor per bin; default settings. Everything is
compiled before. All samplers have the same model: rate, beta, contrast, baseline and the factor, with bayesfit's
priors. `curve_fit` starts each bin from one point, and bayesfit takes all bins at once; both in as many rounds, in
turns, of which the shortest time counts. nutpie, emcee and NumPyro run bin by bin, as people use them, on the first
few bins (`--nutpie`, `--emcee`, `--numpyro`; with 0 they are left out). Processor time is that of all cores. R-hat and
effective sample sizes are ArviZ's, of a bin's worst parameter, the smaller of bulk and tail; converged means at most
1.01, and at least 400. Ratios are to `curve_fit` with bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import jax
import many_bins
import numpy as np
import xarray as xr
from measures import Mixing, Used, cores, least, machine, mixing, stacked, table, timed
from scipy.optimize import curve_fit

import bayesfit

DELAYS = 72
NAMES = ("rate", "beta", "contrast", "baseline", "error_scale")
FEW = {"nutpie": 16, "emcee": 4, "numpyro": 4}
LOG_FLOOR = np.log(1e-6)
REFERENCE = "`curve_fit`, bounds"


class Row(NamedTuple):
    """What one way of fitting takes for each of so many bins."""

    what: str
    bins: int
    used: Used
    mixing: Mixing | None = None


def simulated(bins: int) -> xr.Dataset:
    """The curves that all fit."""
    return bayesfit.simulate(bins=bins, delays=DELAYS, seed=1, wrong_errors=True)[0]


def stretched(tau, rate, beta, contrast, baseline):
    return baseline + contrast * np.exp(-2 * (rate * tau) ** beta)


def least_squares(data: xr.Dataset, bounded: bool) -> None:
    """`curve_fit` for every bin from one start, as the field does it: by Levenberg-Marquardt, or by a trust region
    with bounds."""
    tau = data.tau.values
    low, high = np.exp(limits(tau))
    bounds = ([low, 0.2, 0.0, 0.5], [high, 2.0, 1.0, 1.5]) if bounded else (-np.inf, np.inf)
    for g2, g2_err, valid in zip(data.g2.values, data.g2_err.values, data.valid.values, strict=True):
        x, y, error = tau[valid], g2[valid], g2_err[valid]
        first, last = y[:3].mean(), y[-3:].mean()
        start = x[np.argmin(np.abs(y - (first + last) / 2))] ** -1 / 2, 1.0, first - last, last
        start = np.clip(start, *bounds) if bounded else start
        with np.errstate(all="ignore"), contextlib.suppress(RuntimeError):
            curve_fit(stretched, x, y, start, error, bounds=bounds)


def of_result(result: xr.DataTree) -> Mixing:
    """How well the chains of a fit have mixed."""
    return mixing({name: result["posterior"][name] for name in NAMES})


def all_bins(data: xr.Dataset, rounds: int) -> Iterator[Row]:
    """Least squares and bayesfit from Python, in turns."""
    ways: dict[str, Callable[[], object]] = {
        "`curve_fit`, no bounds": lambda: least_squares(data, False),
        REFERENCE: lambda: least_squares(data, True),
        "bayesfit, point estimate": lambda: bayesfit.point_estimate(data, seed=1),
        "bayesfit, posterior": lambda: bayesfit.fit(data, seed=1),
    }
    for work in ways.values():
        work()
    took = {what: [] for what in ways}
    for _ in range(rounds):
        made = [(what, *timed(work)) for what, work in ways.items()]
        for what, used, _ in made:
            took[what].append(used)
    for what, _, result in made:
        found = of_result(result) if what.endswith("posterior") else None
        yield Row(what, data.q_bin.size, least(took[what]).per(data.q_bin.size), found)


def by_command(data: xr.Dataset, rounds: int) -> Row:
    """The command line on a file of these bins, from prompt to saved result."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [many_bins.measured(Path(folder), data) for _ in range(1 + rounds)]  # the first one compiles
        found = of_result(bayesfit.load(runs[0].result))
    used = least(run.used for run in runs[1:])
    return Row("bayesfit, command to saved result", data.q_bin.size, used.per(data.q_bin.size), found)


def limits(tau) -> tuple[float, float]:
    """Of the log rate."""
    return float(np.log(0.1 / tau.max())), float(np.log(10.0 / tau.min()))


def by_nutpie(data):
    """Draws of one bin after another: 4 chains of 1000 after 400 of tuning."""
    import nutpie
    import pymc as pm

    tau = data.tau.values
    with pm.Model() as model:
        g2, g2_err = pm.Data("g2", data.g2.values[0]), pm.Data("g2_err", data.g2_err.values[0])
        rate = pm.Deterministic("rate", pm.math.exp(pm.Uniform("log_rate", *limits(tau))))
        beta = pm.Uniform("beta", 0.2, 2.0)
        contrast = pm.TruncatedNormal("contrast", 0.15, 0.2, lower=0.0)
        baseline = pm.Normal("baseline", 1.0, 0.1)
        log_scale = pm.TruncatedNormal("log_scale", 0.0, 3.0, lower=LOG_FLOOR)
        scale = pm.Deterministic("error_scale", pm.math.exp(log_scale))
        mean = baseline + contrast * pm.math.exp(-2.0 * pm.math.exp(beta * (pm.math.log(rate) + np.log(tau))))
        pm.Normal("y", mean, scale * g2_err, observed=g2)
    compiled = nutpie.compile_pymc_model(model)

    def sample(i):
        filled = compiled.with_data(g2=data.g2.values[i], g2_err=data.g2_err.values[i])
        drawn = nutpie.sample(filled, draws=1000, tune=400, chains=4, seed=i, progress_bar=False, cores=cores())
        return np.stack([drawn.posterior[name].values for name in NAMES])

    return sample


def by_emcee(data):
    """32 walkers, vectorised, 4000 steps, the first 1000 left out; 4 groups of walkers stand for chains."""
    import emcee

    tau = data.tau.values
    low, high = limits(tau)

    def log_density(z, g2, g2_err):
        log_rate, beta, contrast, baseline, log_scale = z.T
        inside = (log_rate > low) & (log_rate < high) & (beta > 0.2) & (beta < 2) & (contrast > 0)
        inside &= log_scale > LOG_FLOOR
        with np.errstate(all="ignore"):
            shape = np.exp(-2.0 * np.exp(beta[:, None] * (log_rate[:, None] + np.log(tau))))
            residual = (g2 - baseline[:, None] - contrast[:, None] * shape) / g2_err * np.exp(-log_scale)[:, None]
            value = -0.5 * np.sum(residual**2, axis=1) - tau.size * log_scale
        value += -0.5 * ((contrast - 0.15) / 0.2) ** 2 - 0.5 * ((baseline - 1) / 0.1) ** 2 - 0.5 * (log_scale / 3) ** 2
        return np.where(inside & np.isfinite(value), value, -np.inf)

    def sample(i):
        g2, g2_err = data.g2.values[i], data.g2_err.values[i]
        half = tau[np.argmin(np.abs(g2 - (g2[:3].mean() + g2[-3:].mean()) / 2))]
        middle = np.array([-np.log(2 * half), 1.0, g2[:3].mean() - g2[-3:].mean(), g2[-3:].mean(), 0.0])
        start = middle + np.array([0.1, 0.05, 0.01, 0.005, 0.5]) * np.random.default_rng(i).standard_normal((32, 5))
        sampler = emcee.EnsembleSampler(32, 5, log_density, args=(g2, g2_err), vectorize=True)
        sampler.run_mcmc(np.where(np.arange(5) == 2, np.abs(start), start), 4000)
        chain = np.moveaxis(sampler.get_chain(discard=1000), -1, 0)
        return np.moveaxis(chain.reshape(5, 3000, 4, 8), 1, 3).reshape(5, 4, -1)

    return sample


def by_numpyro(data):
    """NumPyro's own MCMC of the whole program, every site sampled: 4 chains of 1000 after 500, side by side."""
    from numpyro.infer import MCMC, NUTS

    def sample(i):
        with jax.enable_x64(True):
            kernel = NUTS(bayesfit.numpyro_program(data, i), dense_mass=True)
            sampler = MCMC(
                kernel, num_warmup=500, num_samples=1000, num_chains=4, chain_method="vectorized", progress_bar=False
            )
            sampler.run(jax.random.key(i))
            drawn = sampler.get_samples(group_by_chain=True)
        return np.stack([np.asarray(drawn[name]) for name in NAMES])

    return sample


OTHERS = {"nutpie": by_nutpie, "emcee": by_emcee, "numpyro": by_numpyro}
PRINTED = {"numpyro": "NumPyro"}


def one_by_one(name: str, data: xr.Dataset, count: int) -> Row:
    """Another sampler on the first bins; the first call, which compiles, is not counted."""
    sample = OTHERS[name](data)
    sample(0)
    used, draws = timed(lambda: [sample(i) for i in range(count)])
    return Row(PRINTED.get(name, name), count, used.per(count), mixing(stacked(draws, NAMES)))


def rows(bins: int, rounds: int, few: dict[str, int]) -> Iterator[Row]:
    """All ways of fitting, each other sampler on so many bins. One that is not installed is left out."""
    data = simulated(bins)
    yield from all_bins(data, rounds)
    yield by_command(data, rounds)
    for name, count in few.items():
        if count and find_spec(name):
            yield one_by_one(name, data, min(count, bins))


def as_table(found: list[Row]) -> list[str]:
    """Lines of a table in Markdown."""
    (reference,) = (row.used for row in found if row.what == REFERENCE)
    head = ["what", "bins", "wall ms", "ratio", "processor ms", "ratio", "R-hat", "ESS, median", "converged"]
    return table(head, [[row.what, row.bins, *prices(row.used, reference), *qualities(row.mixing)] for row in found])


def prices(used: Used, reference: Used) -> list[str]:
    """Wall and processor time of a bin in ms, each with its ratio to the reference."""
    pairs = ((used.wall, reference.wall), (used.processor, reference.processor))
    return [text for own, other in pairs for text in (f"{1e3 * own:.2f}", f"{own / other:.2f}")]


def qualities(found: Mixing | None) -> list[str]:
    """The largest R-hat of all bins, the median effective sample size, and how many bins have converged."""
    if found is None:
        return ["", "", ""]
    return [f"{np.max(found.r_hat):.3f}", f"{np.median(found.ess):.0f}", found.said()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    for name, count in FEW.items():
        parser.add_argument(f"--{name}", type=int, default=count, help="bins")
    given = vars(parser.parse_args())
    warnings.filterwarnings("ignore")
    print(machine())
    print("\n".join(as_table(list(rows(given["bins"], given["rounds"], {name: given[name] for name in FEW})))))


if __name__ == "__main__":
    main()
