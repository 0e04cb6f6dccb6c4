"""Where pixels look: against pyFAI, against trigonometry, and by hand."""

import json

import numpy as np
import pytest

import bayesfit
from bayesfit.geometry import Detector, from_poni, partition, qmap
from bayesfit.geometry.patterns import optics_of, q_at

FLAT = Detector((40, 60), (75e-6, 100e-6), 0.1, (12.25, 33.5), wavelength=1.1)
TILTED = Detector((40, 60), (75e-6, 100e-6), 0.1, (12.25, 33.5), wavelength=1.1, rotations=(0.2, -0.3, 0.5))
BEHIND = Detector((40, 60), (75e-6, 100e-6), 0.002, (12.25, 33.5), wavelength=1.1, rotations=(2.5, 0.1, 0.0))
BOTH = pytest.mark.parametrize("backend", ["numpy", "jax"])


def from_pyfai(detector):
    """q [1/angstrom], azimuth and scattering angle [degree] by pyFAI."""
    geometry = pytest.importorskip("pyFAI.geometry")
    detectors = pytest.importorskip("pyFAI.detectors")
    (height, width), (row, column) = detector.pixel_size, detector.normal
    places = {"poni1": (row + 0.5) * height, "poni2": (column + 0.5) * width}
    rotations = dict(zip(("rot1", "rot2", "rot3"), detector.rotations, strict=True))
    own = geometry.Geometry(
        dist=detector.distance,
        **places,
        **rotations,
        detector=detectors.Detector(height, width, max_shape=detector.shape),
        wavelength=detector.wavelength * 1e-10,
    )
    q, phi, two_theta = (own.center_array(detector.shape, unit=unit) for unit in ("q_A^-1", "chi_rad", "2th_rad"))
    return q, np.degrees(phi), np.degrees(two_theta)


@BOTH
@pytest.mark.parametrize("detector", [FLAT, TILTED, BEHIND], ids=["flat", "tilted", "behind"])
@pytest.mark.filterwarnings("ignore")  # of pyFAI
def test_as_pyfai_has_it(detector, backend):
    found = qmap(detector, backend=backend)
    q, phi, two_theta = from_pyfai(detector)
    np.testing.assert_allclose(found.q, q, rtol=1e-12)
    np.testing.assert_allclose(found.two_theta, two_theta, rtol=1e-12)
    np.testing.assert_allclose((bayesfit.ensure_numpy(found.phi) - phi + 180) % 360, 180, rtol=1e-12)


@BOTH
def test_as_trigonometry_has_it(backend):
    found = qmap(TILTED, backend=backend)
    expected = 4 * np.pi / TILTED.wavelength * np.sin(np.radians(bayesfit.ensure_numpy(found.two_theta)) / 2)
    np.testing.assert_allclose(found.q, expected, rtol=1e-12)


def test_the_direct_beam_arrives_at_the_beam_center():
    row, column = TILTED.beam_center
    moved = tuple(start - place for start, place in zip(TILTED.normal, (row, column), strict=True))
    at_origin = Detector((1, 1), TILTED.pixel_size, TILTED.distance, moved, 1.1, TILTED.rotations)
    assert float(qmap(at_origin, backend="numpy").two_theta[0, 0]) < 1e-12
    assert FLAT.beam_center == FLAT.normal


def test_small_angles_lose_no_digits():
    far = Detector((1, 2), (1e-6, 1e-6), 100.0, (0, 0), wavelength=1.0)
    q = qmap(far, backend="numpy").q[0, 1]
    assert q == pytest.approx(2 * np.pi * 1e-8, rel=1e-15)


