"""Size distributions: weights against closed forms, and a fit against the truth and the cumulant."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax import enable_x64, grad, random
from matplotlib.figure import Figure
from numpyro.distributions import biject_to
from scipy import integrate, stats

import bayesfit
from bayesfit import ResultError
from bayesfit.models import _sizes

TEMPERATURE, VISCOSITY, Q = 298.15, 0.89e-3, 1.6e-3  # K, Pa s, 1/angstrom
MEDIAN, WIDTH = 80.0, 0.3  # nm, of a log-normal distribution of the intensity
STOKES_EINSTEIN = 1.380649e-23 * TEMPERATURE / (6 * np.pi * VISCOSITY * 1e-9 * 1e-20)  # angstrom^2 nm / s
NONE = [0.0, 0.0, 0.0, 0.0]


def test_moments_are_those_of_a_lognormal():
    log_radius, weight = _sizes.weights(0.4, NONE, _sizes.FINE, np)
    found, law = _sizes.quantities(log_radius, weight), stats.lognorm(0.4)
    expected = {"mean": law.mean(), "median": law.median(), "10": law.ppf(0.1), "90": law.ppf(0.9), "sd": law.std()}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=4e-3), name  # the tails end at 4 standard deviations
    harmonic = _sizes.about_harmonic(log_radius, weight, np) - log_radius
    assert np.exp(-harmonic[0]) == pytest.approx(np.exp(-0.08), rel=1e-3)


@pytest.mark.parametrize("shape", [NONE, [0.9, 0.0, 0.0, 0.0], [0.0, -2.5, 0.5, 0.8]])
@pytest.mark.parametrize("width", [0.02, 0.5, 1.0])
def test_few_steps_give_the_curve_of_the_integral(shape, width):
    few, fine = (_sizes.weights(width, shape, steps, np) for steps in (_sizes.STEPS, 4001))
    x = np.geomspace(1e-3, 30.0, 50)
    g1 = [np.exp(-x[:, None] * np.exp(-log_radius)) @ weight for log_radius, weight in (few, fine)]
    np.testing.assert_allclose(*g1, atol=2e-3 if width == 1.0 else 2e-4)
    assert np.sqrt(few[1] @ few[0] ** 2) == pytest.approx(width)
    assert few[1].min() > 0


def test_the_prior_of_the_width_is_lognormal_in_a_coordinate_that_is_linear_where_it_is_wide():
    prior, law = _sizes.WidthPrior(), stats.lognorm(1.0, scale=0.15)
    width = np.array([1e-4, 0.01, 0.05, 0.3, 1.5])
    np.testing.assert_allclose(prior.log_prob(width), law.logpdf(width), rtol=1e-5)
    np.testing.assert_allclose(prior.cdf(width), law.cdf(width), atol=1e-6)
    np.testing.assert_allclose(prior.icdf(np.array([0.1, 0.5])), law.ppf([0.1, 0.5]), rtol=1e-5)
    assert stats.kstest(prior.sample(random.key(1), (500,)), law.cdf).pvalue > 0.01
    with enable_x64(True):
        to_width = biject_to(prior.support)
        z = to_width._inverse(jnp.asarray(width))
        np.testing.assert_allclose(to_width(z), width)
        slopes = [grad(to_width)(own) for own in z]
        np.testing.assert_allclose(to_width.log_abs_det_jacobian(z, width), np.log(slopes))
    assert slopes[0] == pytest.approx(width[0], rel=1e-2)  # as of a logarithm
    assert slopes[-1] == pytest.approx(_sizes.NARROW, rel=1e-6)


def test_the_shape_can_have_two_peaks():
    _, weight = _sizes.weights(0.5, [0.0, -5.0, 0.0, 0.0], _sizes.FINE, np)
    assert np.sum(np.diff(np.sign(np.diff(weight))) < 0) == 2


@pytest.fixture(scope="module")
def curves():
    """Two bins of a log-normal distribution, g1 by quadrature that has nothing of the model."""
    tau = np.geomspace(1e-6, 1e-1, 60)
    law = stats.norm(np.log(MEDIAN), WIDTH)
    x = np.linspace(*law.ppf([1e-12, 1 - 1e-12]), 2001)
    q = np.array([Q, 1.3 * Q])
    rate = STOKES_EINSTEIN * q[:, None, None] ** 2 / np.exp(x)
    g1 = integrate.simpson(law.pdf(x) * np.exp(-rate * tau[:, None]), x=x, axis=-1)
    error = 1e-3
    g2 = 0.8 * g1**2 + np.random.default_rng(4).normal(0.0, error, g1.shape)
    attrs = {"temperature": TEMPERATURE, "viscosity": VISCOSITY}
    priors = {"contrast_prior": "TruncatedNormal(0.5, 0.5, low=0)", "baseline_prior": "Normal(0, 0.05)"}
    return bayesfit.curves(tau, g2, np.full(g2.shape, error), q=q, attrs=attrs, **priors)


@pytest.fixture(scope="module")
def fitted(curves):
    return bayesfit.fit(curves, "size_distribution", noise="stated", draws=250, target_ess=200, seed=1)


def test_the_truth_is_within_the_intervals(fitted):
    law = stats.lognorm(WIDTH, scale=MEDIAN)
    truth = {"mean": law.mean(), "median": MEDIAN, "10": law.ppf(0.1), "90": law.ppf(0.9), "sd": law.std()}
    for name, value in truth.items():
        draws = fitted["posterior"][f"radius_{name}"]
        low, high = draws.quantile([0.001, 0.999], ("chain", "draw")).values
        assert np.all((low < value) & (value < high)), name
        assert draws.attrs["units"] == "nm"
    assert fitted["posterior"].radius_median.std(("chain", "draw")).max() < 0.1 * MEDIAN
    assert set(fitted["diagnostics"].verdict.values) == {"ok"}
    assert not np.isfinite(fitted["diagnostics"].contraction.sel(parameter="shape_3")).any()  # is not asked for


def test_the_harmonic_mean_is_that_of_the_cumulant(curves, fitted):
    """The initial slope of -log g1 belongs to the harmonic mean of the radii, whatever the distribution."""
    cumulant = bayesfit.fit(
        curves, "cumulant", noise="stated", draws=250, target_ess=200, seed=1, priors={"mu3": "Normal(0, 0.1)"}
    )
    one, other = (result["posterior"].rate for result in (fitted, cumulant))
    across = ("chain", "draw")
    distance = (one.mean(across) - other.mean(across)) / np.hypot(one.std(across), other.std(across))
    assert np.all(np.abs(distance) < 2.5)
    truth = STOKES_EINSTEIN * curves.q.values**2 / MEDIAN * np.exp(WIDTH**2 / 2)
    assert np.all(np.abs(one.mean(across) - truth) < 3.5 * one.std(across))


def test_picture_and_file(fitted, tmp_path):
    bayesfit.save(fitted, tmp_path / "sizes.nc")
    again = bayesfit.load(tmp_path / "sizes.nc")
    xr.testing.assert_allclose(again["distribution"].dataset, fitted["distribution"].dataset, rtol=1e-6)
    one = again["distribution"].dataset.isel(q_bin=0)
    assert integrate.trapezoid(one.density, np.log(one.radius)) == pytest.approx(1.0, abs=0.02)
    assert bool((one.lower <= one.density + 1e-9).all() and (one.density <= one.upper + 1e-9).all())
    figure = bayesfit.plot_sizes(again, bins=[1], path=tmp_path / "sizes.png")
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 1
    assert (tmp_path / "sizes.png").stat().st_size > 5000


def test_no_picture_of_other_models(shipped_result):
    with pytest.raises(ResultError, match="holds no size distribution"):
        bayesfit.plot_sizes(shipped_result)


@pytest.fixture
def shipped_result(fitted):
    """The result of a fit without its distribution, as of a model that has none."""
    return xr.DataTree.from_dict(
        {name: group for name, group in fitted.to_dict().items() if "distribution" not in name}
    )


def test_sizes_are_relative_where_the_specimen_is_unknown(curves, fitted):
    found = _sizes.derived(fitted["posterior"].dataset, curves.drop_attrs())
    assert set(found) == {"size_mean", "size_median", "size_10", "size_90", "size_sd"}
    radius = fitted["posterior"].radius_mean / _sizes.unit_of(fitted["posterior"].rate, curves)
    np.testing.assert_allclose(found.size_mean.transpose(*radius.dims), radius, rtol=1e-10)
