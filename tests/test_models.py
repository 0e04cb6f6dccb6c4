"""The contract that every registered model fulfils, and what becomes of user models that break it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from shipped import FIXED, spec

import bayesfit
from bayesfit import Model, ModelError, Parameter
from bayesfit.posterior.prepare import prepare

MODELS = bayesfit.list_models()
TAU = np.geomspace(1e-3, 1e2, 40)


@pytest.fixture(scope="module")
def data():
    return bayesfit.simulate(bins=2, delays=40, seed=1)[0]


@pytest.fixture(params=MODELS)
def model(request):
    return bayesfit.get_model(spec(request.param))


def draws(model, count=300):
    """Prior draws of the sites, and the shape there."""

    def one(key):
        trace = numpyro.handlers.trace(numpyro.handlers.seed(model.program, key)).get_trace(jnp.asarray(TAU))
        return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), count))


def shape(model, values, tau):
    return numpyro.handlers.seed(numpyro.handlers.substitute(model.program, values), 0)(tau)


def test_the_shipped_models_are_listed():
    assert {"single_exponential", "stretched_exponential", "double_exponential", "cumulant"} <= set(MODELS)


def test_traces(model, data):
    with jax.enable_x64(True):
        problem = prepare(data, spec(model.name), fixed=FIXED.get(model.name))
    assert problem.posterior.model is model
    assert set(problem.posterior.curve_names) <= {parameter.name for parameter in model.parameters}


def test_is_described(model):
    assert model.name in MODELS
    assert model.description
    assert model.formula
    assert model.reference
    for parameter in model.parameters:
        assert parameter.description
        assert parameter.latex
    units = {parameter.name: parameter.unit for parameter in model.parameters}
    assert all(unit == ("1/s" if name.startswith("rate") else "") for name, unit in units.items())


def test_is_finite_at_prior_draws(model):
    with jax.enable_x64(True):
        values = draws(model)
        curves = jax.jit(jax.vmap(lambda v: shape(model, v, jnp.asarray(TAU))))(values)
        assert curves.shape == (300, TAU.size)
        assert np.all(np.isfinite(curves))


def test_shape_falls_from_one_to_zero(model):
    """1 at tau = 0 and 0 at the end, whatever the parameters; never negative."""
    with jax.enable_x64(True):
        values = draws(model)
        curve = jax.jit(jax.vmap(lambda v, tau: shape(model, v, tau), in_axes=(0, None)))
        # the priors' range depends on the delays, the values are pinned here: only the curve is looked at
        np.testing.assert_allclose(curve(values, jnp.full(3, 1e-280)), 1.0, atol=1e-10)
        np.testing.assert_allclose(curve(values, jnp.full(3, 1e60)), 0.0, atol=1e-10)
        assert np.all(np.array(curve(values, jnp.asarray(TAU))) >= 0)


def test_gradients_are_finite_differences(model, data):
    with jax.enable_x64(True):
        problem = prepare(data, spec(model.name), "stated", fixed=FIXED.get(model.name))
        posterior = problem.posterior
        bin = jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)
        points = np.random.default_rng(1).normal(size=(20, len(posterior.curve_names)))
        curve = jax.jit(
            jax.vmap(lambda z: posterior.mean({**posterior.curve(z, bin)[1], "contrast": 1.0, "baseline": 0.0}, bin))
        )
        jacobian = jax.jit(
            jax.vmap(
                jax.jacfwd(
                    lambda z: posterior.mean({**posterior.curve(z, bin)[1], "contrast": 1.0, "baseline": 0.0}, bin)
                )
            )
        )(points)
        for i in range(points.shape[1]):
            step = 1e-6 * np.eye(points.shape[1])[i]  # Mie's intensities oscillate: at 1e-5 the third derivative shows
            numeric = (curve(points + step) - curve(points - step)) / 2e-6
            np.testing.assert_allclose(jacobian[..., i], numeric, rtol=1e-6, atol=1e-8)


def test_gradients_are_finite_at_every_prior_draw(model, data):
    with jax.enable_x64(True):
        problem = prepare(data, spec(model.name), fixed=FIXED.get(model.name))
        posterior = problem.posterior
        bin = jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)

        def at(key):
            z, _ = posterior.draw_prior(key, bin)
            return jax.value_and_grad(posterior.log_density)(z, bin)

        value, gradient = jax.jit(jax.vmap(at))(jax.random.split(jax.random.key(5), 500))
        assert np.all(np.isfinite(value))
        assert np.all(np.isfinite(gradient))


def test_prior_covers_what_the_delays_can_see(model):
    """The rates of decays from before the first to after the last delay are inside; never those of a measured value."""
    with jax.enable_x64(True):
        rate = np.array(draws(model, 2000)["rate"])
    assert rate.min() < 1.0 / TAU[-1]
    assert rate.max() > 1.0 / TAU[0] or model.name == "double_exponential"


def test_double_exponential_is_ordered():
    with jax.enable_x64(True):
        values = draws(bayesfit.get_model("double_exponential"), 2000)
    assert np.all(values["rate"] <= values["rate_fast"])


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("single_exponential", {"rate": 2.0}, lambda t: np.exp(-4 * t)),
        ("stretched_exponential", {"rate": 2.0, "beta": 0.7}, lambda t: np.exp(-2 * (2 * t) ** 0.7)),
        ("cumulant", {"rate": 2.0, "mu2": 0.2, "mu3": 0.0}, lambda t: np.exp(-4 * t) * (1 + 0.1 * (2 * t) ** 2) ** 2),
        (
            "double_exponential",
            {"rate": 2.0, "rate_fast": 30.0, "fraction": 0.3},
            lambda t: (0.3 * np.exp(-30 * t) + 0.7 * np.exp(-2 * t)) ** 2,
        ),
    ],
)
def test_formulae(name, values, expected):
    tau = np.geomspace(1e-3, 3, 30)
    with jax.enable_x64(True):
        values = {n: jnp.asarray(v) for n, v in values.items()}
        np.testing.assert_allclose(shape(bayesfit.get_model(name), values, jnp.asarray(tau)), expected(tau), rtol=1e-12)


def rate():
    return numpyro.sample("rate", dist.LogUniform(0.1, 10.0))


def test_nan_everywhere_is_refused(data):
    model = Model("mine", lambda tau: jnp.exp(-rate() * tau) * jnp.nan)
    with pytest.raises(ModelError, match=r"model 'mine': returns NaN or infinity at every prior draw"):
        bayesfit.fit(data, model, noise="stated", draws=50)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"program": 3}, "program must be a function"),
        ({"form": "g2"}, "form must be 'siegert' or 'curve', got 'g2'"),
        ({"parameters": (Parameter("rate"), Parameter("rate"))}, "'rate' is listed twice"),
        ({"parameters": (Parameter("a/b"),)}, "'a/b' is not a plain word"),
        ({"parameters": (Parameter("baseline"),)}, "'baseline' is reserved"),
        ({"parameters": (Parameter("draw"),)}, "'draw' is reserved"),
    ],
)
def test_a_bad_description_is_refused_when_the_model_is_made(options, words):
    with pytest.raises(ModelError) as caught:
        Model(**{"name": "mine", "program": lambda tau: tau, **options})
    assert str(caught.value).startswith("model 'mine'")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parameters": (Parameter("speed"),)}, "list 'speed', which the program does not sample. Known: rate"),
        ({"parameters": (Parameter("rate"), Parameter("beta"))}, "parameters list 'beta'"),
        ({"start": {"beta": 1.0}}, "start names 'beta', which the program does not sample"),
        ({"start": {"rate": 20.0}}, "start of 'rate' is outside its prior: 20"),
        ({"start": ({"rate": 1.0}, {"rate": -1.0})}, "start of 'rate' is outside its prior: -1"),
    ],
)
def test_a_description_must_match_the_program(options, words, data):
    model = Model(**{"name": "mine", "program": lambda tau: jnp.exp(-rate() * tau), **options})
    with jax.enable_x64(True), pytest.raises(ModelError) as caught:
        prepare(data, model)
    assert str(caught.value).startswith("model 'mine'")
    assert words in str(caught.value)


def test_a_curve_model_may_name_its_own_amplitudes(data):
    def program(tau):
        contrast = numpyro.sample("contrast", dist.HalfNormal(1.0))
        baseline = numpyro.sample("baseline", dist.Normal(1.0, 0.1))
        return baseline + contrast * jnp.exp(-rate() * tau)

    with jax.enable_x64(True):
        problem = prepare(data, Model("mine", program, form="curve"))
    assert problem.posterior.names == ("contrast", "baseline", "rate", "error_scale")
    assert problem.posterior.marginal == ()


def test_a_model_by_path_and_what_is_wrong_with_files(tmp_path, data):
    good = tmp_path / "mine.py"
    good.write_text(
        "import jax.numpy as jnp, numpyro, numpyro.distributions as dist\n"
        "from bayesfit import Model\n"
        "def program(tau):\n"
        "    return jnp.exp(-numpyro.sample('rate', dist.LogUniform(0.1, 10.0)) * tau)\n"
        "model = Model('mine', program)\n"
    )
    assert bayesfit.get_model(good) is bayesfit.get_model(str(good))
    for text, words in (
        ("model = 3\n", "holds no model"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def (\n", "SyntaxError"),
    ):
        bad = tmp_path / "bad.py"
        bad.write_text(text)
        with pytest.raises(ModelError) as caught:
            bayesfit.get_model(bad)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
