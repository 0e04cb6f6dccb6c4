"""Derived quantities against numbers computed otherwise."""

import numpy as np
import pytest
import xarray as xr
from scipy.integrate import quad

import bayesfit
from bayesfit.pipelines._quantities import hydrodynamic_radius, relaxation


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


def test_the_radius_is_derived_at_the_files_temperature_and_viscosity():
    derive = bayesfit.get_pipeline("dls_alv").derive
    q = 2.6e-3
    posterior = posterior_of(rate=[[4.9e8 * q**2, 1.0]])
    derived = derive(posterior, curves_at([q, 0.0], temperature=298.15, viscosity=8.9e-4))
    np.testing.assert_allclose(derived["hydrodynamic_radius"].values[0, 0], [50.08, np.nan], rtol=1e-4)
    assert "hydrodynamic_radius" not in derive(posterior, curves_at([q, 0.0]))
