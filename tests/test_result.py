"""Saving and loading."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import bayesfit
from bayesfit.compute.single_precision import in_single
from bayesfit.result.files import SEALED
from bayesfit.result.tree import in_all_bins

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    return bayesfit.save(fitted, tmp_path_factory.mktemp("saved") / "result.nc")


def test_round_trip(saved, fitted):
    loaded = bayesfit.load(saved)
    assert set(loaded.children) == set(fitted.children)
    for name, node in fitted.children.items():
        for variable, array in node.data_vars.items():
            if loaded[name][variable].dtype == np.float32:
                np.testing.assert_array_equal(loaded[name][variable], array.astype(np.float32))
            else:
                np.testing.assert_array_equal(loaded[name][variable], array)
            assert loaded[name][variable].attrs == array.attrs
    np.testing.assert_array_equal(loaded["posterior"].q, fitted["posterior"].q)


def test_a_loaded_result_can_be_saved_again(saved, tmp_path):
    again = bayesfit.save(bayesfit.load(saved), tmp_path / "again.nc")
    assert bayesfit.load(again).attrs == bayesfit.load(saved).attrs


def test_a_result_saved_under_former_names_has_those_of_today(fitted, tmp_path):
    former = fitted.copy(deep=True)
    former["sample_stats"] = former["sample_stats"].to_dataset().rename(independence_accepted="jumped")
    diagnostics = {"independence_accepted": "jumped", "speckle_log_ratio": "speckle_evidence"}
    former["diagnostics"] = former["diagnostics"].to_dataset().rename(diagnostics)
    across = xr.Dataset({"link": ("linked", ["shared"])}, {"linked": ["rate"]})
    former["across"] = across
    loaded = bayesfit.load(bayesfit.save(former, tmp_path / "former.nc"))
    for name in ("sample_stats", "diagnostics"):
        assert set(loaded[name].data_vars) == set(fitted[name].data_vars)
    assert loaded["across"].dataset.equals(across.rename(link="pooling", linked="pooled"))
    bayesfit.save(loaded, tmp_path / "again.nc")


def out_of_range(result):
    """The result with a variable of each kind that single precision does not hold."""
    changed = result.copy(deep=True)
    posterior = changed["posterior"].to_dataset()
    large, small = posterior.rate.copy(deep=True), posterior.rate.copy(deep=True)
    large[0, 0, 0], small[0, 0, 0], small[0, 1, 0] = 3e62, 1e-40, 0.0
    changed["posterior"] = posterior.assign(large=large, small=small, empty=posterior.rate * np.nan, inf=large * np.inf)
    return changed


def test_values_beyond_single_precision_keep_their_range(fitted, tmp_path):
    changed = out_of_range(fitted)
    loaded = bayesfit.load(bayesfit.save(changed, tmp_path / "far.nc"))["posterior"]
    for name in ("large", "small"):
        assert loaded[name].dtype == np.float64
        np.testing.assert_array_equal(loaded[name], changed["posterior"][name])
    for name in ("rate", "empty", "inf"):
        assert loaded[name].dtype == np.float32
        np.testing.assert_array_equal(loaded[name], changed["posterior"][name].astype(np.float32))


def test_in_single():
    tiny, huge = np.finfo(np.float32).tiny, np.finfo(np.float32).max
    for values in ([], [0.0], [np.nan, np.inf, -np.inf], [huge, -huge, tiny, -tiny, 0.0], [True, False]):
        assert in_single(np.array(values))
    for values in ([1.0, 3.5e38], [-3.5e38], [1e-39, 1.0], [-1e-300]):
        assert not in_single(np.array(values))


@pytest.mark.parametrize("places", [[], [1, 3]])
def test_bins_that_were_not_fitted_keep_the_types_of_the_others(places):
    """NaN, 0, False and "" in the dtype of each variable, and dimensions in their order."""
    kinds = {"f4": np.nan, "f8": np.nan, "i1": 0, "i4": 0, "?": False, "O": ""}
    arrays = {name: (("draw", "q_bin"), np.ones((2, len(places))).astype(name)) for name in kinds}
    group = xr.Dataset(arrays).assign(common=("draw", np.ones(2))).assign_attrs(kept="yes")
    whole = in_all_bins(group, np.array(places, int), 5, {"i4": 7})
    assert whole.attrs == {"kept": "yes"}
    for name, nothing in kinds.items():
        assert (whole[name].dtype, whole[name].dims) == (np.dtype(name), ("draw", "q_bin"))
        expected = np.full((2, 5), 7 if name == "i4" else nothing, name)
        expected[:, places] = np.ones(()).astype(name)
        np.testing.assert_array_equal(whole[name].values, expected)
    xr.testing.assert_equal(whole.common, group.common)


def test_draws_are_small_on_disk(saved):
    assert saved.stat().st_size < 4e6


def test_any_flipped_byte_is_found_before_the_file_is_opened(saved, tmp_path, monkeypatch):
    """HDF5 may crash, or never end, on a damaged file."""
    content, path = saved.read_bytes(), tmp_path / "damaged.nc"
    monkeypatch.setattr(xr, "open_datatree", None)
    for place in [0, 1, *np.linspace(2, len(content) - SEALED - 1, 20).astype(int), len(content) - 1]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(bayesfit.ResultError, match=r"damaged\.nc: its content has changed"):
            bayesfit.load(path)


def test_damage_to_the_seal_alone_changes_nothing(saved, tmp_path):
    content, path = saved.read_bytes(), tmp_path / "damaged.nc"
    path.write_bytes(content[: -SEALED + 3] + b"?" + content[-SEALED + 4 :])
    xr.testing.assert_identical(bayesfit.load(path), bayesfit.load(saved))


def test_overwritten_bytes_are_found_in_former_files_without_a_seal(saved, tmp_path):
    """A damaged file is refused, or the damage fell on bytes that hold nothing: then everything reads as it was."""
    content, whole = bytearray(saved.read_bytes()[:-SEALED]), bayesfit.load(saved)
    refused = 0
    for place in np.linspace(len(content) * 0.1, len(content) * 0.9, 16).astype(int):
        damaged = content.copy()
        damaged[place : place + 64] = os.urandom(64)
        path = tmp_path / "damaged.nc"
        path.write_bytes(damaged)
        try:
            loaded = bayesfit.load(path)
        except bayesfit.ResultError:
            refused += 1
        else:
            xr.testing.assert_identical(loaded, whole)
    assert refused > 8


@pytest.mark.parametrize(("where", "name"), [("/", "model"), ("/posterior/rate", "units")])
def test_a_changed_attribute_is_found(saved, tmp_path, where, name):
    path = tmp_path / "changed.nc"
    path.write_bytes(saved.read_bytes())
    with h5py.File(path, "r+") as file:
        file[where].attrs[name] = "other"
    with pytest.raises(bayesfit.ResultError, match="its content has changed"):
        bayesfit.load(path)


@pytest.mark.parametrize("content", [b"", b"not netCDF", b"\x89HDF\r\n\x1a\n" + bytes(1000)])
def test_what_is_no_result_is_refused(tmp_path, content):
    path = tmp_path / "x.nc"
    path.write_bytes(content)
    with pytest.raises(bayesfit.ResultError):
        bayesfit.load(path)
    with pytest.raises(bayesfit.ResultError, match="no such file"):
        bayesfit.load(tmp_path / "absent.nc")


def test_a_failed_save_leaves_the_old_file_and_no_litter(fitted, saved, tmp_path):
    before = saved.read_bytes()
    broken = fitted.copy()
    broken["posterior"].attrs["impossible"] = object()
    with pytest.raises(bayesfit.ResultError, match="cannot be written"):
        bayesfit.save(broken, saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    with pytest.raises(bayesfit.ResultError, match="cannot be written"):
        bayesfit.save(fitted, tmp_path / "no" / "folder" / "x.nc")


@pytest.mark.parametrize(
    ("done", "heavy"),
    [
        ("bayesfit", "jax numpyro xarray numpy matplotlib"),
        ("bayesfit.cli.main", "jax numpyro xarray numpy matplotlib"),
        ("bayesfit; bayesfit.read('data/aps_8idi_sim.hdf')", "jax numba scipy.stats scipy.optimize matplotlib"),
        ("bayesfit; bayesfit.fit", "matplotlib arviz bokeh optax optimistix interpax scipy.stats scipy.optimize"),
    ],
)
def test_nothing_is_imported_before_it_is_needed(done, heavy):
    code = f"import sys, {done}; found = set({heavy.split()}) & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
