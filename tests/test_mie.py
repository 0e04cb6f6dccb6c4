"""Mie-weighted spheres: intensities against closed forms and miepython's amplitudes, curves against sums by hand."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import bayesfit
from bayesfit import InputError, SettingsError
from bayesfit.models import _sizes, mie_spheres

WATER = {"temperature": 298.15, "viscosity": 8.9e-4, "wavelength": 6328.0, "refractive_index": 1.332}
LARGEST = 4 * np.pi * WATER["refractive_index"] / WATER["wavelength"]  # 1/angstrom
ANGLES = np.array([40.0, 90.0, 140.0])
Q = LARGEST * np.sin(np.radians(ANGLES) / 2)
TAU = np.geomspace(1e-6, 1e-1, 40)
COSINES = np.linspace(-0.99, 0.99, 23)


def table(relative_index, polarisation, size):
    with jax.enable_x64(True):
        found = mie_spheres.tabulated(relative_index, polarisation)
        return np.array([found(jnp.log(jnp.asarray(size)), jnp.asarray(cosine)) for cosine in COSINES])


@pytest.mark.parametrize("size", [1e-3, 0.03])
def test_small_spheres_scatter_as_rayleigh_says(size):
    """|S1|^2 = x^6 |(m^2 - 1) / (m^2 + 2)|^2, and |S2|^2 that times cos^2 theta."""
    m = 1.2
    rayleigh = ((m**2 - 1) / (m**2 + 2)) ** 2
    np.testing.assert_allclose(table(m, "vertical", size), rayleigh, rtol=2e-3)
    np.testing.assert_allclose(table(m, "unpolarised", size), rayleigh * (1 + COSINES**2) / 2, rtol=2e-3)


@pytest.mark.parametrize("size", [0.5, 2.0, 6.0])
def test_index_near_one_is_rayleigh_gans(size):
    """|S1|^2 = x^6 (2 (m - 1) / 3)^2 P(u), P = (3 (sin u - u cos u) / u^3)^2, u = q R = 2 x sin(theta / 2)."""
    m = 1.0005
    u = 2 * size * np.sqrt((1 - COSINES) / 2)
    form = (3 * (np.sin(u) - u * np.cos(u)) / u**3) ** 2
    expected = (2 * (m - 1) / 3) ** 2 * form
    np.testing.assert_allclose(table(m, "vertical", size), expected, rtol=5e-3, atol=2e-3 * expected.max())


@pytest.mark.parametrize("size", [0.2, 1.7, 5.3, 13.1])
def test_intensities_are_those_of_miepythons_amplitudes(size):
    from miepython import S1_S2

    across, along = (np.abs(own) ** 2 / size**6 for own in S1_S2(1.2, size, COSINES, norm="wiscombe"))
    close = {"rtol": 3e-3, "atol": 1e-4 * across.max()}
    np.testing.assert_allclose(table(1.2, "vertical", size), across, **close)
    np.testing.assert_allclose(table(1.2, "unpolarised", size), (across + along) / 2, **close)


def test_slope_over_size_is_that_of_differences():
    with jax.enable_x64(True):
        found = mie_spheres.tabulated(1.2, "vertical")
        at, step = jnp.log(jnp.array([0.3, 2.0, 6.0, 11.0, 23.0])), 1e-6
        slope = jax.vmap(jax.grad(lambda x: found(x, jnp.asarray(0.3))))(at)
        up, down = (found(at + move, jnp.asarray(0.3)) for move in (step, -step))
        np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=1e-5, atol=1e-9)


def by_hand(radius, share):
    """g1 (bin, tau) of these radii [nm] and shares of number, with miepython's amplitudes."""
    from miepython import S1_S2

    rate = 1.380649e-23 * 298.15 / (6 * np.pi * 8.9e-4 * radius * 1e-29) * Q[:, None] ** 2
    sizes = 2 * np.pi * 1.332 * radius / 632.8
    seen = np.array([np.abs(S1_S2(1.2, x, np.cos(np.radians(ANGLES)), norm="wiscombe")[0]) ** 2 for x in sizes]).T
    weight = seen * share / np.sum(seen * share, axis=1, keepdims=True)
    return np.einsum("bk,bkt->bt", weight, np.exp(-rate[:, :, None] * TAU))


