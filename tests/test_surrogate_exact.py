"""The posterior with a surrogate: that of the simulator, if it is learnt well; and corrected to be, if it is not."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfit
from bayesfit import SettingsError
from bayesfit.api.exact import delayed, weighted
from bayesfit.sample.convergence import worst
from bayesfit.sample.redrawn import proposed
from bayesfit.surrogates.files import with_hash
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.model import model_of
from bayesfit.surrogates.runs import Runs
from bayesfit.surrogates.simulator import Simulator
from bayesfit.surrogates.space import Space
from bayesfit.surrogates.workers import Effort

TAU = np.geomspace(1e-4, 1.0, 24)
SPACE = Space.parse({"rate": "LogUniform(3, 300)", "beta": "Uniform(0.6, 1)"})
SIMULATOR = """
import numpy as np


def curve(p):
    return np.exp(-2.0 * (p["rate"] * np.geomspace(1e-4, 1.0, 24)) ** p["beta"])


def noisy(p):
    return np.clip(curve(p) + np.random.default_rng().normal(0, 0.01, 24), 0, 1)
"""
SD, BIAS = 1e-3, 0.006  # of g2; of beta in the biased surrogate
PRIORS = {"contrast": "Normal(0.2, 0.1)", "baseline": "Normal(1, 0.1)"}
ABOUT = {"simulator_noise": 0.0, "name": "stretched"}


def stretched(rate, beta):
    return np.exp(-2.0 * (rate[..., None] * TAU) ** beta[..., None])


@pytest.fixture(scope="module")
def simulator(tmp_path_factory):
    path = tmp_path_factory.mktemp("exact") / "simulator.py"
    path.write_text(SIMULATOR)
    return Simulator.parse(f"{path}:curve")


@pytest.fixture(scope="module")
def data():
    g2 = 1.0 + 0.2 * stretched(np.array(40.0), np.array(0.8)) + SD * np.random.default_rng(3).standard_normal(24)
    return bayesfit.curves(TAU, g2[None], np.full((1, 24), SD))


def learnt(simulate, simulator, count=60):
    points = SPACE.design(count, 0)
    stated = {"name": simulator.name, "sha256": simulator.sha256}
    with jax.enable_x64(True):
        return with_hash(Learnt.of_runs(SPACE, TAU, (points, simulate(*points.T)), {**ABOUT, "simulator": stated}))


@pytest.fixture(scope="module")
def biased(simulator, tmp_path_factory):
    """A surrogate that was learnt from another simulator, with the runs of the true one."""
    runs = Runs.begin(simulator, SPACE.names, TAU, tmp_path_factory.mktemp("runs"), Effort(2, 60.0, 1))
    return model_of(learnt(lambda rate, beta: stretched(rate, beta + BIAS), simulator, 300), runs)


def by_quadrature(shapes, data):
    """Means and sds of log rate, beta and contrast, on a grid, the amplitudes integrated out in closed form."""
    log_rate, beta = np.meshgrid(np.linspace(np.log(33), np.log(50), 151), np.linspace(0.73, 0.89, 151), indexing="ij")
    columns = np.stack([shapes(np.exp(log_rate), beta), np.ones((151, 151, 24))], axis=-1)
    residual = data.g2.values[0] - columns @ np.array([0.2, 1.0])
    precision = np.diag([1.0 / 0.1**2] * 2) + np.swapaxes(columns, -1, -2) @ columns / SD**2
    covariance = np.linalg.inv(precision)
    v = np.einsum("abtk,abt->abk", columns, residual) / SD**2
    change = np.einsum("abkl,abl->abk", covariance, v)
    quadratic = np.sum(residual**2, axis=-1) / SD**2 - np.sum(v * change, axis=-1)
    log_p = -0.5 * (quadratic + np.linalg.slogdet(precision)[1])
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    assert max(p[0].max(), p[-1].max(), p[:, 0].max(), p[:, -1].max()) < 1e-5 * p.max()
    moments = (log_rate, 0.0), (beta, 0.0), (0.2 + change[..., 0], covariance[..., 0, 0])
    means = np.array([np.sum(p * x) for x, _ in moments])
    spreads = [np.sum(p * (within + (x - mean) ** 2)) for (x, within), mean in zip(moments, means, strict=True)]
    return means, np.sqrt(spreads)


def of_draws(result):
    posterior = result["posterior"]
    draws = [np.log(posterior.rate.values), posterior.beta.values, posterior.contrast.values]
    return np.mean(draws, axis=(1, 2, 3)), np.std(draws, axis=(1, 2, 3))


def surrogate_shapes(learnt):
    def shapes(rate, beta):
        x = SPACE.coordinates(np.stack([rate.ravel(), beta.ravel()], axis=1))
        with jax.enable_x64(True):
            found = jax.jit(jax.vmap(lambda x: learnt.shape(x, jnp.asarray(TAU))))(x)
        return np.asarray(found).reshape(*rate.shape, 24)

    return shapes


def test_the_posterior_is_that_of_the_simulator(simulator, data):
    """Means within 0.05 sd and sds within 5 %, from 60 runs, without the noise of any draws."""
    mean, sd = by_quadrature(stretched, data)
    found, spread = by_quadrature(surrogate_shapes(learnt(stretched, simulator)), data)
    assert np.all(np.abs(found - mean) < 0.05 * sd)
    np.testing.assert_allclose(spread, sd, rtol=0.05)


@pytest.fixture(scope="module")
def fits(biased, data):
    return {
        how: bayesfit.fit(data, biased, noise="stated", priors=PRIORS, seed=2, exact=how) for how in ("psis", "delayed")
    }


@pytest.mark.parametrize("how", ["psis", "delayed"])
def test_corrected_draws_are_of_the_simulators_posterior(fits, biased, data, how):
    mean, sd = by_quadrature(stretched, data)
    off, _ = by_quadrature(surrogate_shapes(biased.stands_for.learnt), data)
    assert np.abs(off - mean)[1] > 0.5 * sd[1]
    found, spread = of_draws(fits[how])
    diagnostics = fits[how]["diagnostics"]
    ess = float(diagnostics.ess_bulk[0])
    assert np.all(np.abs(found - mean) < 4.0 * sd / np.sqrt(ess))
    np.testing.assert_allclose(spread, sd, rtol=4.0 / np.sqrt(ess))
    assert fits[how]["posterior"].sizes["draw"] == 150
    assert diagnostics.true_runs.values.tolist() == [600]
    if how == "psis":
        assert diagnostics.pareto_k[0] < 0.7
        assert 50 < diagnostics.weights_ess[0] < 590
        assert ess <= diagnostics.weights_ess[0] * 1.3
    else:
        assert 0.1 < diagnostics.accepted[0] < 0.95
        assert np.isnan(diagnostics.pareto_k[0])


SHIFT = 0.4


@pytest.mark.parametrize("how", [weighted, delayed])
def test_a_shifted_normal(how):
    """Draws of Normal(0, 1) become draws of Normal(0.4, 1)."""
    rng = np.random.default_rng(1)
    draws = rng.standard_normal((4, 5000))
    chosen = how(SHIFT * draws - SHIFT**2 / 2, rng)
    found = draws.ravel()[chosen.places]
    assert found.mean() == pytest.approx(SHIFT, abs=0.05)
    assert found.std() == pytest.approx(1.0, abs=0.05)
    if how is delayed:  # the acceptance rate is 2 Phi(-shift / sqrt 2)
        assert chosen.accepted == pytest.approx(0.777, abs=0.02)
    else:
        assert chosen.ess == pytest.approx(20000 / np.exp(SHIFT**2), rel=0.1)
        assert chosen.pareto_k < 0.5


def test_draws_that_depend_on_each_other_are_proposed_in_random_order():
    """Means are those of the shifted normal, and their errors those that the stated effective sample size promises."""
    rng, found, promised = np.random.default_rng(1), [], []
    for _ in range(100):
        draws = rng.standard_normal((4, 150))
        for draw in range(1, 150):
            draws[:, draw] = 0.8 * draws[:, draw - 1] + 0.6 * draws[:, draw]
        chosen = draws.ravel()[delayed(SHIFT * draws - SHIFT**2 / 2, rng).places]
        found.append(chosen.mean())
        _, bulk, _ = proposed(worst(draws[None]), worst(chosen[None]), 600)
        promised.append(bulk)
    assert abs(np.mean(found) - SHIFT) < 4.0 * np.std(found) / 10.0
    assert np.std(found) == pytest.approx(np.mean(promised) ** -0.5, rel=0.3)


@pytest.mark.parametrize("how", [weighted, delayed])
def test_runs_without_a_curve_are_never_chosen(how):
    rng = np.random.default_rng(1)
    log_ratio = rng.normal(0.0, 0.1, (4, 100))
    log_ratio[:, ::7] = -np.inf
    assert np.all(np.isfinite(log_ratio.ravel()[how(log_ratio, rng).places]))


def test_weights_of_few_draws_say_so():
    draws = np.random.default_rng(1).standard_normal((4, 150))
    found = weighted(4.0 * draws - 8.0, np.random.default_rng(1))
    assert found.pareto_k > 0.7
    assert found.ess < 20


def test_equal_weights_need_no_smoothing():
    found = weighted(np.zeros((4, 50)), np.random.default_rng(0))
    assert found.pareto_k == 0.0
    assert found.ess == pytest.approx(200)
    assert sorted(found.places.ravel().tolist()) == list(range(200))


def test_what_cannot_be_exact(biased, simulator, data, tmp_path):
    def refused(words, model, **more):
        with pytest.raises(SettingsError) as error:
            bayesfit.fit(data, model, noise="stated", exact=more.pop("exact", "psis"), **more)
        assert words in str(error.value)

    refused("exact: model 'cumulant' stands for no simulator", "cumulant")
    refused("exact: is for bins that are fitted each by itself", biased, across={"rate": "shared"})
    refused("exact: ", biased, exact="always")
    known = biased.stands_for.learnt
    noisy = replace(known, about={**known.about, "simulator_noise": 0.01})
    refused("the simulator is random: |g1|^2 at one place differs by 0.01", model_of(noisy))
    path = str(bayesfit.save(biased, tmp_path / "learnt.npz"))
    refused("a file alone runs no simulator. Name it", path)
    named = {"name": path, "simulator": f"{simulator.function.path}:curve"}
    bayesfit.get_model(named).stands_for.check_runs()
    refused("a file alone runs no simulator", path)
    with open(simulator.function.path, "a") as changed:
        changed.write("# changed\n")
    refused("model.simulator: simulator.py:curve is not simulator.py:curve as it was learnt", named)
    with pytest.raises(bayesfit.InputError, match="no such file"):
        bayesfit.get_model({**named, "simulator": "gone.py:curve"})
