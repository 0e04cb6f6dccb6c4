"""The bins that pixels make, and the files of APS 8-ID that hold them."""

from pathlib import Path

import h5py
import numpy as np
import pytest

import bayesfit
from bayesfit.compute.errors import BayesfitWarning
from bayesfit.geometry import Detector, partition, qmap, read_partition, save_partition

SHIPPED = Path(__file__).parents[1] / "data" / "aps_8idi_sim.hdf"
DETECTOR = Detector((80, 100), (75e-6, 75e-6), 5.0, (35.2, 52.8), wavelength=1.24)


@pytest.fixture(scope="module", params=["numpy", "jax"])
def looked(request):
    return qmap(DETECTOR, backend=request.param)


@pytest.fixture
def mask():
    good = np.ones(DETECTOR.shape, bool)
    good[30:40] = False
    good[:, 70] = False
    return good


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_every_good_pixel_is_in_one_bin_of_each_kind(looked, mask, scale):
    found = partition(looked, (3, 4), (9, 8), mask=mask, scale=scale)
    assert np.array_equal(found.mask, mask)
    for bins in (found.static, found.dynamic):
        assert np.array_equal(bins.roi_map > 0, mask)
        assert np.array_equal(np.unique(bins.roi_map[mask]), np.arange(1, bins.count + 1))
        assert bins.pixels.sum() == mask.sum()
    nested = [np.unique(found.dynamic.roi_map[found.static.roi_map == n]) for n in range(1, found.static.count + 1)]
    assert all(numbers.size == 1 for numbers in nested)


def test_bins_are_where_they_say(looked, mask):
    found = partition(looked, (4, 6), mask=mask, scale="log", q_range=(1e-3, 3e-3), phi_start=10.0)
    edges = np.geomspace(1e-3, 3e-3, 5)
    looked_q, looked_phi = map(bayesfit.ensure_numpy, (looked.q, looked.phi))
    np.testing.assert_allclose(found.dynamic.q, np.sqrt(edges[1:] * edges[:-1]))
    for number, (q, phi) in enumerate(zip(*found.dynamic.centers, strict=True), start=1):
        inside = found.dynamic.roi_map == number
        ring = np.searchsorted(edges, q) - 1
        assert np.all((looked_q[inside] >= edges[ring]) & (looked_q[inside] <= edges[ring + 1]))
        assert np.all(np.abs((looked_phi[inside] - phi + 180) % 360 - 180) <= 30 + 1e-9)
    expected = mask & (looked_q >= 1e-3) & (looked_q <= 3e-3)
    assert np.array_equal(found.mask, expected)


def test_bins_without_pixels_have_no_number(looked):
    half = np.zeros(DETECTOR.shape, bool)
    half[40:] = True  # below the beam: phi from 0 to 180 degree
    found = partition(looked, (2, 4), mask=half)
    assert found.dynamic.count == 4
    assert found.dynamic.index_mapping.tolist() == [2, 3, 6, 7]
    assert found.dynamic.centers[1].tolist() == [45, 135, 45, 135]


def test_jax_gives_the_same_bins(looked, mask):
    own = partition(qmap(DETECTOR, backend="jax"), (3, 4), mask=mask)
    assert np.mean(own.dynamic.roi_map == partition(looked, (3, 4), mask=mask).dynamic.roi_map) > 0.999


def test_files_are_read_back_as_they_were(looked, mask, tmp_path):
    found = partition(looked, (3, 4), (9, 8), mask=mask, scale="log")
    path = save_partition(found, tmp_path / "qmap.hdf", DETECTOR)
    again = read_partition(path)
    assert np.array_equal(again.mask, found.mask)
    for own, other in ((again.static, found.static), (again.dynamic, found.dynamic)):
        for name in ("roi_map", "q", "phi", "index_mapping"):
            assert np.array_equal(getattr(own, name), getattr(other, name))
    with h5py.File(path) as file:
        assert file["qmap/beam_center_x"][()] == 52.8
        assert file["qmap/energy"][()] == pytest.approx(12.39842 / 1.24)
        assert file["qmap/dynamic_num_pts"][()].tolist() == [3, 4]
        assert [name.decode() for name in file["qmap/map_names"]] == ["q", "phi"]