@BOTH
def test_in_reflection_the_parts_add_up(backend):
    found = qmap(FLAT, incidence=0.2, backend=backend)
    np.testing.assert_allclose(np.hypot(found.q_parallel, found.q_perpendicular), found.q, rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(found.q, qmap(FLAT, backend=backend).q)
    assert type(found.exit_angle) is type(found.backend.asarray(1.0))


def test_in_transmission_there_is_no_surface():
    with pytest.raises(bayesfit.SettingsError, match="incidence: is needed"):
        qmap(FLAT).exit_angle


def test_the_specular_beam_leaves_at_the_angle_at_which_it_came():
    """Twice the angle of incidence above the direct beam, which is up, against the rows."""
    row = 0.1 * np.tan(np.radians(2 * 3.0)) / 1e-4
    detector = Detector((1, 1), (1e-4, 1e-4), 0.1, (row, 0), wavelength=1.0)
    found = qmap(detector, incidence=3.0, backend="numpy")
    assert float(found.exit_angle[0, 0]) == pytest.approx(3.0)
    assert float(found.q_parallel[0, 0]) == pytest.approx(0, abs=1e-12)
    assert float(found.q_perpendicular[0, 0]) == pytest.approx(4 * np.pi * np.sin(np.radians(3.0)))


@pytest.mark.filterwarnings("ignore")  # of pyFAI
def test_a_calibration_of_pyfai(tmp_path):
    pytest.importorskip("pyFAI")
    path = tmp_path / "run.poni"
    path.write_text(
        "poni_version: 2.1\n"
        "Detector: Detector\n"
        'Detector_config: {"pixel1": 7.5e-05, "pixel2": 1e-4, "max_shape": [40, 60], "orientation": 3}\n'
        f"Distance: 0.1\nPoni1: {12.75 * 75e-6}\nPoni2: {34 * 1e-4}\nRot1: 0.2\nRot2: -0.3\nRot3: 0.5\n"
        "Wavelength: 1.1e-10\n"
    )
    found = from_poni(path)
    assert (found.shape, found.rotations) == (TILTED.shape, TILTED.rotations)
    np.testing.assert_allclose(found.normal, TILTED.normal, rtol=1e-12)
    np.testing.assert_allclose([found.distance, found.wavelength], [0.1, 1.1], rtol=1e-12)
    (tmp_path / "no.poni").write_text("nothing")
    with pytest.raises(bayesfit.InputError, match=r"no\.poni"):
        from_poni(tmp_path / "no.poni")
    with pytest.raises(bayesfit.InputError, match="no such file"):
        from_poni(tmp_path / "absent.poni")


def poni(path, config, kind="Detector"):
    """A calibration of pyFAI with tilts."""
    path.write_text(
        f"poni_version: 2.1\nDetector: {kind}\nDetector_config: {json.dumps(config)}\nDistance: 0.1\nPoni1: 0.0009\n"
        "Poni2: 0.0034\nRot1: 0.2\nRot2: -0.3\nRot3: 0.5\nWavelength: 1.1e-10\n"
    )
    return path


@BOTH
@pytest.mark.parametrize("orientation", [1, 2, 3, 4])
@pytest.mark.filterwarnings("ignore")  # of pyFAI
def test_every_orientation_is_as_pyfai_has_it(tmp_path, orientation, backend):
    pyfai = pytest.importorskip("pyFAI")
    config = {"pixel1": 75e-6, "pixel2": 1e-4, "max_shape": [40, 60], "orientation": orientation}
    path = poni(tmp_path / "run.poni", config)
    detector, own = from_poni(path), pyfai.load(str(path))
    found = qmap(detector, backend=backend)
    q, phi, two_theta = (own.center_array((40, 60), unit=unit) for unit in ("q_A^-1", "chi_deg", "2th_deg"))
    np.testing.assert_allclose(found.q, q, rtol=1e-12)
    np.testing.assert_allclose(found.two_theta, two_theta, rtol=1e-12)
    np.testing.assert_allclose((bayesfit.ensure_numpy(found.phi) - phi + 180) % 360, 180, rtol=1e-12)
    moved = detector.placed(detector.place)
    np.testing.assert_allclose(qmap(moved, backend="numpy").phi, found.phi, rtol=1e-10)
    row, column = np.indices((40, 60))
    np.testing.assert_allclose(q_at(detector.place, row, column, optics_of(detector)), q, rtol=1e-6)
    assert ("mirrored" in repr(detector)) is detector.mirrored is (orientation in (2, 4))


@pytest.mark.parametrize("kind", ["imxpad_s70", "Pixirad1", "Cirpad"])
@pytest.mark.filterwarnings("ignore")  # of pyFAI
def test_pixels_that_are_not_equal_are_refused(tmp_path, kind):
    pytest.importorskip("pyFAI")
    path = poni(tmp_path / "run.poni", {"orientation": 3}, kind)
    with pytest.raises(bayesfit.InputError, match=r"run\.poni: Detector: .* not equal rectangles .* Have pyFAI"):
        from_poni(path)


@pytest.mark.filterwarnings("ignore")  # of pyFAI
def test_unknown_orientations_are_refused(tmp_path):
    pytest.importorskip("pyFAI")
    config = {"pixel1": 75e-6, "pixel2": 1e-4, "max_shape": [40, 60], "orientation": 6}
    with pytest.raises(bayesfit.InputError, match=r"run\.poni"):
        from_poni(poni(tmp_path / "run.poni", config))


@pytest.mark.filterwarnings("ignore")  # of pyFAI
def test_a_mask_of_gaps_goes_to_the_partition(tmp_path):
    pyfai = pytest.importorskip("pyFAI")
    path = poni(tmp_path / "run.poni", {"orientation": 3}, "Eiger1M")
    good = pyfai.load(str(path)).detector.mask == 0
    bins = partition(qmap(from_poni(path), backend="numpy"), (2, 2), mask=good)
    assert not np.any(bins.mask & ~good)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shape", (0, 5)),
        ("pixel_size", (75e-6,)),
        ("distance", -1.0),
        ("normal", (np.nan, 1.0)),
        ("wavelength", 0.0),
        ("rotations", (0.1, 0.2)),
    ],
)
def test_impossible_detectors_are_refused_by_name(field, value):
    given = {"shape": (2, 2), "pixel_size": (1e-4, 1e-4), "distance": 1.0, "normal": (0, 0), "wavelength": 1.0}
    with pytest.raises(bayesfit.SettingsError, match=f"{field}: got"):
        Detector(**given | {field: value})


