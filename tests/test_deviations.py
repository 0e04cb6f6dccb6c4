"""Deviations of bins are standard normal whatever the bins' own fits say, in coordinates that these make round."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import stats

from bayesfit.modelling.laws import Sites, get_law
from bayesfit.posterior.coordinates import base
from bayesfit.posterior.deviations import MOST_STEPS, Fits, Steps, independent, random_walk
from bayesfit.posterior.law_pooling import LawPooling

BINS, SPREAD, MIDDLE = 5, 0.7, 1.3
Q = np.linspace(1e-3, 5e-3, BINS)
RNG = np.random.default_rng(0)
FITS = Fits(1.0 + RNG.standard_normal(BINS), np.array([1e4, 0.0, 3.0, 0.2, 40.0]))
STEPS, ORDER = np.array([0.3, 1.0, 0.1, 0.5]), np.array([2, 0, 1, 4, 3])


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def site(kind, fits=FITS):
    """The distribution of the numbers, and the deviations at given ones."""

    def program():
        if kind == "independent":
            return independent("unit", BINS, SPREAD, MIDDLE, fits)
        return random_walk("unit", Steps(jnp.asarray(ORDER), jnp.asarray(STEPS)), SPREAD, MIDDLE, fits)

    trace = numpyro.handlers.trace(numpyro.handlers.seed(program, 0)).get_trace()
    return trace["unit"]["fn"], lambda numbers: numpyro.handlers.substitute(program, {"unit": numbers})()


@pytest.mark.parametrize("kind", ["independent", "walk"])
def test_numbers_are_standard_normal(kind):
    known, _ = site(kind)
    numbers = RNG.standard_normal(known.event_shape)
    np.testing.assert_allclose(known.log_prob(numbers), stats.norm.logpdf(numbers).sum(), rtol=1e-9)
    drawn = known.sample(jax.random.key(0), (4000,))
    assert stats.kstest(np.ravel(drawn), "norm").pvalue > 1e-3


@pytest.mark.parametrize("kind", ["independent", "walk"])
def test_coordinates_are_standard_normal_where_fits_are(kind):
    """Prior times a normal likelihood of the bins, on the scale of the coordinates."""
    known, deviations = site(kind)
    inner, push = base(known)
    sd = np.where(FITS.precision > 0, FITS.precision, 1.0) ** -0.5

    def log_density(x):
        values = MIDDLE + SPREAD * deviations(push(x))
        return inner.log_prob(x) + np.sum((FITS.precision > 0) * stats.norm.logpdf(FITS.middle, values, sd))

    at = RNG.standard_normal((6, *known.event_shape))
    off = [float(log_density(jnp.asarray(x)) - stats.norm.logpdf(x).sum()) for x in at]
    np.testing.assert_allclose(off, off[0], rtol=1e-7)


def test_a_walk_goes_from_bin_to_bin_in_its_order():
    _, deviations = site("walk")
    numbers = RNG.standard_normal(BINS - 1)
    along = np.concatenate([[0.0], np.cumsum(STEPS * numbers)])
    np.testing.assert_allclose(np.asarray(deviations(jnp.asarray(numbers)))[ORDER], along, rtol=1e-12)


def test_without_fits_coordinates_are_the_numbers():
    for kind in ("independent", "walk"):
        known, _ = site(kind, None)
        assert base(known)[0] is known


def test_fits_that_say_nothing_have_no_weight():
    """One that failed, that is exact, or that has no logarithm where bins scatter by factors."""
    values, sd = np.array([2.0, -2.0, np.nan, 1.0, 1.0]), np.array([0.2, 0.2, 1.0, np.inf, 0.0])
    pooling = LawPooling("rate", get_law("diffusion"), Sites(("D",), ()), Q, np.ones(1), scatter=True)
    fits = pooling.with_fits(None, values, sd).fits
    np.testing.assert_allclose(fits.middle, [np.log(2.0), 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(fits.precision, [100.0, 0.0, 0.0, 0.0, 0.0])
    fits = replace(pooling, additive=True).with_fits(None, values, sd).fits
    np.testing.assert_allclose(fits.middle, [2.0, -2.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(fits.precision, [25.0, 25.0, 0.0, 0.0, 0.0])


def test_a_long_walk_moves_in_its_own_numbers():
    """A Cholesky factor of many bins at every point would cost more than it saves."""
    count = MOST_STEPS + 2
    fits = Fits(np.zeros(count), np.ones(count))
    program = lambda: random_walk("unit", Steps(jnp.arange(count), jnp.ones(count - 1)), SPREAD, MIDDLE, fits)  # noqa: E731
    known = numpyro.handlers.trace(numpyro.handlers.seed(program, 0)).get_trace()["unit"]["fn"]
    assert base(known)[0] is known