def test_results_hold_partitions_too(looked, tmp_path):
    """In another group; not all do."""
    found = partition(looked, (3, 4))
    path = save_partition(found, tmp_path / "qmap.hdf")
    with h5py.File(path, "r+") as file:
        file.move("qmap", "xpcs/qmap")
    assert np.array_equal(read_partition(path).dynamic.roi_map, found.dynamic.roi_map)
    with pytest.raises(bayesfit.InputError, match="holds no q-map"):
        read_partition(SHIPPED)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dynamic": (0, 4)}, "dynamic: got"),
        ({"dynamic": (3, 4), "static": (7, 4)}, "static: .* no multiples"),
        ({"dynamic": (3, 4), "scale": "cubic"}, "scale: got"),
        ({"dynamic": (3, 4), "q_range": (2e-3, 1e-3)}, "q_range: got"),
        ({"dynamic": (3, 4), "q_range": (0, 1e-3), "scale": "log"}, "q_range: got"),
        ({"dynamic": (3, 4), "mask": np.ones((2, 2))}, "mask: shape"),
        ({"dynamic": (3, 4), "mask": np.zeros(DETECTOR.shape)}, "mask: it leaves no pixel"),
        ({"dynamic": (3, 4), "q_range": (5.0, 6.0)}, "mask: no good pixel"),
    ],
)
def test_impossible_partitions_are_refused(looked, given, words):
    with pytest.raises(bayesfit.BayesfitError, match=words):
        partition(looked, **given)


def changed(path, name, value):
    with h5py.File(path, "r+") as file:
        del file[f"qmap/{name}"]
        if value is not None:
            file[f"qmap/{name}"] = value


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("dynamic_roi_map", None, "holds no q-map"),
        ("mask", np.ones((3, 3)), "blemish: shape"),
        ("blemish", np.ones((3, 3)), "blemish: shape"),
        ("static_roi_map", np.ones((3, 3)), "static_roi_map: shape"),
        ("static_roi_map", np.ones(DETECTOR.shape, int), "static_roi_map: bin 2: has no pixels. Make the q-map anew"),
        ("static_roi_map", np.full(DETECTOR.shape, 13), "static_roi_map: holds 13. Expected 0 to 12"),
        ("dynamic_roi_map", np.full(DETECTOR.shape, -1), "dynamic_roi_map: holds -1. Expected 0 to 12"),
        ("dynamic_index_mapping", np.arange(12) + 5, "dynamic_index_mapping: names place 16 of 3 x 4"),
        ("dynamic_v_list_dim0", np.zeros((2, 2)), "dynamic_v_list_dim0: expected one axis"),
    ],
)
def test_files_that_contradict_themselves_are_refused(looked, tmp_path, name, value, words):
    path = save_partition(partition(looked, (3, 4)), tmp_path / "qmap.hdf")
    changed(path, name, value)
    with pytest.raises(bayesfit.InputError, match=words):
        read_partition(path)


def same(own, other):
    return all(np.array_equal(getattr(own, name), getattr(other, name)) for name in ("roi_map", "index_mapping"))


@pytest.mark.parametrize("kind", [np.uint8, bool])
def test_blemishes_are_taken_out(looked, mask, tmp_path, kind):
    found = partition(looked, (3, 4), mask=mask)
    path = save_partition(found, tmp_path / "qmap.hdf")
    good = np.ones(DETECTOR.shape, bool)
    good[50, 20:30] = False
    changed(path, "blemish", good.astype(kind))
    changed(path, "mask", mask.astype(kind))
    again = read_partition(path)
    assert np.array_equal(again.mask, found.mask & good)
    for own, other in ((again.static, found.static), (again.dynamic, found.dynamic)):
        assert np.array_equal(own.roi_map, np.where(good, other.roi_map, 0))
    changed(path, "blemish", None)
    assert same(read_partition(path).dynamic, found.dynamic)


def test_a_bin_of_blemishes_is_named(looked, tmp_path):
    found = partition(looked, (3, 4))
    path = save_partition(found, tmp_path / "qmap.hdf")
    changed(path, "blemish", (found.dynamic.roi_map != 5).astype(np.uint8))
    with pytest.raises(bayesfit.InputError, match=r"qmap\.hdf: .*roi_map: bin 5: all its pixels have a blemish of 0"):
        read_partition(path)


def renamed(path, names, units, factors=(1.0, 1.0)):
    """The same bins, whose lists are called otherwise and in other units, and in that order."""
    changed(path, "map_names", names)
    changed(path, "map_units", units)
    with h5py.File(path, "r+") as file:
        for prefix in ("qmap/static_", "qmap/dynamic_"):
            lists = [file[f"{prefix}v_list_dim{axis}"][()] * factors[axis] for axis in range(2)]
            mapping = file[f"{prefix}index_mapping"][()]
            if names[0] == "phi":
                place, other = np.divmod(mapping, lists[1].size)
                mapping, lists = other * lists[0].size + place, lists[::-1]
            for name, value in zip(("v_list_dim0", "v_list_dim1", "index_mapping"), (*lists, mapping), strict=True):
                del file[prefix + name]
                file[prefix + name] = value


