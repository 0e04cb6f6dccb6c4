"""Files of the NeXus definition NXxpcs."""

import h5py
import numpy as np
import pytest
from healthy_files import MASKS, nexus, write_hdf5

import bayesfit

FRAMES = np.array([1, 2, 4, 8, 16])
G2 = 1 + np.exp(-FRAMES[:, None] / 4) * np.array([0.1, 0.2, 0.3])
FRAME_TIME = "entry/instrument/detector/frame_time"


@pytest.fixture
def read(tmp_path):
    """Write a file with changed contents and attributes, and read it."""

    def write_and_read(attributes=(), **changes):
        return bayesfit.read(write_hdf5(tmp_path / "result.nxs", nexus(**changes), attributes))

    return write_and_read


def test_photons_pixels_and_frames_are_read(read):
    mean = np.array([[0.1, 0.3], [0.2, 0.4]])
    numbers = {
        MASKS + "dynamic_roi_map": np.array([[1, 1], [2, 3]]),
        "entry/data/frame_average": mean,
        "entry/data/frame_sum": 700 * mean,
    }
    data = read(**numbers)
    np.testing.assert_array_equal(data.pixels, [2, 1, 1])
    np.testing.assert_allclose(data.counts, [0.2, 0.2, 0.4])
    assert (data.attrs["frames"], data.attrs["notes"]) == (700, "")
    del numbers["entry/data/frame_sum"]
    assert "the file has no entry/data/frame_sum" in read(**numbers).attrs["notes"]


def test_delays_in_frames(read):
    data = read()
    note = "photon pairs cannot be counted: the file has no entry/instrument/masks/dynamic_roi_map"
    assert (data.attrs["pipeline"], data.attrs["notes"]) == ("nxxpcs", note)
    np.testing.assert_array_equal(data.tau, FRAMES * 0.25)
    np.testing.assert_array_equal(data.g2, G2.T)
    np.testing.assert_array_equal(data.q, [0.01, 0.02, 0.03])
    np.testing.assert_array_equal(data.phi, [0.0, 45.0, 90.0])
    assert data.valid.values.all()


@pytest.mark.parametrize(
    ("units", "seconds"),
    [
        ("s", 1.0),
        ("seconds", 1.0),
        (b"s", 1.0),
        ("ms", 1e-3),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ns", 1e-9),
        ("frames", 0.25),
        ("Frame", 0.25),
        ("", 0.25),
        ("NX_COUNT", 0.25),
        (np.array(["s"], h5py.string_dtype()), 1.0),
        (h5py.Empty("S1"), 0.25),
    ],
)
def test_delays_in_other_units(read, units, seconds):
    data = read([("entry/data/delay_difference", "units", units)])
    np.testing.assert_allclose(data.tau, FRAMES * seconds, rtol=1e-14)


def test_delays_in_s_need_no_frame_time(read):
    data = read([("entry/data/delay_difference", "units", "s")], **{FRAME_TIME: None})
    np.testing.assert_array_equal(data.tau, FRAMES)


@pytest.mark.parametrize(
    ("attributes", "changes", "part"),
    [
        ([], {FRAME_TIME: None}, "entry/data/delay_difference: is in frames, and there is no frame time"),
        ([("entry/data/delay_difference", "units", "hours")], {}, "delay_difference: unknown unit 'hours'"),
        ([], {FRAME_TIME: -1.0}, f"{FRAME_TIME}: expected a number above 0, got -1"),
        (
            [],
            {"entry/data/g2": G2.T},
            "entry/data/g2: shape (3, 5) does not match (tau, bin) with 5 delays: it is trans",
        ),
        ([], {"entry/data/g2_derr": np.ones((5, 2))}, "entry/data/g2_derr: shape (5, 2) differs from (5, 3)"),
        ([], {"entry/data/g2": np.full((5, 3), b"1")}, "entry/data/g2: expected real numbers"),
        ([], {MASKS + "dynamic_q_list": [0.1]}, f"{MASKS}dynamic_q_list: has 1 entries for 3 columns"),
        ([("entry/data/g2", "baseline_reference", 2)], {}, "baseline_reference: expected 0 or 1, got '2'"),
        ([("entry/data/g2", "first_point_for_fit", np.inf)], {}, "first_point_for_fit: expected 0 or 1, got 'inf'"),
        ([], {"entry/data/g2_derr": None}, "nxxpcs: no entry/data/g2_derr"),
    ],
)
def test_what_is_wrong_is_named(read, attributes, changes, part):
    with pytest.raises(bayesfit.InputError) as caught:
        read(attributes, **changes)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("holder", ["entry/data", "entry/data/g2"])
@pytest.mark.parametrize(
    ("value", "prior"), [(0, "Normal(0, 0.1)"), (1, "Normal(1, 0.1)"), ("0", "Normal(0, 0.1)"), ([0], "Normal(0, 0.1)")]
)
def test_baseline_reference(read, holder, value, prior):
    assert read([(holder, "baseline_reference", value)]).attrs["baseline_prior"] == prior


@pytest.mark.parametrize(("value", "skipped"), [(0, 1), (1, 0), (False, 1), (True, 0)])
def test_first_point_for_fit_says_whether_the_first_delay_is_used(read, value, skipped):
    data = read([("entry/data/g2", "first_point_for_fit", value)])
    assert data["masked_skipped"].values.tolist() == [skipped] * 3
    assert data.valid.sum("tau").values.tolist() == [5 - skipped] * 3


@pytest.mark.parametrize(("units", "factor"), [("1/nm", 0.1), ("1/angstrom", 1.0), ("angstrom^-1", 1.0)])
def test_q_list_in_other_units(read, units, factor):
    data = read([(MASKS + "dynamic_q_list", "units", units)])
    np.testing.assert_allclose(data.q, np.array([0.01, 0.02, 0.03]) * factor, rtol=1e-14)


def test_lists_may_be_missing(read):
    data = read(**{MASKS + "dynamic_q_list": None, MASKS + "dynamic_phi_list": None})
    assert np.isnan(data.q).all()
    assert np.isnan(data.phi).all()


def test_bins_first_where_the_storage_mode_says_so(read):
    mode = [("entry/data/g2", "storage_mode", "one_array_q_first")]
    turned = read(mode, **{"entry/data/g2": G2.T, "entry/data/g2_derr": np.full((3, 5), 0.01)})
    np.testing.assert_array_equal(turned.g2, G2.T)
    square = G2[:, [0, 1, 2, 0, 1]]
    lists = {MASKS + "dynamic_q_list": None, MASKS + "dynamic_phi_list": None}
    contents = {"entry/data/g2": square, "entry/data/g2_derr": np.full((5, 5), 0.01), **lists}
    np.testing.assert_array_equal(read(mode, **contents).g2, square)
    np.testing.assert_array_equal(read(**contents).g2, square.T)
