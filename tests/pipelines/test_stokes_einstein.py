"""Radius and viscosity with uncertain temperature, viscosity and size, against closed forms and quadrature."""

import json

import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy.stats import kstest, norm

import bayesfit
from bayesfit.api.hydrodynamics import BOLTZMANN, viscosity_of_water

D = 4.9e8  # angstrom^2/s
RADIUS = BOLTZMANN * 298.15 / (6 * np.pi * 8.9e-4 * D * 1e-20) * 1e9  # nm, some 50
CHAINS, DRAWS = 4, 2000
WATER = {"temperature": 298.15, "viscosity": 8.9e-4}


def tree_of(**arrays):
    """A result whose posterior has these arrays (chain, draw) or (chain, draw, q_bin), with their units."""
    posterior = xr.Dataset(
        {
            name: (("chain", "draw", "q_bin")[: np.ndim(values)], values, {"units": unit})
            for name, (values, unit) in arrays.items()
        },
        {"chain": np.arange(CHAINS), "draw": np.arange(DRAWS)},
    )
    tree = xr.DataTree.from_dict({"posterior": posterior})
    tree.attrs["model"] = "single_exponential"
    return tree


def exactly(value, unit="angstrom^2/s", bins=()):
    return np.full((CHAINS, DRAWS, *bins), value), unit


def spread(x):
    """Standard deviation over the draws of an array's logarithm, of each bin."""
    return np.log(x).std(("chain", "draw"))


# Formulas and draws


def test_known_values_give_the_radius_exactly():
    result = tree_of(D=exactly(D, bins=(3,)))
    derived = bayesfit.stokes_einstein(result, **WATER)
    radius = derived["posterior"].hydrodynamic_radius
    assert radius.dims == ("chain", "draw", "q_bin")
    assert radius.attrs["units"] == "nm"
    np.testing.assert_allclose(radius, RADIUS, rtol=1e-12)
    assert set(derived["posterior"].data_vars) == {"D", "hydrodynamic_radius"}
    assert json.loads(derived.attrs["specimen"]) == WATER
    assert set(result["posterior"].data_vars) == {"D"}
    assert "specimen" not in result.attrs


def test_each_dataset_of_a_series_has_its_own_temperature():
    datasets = [bayesfit.simulate(bins=2, delays=16, seed=seed)[0] for seed in (1, 2)]
    for data, temperature in zip(datasets, (290.0, 310.0), strict=True):
        data.attrs["temperature"] = temperature
    options = {"model": "single_exponential", "noise": "stated", "draws": 20, "target_ess": 0, "names": ["a", "b"]}
    derived = bayesfit.stokes_einstein(bayesfit.series(datasets, **options), viscosity=1e-3)
    posterior = derived["posterior"]
    expected = BOLTZMANN * np.array([290.0, 310.0])[:, None] / (6 * np.pi * 1e-3 * posterior.D * 1e-20) * 1e9
    assert posterior.hydrodynamic_radius.dims == posterior.D.dims
    np.testing.assert_allclose(posterior.hydrodynamic_radius, expected, rtol=1e-6)
    assert bayesfit.one_dataset(derived, "b").attrs["data_temperature"] == 310.0


def log_variance(loc, scale):
    """Variance of the logarithm of a normal number far from 0, by quadrature."""
    moments = [norm.expect(lambda x, k=k: np.log1p(x * scale / loc) ** k, lb=-9, ub=9) for k in (1, 2)]
    return moments[1] - moments[0] ** 2


def test_relative_variances_add():
    """log R = log T - log eta - log D + constant, of independent T, eta and D; moments by quadrature."""
    rng = np.random.default_rng(1)
    uncertain = D * np.exp(0.02 * rng.standard_normal((CHAINS, DRAWS)))
    derived = bayesfit.stokes_einstein(
        tree_of(D=(uncertain, "angstrom^2/s")), temperature="Normal(298.15, 6)", viscosity="Normal(8.9e-4, 2.7e-5)"
    )["posterior"]
    expected = np.sqrt(log_variance(298.15, 6.0) + log_variance(8.9e-4, 2.7e-5) + np.log(uncertain).var())
    np.testing.assert_allclose(spread(derived.hydrodynamic_radius), expected, rtol=4 / np.sqrt(2 * CHAINS * DRAWS))
    assert abs(np.corrcoef(derived.viscosity.values.ravel(), uncertain.ravel())[0, 1]) < 4 / np.sqrt(CHAINS * DRAWS)
    correlation = np.corrcoef(derived.viscosity.values.ravel(), derived.temperature.values.ravel())[0, 1]
    assert abs(correlation) < 4 / np.sqrt(CHAINS * DRAWS)