def test_an_unknown_unit_of_q_is_refused(looked, tmp_path):
    path = save_partition(partition(looked, (3, 4)), tmp_path / "qmap.hdf")
    renamed(path, ["q", "phi"], ["furlong^-1", "deg"])
    with pytest.raises(bayesfit.InputError, match=r"map_units: the unit of q, 'furlong\^-1', is not known"):
        read_partition(path)


@pytest.mark.parametrize(
    ("names", "units", "factors"),
    [
        (["q", "phi"], ["1/nm", "deg"], (10.0, 1.0)),
        (["Q", "phi"], ["nm^-1", "rad"], (10.0, np.pi / 180)),
        (["phi", "q"], ["deg", "1/A"], (1.0, 1.0)),
        (["phi", "q"], ["rad", "1/nm"], (10.0, np.pi / 180)),
    ],
)
def test_maps_are_read_by_their_names_and_units(looked, mask, tmp_path, names, units, factors):
    found = partition(looked, (3, 4), (9, 8), mask=mask)
    path = save_partition(found, tmp_path / "qmap.hdf")
    renamed(path, names, units, factors)
    again = read_partition(path)
    for own, other in ((again.static, found.static), (again.dynamic, found.dynamic)):
        assert same(own, other)
        np.testing.assert_allclose(own.centers, other.centers, rtol=1e-14)
    rewritten = read_partition(save_partition(again, tmp_path / "again.hdf"))
    np.testing.assert_allclose(rewritten.dynamic.centers, found.dynamic.centers, rtol=1e-14)


@pytest.mark.parametrize("names", [["x", "y"], ["phi", "x"], ["x", "phi"]])
def test_maps_without_q_can_be_correlated(looked, tmp_path, names):
    path = save_partition(partition(looked, (3, 4)), tmp_path / "qmap.hdf")
    known = np.sort(read_partition(path).dynamic.centers[1])
    renamed(path, names, ["deg" if name == "phi" else "pixel" for name in names])
    with pytest.warns(BayesfitWarning, match="map_names: the map is in .*: q is unknown"):
        found = read_partition(path)
    q, phi = found.dynamic.centers
    assert np.all(np.isnan(q))
    assert np.all(np.isnan(phi)) if "phi" not in names else np.array_equal(np.sort(phi), known)
    frames = np.random.default_rng(0).poisson(0.2, (40, *DETECTOR.shape))
    data = bayesfit.correlate(frames, found, frame_time=1e-3)
    assert np.all(np.isnan(data.q))
    assert np.all(np.isfinite(data.g2))


def test_a_static_bin_in_two_dynamic_ones_is_refused(looked, tmp_path):
    path = save_partition(partition(looked, (3, 4)), tmp_path / "qmap.hdf")
    turned = partition(looked, (3, 4), phi_start=-170.0).dynamic.roi_map
    changed(path, "dynamic_roi_map", turned)
    with pytest.raises(bayesfit.InputError, match="static_roi_map: bin 1: lies in two dynamic bins"):
        read_partition(path)
    with pytest.raises(bayesfit.InputError, match="no such file"):
        read_partition(tmp_path / "absent.hdf")


def test_pixels_that_are_not_square_are_not_written(looked, tmp_path):
    oblong = Detector((80, 100), (75e-6, 50e-6), 5.0, (35.2, 52.8), wavelength=1.24)
    with pytest.raises(bayesfit.SettingsError, match="pixel_size"):
        save_partition(partition(looked, (3, 4)), tmp_path / "qmap.hdf", oblong)


def test_errors_of_q_stay_with_their_bins(tmp_path):
    known = DETECTOR.placed(DETECTOR.place, np.diag([1e-3, 1e-3, 1e-2, 1e-6, 1e-6]) ** 2)
    found = partition(qmap(known, backend="numpy"), (3, 4))
    again = read_partition(save_partition(found, tmp_path / "qmap.hdf", known))
    assert np.array_equal(again.dynamic.q_err, found.dynamic.q_err)
    frames = np.random.default_rng(0).poisson(0.2, (40, *DETECTOR.shape))
    data = bayesfit.correlate(frames, again, frame_time=1e-3)
    assert np.array_equal(data.q_err, found.dynamic.q_err)
    np.testing.assert_allclose(data.q_err / data.q, 2e-3, rtol=0.02)  # 1 cm in 5 m
