"""The sampler against quadrature, against NumPyro's own MCMC, against itself, and against the prior it was told."""

import os
import signal
import subprocess
import sys
import textwrap
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from calibration import Setting, simulate
from numpyro.infer import MCMC, NUTS
from scipy import stats

import bayesfit
from bayesfit.compute.keys import bin_keys
from bayesfit.compute.work import Stop
from bayesfit.posterior.prepare import prepare
from bayesfit.sample.convergence import ess_bulk
from bayesfit.sample.draws import Schedule
from bayesfit.sample.least_squares import point_estimates
from bayesfit.sample.scheduler import sample_bins
from bayesfit.sample.starts import estimate_bins
from bayesfit.sample.target import BinTargets

DELAYS = 61  # one padded length, so that the tests share compiled programs
LARGEST_Z = 4.0


def fit(data, model="stretched_exponential", **options):
    return bayesfit.fit(data, model, **{"draws": 500, "seed": 3, **options})


def assert_moments(draws, mean, sd, square_sd):
    """Mean and sd of draws (chain, draw) equal these, within Monte Carlo error by their own effective sample sizes;
    `square_sd` is the sd of squared deviations, which draws that miss a long tail would understate."""
    size = ess_bulk(draws)
    assert size > 400
    assert abs(draws.mean() - mean) < LARGEST_Z * sd / np.sqrt(size)
    square = (draws - mean) ** 2
    assert abs(square.mean() - sd**2) < LARGEST_Z * square_sd / np.sqrt(ess_bulk(square))


@lru_cache(maxsize=8)
def over_grid(posterior):
    return jax.jit(jax.vmap(lambda z, bin: (posterior.log_density(z, bin), posterior.curve(z, bin)[1]), (0, None)))


def grid_moments(posterior, bin, low, high):
    """Mean, sd and sd of the squared deviations of the constrained values on a dense grid over the coordinates; the box
    grows until all is in it."""
    for _ in range(100):
        axes = [np.linspace(*ends, 300) for ends in zip(low, high, strict=True)]
        mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        log, values = over_grid(posterior)(jnp.asarray(mesh.reshape(-1, len(axes))), bin)
        weight = np.exp(np.array(log) - np.max(log)).reshape(mesh.shape[:-1])
        along = [np.moveaxis(weight, i, 0).reshape(300, -1).sum(axis=1) for i in range(len(axes))]
        step = (high - low) / 10
        grown_low = low - step * [mass[0] > 1e-9 * mass.max() for mass in along]
        grown_high = high + step * [mass[-1] > 1e-9 * mass.max() for mass in along]
        if np.array_equal(low, grown_low) and np.array_equal(high, grown_high):
            break
        low, high = grown_low, grown_high
    else:
        raise AssertionError("the posterior is wider than any box")
    assert all(np.sum(mass > 0.1 * mass.max()) > 10 for mass in along)
    weight = weight.ravel() / weight.sum()
    means = {name: np.sum(weight * np.array(value)) for name, value in values.items()}
    sds = {n: np.sqrt(np.sum(weight * (np.array(v) - means[n]) ** 2)) for n, v in values.items()}
    fourth = {n: np.sum(weight * (np.array(v) - means[n]) ** 4) for n, v in values.items()}
    return means, sds, {n: np.sqrt(fourth[n] - sds[n] ** 4) for n in values}


@pytest.mark.parametrize("model", ["single_exponential", "stretched_exponential"])
def test_posterior_is_that_of_a_grid(model):
    """One and two sampled parameters, the amplitudes integrated out and drawn back, over bins of rising noise."""
    data, _ = bayesfit.simulate(bins=3, delays=DELAYS, seed=5, noise=4e-3)
    result = fit(data, model, noise="stated", draws=1000)
    with jax.enable_x64(True):
        problem = prepare(data, model, "stated")
        posterior = problem.posterior
        coordinates = jax.jit(jax.vmap(posterior.unconstrain_curve, (0, None)))
        for i in range(3):
            bin = jax.tree.map(lambda array, i=i: jnp.asarray(array[i]), problem.bins)
            draws = {name: result.posterior[name].values[..., i] for name in posterior.names}
            z = np.array(coordinates({name: values.ravel() for name, values in draws.items()}, bin))
            middle, reach = z.mean(axis=0), 10 * z.std(axis=0)
            means, sds, square_sds = grid_moments(posterior, bin, middle - reach, middle + reach)
            for name, values in draws.items():
                assert_moments(values, means[name], sds[name], square_sds[name])