def test_the_radius_has_the_distribution_that_the_viscosity_gives_it():
    derived = bayesfit.stokes_einstein(tree_of(D=exactly(D)), temperature=298.15, viscosity=dist.Normal(8.9e-4, 5e-5))
    posterior = derived["posterior"]
    assert posterior.viscosity.dims == ("chain", "draw")
    assert (posterior.viscosity.attrs["units"], "temperature" in posterior) == ("Pa s", False)
    assert kstest(posterior.viscosity.values.ravel(), norm(8.9e-4, 5e-5).cdf).pvalue > 1e-3
    low, high = np.quantile(posterior.hydrodynamic_radius, [0.025, 0.975])
    expected = RADIUS * 8.9e-4 / norm(8.9e-4, 5e-5).ppf([0.975, 0.025])
    np.testing.assert_allclose([low, high], expected, rtol=0.008)


def test_all_bins_share_what_is_not_theirs():
    derived = bayesfit.stokes_einstein(
        tree_of(D=exactly(D, bins=(2,))), temperature=298.15, viscosity="LogNormal(-7, 0.1)"
    )
    radius = derived["posterior"].hydrodynamic_radius
    np.testing.assert_array_equal(radius.isel(q_bin=0), radius.isel(q_bin=1))
    np.testing.assert_allclose(spread(radius.mean("q_bin")), 0.1, rtol=0.04)


def test_viscosity_of_a_known_size_is_the_inverse():
    result = bayesfit.stokes_einstein(tree_of(D=exactly(D)), **WATER)
    back = bayesfit.stokes_einstein(result, temperature=298.15, radius="Normal(50, 1)")["posterior"]
    assert back.viscosity.attrs["units"] == "Pa s"
    np.testing.assert_allclose(back.viscosity * back.hydrodynamic_radius, 8.9e-4 * RADIUS, rtol=1e-12)
    np.testing.assert_allclose(spread(back.viscosity), 0.02, rtol=0.04)


def test_viscosity_of_water_goes_with_the_temperature():
    posterior = bayesfit.stokes_einstein(tree_of(D=exactly(D)), temperature="Normal(298.15, 0.5)", viscosity="water")[
        "posterior"
    ]
    np.testing.assert_allclose(posterior.viscosity, viscosity_of_water(posterior.temperature), rtol=1e-12)
    apart = bayesfit.stokes_einstein(tree_of(D=exactly(D)), temperature="Normal(298.15, 0.5)", viscosity=8.9e-4)
    ratio = spread(posterior.hydrodynamic_radius) / spread(apart["posterior"].hydrodynamic_radius)
    step = 0.01
    slope = np.log(viscosity_of_water(298.15 + step) / viscosity_of_water(298.15 - step)) / (2 * step)
    np.testing.assert_allclose(ratio, 1 - 298.15 * slope, rtol=0.01)


def test_the_seed_gives_the_draws_to_the_bit():
    result = tree_of(D=exactly(D))
    given = {"temperature": "Normal(298.15, 0.1)", "viscosity": "Normal(8.9e-4, 1e-5)"}
    first, again, other = (bayesfit.stokes_einstein(result, **given, seed=seed)["posterior"] for seed in (3, 3, 4))
    xr.testing.assert_identical(first.dataset, again.dataset)
    assert not np.any(first.viscosity == other.viscosity)


