"""Files of APS 8-ID, both layouts, as the beamline writes them and as they should not be."""

import h5py
import numpy as np
import pytest
from healthy_files import DELAYS, ERR, FRAME_TIME, G2, LAGS, MAPPING, QMAP, current, curves_of, older, write_hdf5

import bayesfit


@pytest.fixture
def read(tmp_path):
    """Write contents to a file and read it."""

    def write_and_read(contents):
        return bayesfit.read(write_hdf5(tmp_path / "result.hdf", contents))

    return write_and_read


@pytest.fixture
def refusal(read, tmp_path):
    """The one line with which such a file is refused, after its path."""

    def refused(contents):
        with pytest.raises(bayesfit.InputError) as caught:
            read(contents)
        line = str(caught.value)
        assert "\n" not in line
        assert line.startswith(f"{tmp_path / 'result.hdf'}: ")
        return line.removeprefix(f"{tmp_path / 'result.hdf'}: ")

    return refused


def test_current_layout(read):
    data = read(current())
    assert (data.attrs["pipeline"], data.attrs["layout"], data.attrs["notes"]) == (
        "aps_8idi",
        "APS 8-ID, current layout",
        "",
    )
    np.testing.assert_allclose(data.tau, LAGS * 1e-3 * 2 * 3, rtol=1e-14)
    np.testing.assert_array_equal(data.g2, curves_of(4).T)
    np.testing.assert_allclose(data.g2_err, 0.01, rtol=1e-6)
    assert data.attrs["contrast_prior"] == "TruncatedNormal(0.15, 0.2, low=0)"
    assert bayesfit.get_pipeline("aps_8idi").model in bayesfit.list_models()


def test_q_and_phi_are_looked_up_where_bins_are_missing(read):
    data = read(current())
    q, phi = np.repeat([0.01, 0.02, 0.03], 2), np.tile([0.0, 90.0], 3)
    np.testing.assert_array_equal(data.q, q[MAPPING])
    np.testing.assert_array_equal(data.phi, phi[MAPPING])
    np.testing.assert_array_equal(data.q, [0.01, 0.02, 0.02, 0.03])
    np.testing.assert_array_equal(data.phi, [0.0, 0.0, 90.0, 90.0])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("kind", ["i8", "f4", ">f8"])
def test_scalars_of_any_shape(read, shape, kind):
    one = {name: np.full(shape, 2, kind) for name in (FRAME_TIME, "xpcs/multitau/config/stride_frame")}
    np.testing.assert_array_equal(read(current(**one)).tau, LAGS * 2 * 2 * 3)


def test_stride_and_average_are_one_where_they_are_missing(read):
    config = "xpcs/multitau/config/"
    data = read(current(**{config + "stride_frame": None, config + "avg_frame": None}))
    np.testing.assert_allclose(data.tau, LAGS * 1e-3)


@pytest.mark.parametrize("shape", [(8,), (1, 8), (8, 1)])
def test_delays_of_any_shape(read, shape):
    np.testing.assert_allclose(read(current(**{DELAYS: LAGS.reshape(shape)})).tau, LAGS * 6e-3)


@pytest.mark.parametrize(
    ("units", "factor"),
    [
        ("1/nm", 0.1),
        ("nm^-1", 0.1),
        ("inverse nanometers", 0.1),
        ("1/m", 1e-10),
        ("1/Angstrom", 1.0),
        ("A^-1", 1.0),
        ("Å^-1", 1.0),
        ("", 1.0),
    ],
)
def test_q_in_other_units(read, units, factor):
    data = read(current(**{QMAP + "map_units": np.array([units, "degree"], h5py.string_dtype())}))
    np.testing.assert_allclose(data.q, np.array([0.01, 0.02, 0.02, 0.03]) * factor, rtol=1e-14)


def test_units_that_are_not_utf8_do_no_harm(read):
    data = read(current(**{QMAP + "map_units": np.array([b"1/\xc5", b"\xb0"])}))
    np.testing.assert_array_equal(data.q, [0.01, 0.02, 0.02, 0.03])


def test_map_in_x_and_y_has_no_q(read):
    data = read(current(**{QMAP + "map_names": np.array(["x", "y"], h5py.string_dtype())}))
    assert np.isnan(data.q).all()
    assert np.isnan(data.phi).all()
    assert data.attrs["notes"] == "the map is in x, y, not in q and phi: q and phi are unknown"


