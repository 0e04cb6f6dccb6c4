"""Price of a posterior by bayesfit and by others, against that of a least-squares fit, side by side in one run.

`uv run --group benchmarks python benchmarks/against_others.py [BINS ...]` (default 64 512)

Simulated stretched exponentials, 72 delays, errors wrong by one factor per bin; default settings. Everything is
compiled before. All samplers have the same model: rate, beta, contrast, baseline and the factor, with bayesfit's
priors. nutpie, emcee and NumPyro run bin by bin, as people use them, on the first few bins; converged means R-hat at
most 1.01 and bulk and tail effective sample sizes of at least 400 in the worst parameter.
"""

import contextlib
import os
import sys
import time
import warnings

import jax
import numpy as np
from scipy.optimize import curve_fit

import bayesfit
from bayesfit.sample.convergence import worst

DELAYS = 72
NAMES = ("rate", "beta", "contrast", "baseline", "error_scale")
FEW = {"nutpie": 16, "emcee": 4, "NumPyro": 4}
LOG_FLOOR = np.log(1e-6)


def stretched(tau, rate, beta, contrast, baseline):
    return baseline + contrast * np.exp(-2 * (rate * tau) ** beta)


def least_squares(data) -> float:
    """Seconds that `curve_fit` takes for every bin, by Levenberg-Marquardt from one start, as the field does it."""
    tau, started = data.tau.values, time.perf_counter()
    for g2, g2_err, valid in zip(data.g2.values, data.g2_err.values, data.valid.values, strict=True):
        x, y, error = tau[valid], g2[valid], g2_err[valid]
        high, low = y[:3].mean(), y[-3:].mean()
        start = x[np.argmin(np.abs(y - (high + low) / 2))] ** -1 / 2, 1.0, high - low, low
        with np.errstate(all="ignore"), contextlib.suppress(RuntimeError):
            curve_fit(stretched, x, y, start, error)
    return time.perf_counter() - started


def is_converged(draws) -> bool:
    """Of draws (parameter, chain, draw)."""
    rhat, *ess = worst(draws)
    return rhat <= 1.01 and min(ess) >= 400


def ours(data) -> tuple[float, int]:
    started = time.perf_counter()
    found = bayesfit.fit(data, seed=1)["diagnostics"]
    seconds = time.perf_counter() - started
    return seconds, int(((found.r_hat <= 1.01) & (found.ess_bulk >= 400) & (found.ess_tail >= 400)).sum())


def point(data) -> float:
    started = time.perf_counter()
    bayesfit.point_estimate(data, seed=1)
    return time.perf_counter() - started


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
        drawn = nutpie.sample(
            filled, draws=1000, tune=400, chains=4, seed=i, progress_bar=False, cores=len(os.sched_getaffinity(0))
        )
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


def one_by_one(make, data, count) -> tuple[float, int]:
    """Seconds per bin, and how many of `count` bins converged; the first call, which compiles, is not counted."""
    sample = make(data)
    sample(0)
    started = time.perf_counter()
    good = sum(is_converged(sample(i)) for i in range(count))
    return (time.perf_counter() - started) / count, good


def row(what: str, bins: int, seconds: float, classical: float, good: str = "") -> None:
    """Seconds are those of one bin."""
    print(f"{bins:6} {what:28} {1e3 * seconds:10.2f} {seconds / classical:10.2f}  {good}", flush=True)


def main() -> None:
    warnings.filterwarnings("ignore")
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    print(f"cores {jax.local_device_count()}")
    print(f"{'bins':>6} {'what':28} {'ms/bin':>10} {'ratio':>10}  converged")
    for bins in [int(text) for text in sys.argv[1:]] or [64, 512]:
        data, _ = bayesfit.simulate(bins=bins, delays=DELAYS, seed=1, wrong_errors=True)
        ours(data)
        classical = least_squares(data) / bins
        row("curve_fit, one start", bins, classical, classical)
        point(data)
        row("bayesfit, point estimate", bins, min(point(data) for _ in range(3)) / bins, classical)
        seconds, good = ours(data)
        row("bayesfit, posterior", bins, seconds / bins, classical, f"{good} of {bins}")
    for name, make in (("nutpie", by_nutpie), ("emcee", by_emcee), ("NumPyro", by_numpyro)):
        seconds, good = one_by_one(make, data, FEW[name])
        row(name, 1, seconds, classical, f"{good} of {FEW[name]}")


if __name__ == "__main__":
    main()