@pytest.mark.parametrize("incidence", [0, -1, 91, np.nan])
def test_impossible_incidence_is_refused(incidence):
    with pytest.raises(bayesfit.SettingsError, match="incidence"):
        qmap(FLAT, incidence=incidence)


@BOTH
def test_modules_stand_one_below_the_other(backend):
    other = Detector((20, 60), (75e-6, 100e-6), 0.1, (-30.0, 33.5), wavelength=1.1, rotations=(0.1, 0.0, 0.0))
    found = qmap([FLAT, other], backend=backend)
    for name in ("q", "phi", "two_theta"):
        whole = bayesfit.ensure_numpy(getattr(found, name))
        assert whole.shape == (60, 60)
        for part, module in ((whole[:40], FLAT), (whole[40:], other)):
            np.testing.assert_allclose(part, getattr(qmap(module, backend=backend), name), rtol=1e-14)
    bins = partition(found, (3, 1))
    assert bins.mask.shape == (60, 60)


def test_modules_that_do_not_fit_are_refused():
    narrow = Detector((20, 30), (75e-6, 100e-6), 0.1, (0, 0), wavelength=1.1)
    with pytest.raises(bayesfit.SettingsError, match=r"detector: modules of \[30, 60\] columns"):
        qmap([FLAT, narrow])
    for wrong in ([], "detector"):
        with pytest.raises(bayesfit.SettingsError, match="detector: got"):
            qmap(wrong)


def test_a_place_is_what_it_says():
    """Beam centre, distance and tilts, there and back."""
    moved = FLAT.placed(TILTED.place)
    np.testing.assert_allclose(moved.normal, TILTED.normal, rtol=1e-12)
    assert FLAT.placed(FLAT.place).normal == pytest.approx(FLAT.normal)


@BOTH
def test_errors_of_q_are_those_of_many_detectors(backend):
    """Against the spread of q over detectors drawn from the covariance."""
    draw = np.random.default_rng(1)
    root = np.diag([0.3, 0.2, 2e-4, 1e-3, 2e-3]) @ (np.eye(5) + 0.3 * draw.standard_normal((5, 5)))
    known = TILTED.placed(TILTED.place, root @ root.T)
    places = np.array(TILTED.place) + draw.standard_normal((3000, 5)) @ root.T
    maps = np.array([qmap(TILTED.placed(place), backend="numpy").q for place in places])
    found = qmap(known, backend=backend)
    np.testing.assert_allclose(found.q_err, maps.std(axis=0), rtol=0.06)
    bins = partition(found, (2, 4)).dynamic
    drawn = np.array([bins.mean(each) for each in maps])
    np.testing.assert_allclose(bins.q_err / bins.centers[0], drawn.std(axis=0) / drawn.mean(axis=0), rtol=0.06)
    assert partition(qmap(TILTED, backend=backend), (2, 4)).dynamic.q_err is None
    assert not np.any(qmap(TILTED, backend=backend).q_err)


def test_impossible_covariances_are_refused():
    for wrong in (np.eye(4), -np.eye(5), np.arange(25.0).reshape(5, 5)):
        with pytest.raises(bayesfit.SettingsError, match="covariance"):
            TILTED.placed(TILTED.place, wrong)