def squared(tau):
    """A curve that knows theta up to its sign; the prior leans to one side."""
    theta = numpyro.sample("theta", dist.Normal(0.4, 1.2))
    return theta**2 * jnp.ones_like(tau)


def test_modes_have_their_weights():
    """100 bins with two modes far apart, at theta near -2 to -0.5 and 0.5 to 2: the share of draws in each is that of
    quadrature within Monte Carlo error, and no chain is stuck in one of them."""
    rng = np.random.default_rng(7)
    truth, sd, points = np.linspace(0.5, 2.0, 100), 0.1, 20
    y = truth[:, None] ** 2 + sd * rng.standard_normal((100, points))
    data = bayesfit.curves(np.arange(1.0, points + 1), y, np.full(y.shape, sd), delays=False)
    result = fit(
        data, bayesfit.Model(name="squared", program=squared, form="curve"), noise="stated", draws=1000, target_ess=1500
    )
    assert (result["diagnostics"].r_hat.values <= 1.01).all()
    assert "poor_mixing" not in result["diagnostics"].verdict.values
    above = (result.posterior["theta"].values > 0).astype(float)
    theta = np.linspace(-4, 4, 80_001)
    scores = []
    for i in range(100):
        log = stats.norm.logpdf(theta, 0.4, 1.2) - 0.5 * points * ((y[i].mean() - theta**2) / sd) ** 2
        weight = np.exp(log - log.max())
        share = weight[theta > 0].sum() / weight.sum()
        size = ess_bulk(above[..., i])
        assert size > 400
        scores.append((above[..., i].mean() - share) / np.sqrt(share * (1 - share) / size))
    assert np.max(np.abs(scores)) < LARGEST_Z
    assert np.mean(np.square(scores)) < 1.5
    assert abs(np.mean(scores)) < LARGEST_Z / np.sqrt(100)


@pytest.fixture(scope="module")
def hard():
    """Seven bins: some points NaN, one bin nearly empty, one dead, one arrested, one much noisier."""
    data, _ = bayesfit.simulate(bins=7, delays=DELAYS, seed=11, noise=4e-3)
    g2, g2_err = data.g2.values.copy(), data.g2_err.values.copy()
    rng = np.random.default_rng(0)
    g2[1, ::7] = np.nan
    g2[2, 3:] = np.nan
    g2[3], g2_err[3] = 0.0, 0.0
    g2[5] = 1.15 + g2_err[5] * rng.standard_normal(DELAYS)
    g2[6] += 0.05 * rng.standard_normal(DELAYS)
    return bayesfit.curves(
        data.tau,
        g2,
        g2_err,
        q=data.q,
        contrast_prior=data.attrs["contrast_prior"],
        baseline_prior=data.attrs["baseline_prior"],
    )


@pytest.fixture(scope="module")
def fitted(hard):
    return fit(hard)


NAMES = ("rate", "beta", "contrast", "baseline", "error_scale")


def bits(result, bin, draws=None):
    values = {name: result.posterior[name].values[..., bin] for name in NAMES}
    values |= {name: result["sample_stats"][name].values[..., bin] for name in ("lp", "n_steps", "diverging", "energy")}
    return {name: value[:, :draws].tobytes() for name, value in values.items()}


def test_same_seed_same_bits_and_other_seed_other_bits(hard, fitted):
    again, other = fit(hard), fit(hard, seed=4)
    for bin in (0, 1, 4, 5, 6):
        assert bits(again, bin) == bits(fitted, bin)
        assert bits(other, bin) != bits(fitted, bin)


def test_bins_draw_different_numbers(fitted):
    drawn = [fitted["sample_stats"]["energy"].values[..., bin].tobytes() for bin in (0, 1, 4, 5, 6)]
    assert len(set(drawn)) == 5


def test_chains_draw_different_numbers(fitted):
    rate = fitted.posterior["rate"].values[..., 0]
    assert len({chain.tobytes() for chain in rate}) == 4


def test_nothing_comes_of_dead_bins(fitted):
    assert np.isnan(fitted.posterior["rate"].values[..., [2, 3]]).all()
    assert list(fitted["diagnostics"].verdict.values[[2, 3]]) == ["unusable_data", "unusable_data"]


