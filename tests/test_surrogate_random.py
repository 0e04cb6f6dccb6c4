"""Random simulators: their mean is learnt, the covariance of its error is in the likelihood, and verdicts say so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from scipy import stats

import bayesfit
from bayesfit import SettingsError
from bayesfit.modelling.known_correlation import VARIABLE, correlating
from bayesfit.modelling.noise import get_noise
from bayesfit.posterior.prepare import prepare
from bayesfit.surrogates import chebyshev, gaussian_process
from bayesfit.surrogates.allowance import allowed, how_far_off
from bayesfit.surrogates.emulator import of_mean
from bayesfit.surrogates.files import read, with_hash, written
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.model import model_of
from bayesfit.surrogates.space import Space, check_within

TAU = np.geomspace(1e-3, 0.3, 12)
SPACE = Space.parse({"rate": "LogUniform(5, 50)", "beta": "Uniform(0.7, 1)"})
ABOUT = {"simulator": {"name": "noisy", "sha256": "0"}, "simulator_noise": 0.02, "name": "noisy"}
NOISE = 0.02**2 * np.exp(-np.abs(np.subtract.outer(np.log(TAU), np.log(TAU))) / 2.0)


def shapes(points):
    return np.exp(-2.0 * (points[:, :1] * TAU) ** points[:, 1:])


def noisy(points, seed):
    rng = np.random.default_rng(seed)
    return shapes(points) + rng.multivariate_normal(np.zeros(12), NOISE, len(points), method="cholesky")


@pytest.fixture(scope="module")
def learnt():
    points = SPACE.design(60, 0)
    with jax.enable_x64(True):
        return with_hash(Learnt.of_runs(SPACE, TAU, (points, np.clip(noisy(points, 0), 0, 1)), ABOUT))


@pytest.fixture(scope="module")
def data():
    g2 = 1.0 + 0.2 * shapes(np.array([[20.0, 0.85]])) + 4e-3 * np.random.default_rng(3).standard_normal((1, 12))
    return bayesfit.curves(TAU, g2, np.full((1, 12), 4e-3))


def test_errors_of_the_mean_have_their_covariance():
    """Over many sets of noisy runs of a plane, the second moments of held-out errors times the factor are those of what
    is predicted for a run by all others, less the truth."""
    x = SPACE.coordinates(SPACE.design(40, 0))
    truth = 0.5 + 0.1 * x[:, :1] - 0.05 * x[:, 1:] * np.linspace(-1, 1, 12)
    rng, told, true, expected = np.random.default_rng(1), 0.0, 0.0, 0.0
    for _ in range(400):
        y = truth + rng.multivariate_normal(np.zeros(12), NOISE, 40, method="cholesky")
        plane = chebyshev.fit(x, y)[1]
        errors = (plane.held_out - y) * plane.of_mean[:, None]
        off, leverage = plane.held_out - truth, plane.of_mean**2
        told, true = told + errors.T @ errors / 40 / 400, true + off.T @ off / 40 / 400
        expected = expected + NOISE * np.mean(leverage / (1.0 - leverage)) / 400
    sampling = 4.0 * (NOISE[0, 0] * 3 / 40) / np.sqrt(3 * 400)  # four standard errors of a covariance
    np.testing.assert_allclose(expected, NOISE * 3 / 37, rtol=0.1)
    np.testing.assert_allclose(true, expected, atol=sampling * np.sqrt(2.0))
    np.testing.assert_allclose(told, expected, atol=sampling * np.sqrt(2.0))


def test_noise_taken_for_signal_is_an_error_of_the_mean():
    """A Gaussian process with short lengths and no nugget goes through every run: what it gets wrong of held-out runs
    is then all its own."""
    x = SPACE.coordinates(SPACE.design(30, 0))
    y = np.random.default_rng(0).standard_normal(30)
    _, _, leverage = gaussian_process._conditioned(x, y, np.log([0.05, 0.05, 1.0, 1e-9]))
    assert np.all(of_mean(np.clip(leverage, 0, 1)) > 0.999)


def test_errors_of_noisy_curves_are_never_nothing():
    """Of fits to runs with a parameter that does nothing, some take noise for signal."""
    tau, space = np.geomspace(1e-4, 1.0, 12), Space.parse({"rate": "LogUniform(3, 300)", "beta": "Uniform(0.6, 1)"})
    points = space.design(60, 0)
    for seed in (5, 14, 18):
        curves = np.exp(-2.0 * (points[:, :1] * tau) ** 0.8) + np.random.default_rng(seed).normal(0, 0.03, (60, 12))
        with jax.enable_x64(True):
            made = Learnt.of_runs(space, tau, (points, curves), ABOUT)
        assert 0.003 < np.sqrt(np.mean(made.error_at(np.zeros(2), tau) ** 2)) < 0.05


def test_leverage_of_a_gaussian_process_is_the_slope_of_its_prediction():
    x, rng = SPACE.coordinates(SPACE.design(30, 0)), np.random.default_rng(0)
    y, settings = rng.standard_normal(30), np.log([0.7, 0.9, 1.0, 0.2])
    _, _, leverage = gaussian_process._conditioned(x, y, settings)

    def predicted(y):
        weights, *_ = gaussian_process._conditioned(x, y, settings)
        return gaussian_process.kernel(x, x, settings, np) @ weights

    for run in (0, 11, 29):
        assert leverage[run] == pytest.approx((predicted(y + np.eye(30)[run]) - predicted(y))[run], rel=1e-6)
    assert np.all((leverage > 0) & (leverage < 1))


def test_components_of_noise_are_left_out():
    x, rng = SPACE.coordinates(SPACE.design(60, 0)), np.random.default_rng(2)
    smooth, noise = np.linspace(0, 1, 12), rng.standard_normal((60, 12))
    (found,) = gaussian_process.fit(x, x[:, :1] * smooth + 0.05 * noise)
    assert len(found.arrays["components"]) < 6
    assert found.arrays["settings"].shape[0] == found.arrays["weights"].shape[0] == len(found.arrays["components"])
    assert np.sqrt(np.mean((found.held_out - x[:, :1] * smooth) ** 2)) < 0.02


def test_the_likelihood_is_a_multivariate_normal(data):
    """With errors that correlate as the data say: by SciPy, a masked point left out."""
    correlation = NOISE / NOISE[0, 0]
    given = data.assign({VARIABLE: (("q_bin", "tau", "tau_other"), correlation[None])})
    given = given.assign(valid=given.valid & (np.arange(12) != 4))
    values = {"rate": 22.0, "beta": 0.8, "contrast": 0.21, "baseline": 1.001}
    with jax.enable_x64(True):
        problem = prepare(given, "stretched_exponential", correlating(get_noise("stated")))
        bin = jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)
        trace = handlers.trace(
            handlers.substitute(handlers.seed(lambda: problem.posterior.full_program(bin), 0), values)
        ).get_trace()
        found = float(trace["g2"]["fn"].log_prob(trace["g2"]["value"]))
    kept = np.arange(12) != 4
    mean = values["baseline"] + values["contrast"] * shapes(np.array([[22.0, 0.8]]))[0]
    covariance = (4e-3) ** 2 * correlation[np.ix_(kept, kept)]
    expected = stats.multivariate_normal.logpdf(data.g2.values[0][kept], mean[kept], covariance)
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_covariance_is_added_to_that_of_the_data(learnt, data):
    made = allowed(learnt, data, get_noise("stated"))
    off = how_far_off(learnt, data, with_scale=False)
    error = made.g2_err.values[0]
    total = np.outer(error, error) * made[VARIABLE].values[0]
    np.testing.assert_allclose(total, (4e-3) ** 2 * (np.eye(12) + off.covariance[0]), rtol=1e-10)
    own = 0.2**2 * NOISE / len(learnt.points)  # times the number of terms
    assert 2.0 < np.trace(total - (4e-3) ** 2 * np.eye(12)) / np.trace(own) < 20.0
    assert "its covariance is part of the errors" in made.attrs["surrogate_error"]
    assert VARIABLE not in allowed(learnt, data, get_noise("robust"))


def test_a_fit_says_that_it_is_approximate(learnt, data):
    result = bayesfit.fit(data, model_of(learnt), noise="stated", seed=1)
    assert result["diagnostics"].verdict.values.tolist() == ["approximate"]
    words = "the simulator is random, |g1|^2 by 0.02 (sd) from run to run: its mean is learnt"
    assert words in result["diagnostics"].reason.values[0]
    rate = np.log(result["posterior"].rate.values)
    assert abs(rate.mean() - np.log(20.0)) < 3.0 * rate.std()
    with pytest.raises(SettingsError, match="the simulator is random"):
        bayesfit.fit(data, model_of(learnt), noise="stated", exact="psis")


def test_a_file_keeps_what_is_known_of_the_noise(learnt, tmp_path):
    written(learnt, tmp_path / "noisy.npz")
    again = read(tmp_path / "noisy.npz")
    np.testing.assert_array_equal(again.of_mean, learnt.of_mean)
    x = np.zeros(2)
    np.testing.assert_array_equal(again.covariance_at(x, TAU), learnt.covariance_at(x, TAU))
    assert of_mean(np.array([0.25]))[0] == 0.5


BEYOND = {
    "priors.rate: reaches from 1 to 50, and the surrogate knows 5 to 50. Stay within": {
        "priors": {"rate": "LogUniform(1, 50)"}
    },
    "priors.beta: reaches from 0.512184 to 1.08782, and": {"priors": {"beta": "Normal(0.8, 0.1)"}},
    "priors.rate: reaches from 5 to 60, and": {
        "priors": {"rate": {"family": "LogUniform", "low": 5.0, "high": [60.0]}}
    },
    "fixed.beta: got 1.2, and the surrogate knows 0.7 to 1": {"fixed": {"beta": 1.2}},
}


@pytest.mark.parametrize("words", BEYOND)
def test_priors_beyond_what_is_learnt_are_refused(learnt, data, words):
    with pytest.raises(SettingsError) as error:
        bayesfit.point_estimate(data, model_of(learnt), noise="stated", **BEYOND[words])
    assert str(error.value).startswith(words)


def test_priors_within_are_taken():
    check_within(SPACE, {"rate": "LogNormal(2.76, 0.2)", "beta": "Uniform(0.7, 1)"}, {"beta": np.array([0.7, 1.0])})
    check_within(Space.parse({"rate": "LogNormal(3, 1)"}), {"rate": "LogNormal(3, 1)", "contrast": "Normal(0, 9)"}, {})
