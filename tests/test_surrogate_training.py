"""Training of networks: compiled, uncompiled and in NumPy it is the same, and what is learnt is right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfit
from bayesfit.surrogates import gaussian_process, networks, training
from bayesfit.surrogates.emulator import Fitted
from bayesfit.surrogates.ladder import choose
from bayesfit.surrogates.training import Config, Data, begin, loss, step_compiled, step_numpy, step_uncompiled, trained

CONFIG = Config(members=3, width=8, depth=2, steps=40)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def data(count=30, size=7):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (count, size))
    y = np.stack([np.sin(x.sum(axis=1)), x[:, 0] * x[:, 1], np.exp(x[:, 2])], axis=1)
    return Data(x, y, (np.arange(count) % 3 != np.arange(3)[:, None]).astype(float))


def test_the_slopes_in_numpy_are_jaxs():
    state, known = begin(CONFIG, 7, 3, 0), data()
    for mine, theirs in zip(training._slopes(state.layers, known), jax.grad(loss)(state.layers, known), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-14)
    assert float(loss(state.layers, known)) == pytest.approx(float(loss(state.layers, known, np)), rel=1e-14)


def test_all_paths_agree():
    """After 40 steps, to 1e-10."""
    known = data()
    states = {}
    for step in (step_compiled, step_uncompiled, step_numpy):
        state = begin(CONFIG, 7, 3, 0)
        for _ in range(CONFIG.steps if step is not step_uncompiled else 3):
            state = step(state, known, CONFIG)
        states[step] = state
    for mine, theirs in zip(states[step_numpy].layers, states[step_compiled].layers, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)
    assert float(loss(states[step_numpy].layers, known)) < 0.5 * float(loss(begin(CONFIG, 7, 3, 0).layers, known))
    state = begin(CONFIG, 7, 3, 0)
    for _ in range(3):
        state = step_numpy(state, known, CONFIG)
    for mine, theirs in zip(state.layers, states[step_uncompiled].layers, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)


def test_the_backend_decides_and_a_failing_compiler_is_replaced():
    known = data()
    compiled = trained(begin(CONFIG, 7, 3, 0), known, CONFIG)
    with bayesfit.use_backend("numpy"):
        in_numpy = trained(begin(CONFIG, 7, 3, 0), known, CONFIG, _no_compiler)
    with pytest.warns(match="training is not compiled and takes longer, in NumPy: RuntimeError: no compiler"):
        fallen_back = trained(begin(CONFIG, 7, 3, 0), known, CONFIG, _no_compiler)
    for first, second, third in zip(compiled, in_numpy, fallen_back, strict=True):
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(second, third)


def _no_compiler(*given):
    raise RuntimeError("no compiler")


def test_a_member_does_not_see_the_runs_that_it_predicts():
    known, config = data(), CONFIG
    changed = known._replace(y=np.where((np.arange(30) % 3 == 1)[:, None], 5.0, known.y))
    before, after = (trained(begin(config, 7, 3, 0), each, config) for each in (known, changed))
    np.testing.assert_array_equal(before[0][1], after[0][1])
    assert np.abs(before[0][0] - after[0][0]).max() > 1e-3


def test_networks_learn_a_curve_of_seven_parameters():
    """A relaxation whose rate depends on all of them: held-out errors are true ones, and those of the mean are less."""
    rng = np.random.default_rng(1)
    tau = np.geomspace(0.01, 10.0, 12)

    def simulate(x):
        rate = np.exp(0.5 * np.sin(2.0 * x[:, 0] * x[:, 1]) + 0.3 * x[:, 2:].sum(axis=1))
        return np.exp(-2.0 * rate[:, None] * tau)

    x, more = rng.uniform(-1, 1, (200, 7)), rng.uniform(-1, 1, (200, 7))
    (found,) = networks.fit(x, simulate(x), Config(steps=600))
    error = np.asarray(jax.vmap(lambda x: networks.predict(found.arrays, x))(jnp.asarray(more))) - simulate(more)
    held_out = np.sqrt(np.mean((found.held_out - simulate(x)) ** 2))
    assert 0.5 * held_out < np.sqrt(np.mean(error**2)) < 1.1 * held_out
    assert held_out < 0.3 * np.std(simulate(x) - simulate(x).mean(axis=0))


def test_the_ladder_takes_the_best(monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (80, 6))
    curves = np.exp(-np.exp(x.sum(axis=1))[:, None] * np.geomspace(0.1, 10, 8))
    asked = []

    def rung(kind, error):
        def fit(x, h, **settings):
            asked.append(kind)
            return [Fitted(kind, {}, h + error, kind)]

        return fit

    monkeypatch.setattr(gaussian_process, "fit", rung("gaussian_process", 0.1))
    monkeypatch.setattr(networks, "fit", rung("networks", 0.001))
    assert choose(x, curves).fitted.kind == "networks"
    assert asked == ["gaussian_process", "networks"]
    assert choose(x[:, :5], curves).fitted.kind != "networks"
