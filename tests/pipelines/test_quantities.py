"""Derived quantities against numbers computed otherwise."""

import jax
import numpy as np
import pytest
import xarray as xr
from numpyro.handlers import seed, substitute
from scipy.integrate import quad

import bayesfit
from bayesfit.api.hydrodynamics import hydrodynamic_radius, viscosity_of_size, viscosity_of_water
from bayesfit.pipelines._quantities import relaxation


def posterior_of(**values):
    """A posterior (chain, draw, q_bin) of the values given."""
    return xr.Dataset({name: (("chain", "draw", "q_bin"), np.array(value)[None]) for name, value in values.items()})


def curves_at(q, **attrs):
    tau = np.geomspace(1e-4, 1, 10)
    data = bayesfit.curves(tau, np.ones((len(q), 10)), np.full((len(q), 10), 0.01), q=q)
    return data.assign_attrs(attrs)


def test_relaxation_time_is_one_over_rate():
    derived = relaxation(posterior_of(rate=[[10.0, 50.0]]), curves_at([0.01, 0.02]))
    np.testing.assert_allclose(derived["relaxation_time"].values[0], [[0.1, 0.02]])
    assert derived["relaxation_time"].attrs["units"] == "s"
    assert "mean_relaxation_time" not in derived


@pytest.mark.parametrize("beta", [0.35, 0.5, 0.8, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("rate", [0.3, 7.0])
def test_mean_relaxation_time_is_the_integral_of_g1(rate, beta):
    derived = relaxation(posterior_of(rate=[[rate]], beta=[[beta]]), curves_at([0.01]))
    integral, _ = quad(lambda log_tau: np.exp(log_tau - (rate * np.exp(log_tau)) ** beta), -40, 25, limit=500)
    np.testing.assert_allclose(derived["mean_relaxation_time"].values, integral, rtol=1e-6)
    assert derived["mean_relaxation_time"].attrs["units"] == "s"


def integral_of_g1(model, **values):
    """Of the model file's own shape, |g1|^2, over tau by quadrature."""
    shape = seed(substitute(bayesfit.get_model(model).program, values), 0)

    def g1(log_tau):
        return np.exp(log_tau) * np.sqrt(float(shape(np.exp(log_tau) * np.ones(1))[0]))

    return quad(g1, -25.0, 6.0, limit=200, epsabs=0, epsrel=1e-8)[0]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        ("stretched_exponential", {"rate": 3.0, "beta": 0.7}),
        ("double_exponential", {"rate": 0.3, "rate_fast": 40.0, "fraction": 0.25}),
        ("double_exponential", {"rate": 2.0, "rate_fast": 2.5, "fraction": 0.9}),
        ("cumulant", {"rate": 5.0, "mu2": 0.2, "mu3": 0.0}),
        ("cumulant", {"rate": 5.0, "mu2": 0.3, "mu3": 0.02}),
    ],
)
def test_mean_relaxation_time_of_each_model_is_the_integral_of_its_own_g1(model, values):
    with jax.enable_x64(True):
        expected = integral_of_g1(model, **values)
    derived = relaxation(posterior_of(**{name: [[value]] for name, value in values.items()}), curves_at([0.01]))
    np.testing.assert_allclose(derived["mean_relaxation_time"].values, expected, rtol=1e-6)


def test_polydispersity_is_the_relative_spread_of_the_rates_and_unknown_where_mu2_is_negative():
    rng = np.random.default_rng(0)
    rates = rng.gamma(25.0, 2.0, 200_000)  # of relative sd 1/sqrt(25)
    derived = relaxation(
        posterior_of(rate=[[50.0, 50.0]], mu2=[[rates.var() / rates.mean() ** 2, -0.1]], mu3=[[0.0, 0.0]]),
        curves_at([0.01, 0.02]),
    )
    assert derived["polydispersity"].attrs["units"] == "1"
    np.testing.assert_allclose(derived["polydispersity"].values[0, 0], [0.2, np.nan], rtol=0.01)
    assert "polydispersity" not in relaxation(posterior_of(rate=[[1.0]]), curves_at([0.01]))


def test_diffusion_coefficient_is_rate_over_q_squared_and_unknown_at_q_zero():
    derived = relaxation(posterior_of(rate=[[8.0, 8.0, 8.0], [2.0, 2.0, 2.0]]), curves_at([0.0, np.nan, 0.02]))
    np.testing.assert_allclose(derived["D"].values[0], [[np.nan, np.nan, 20_000.0], [np.nan, np.nan, 5_000.0]])
    assert derived["D"].attrs["units"] == "angstrom^2/s"
    assert derived["D"].dims == ("chain", "draw", "q_bin")


@pytest.mark.parametrize("q", [[0.0, 0.0], [np.nan, np.nan]])
def test_no_diffusion_coefficient_without_any_q(q):
    assert "D" not in relaxation(posterior_of(rate=[[1.0, 1.0]]), curves_at(q))


def test_nothing_follows_without_a_rate():
    assert not relaxation(posterior_of(slope=[[1.0]]), curves_at([0.01]))


def test_a_fixed_parameter_has_one_value_a_bin():
    posterior = posterior_of(rate=[[1.0, 2.0]]).assign(beta=("q_bin", [1.0, 0.5]))
    derived = relaxation(posterior, curves_at([0.01, 0.02]))
    assert derived["mean_relaxation_time"].dims == ("chain", "draw", "q_bin")
    np.testing.assert_allclose(derived["mean_relaxation_time"].values[0], [[1.0, 1.0]])


def test_hydrodynamic_radius_against_a_value_computed_by_hand():
    # k_B T / (6 pi eta D) = 1.380649e-23 * 298.15 / (6 pi * 8.9e-4 * 4.9e-12) m = 50.08 nm
    radius = hydrodynamic_radius(xr.DataArray(4.9e8), temperature=298.15, viscosity=8.9e-4)
    np.testing.assert_allclose(radius, 50.08, rtol=1e-4)
    assert radius.attrs["units"] == "nm"


def test_viscosity_of_a_known_size_is_the_inverse():
    radius = hydrodynamic_radius(xr.DataArray(4.9e8), temperature=298.15, viscosity=8.9e-4)
    viscosity = viscosity_of_size(xr.DataArray(4.9e8), temperature=298.15, radius=radius)
    np.testing.assert_allclose(viscosity, 8.9e-4, rtol=1e-12)
    assert viscosity.attrs["units"] == "Pa s"


@pytest.mark.parametrize(("temperature", "expected"), [(293.15, 1.0016e-3), (298.15, 8.900e-4)])
def test_viscosity_of_water_against_tabulated_values(temperature, expected):
    # ISO/TR 3666 states 1.0016 mPa s at 20 degrees Celsius; the CRC Handbook 0.890 mPa s at 25
    np.testing.assert_allclose(viscosity_of_water(temperature), expected, rtol=2e-4)


def test_the_radius_is_derived_at_the_files_temperature_and_viscosity():
    derive = bayesfit.get_pipeline("dls_alv").derive
    q = 2.6e-3
    posterior = posterior_of(rate=[[4.9e8 * q**2, 1.0]])
    derived = derive(posterior, curves_at([q, 0.0], temperature=298.15, viscosity=8.9e-4))
    np.testing.assert_allclose(derived["hydrodynamic_radius"].values[0, 0], [50.08, np.nan], rtol=1e-4)
    assert "hydrodynamic_radius" not in derive(posterior, curves_at([q, 0.0]))
