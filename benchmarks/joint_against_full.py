"""A joint fit of 64 bins against the full program, every amplitude sampled: the same posterior, and its price.

`uv run --group benchmarks python benchmarks/joint_against_full.py [BINS]` (default 64)

Stretched exponentials with rate = D q^2 and one beta, errors as stated. bayesfit samples D and beta; the full program,
by NumPyro's NUTS and by nutpie (PyMC), samples these and every contrast and baseline. All have the same priors. Means
are compared in units of the posterior's sd, and times of second runs, side by side, compilation apart.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import nutpie
import pymc as pm
from numpyro.infer import MCMC, NUTS, init_to_value

import bayesfit
from bayesfit.sample.convergence import worst

D, BETA, ERROR = 2.0e4, 0.9, 0.004
TAU = np.geomspace(1e-4, 10.0, 48)
PRIORS = {"D": "LogNormal(10, 2)", "beta": "Uniform(0.2, 2)"}
PRIORS |= {"contrast": "TruncatedNormal(0.2, 0.2, low=0)", "baseline": "Normal(1, 0.1)"}


def simulated(bins, seed=0):
    rng = np.random.default_rng(seed)
    q = np.geomspace(2e-3, 2e-2, bins)
    g2 = 1.0 + 0.2 * np.exp(-2.0 * (D * q[:, None] ** 2 * TAU) ** BETA)
    g2 += ERROR * rng.standard_normal(g2.shape)
    return bayesfit.curves(TAU, g2, np.full_like(g2, ERROR), q=q)


def ours(data, seed):
    """Draws by name (chain, draw, ...)."""
    options = {"noise": "stated", "priors": PRIORS, "across": {"rate": "diffusion", "beta": "shared"}}
    posterior = bayesfit.fit(data, seed=seed, **options)["posterior"]
    return {name: posterior[name].values for name in ("D", "beta", "contrast", "baseline")}


def by_numpyro(data):
    """NumPyro's NUTS on the full program, 4 chains of 1000 after 1000 side by side, from the truth."""
    q, g2 = jnp.asarray(data.q.values), jnp.asarray(data.g2.values)

    def program(g2):
        D = numpyro.sample("D", dist.LogNormal(10.0, 2.0))
        beta = numpyro.sample("beta", dist.Uniform(0.2, 2.0))
        with numpyro.plate("bins", q.size):
            contrast = numpyro.sample("contrast", dist.TruncatedNormal(0.2, 0.2, low=0.0))
            baseline = numpyro.sample("baseline", dist.Normal(1.0, 0.1))
        shape = jnp.exp(-2.0 * jnp.exp(beta * (jnp.log(D * q[:, None] ** 2) + jnp.log(TAU))))
        mean = baseline[:, None] + contrast[:, None] * shape
        numpyro.sample("g2", dist.Normal(mean, ERROR).to_event(2), obs=g2)

    start = {"D": D, "beta": BETA, "contrast": np.full(q.size, 0.2), "baseline": np.ones(q.size)}
    sampler = MCMC(
        NUTS(program, init_strategy=init_to_value(values=start)),
        num_warmup=1000,
        num_samples=1000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,
    )

    def sample(seed):
        sampler.run(jax.random.key(seed), g2)
        return {name: np.asarray(array) for name, array in sampler.get_samples(group_by_chain=True).items()}

    return sample


def by_nutpie(data):
    """nutpie on the full program, 4 chains of 1000 after 1000."""
    q = data.q.values
    with pm.Model() as model:
        d = pm.LogNormal("D", 10.0, 2.0)
        beta = pm.Uniform("beta", 0.2, 2.0)
        contrast = pm.TruncatedNormal("contrast", 0.2, 0.2, lower=0.0, shape=q.size)
        baseline = pm.Normal("baseline", 1.0, 0.1, shape=q.size)
        shape = pm.math.exp(-2.0 * pm.math.exp(beta * (pm.math.log(d) + np.log(q[:, None] ** 2 * TAU))))
        pm.Normal("g2", baseline[:, None] + contrast[:, None] * shape, ERROR, observed=data.g2.values)
    compiled = nutpie.compile_pymc_model(model)

    def sample(seed):
        drawn = nutpie.sample(compiled, draws=1000, tune=1000, chains=4, seed=seed, progress_bar=False).posterior
        return {name: drawn[name].values for name in ("D", "beta", "contrast", "baseline")}

    return sample


def series(draws):
    """All scalars as series (series, chain, draw)."""
    parts = [array.reshape(*array.shape[:2], -1) for array in draws.values()]
    return np.moveaxis(np.concatenate(parts, axis=-1), -1, 0)


def main(bins: int = 64) -> None:
    jax.config.update("jax_enable_x64", True)
    data = simulated(bins)
    samplers = {
        "bayesfit": lambda seed: ours(data, seed),
        "NumPyro, full": by_numpyro(data),
        "nutpie, full": by_nutpie(data),
    }
    found = {}
    for name, sample in samplers.items():
        sample(0)
        started = time.perf_counter()
        draws = sample(1)
        seconds = time.perf_counter() - started
        found[name] = draws
        r_hat, *ess = worst(series(draws))
        common = ", ".join(f"{p} {draws[p].mean():.5g} ± {draws[p].std():.2g}" for p in ("D", "beta"))
        print(f"{name:14} {seconds:7.2f} s  R-hat {r_hat:.3f}  ESS {min(ess):6.0f}  {common}", flush=True)
    for name in list(samplers)[1:]:
        off = {
            p: np.abs(found["bayesfit"][p].mean((0, 1)) - found[name][p].mean((0, 1))) / found[name][p].std((0, 1))
            for p in found[name]
        }
        print(f"means against {name}, in sd: " + ", ".join(f"{p} {np.max(value):.3f}" for p, value in off.items()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