def test_map_in_phi_and_q(read):
    data = read(
        current(
            **{
                QMAP + "map_names": np.array([b"phi", b"q"]),
                QMAP + "map_units": np.array([b"degree", b"1/nm"]),
                QMAP + "dynamic_v_list_dim0": np.array([0.0, 90.0, 180.0]),
                QMAP + "dynamic_v_list_dim1": np.array([0.1, 0.2]),
            }
        )
    )
    np.testing.assert_allclose(data.q, [0.01, 0.01, 0.02, 0.02])
    np.testing.assert_array_equal(data.phi, [0.0, 90.0, 90.0, 180.0])


def test_without_a_map_q_is_unknown_and_said(read):
    data = read({name: value for name, value in current().items() if not name.startswith(QMAP)})
    assert np.isnan(data.q).all()
    assert "no q map" in data.attrs["notes"]


def test_without_a_mapping_the_bins_are_in_order(read, refusal):
    contents = current(**{QMAP + "dynamic_index_mapping": None, QMAP + "dynamic_v_list_dim1": None})
    assert "4 columns do not match 3 bins" in refusal(contents)
    data = read({**contents, G2: curves_of(3), ERR: np.full((8, 3), 0.01)})
    np.testing.assert_array_equal(data.q, [0.01, 0.02, 0.03])
    assert np.isnan(data.phi).all()


def test_points_without_photon_pairs_are_masked(read):
    g2, g2_err = curves_of(4), np.full((8, 4), 0.01)
    g2[:3, 2] = g2_err[:3, 2] = 0
    data = read(current(**{G2: g2, ERR: g2_err}))
    assert data["masked_zero_pairs"].values.tolist() == [0, 0, 3, 0]
    assert data.valid.sum("tau").values.tolist() == [8, 8, 5, 8]
    clean = read(current())
    np.testing.assert_array_equal(data.g2.isel(q_bin=[0, 1, 3]), clean.g2.isel(q_bin=[0, 1, 3]))


def test_older_layout(read):
    data = read(older())
    assert (data.attrs["pipeline"], data.attrs["layout"], data.attrs["notes"]) == (
        "aps_8idi",
        "APS 8-ID, older layout",
        "photon pairs cannot be counted: the file has no xpcs/dqmap",
    )
    np.testing.assert_array_equal(data.tau, LAGS * 0.5)
    np.testing.assert_array_equal(data.g2, curves_of(3).T)
    np.testing.assert_array_equal(data.q, [0.01, 0.02, 0.03])
    np.testing.assert_array_equal(data.phi, [0.0, 10.0, 20.0])


def test_older_layout_without_lists(read):
    data = read(older(**{"xpcs/dqlist": None, "xpcs/dphilist": np.array([1.0])}))
    assert np.isnan(data.q).all()
    assert np.isnan(data.phi).all()
    assert "no xpcs/dqlist" in data.attrs["notes"]
    assert "xpcs/dphilist has 1 entries for 3 columns" in data.attrs["notes"]


def test_a_file_with_both_layouts_is_read_as_the_current_one(read):
    assert read({**older(), **current()}).attrs["layout"] == "APS 8-ID, current layout"


STATIC = np.array([[1, 1, 2, 2], [3, 3, 0, 4]])
ROI = np.array([[1, 1, 1, 2], [3, 4, 0, 4]])
PHOTONS = np.array([[[0.1, 0.3, 0.5, 0.2], [0.4, 0.2, 9.0, 0.6]]])


def counted(**changes):
    """A file of the current layout that says how many photons it is of."""
    numbers = {
        "xpcs/multitau/config/stride_frame": np.array([1]),
        "xpcs/multitau/config/avg_frame": np.array(1),
        QMAP + "dynamic_roi_map": ROI,
        QMAP + "static_roi_map": STATIC,
        "xpcs/temporal_mean/scattering_2d": PHOTONS,
        "xpcs/spatial_mean/intensity_vs_time": np.ones((2, 5000)),
        "xpcs/average/file_list": np.array([b"a.hdf", b"b.hdf"]),
    }
    return current() | numbers | {name.replace("__", "/"): value for name, value in changes.items()}


def test_photons_pixels_and_frames_are_read(read):
    data = read(counted())
    np.testing.assert_array_equal(data.pixels, [3, 1, 1, 2])
    squares = [2 * 0.2**2 + 0.5**2, 0.2**2, 0.4**2, 0.2**2 + 0.6**2]  # pixels of a static bin share its mean
    np.testing.assert_allclose(data.counts, np.sqrt(squares / np.array([3, 1, 1, 2])))
    assert (data.attrs["frames"], data.attrs["repeats_averaged"], data.attrs["frame_time"]) == (5000, 2, 1e-3)
    assert "0.2 to 0.4472" in data.attrs["understood"]
    assert "5000 frames, average of 2 series: pairs can be counted" in data.attrs["understood"]


