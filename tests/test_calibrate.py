"""Where a detector stands, from photons: errors, coverage, closed forms, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy.interpolate import BSpline

import bayesfit
from bayesfit.geometry import Detector, calibrate, from_calibration, qmap
from bayesfit.geometry.patterns import cells_of, optics_of, q_at
from bayesfit.posterior.pattern import Rings, Smooth, program_of, scene_of, spline

NOMINAL = Detector((128, 128), (344e-6, 344e-6), 0.4, (63.5, 63.5), wavelength=1.0)
RINGS = 2 * np.pi / 58.380 * np.arange(1, 4)
TRUE = NOMINAL.placed((66.3, 60.8, 0.407, 0.01, -0.02))
NAMES = ("row", "column", "distance", "rot1", "rot2")


def intensity(q, width=0.004):
    return 0.2 * RINGS[0] / np.maximum(q, 0.02) + sum(4 * np.exp2(-(((q - ring) / width) ** 2)) for ring in RINGS)


def counted(detector=TRUE, seed=1):
    return np.random.default_rng(seed).poisson(intensity(qmap(detector, backend="numpy").q))


@pytest.fixture(scope="module")
def found():
    image = counted().astype(np.int32)
    image[40:50, 30] = -1
    image[:, 90] = np.iinfo(np.int32).max
    return calibrate(image, NOMINAL, RINGS, seed=1)


def test_q_is_that_of_the_map():
    rows, columns = np.indices(TRUE.shape)
    np.testing.assert_allclose(
        q_at(TRUE.place, rows, columns, optics_of(TRUE)), qmap(TRUE, backend="numpy").q, rtol=1e-7
    )


def test_cells_stand_for_their_pixels():
    """Photons and pixels add up, and q changes with the detector's place as the pixels' mean q does."""
    image, good = counted(), np.ones(TRUE.shape, bool)
    good[:, 90] = False
    edges = np.linspace(0.05, 0.3, 60)
    cells = cells_of(image, good, NOMINAL, edges)
    q = qmap(NOMINAL, backend="numpy").q
    inside = good & (q >= edges[0]) & (q < edges[-1])
    assert cells.counts.sum() == image[inside].sum()
    assert cells.pixels.sum() == inside.sum()
    moved = np.add(NOMINAL.place, (0.3, -0.2, 1e-3, 2e-3, 1e-3))
    slope = q_at(moved, cells.row, cells.column, optics_of(NOMINAL)) - q_at(
        NOMINAL.place, cells.row, cells.column, optics_of(NOMINAL)
    )
    by_pixel = q_at(moved, *np.indices(q.shape), optics_of(NOMINAL)) - q
    assert np.sum(cells.pixels * slope) == pytest.approx(by_pixel[inside].sum(), rel=2e-3)


def test_the_log_likelihood_is_that_of_poisson_numbers():
    """Of rings far apart, pixel by pixel, against numbers written out."""
    scene = scene_of(NOMINAL, RINGS, (0.08, 0.36))
    cells = cells_of(counted(), np.ones(TRUE.shape, bool), NOMINAL, np.linspace(0.08, 0.36, 200))
    with jax.enable_x64(True):
        values = {"row": 64.0, "column": 63.0, "distance": 0.401, "rot1": 0.001, "rot2": 0.002}
        values |= {"log_height": jnp.array([1.0, 0.5, 0.2]), "log_background": jnp.array([0.0, -0.5, -1.0, -1.5])}
        values |= {"width": 0.004, "broadening": 0.3, "mixing": 0.2}
        program = numpyro.handlers.seed(
            numpyro.handlers.substitute(program_of(Rings(3), Rings.places, {}), values), jax.random.PRNGKey(0)
        )
        trace = numpyro.handlers.trace(program).get_trace(scene, jax.tree.map(jnp.asarray, cells))
        got = float(trace["_photons"]["fn"].log_factor)
    q = q_at([values[name] for name in NAMES], cells.row, cells.column, optics_of(NOMINAL)) + cells.excess
    knots = np.concatenate([[0.08], np.sqrt(RINGS[1:] * RINGS[:-1]), [0.36]])
    slopes = -0.5 / np.diff(np.log(knots))
    zone = np.clip(np.searchsorted(knots, q) - 1, 0, 2)  # the ends go on as straight lines
    expected = np.exp(-0.5 * zone + slopes[zone] * np.log(q / knots[zone]))
    for ring in range(3):
        u = (q - RINGS[ring]) / (0.004 * (RINGS[ring] / RINGS[0]) ** 0.3)
        shape = 0.2 / (1 + u**2) + 0.8 * 2.0 ** -(u**2)
        expected += np.where(np.abs(zone - ring) <= 1, np.exp([1.0, 0.5, 0.2][ring]) * shape, 0)
    by_hand = np.sum(cells.counts * np.log(expected) - cells.pixels * expected)
    assert got == pytest.approx(by_hand, rel=1e-9)


def test_the_spline_is_scipys():
    values = np.random.default_rng(2).standard_normal(9)
    x = np.linspace(0, 1, 50)
    own = BSpline(np.arange(-3, 10) / 6, values, 3)(x)
    with jax.enable_x64(True):
        np.testing.assert_allclose(spline(jnp.asarray(values), jnp.asarray(x)), own, rtol=1e-10)


def test_rings_give_the_place_within_a_tenth_of_a_pixel(found):
    assert found["diagnostics"].verdict == "ok", str(found["diagnostics"].reason.values)
    for name, truth in zip(NAMES, TRUE.place, strict=True):
        draws = found["posterior"][name]
        assert abs(float(draws.mean()) - truth) < 4 * float(draws.std()), name
    for name, truth in zip(NAMES[:2], TRUE.place, strict=False):
        assert abs(float(found["posterior"][name].mean()) - truth) < 0.1
    assert found["posterior"].distance.attrs["units"] == "m"
    assert found.attrs["calibration"] == "rings"


def test_a_calibration_is_a_detector_with_its_covariance(found, tmp_path):
    path = bayesfit.save(found, tmp_path / "calibration.nc")
    detector = from_calibration(bayesfit.load(path))
    draws = np.stack([found["posterior"][name].values.ravel() for name in NAMES])
    np.testing.assert_allclose(detector.place, draws.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(np.diag(detector.covariance)), draws.std(axis=1), rtol=1e-2)
    relative = np.asarray(qmap(detector, backend="numpy").q_err / qmap(detector, backend="numpy").q)
    assert np.median(relative) < 3e-3
    with pytest.raises(bayesfit.ResultError, match="expected a calibration of a detector"):
        from_calibration(found["posterior"])
    with pytest.raises(bayesfit.ResultError, match="got a calibration of a detector, expected the result of a fit"):
        bayesfit.law(found)


def test_a_picture_shows_the_rings(found, tmp_path):
    figure = bayesfit.plot_calibration(found, counted(), tmp_path / "rings.png")
    assert (tmp_path / "rings.png").stat().st_size > 10_000
    assert "row 66." in figure.axes[0].get_title()
    with pytest.raises(bayesfit.InputError, match="image: shape"):
        bayesfit.plot_calibration(found, np.ones((3, 3)))


def test_symmetry_gives_the_centre():
    """Of a smooth pattern that nothing else is known of, with a beamstop."""
    true = NOMINAL.placed((70.2, 58.6, 0.4, 0.0, 0.0))
    q = qmap(true, backend="numpy").q
    image = np.random.default_rng(3).poisson(20 * np.exp(-0.5 * ((q - 0.12) / 0.05) ** 2) + 0.5)
    good = q > 0.02
    found = calibrate(image, NOMINAL, symmetry=True, mask=good, fixed={"rot1": 0.0, "rot2": 0.0}, knots=24)
    assert found["diagnostics"].verdict == "ok", str(found["diagnostics"].reason.values)
    for name, truth in zip(NAMES[:2], true.place, strict=False):
        draws = found["posterior"][name]
        assert abs(float(draws.mean()) - truth) < min(0.1, 4 * float(draws.std()))
    assert from_calibration(found).distance == 0.4


def test_uneven_rings_are_a_misfit():
    looked = qmap(TRUE, backend="numpy")
    uneven = 1 + 0.7 * np.cos(3 * np.radians(looked.phi))
    image = np.random.default_rng(1).poisson(5 * intensity(looked.q) * uneven)
    found = calibrate(image, NOMINAL, RINGS, draws=100)
    assert "chi2" in str(found["diagnostics"].reason.values)
    assert float(found["diagnostics"].p_chi2) < 1e-6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "rings: give either"),
        ({"rings": RINGS, "symmetry": True}, "rings: give either"),
        ({"rings": "silver"}, "rings: unknown calibrant 'silver'.*silver_behenate"),
        ({"rings": [0.2, 0.1]}, "rings: expected values of q above 0, in order"),
        ({"rings": [50.0]}, "rings: none is from"),
        ({"symmetry": True, "q_range": (0.2, 0.1)}, "q_range: got"),
        ({"rings": RINGS, "fixed": {"tilt": 0}}, "fixed: unknown parameter 'tilt'"),
        ({"symmetry": True, "priors": {"distance": "Normal(1, 1)"}}, "priors: unknown parameter 'distance'"),
        ({"rings": RINGS, "draws": 0}, "draws: got 0"),
        ({"rings": RINGS, "mask": np.ones((2, 2))}, "mask: shape"),
        ({"rings": RINGS, "mask": np.zeros(TRUE.shape)}, "image: there are no photons"),
        ({"rings": RINGS, "image": np.ones((2, 2))}, "image: got float64"),
        ({"rings": RINGS, "image": np.full(TRUE.shape, 0.5)}, "image: holds 0.5, no number of photons"),
    ],
)
def test_impossible_calibrations_are_refused(given, words):
    image = given.pop("image", counted())
    with pytest.raises(bayesfit.BayesfitError, match=words):
        calibrate(image, NOMINAL, **given)


def test_priors_do_not_look_at_the_image():
    """A prior far from the truth, and narrow, wins over photons."""
    assert Smooth.places == ("row", "column", "rot1", "rot2")
    found = calibrate(counted(), NOMINAL, RINGS, priors={"rot1": "Normal(0.5, 1e-6)"}, draws=100)
    assert float(found["posterior"].rot1.mean()) == pytest.approx(0.5, abs=1e-4)