def test_the_particles_own_coefficient_is_taken_where_there_are_two():
    result = tree_of(D=exactly(2 * D, bins=(2,)), D0=exactly(D))
    radius = bayesfit.stokes_einstein(result, **WATER)["posterior"].hydrodynamic_radius
    np.testing.assert_allclose(radius, RADIUS)
    apparent = bayesfit.stokes_einstein(result, **WATER, parameter="D")["posterior"].hydrodynamic_radius
    np.testing.assert_allclose(apparent, RADIUS / 2)


def test_bins_without_q_have_no_radius():
    values = np.full((CHAINS, DRAWS, 2), [D, np.nan])
    radius = bayesfit.stokes_einstein(tree_of(D=(values, "angstrom^2/s")), **WATER)["posterior"].hydrodynamic_radius
    assert radius.isnull().all(("chain", "draw")).values.tolist() == [False, True]


def test_what_the_file_states_is_the_default():
    result = tree_of(D=exactly(D))
    result.attrs.update(data_temperature=298.15, data_viscosity=8.9e-4)
    np.testing.assert_allclose(bayesfit.stokes_einstein(result)["posterior"].hydrodynamic_radius, RADIUS)
    sized = bayesfit.stokes_einstein(result, radius=RADIUS)["posterior"]
    np.testing.assert_allclose(sized.viscosity, 8.9e-4)


def test_a_viscosity_in_centipoise_is_noticed():
    with pytest.warns(UserWarning, match="less than an atom's"):
        bayesfit.stokes_einstein(tree_of(D=exactly(D)), temperature=298.15, viscosity=0.89)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "temperature: is not given, and the data do not state it. Give it in K"),
        ({"temperature": 298.15}, "viscosity: is not given, and the data do not state it. Give it in Pa s, or the"),
        ({"temperature": 25, "viscosity": "water"}, "temperature: expected K, got 25"),
        ({"temperature": "Normal(25, 0.1)", "radius": 50}, "temperature: expected K, got 25"),
        ({"temperature": 400, "viscosity": "water"}, "viscosity: that of water is known from 253.15 to 383.15 K"),
        ({**WATER, "radius": 50}, "viscosity and radius: one follows from the other"),
        ({**WATER, "viscosity": -1}, "viscosity: expected a number above 0, got -1"),
        ({**WATER, "viscosity": "Normal(1, 0.3)"}, "viscosity: a share of 0.0004 of its prior is not above 0. Write"),
        ({**WATER, "viscosity": "Normal(1)"}, "viscosity: Normal needs 'scale'"),
        ({**WATER, "viscosity": "oil"}, "viscosity: cannot read 'oil' as a prior"),
        ({**WATER, "viscosity": {"family": "Normal", "loc": [1, 2], "scale": 0.1}}, "viscosity: expected one prior"),
        ({**WATER, "parameter": "DD"}, "parameter: unknown parameter 'DD'. Did you mean 'D'?"),
        ({**WATER, "parameter": "rate"}, "rate: has the unit 1/s, a diffusion coefficient has angstrom^2/s"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given, message):
    with pytest.raises(bayesfit.BayesfitError) as caught:
        bayesfit.stokes_einstein(tree_of(D=exactly(D), rate=exactly(1.0, "1/s")), **given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_result_needs_a_diffusion_coefficient():
    with pytest.raises(bayesfit.InputError, match="the result has no diffusion coefficient"):
        bayesfit.stokes_einstein(tree_of(rate=exactly(1.0, "1/s")), **WATER)
    with pytest.raises(bayesfit.InputError, match=r"D: has the unit angstrom\^n/s.*'power_law' with n = 2"):
        bayesfit.stokes_einstein(tree_of(D=exactly(D, "angstrom^n/s")), **WATER)


# Real data


def test_the_viscosity_in_the_headers_of_real_files_is_that_of_water(shared_data):
    """Thirteen angles; a slow test of laws fits them and finds one radius."""
    paths = sorted((shared_data / "dls_alv_cgs3").glob("*_0001.ASC"))
    if not paths:
        pytest.skip("no real ALV files in shared data")
    stated = [bayesfit.read(path).attrs for path in paths]
    expected = viscosity_of_water(np.array([attrs["temperature"] for attrs in stated]))
    np.testing.assert_allclose([attrs["viscosity"] for attrs in stated], expected, rtol=1e-3)