@pytest.mark.parametrize("kept", [[0, 1, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [4], [5, 0]])
def test_bits_of_a_bin_do_not_depend_on_the_others(hard, fitted, kept):
    """Removed, reordered, alone; the user's own `isel`."""
    part = fit(hard.isel(q_bin=kept))
    for place, bin in enumerate(kept):
        assert bits(part, place) == bits(fitted, bin)


def test_bits_of_one_bin_by_a_scalar_isel(hard, fitted):
    assert bits(fit(hard.isel(q_bin=4)), 0) == bits(fitted, 4)


def test_bits_do_not_depend_on_what_neighbours_hold(hard, fitted):
    spoilt = hard.copy(deep=True)
    spoilt["g2"][0], spoilt["g2_err"][1] = np.nan, 1e-9
    spoilt["valid"][0] = False
    spoilt["g2"][6] = 1e6
    result = fit(spoilt)
    for bin in (4, 5):
        assert bits(result, bin) == bits(fitted, bin)


def test_bits_do_not_depend_on_the_size_of_the_dataset(hard, fitted):
    """Twenty bins more: other batches, other places, and the estimates of more than one batch."""
    more, _ = bayesfit.simulate(bins=20, delays=DELAYS, seed=21)
    together = xr.concat([more, hard], dim="q_bin", combine_attrs="override", join="override")
    together = together.assign_coords(q_bin=np.arange(27))
    np.testing.assert_array_equal(together.tau, hard.tau)
    result = fit(together)
    for bin in (0, 1, 4, 5, 6):
        assert bits(result, bin + 20) == bits(fitted, bin)


def chains_of(data, schedule):
    """Draws of one schedule."""
    with jax.enable_x64(True):
        problem = prepare(data)
        bins = BinTargets(problem.posterior, problem.bins, bin_keys(3, problem.identity))
        report, stop = (lambda _: None), Stop()
        points = point_estimates(problem.posterior, problem.bins, bins.keys, report, stop)
        estimates = estimate_bins(bins, points, schedule.chains, report, stop)
        return sample_bins(bins, estimates, schedule, report, stop)


def test_fewer_draws_are_the_first_of_more(hard):
    data = hard.isel(q_bin=[0, 6])
    long, short = (chains_of(data, Schedule(4, draws, 50, 0.6)) for draws in (430, 70))
    for name in NAMES:
        assert long.values[name].shape == (2, 4, 430)
        np.testing.assert_array_equal(short.values[name], long.values[name][..., :70])


def test_longer_chains_are_thinned_evenly(hard):
    """Kept draws of a chain that had to go on are every second, fourth, ... of the plain chain's."""
    data = hard.isel(q_bin=[0, 1, 4, 5, 6])
    target = chains_of(data, Schedule(4, 60, 50, 0.6, target_ess=100.0))
    longer = np.flatnonzero((target.thin > 1) & (target.adaptations == 1))
    assert longer.size, "no bin just had to go on: make the target higher"
    plain = chains_of(data, Schedule(4, 60 * int(target.thin[longer].max()), 50, 0.6))
    for name in ("rate", "beta", "error_scale"):
        for bin in longer:
            thin = target.thin[bin]
            every = plain.values[name][bin, :, thin - 1 :: thin][:, :60]
            np.testing.assert_array_equal(target.values[name][bin], every)


@pytest.mark.parametrize("stage", ["estimate", "sample"])
def test_a_stop_keeps_what_is_whole(hard, stage):
    """Before any draw: nothing is there, and every bin says so. After the first chunk: the draws made are kept."""
    asked = []

    def tell(progress):
        if progress.stage == stage and not asked:
            asked.append(progress)
            signal.raise_signal(signal.SIGINT)

    result = fit(hard, progress=tell, on_interrupt="return")
    verdicts = np.delete(result["diagnostics"].verdict.values, [2, 3])
    rate = np.delete(result.posterior["rate"].values, [2, 3], axis=-1)
    assert set(verdicts) == {"interrupted"}
    assert np.isnan(rate[:, -1]).all()


def test_a_stop_between_estimates_gives_every_bin_its_verdict():
    """More bins than are estimated together; one wish to stop after the first batch."""
    data, _ = bayesfit.simulate(bins=100, delays=DELAYS, seed=12)
    reports = []

    def tell(progress):
        if progress.stage == "estimate" and progress.bins_done > 0 and not dict(reports)["estimate"]:
            signal.raise_signal(signal.SIGINT)
        reports.append((progress.stage, progress.bins_done))

    result = fit(data, progress=tell, on_interrupt="return")
    assert max(done for stage, done in reports if stage == "estimate") < 100
    assert not any(done for stage, done in reports if stage == "sample")
    assert set(result["diagnostics"].verdict.values) == {"interrupted"}
    assert np.isfinite(result["point_estimate"].rate.values).all()


@pytest.mark.parametrize("draws", [4, 7, 8])
def test_few_draws_are_no_error(hard, draws):
    result = fit(hard.isel(q_bin=[0, 4]), draws=draws)
    assert set(result["diagnostics"].verdict.values) <= {"poor_mixing", "multimodal"}
    assert result.posterior.sizes["draw"] == draws


def test_a_stop_keeps_bins_that_were_looked_at(hard):
    """An unreachable target: every bin has its first draws, and runs longer when the stop comes."""

    def tell(progress):
        if progress.draws_done >= 100:
            signal.raise_signal(signal.SIGINT)

    result = fit(hard, draws=100, target_ess=200.0, warmup=20, progress=tell, on_interrupt="return")
    assert np.isfinite(np.delete(result.posterior["rate"].values, [2, 3], axis=-1)).all()
    assert "interrupted" not in result["diagnostics"].verdict.values


def test_the_callers_precision_is_left_alone(hard, fitted):
    for flag in (False, True):
        with jax.enable_x64(flag):
            result = fit(hard.isel(q_bin=[0]))
            assert jax.config.jax_enable_x64 == flag
            assert jnp.asarray(0.5).dtype == (jnp.float64 if flag else jnp.float32)
        assert bits(result, 0) == bits(fitted, 0)
        assert result.posterior["rate"].dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_two_lengths_in_one_process():
    """Datasets whose padded lengths differ, one after another with one model."""
    for delays in (DELAYS, 20, DELAYS):
        data, _ = bayesfit.simulate(bins=2, delays=delays, seed=1)
        result = fit(data, "single_exponential", noise="stated", draws=100)
        assert np.all(np.isfinite(result.posterior["rate"].values))


@lru_cache(maxsize=1)
def numpyro_draws():
    """One bin by NumPyro's own `MCMC`, all five sites of the full program sampled."""
    data, _ = bayesfit.simulate(bins=2, delays=DELAYS, seed=5, noise=8e-3)
    with jax.enable_x64(True):
        program = bayesfit.numpyro_program(data, 1)
        kernel = NUTS(program, dense_mass=True, target_accept_prob=0.9, init_strategy=numpyro.infer.init_to_median())
        sampler = MCMC(
            kernel, num_warmup=800, num_samples=4000, num_chains=4, chain_method="vectorized", progress_bar=False
        )
        sampler.run(jax.random.key(9))
        return data, {name: np.array(value) for name, value in sampler.get_samples(group_by_chain=True).items()}


@pytest.mark.parametrize("name", NAMES)
def test_numpyros_own_mcmc_agrees(name, numpyro_fit):
    """Means and sds of both samplers, as z-scores of their difference; and the two distributions."""
    _, expected = numpyro_draws()
    one, two = numpyro_fit.posterior[name].values[..., 1], expected[name]
    for function in (lambda x: x, lambda x: (x - two.mean()) ** 2, np.log):
        a, b = function(one), function(two)
        error = np.sqrt(a.var() / ess_bulk(a) + b.var() / ess_bulk(b))
        assert abs(a.mean() - b.mean()) < LARGEST_Z * error
    thin_one, thin_two = (x.ravel()[:: int(np.ceil(x.size / ess_bulk(x)))] for x in (one, two))
    assert stats.ks_2samp(thin_one, thin_two).pvalue > 1e-3


@pytest.fixture(scope="module")
def numpyro_fit():
    return fit(numpyro_draws()[0], draws=1000)


SCRIPT = """
    import os, sys, jax
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{cores}])
    jax.config.update("jax_num_cpu_devices", {devices})
    import bayesfit
    from bayesfit.compute import hardware
    hardware.CPU_LANES = {lanes}
    data, _ = bayesfit.simulate(bins=20, seed=2, dead_bin=3)
    assert len(hardware.workers()) == max({cores}, {devices})
    assert jax.local_device_count() == {devices}
    result = bayesfit.fit(data, "single_exponential", noise="stated", chains=16, draws=60, target_ess=100.0)
    assert result.attrs["chains_per_device"] == {lanes}
    assert not jax.config.jax_enable_x64
    result.posterior["rate"].values.tofile(sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system assigns no cores to processes")
def test_bits_do_not_depend_on_devices_cores_or_lanes(tmp_path):
    """20 bins of 16 chains fill five devices of 64 lanes, and two of 256."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    running, two = [], min(2, len(os.sched_getaffinity(0)))
    made = [(1, 1, 64), (1, two, 64), (8, 1, 64), (2, 1, 256)]
    for devices, cores, lanes in made:
        script = textwrap.dedent(SCRIPT.format(devices=devices, cores=cores, lanes=lanes))
        command = [sys.executable, "-c", script, str(tmp_path / f"{devices} {cores} {lanes}")]
        running.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    one, *others = (np.fromfile(tmp_path / "{} {} {}".format(*each)).reshape(16, 60, 20) for each in made)
    assert np.isfinite(np.delete(one, 3, axis=2)).all()
    assert np.isnan(one[..., 3]).all()
    assert [other.tobytes() == one.tobytes() for other in others] == [True, True, True]


@pytest.mark.slow
def test_simulation_based_calibration():
    """Truth drawn from the prior, curves from the truth: the truth's ranks among the posterior's draws are uniform
    (Talts et al. 2018, arXiv:1804.06788). 200 curves, 20 ranks of 10 expected each, chi-square at 0.01 over five
    parameters (Bonferroni), fixed seed."""
    curves_, ranks_, bins = 200, 20, 20
    rng = np.random.default_rng(2024)
    tau = np.geomspace(1e-3, 1e2, DELAYS)
    truth = {
        "rate": np.exp(rng.uniform(np.log(0.1 / tau[-1]), np.log(10 / tau[0]), curves_)),
        "beta": rng.uniform(0.2, 2.0, curves_),
        "contrast": stats.truncnorm.rvs(-0.75, np.inf, loc=0.15, scale=0.2, size=curves_, random_state=rng),
        "baseline": rng.normal(1.0, 0.1, curves_),
        "error_scale": np.exp(stats.truncnorm.rvs(np.log(1e-6) / 3, np.inf, scale=3.0, size=curves_, random_state=rng)),
    }
    column = {name: value[:, None] for name, value in truth.items()}
    g2_err = np.full((curves_, DELAYS), 0.01)
    g2 = column["baseline"] + column["contrast"] * np.exp(-2 * (column["rate"] * tau) ** column["beta"])
    g2 = g2 + column["error_scale"] * g2_err * rng.standard_normal(g2.shape)
    data = bayesfit.curves(
        tau, g2, g2_err, contrast_prior="TruncatedNormal(0.15, 0.2, low=0)", baseline_prior="Normal(1, 0.1)"
    )
    result = fit(data, draws=500)
    converged = result["diagnostics"].r_hat.values < 1.02
    assert converged.mean() > 0.9
    for name, value in truth.items():
        draws = result.posterior[name].values.reshape(-1, curves_)
        # 99 draws a curve, nearly independent, so that a rank takes 100 values.
        thin = draws[np.linspace(0, len(draws) - 1, 5 * ranks_ - 1).astype(int)]
        rank = (thin < value).sum(axis=0)
        counts = np.histogram(rank, bins=bins, range=(0, 5 * ranks_))[0]
        assert stats.chisquare(counts).pvalue > 0.01 / len(truth), name
        assert stats.kstest((rank + rng.random(curves_)) / (5 * ranks_), "uniform").pvalue > 0.01 / len(truth), name


def test_no_bin_is_given_up_before_its_time():
    """A bin that misses its target has been through every attempt, and then to the longest chains."""
    setting = Setting("stretched_exponential", "robust")
    found = bayesfit.fit(simulate(setting, 12, [3]).data, **setting.options)["diagnostics"]
    missed = (found.verdict == "poor_mixing").values
    assert (found.thin.values[~missed] > 1).any()
    assert missed.mean() < 0.15
    np.testing.assert_array_equal(found.thin.values[missed], 32)