def test_a_file_in_which_no_pair_was_seen_is_read(read):
    g2 = current()["xpcs/multitau/normalized_g2"]
    data = read(counted(xpcs__multitau__normalized_g2=0 * g2, xpcs__multitau__normalized_g2_err=0 * g2))
    assert data.sizes["q_bin"] == 4
    assert not data.valid.any()


def test_a_map_that_counts_bins_without_pixels(read):
    flat = np.array([[1, 1, 1, 3], [4, 6, 0, 6]])
    np.testing.assert_array_equal(read(counted(**{QMAP + "dynamic_roi_map": flat})).pixels, [3, 1, 1, 2])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({QMAP + "dynamic_roi_map": None}, "the file has no xpcs/qmap/dynamic_roi_map"),
        ({"xpcs/temporal_mean/scattering_2d": None}, "the file has no xpcs/temporal_mean/scattering_2d"),
        ({"xpcs/spatial_mean/intensity_vs_time": None}, "the file has no xpcs/spatial_mean/intensity_vs_time"),
        ({QMAP + "dynamic_roi_map": ROI[:1]}, "has shape (1, 4)"),
        ({QMAP + "dynamic_roi_map": ROI + 1}, "are not those of 4 bins"),
        ({"xpcs/temporal_mean/scattering_2d": PHOTONS * 0}, "holds no photons in any bin"),
    ],
)
def test_what_counting_lacks_is_said(read, changes, words):
    data = read(counted(**changes))
    assert "photon pairs cannot be counted" in data.attrs["notes"]
    assert words in data.attrs["notes"]
    assert "counts" not in data


def test_a_dark_bin_takes_the_numbers_of_no_other(read):
    data = read(counted(**{"xpcs/temporal_mean/scattering_2d": PHOTONS * (ROI != 3)}))
    assert "holds no photons in bin 2" in data.attrs["notes"]
    lit = [0, 1, 3]
    np.testing.assert_array_equal(data.counts[lit], read(counted()).counts[lit])
    assert data.counts[2] < 1e-9


def test_photons_of_the_older_layout(read):
    numbers = {
        "xpcs/dqmap": np.array([[1, 1], [2, 3]]),
        "exchange/pixelSum": np.array([[0.1, 0.3], [0.2, 0.4]]),
        "exchange/frameSum": np.ones((2, 300)),
    }
    data = read(older() | numbers)
    np.testing.assert_array_equal(data.pixels, [2, 1, 1])
    np.testing.assert_allclose(data.counts, [0.2, 0.2, 0.4])
    assert (data.attrs["frames"], data.attrs["frame_time"]) == (300, 0.5)