def curves(g1, **attrs):
    rng, error = np.random.default_rng(2), 2e-3
    g2 = 0.7 * g1**2 + error * rng.standard_normal(g1.shape)
    priors = {"contrast_prior": "TruncatedNormal(0.5, 0.5, low=0)", "baseline_prior": "Normal(0, 0.05)"}
    return bayesfit.curves(TAU, g2, np.full(g2.shape, error), q=Q, attrs={**WATER, **attrs}, **priors)


def test_curve_is_the_sum_by_hand():
    """The weights of the model are shares of number times R^6, and its rate is that of their harmonic mean."""
    model = bayesfit.get_model({"name": "mie_spheres", "relative_index": 1.2})
    width, shape = 0.25, [0.4, -0.3, 0.2, 0.1]
    log_radius, weight = _sizes.weights(width, shape, _sizes.STEPS, np)
    radius = 150.0 * np.exp(_sizes.about_harmonic(log_radius, weight, np))
    data = curves(np.zeros((3, TAU.size)))
    known = mie_spheres.known(data)
    expected = by_hand(radius, weight / radius**6)
    for place in range(3):
        diffusion = 1.380649e-23 * 298.15 / (6 * np.pi * 8.9e-4 * 150.0 * 1e-29)
        values = {
            "rate": diffusion * Q[place] ** 2,
            "width": width,
            **dict(zip(_sizes.COEFFICIENTS, shape, strict=True)),
        }
        values |= {name: array[place] for name, array in known.items()}
        with jax.enable_x64(True):
            made = handlers.substitute(model.program, values)(jnp.asarray(TAU))
        np.testing.assert_allclose(made, expected[place] ** 2, atol=2e-5)


def test_many_angles_at_once_find_the_radius():
    """One distribution for all angles, of which the mean radius by number is 120 nm. With this seed, all first starts
    lead to local modes."""
    radius = np.linspace(60.0, 180.0, 241)
    share = np.exp(-0.5 * ((radius - 120.0) / 12.0) ** 2)
    across = {"rate": "diffusion", **dict.fromkeys(_sizes.NAMES, "shared")}
    result = bayesfit.fit(
        curves(by_hand(radius, share)),
        {"name": "mie_spheres", "relative_index": 1.2},
        noise="stated",
        across=across,
        chains=2,
        draws=150,
        target_ess=0,
        seed=5,
    )
    low, high = result["posterior"].radius_mean.quantile([0.005, 0.995], ("chain", "draw")).values
    assert np.all((low < 120.0) & (high > 120.0))
    assert np.all(high - low < 24.0)
    assert result["across"].pooling.sel(pooled="width").item() == "shared"
    radius = result["distribution"].radius.values
    np.testing.assert_allclose(radius, np.broadcast_to(radius[0], radius.shape), rtol=1e-6)


def test_what_is_not_known_is_asked_for():
    model = {"name": "mie_spheres", "relative_index": 1.2}
    bare = curves(np.zeros((3, TAU.size))).drop_attrs()
    with pytest.raises(InputError, match=r"temperature: is not stated\. Give attrs="):
        bayesfit.point_estimate(bare, model)
    far = curves(np.zeros((3, TAU.size))).assign_coords(q=("q_bin", [Q[0], 2 * LARGEST, Q[1]]))
    with pytest.raises(InputError, match=r"bin 1: q is .*, expected 0 to "):
        bayesfit.point_estimate(far, model)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs the option 'relative_index'"),
        ({"relative_index": 0.9}, "model.relative_index: got 0.9, expected a number between 1 and 3"),
        ({"relative_index": "glass"}, "model.relative_index: got 'glass'"),
        ({"relative_index": 1.2, "polarisation": "round"}, "model.polarisation: got 'round'. It is 'vertical' or"),
    ],
)
def test_impossible_options(options, words):
    with pytest.raises(SettingsError) as caught:
        bayesfit.get_model({"name": "mie_spheres", **options})
    assert words in str(caught.value)


def test_without_miepython(monkeypatch):
    monkeypatch.setitem(sys.modules, "miepython", None)
    with pytest.raises(
        SettingsError, match=r"needs miepython, which is not installed\. pip install 'bayesfit\[light\]'"
    ):
        bayesfit.get_model({"name": "mie_spheres", "relative_index": 1.2345})