WRONG = {
    "no frame time": ({FRAME_TIME: None}, FRAME_TIME, "missing"),
    "frame time zero": ({FRAME_TIME: 0.0}, FRAME_TIME, "above 0"),
    "frame time NaN": ({FRAME_TIME: np.nan}, FRAME_TIME, "one number"),
    "several frame times": ({FRAME_TIME: [1.0, 2.0]}, FRAME_TIME, "one number"),
    "frame time a string": ({FRAME_TIME: "fast"}, FRAME_TIME, "real numbers"),
    "stride negative": ({"xpcs/multitau/config/stride_frame": -1}, "xpcs/multitau/config/stride_frame", "above 0"),
    "stride a group": (
        {"xpcs/multitau/config/stride_frame": None, "xpcs/multitau/config/stride_frame/x": 1},
        "xpcs/multitau/config/stride_frame",
        "is a group",
    ),
    "g2 of strings": ({G2: np.full((8, 4), b"1.0")}, G2, "real numbers"),
    "g2 complex": ({G2: curves_of(4) + 1j}, G2, "complex64"),
    "g2 of truth values": ({G2: curves_of(4) > 1}, G2, "real numbers"),
    "g2 a group": ({G2: None, f"{G2}/x": 1}, G2, "is a group"),
    "g2 transposed": ({G2: curves_of(4).T, ERR: np.full((4, 8), 0.01)}, G2, "it is transposed"),
    "g2 in three axes": ({G2: curves_of(4)[None]}, G2, "axes (tau, bin), got shape (1, 8, 4)"),
    "g2 in one axis": ({G2: curves_of(4)[:, 0]}, G2, "axes (tau, bin), got shape (8,)"),
    "g2 without bins": ({G2: np.zeros((8, 0))}, G2, "is empty, shape (8, 0)"),
    "g2 without a shape": ({G2: h5py.Empty("f4")}, G2, "is empty"),
    "g2 cut": ({G2: curves_of(4)[:7]}, G2, "shape (7, 4) does not match (tau, bin) with 8 delays"),
    "errors transposed": ({ERR: np.full((4, 8), 0.01)}, ERR, "shape (4, 8) differs from (8, 4)"),
    "errors of another shape": ({ERR: np.full((8, 3), 0.01)}, ERR, "shape (8, 3) differs from (8, 4)"),
    "errors of strings": ({ERR: np.full((8, 4), b"1.0")}, ERR, "real numbers"),
    "everything NaN": ({G2: np.full((8, 4), np.nan)}, "g2", "NaN"),
    "errors all zero": ({ERR: np.zeros((8, 4))}, "g2_err", "above zero"),
    "delays in two axes": ({DELAYS: np.ones((4, 2))}, DELAYS, "one axis"),
    "delays negative": ({DELAYS: -LAGS}, "tau", "index 0"),
    "delays of strings": ({DELAYS: np.full(8, b"1")}, DELAYS, "real numbers"),
    "mapping too short": ({QMAP + "dynamic_index_mapping": [0, 1]}, QMAP + "dynamic_index_mapping", "2 entries for 4"),
    "mapping outside": (
        {QMAP + "dynamic_index_mapping": [0, 1, 6, 2]},
        QMAP + "dynamic_index_mapping",
        "bin 2: entry 6 is none of the map's indices 0 to 5",
    ),
    "mapping NaN": ({QMAP + "dynamic_index_mapping": [0, 1, 2, np.nan]}, QMAP + "dynamic_index_mapping", "bin 3"),
    "negative q": ({QMAP + "dynamic_v_list_dim0": [-0.01, 0.02, 0.03]}, "q", "bin 0"),
}


@pytest.mark.parametrize(("changes", "field", "part"), WRONG.values(), ids=WRONG)
def test_a_wrong_dataset_is_named(refusal, changes, field, part):
    line = refusal(current(**changes))
    assert line.startswith(f"{field}: "), line
    assert part in line


@pytest.mark.parametrize("name", [G2, ERR, DELAYS])
def test_a_missing_dataset_is_named(refusal, name):
    assert f"aps_8idi: no {name}, and no exchange/norm-0-g2" in refusal(current(**{name: None}))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"measurement/instrument/detector/exposure_period": None}, "measurement/instrument/detector/exposure_period"),
        ({"xpcs/dqlist": np.array([0.1, 0.2])}, "xpcs/dqlist"),
        ({"exchange/norm-0-g2": curves_of(3).T}, "exchange/norm-0-g2"),
        ({"exchange/norm-0-stderr": np.full((3, 8), 0.1)}, "exchange/norm-0-stderr"),
    ],
)
def test_a_wrong_dataset_of_the_older_layout_is_named(refusal, changes, field):
    assert refusal(older(**changes)).startswith(f"{field}: ")


@pytest.mark.parametrize("name", [G2, ERR, DELAYS, FRAME_TIME, QMAP + "dynamic_v_list_dim0", QMAP + "map_units"])
def test_a_declared_array_that_does_not_fit_in_memory_is_refused(tmp_path, name):
    path = tmp_path / "huge.hdf"
    shape = (8, 10**11) if name in (G2, ERR) else (10**12,)
    with h5py.File(path, "w") as file:
        for key, value in current().items():
            if key != name:
                file[key] = value
        kind = h5py.string_dtype() if name.endswith("units") else "f4"
        file.create_dataset(name, shape, kind, chunks=(8, 1024) if name in (G2, ERR) else (1024,), compression="gzip")
    assert path.stat().st_size < 200_000
    with pytest.raises(bayesfit.InputError, match=f"{name}: shape .* would not fit in memory"):
        bayesfit.read(path)


def test_the_simulated_file_of_the_project(request):
    path = request.config.rootpath / "data" / "aps_8idi_sim.hdf"
    if not path.is_file():
        pytest.skip(f"no simulated data at {path}")
    data = bayesfit.read(path)
    assert data.attrs["pipeline"] == "aps_8idi"
    assert (np.diff(data.q) > 0).all()
    assert data["masked_zero_pairs"].sum() > 0
