"""Results as other programs read them. `tests/other_readers.py` opens the same files with those programs."""

import csv
import hashlib
import re

import h5py
import jax.numpy as jnp
import numpy as np
import openpyxl
import pandas as pd
import pytest
import xarray as xr
from in_process import bayesfit as call
from numpyro import handlers

import bayesfit
from bayesfit.report.export_aps import in_frames
from bayesfit.report.viewer_fit import viewer_fit
from bayesfit.result.datasets import joined


@pytest.fixture(scope="module")
def minus_1(fitted):
    """The same result of values that are g2 - 1, of bins that are no full grid of q and phi."""
    changed = fitted.copy(deep=True)
    changed["observed_data"].dataset = changed["observed_data"].to_dataset() - 1.0
    changed["fit_curve"].dataset = fitted["fit_curve"].to_dataset().assign(mean=fitted["fit_curve"]["mean"] - 1.0)
    posterior = fitted["posterior"].to_dataset()
    lower = (posterior.baseline - 1.0).assign_attrs(posterior.baseline.attrs)
    changed["posterior"].dataset = posterior.assign(baseline=lower)
    phi = ("q_bin", [0.0, *[90.0] * 11])
    changed["diagnostics"].dataset = fitted["diagnostics"].to_dataset().assign_coords(phi=phi)
    changed.attrs["data_baseline_prior"] = "Normal(0, 0.1)"
    return changed


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    return bayesfit.save(fitted, tmp_path_factory.mktemp("saved") / "result.nc")


def test_csv_is_the_summary_with_units(fitted, tmp_path):
    path = bayesfit.export(fitted, tmp_path / "fit.csv", units={"D": "um^2/s"}, mass=0.68)
    table, summary = pd.read_csv(path), bayesfit.summary(fitted, {"D": "um^2/s"}, mass=0.68)
    assert table.columns[:5].tolist() == ["q_bin", "verdict", "reason", "q [1/angstrom]", "phi [degree]"]
    np.testing.assert_allclose(table["D_low [um^2/s]"], summary.D_low)
    np.testing.assert_allclose(table["rate_sd [1/s]"], summary.rate_sd, rtol=1e-6)
    assert {"beta", "contrast_low"} <= set(table.columns)  # of dimension 1, without a bracket
    assert table.verdict.tolist() == summary.verdict.tolist()


def test_excel_has_bins_parameters_and_where_it_comes_from(fitted, tmp_path):
    path = bayesfit.export(fitted, tmp_path / "fit.xlsx")
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["bins", "parameters", "about"]
    table, summary = pd.read_excel(path, sheet_name="bins"), bayesfit.summary(fitted)
    np.testing.assert_allclose(table["rate [1/s]"], summary.rate, rtol=1e-6)
    assert book["bins"].freeze_panes == "B2"
    about = dict(book["about"].iter_rows(min_row=2, values_only=True))
    assert fitted.attrs["model"] in about["model"]
    assert about["interval"] == "0.95"
    units = {row[0]: row[1] for row in book["parameters"].iter_rows(min_row=2, values_only=True)}
    assert units["rate"] == "1/s"


def test_text_in_a_workbook_is_no_formula(fitted, tmp_path):
    named = fitted.copy()
    named.attrs["data_notes"] = "=1+1"
    path = bayesfit.export(named, tmp_path / "fit.xlsx")
    cells = [cell for row in openpyxl.load_workbook(path)["about"].iter_rows() for cell in row if cell.value == "=1+1"]
    assert [cell.data_type for cell in cells] == ["s"]


def test_a_series_is_a_table_alone(fitted, tmp_path):
    aged = joined([fitted, fitted], np.array(["a", "b"], object))
    table = pd.read_csv(bayesfit.export(aged, tmp_path / "series.csv"))
    assert table.dataset.tolist() == ["a"] * 12 + ["b"] * 12
    with pytest.raises(bayesfit.ResultError, match="Give one of them"):
        bayesfit.export(aged, tmp_path / "series.hdf")


@pytest.mark.parametrize("ending", ["hdf", "nxs"])
def test_curves_are_read_back_as_they_were(fitted, simulated, tmp_path, ending):
    again, measured = bayesfit.read(bayesfit.export(fitted, tmp_path / f"fit.{ending}")), simulated[0]
    for name in ("g2", "g2_err", "valid", "tau", "q", "phi"):
        np.testing.assert_array_equal(again[name], measured[name])


@pytest.mark.parametrize("ending", ["hdf", "nxs"])
def test_a_baseline_of_0_is_kept_or_made_1_as_the_format_has_it(minus_1, tmp_path, ending):
    again = bayesfit.read(bayesfit.export(minus_1, tmp_path / f"fit.{ending}"))
    raised = 1.0 if ending == "hdf" else 0.0
    np.testing.assert_allclose(again.g2, minus_1["observed_data"].g2 + raised, rtol=1e-12)
    np.testing.assert_allclose(again.tau, minus_1["observed_data"].tau, rtol=1e-12)
    np.testing.assert_array_equal(again.q, minus_1["diagnostics"].q)
    np.testing.assert_array_equal(again.phi, minus_1["diagnostics"].phi)
    with h5py.File(tmp_path / f"fit.{ending}") as file:
        fit = file["xpcs/fit" if ending == "hdf" else "entry/fit"]
        expected = bayesfit.summary(minus_1).baseline + raised
        np.testing.assert_allclose(fit["parameters/baseline"], expected, rtol=1e-12)
        expected = minus_1["fit_curve"]["mean"].values.T + raised
        np.testing.assert_allclose(fit["curve/mean"], expected, rtol=1e-12)


def test_the_fit_stands_beside_the_curves(fitted, tmp_path):
    with h5py.File(bayesfit.export(fitted, tmp_path / "fit.nxs", mass=0.68)) as file:
        assert file["entry/definition"][()] == b"NXxpcs"
        fit, table = file["entry/fit"], bayesfit.summary(fitted, mass=0.68)
        assert fit.attrs["NX_class"] == "NXprocess"
        assert fit["parameters"].attrs["interval_mass"] == 0.68
        for name in ("rate", "rate_mean", "rate_sd", "rate_low", "rate_high"):
            np.testing.assert_allclose(fit["parameters"][name], table[name])
        assert fit["parameters/rate"].attrs["units"] == "1/s"
        assert [v.decode() for v in fit["verdict"]] == table.verdict.tolist()
        np.testing.assert_array_equal(fit["valid"][()].T, fitted["constant_data"].valid)
        assert fit["curve/mean"].shape == tuple(fitted["fit_curve"]["mean"].T.shape)


def test_fitted_curves_stand_as_g2_on_request(fitted, tmp_path):
    band = fitted["fit_curve"].dataset
    with h5py.File(bayesfit.export(fitted, tmp_path / "fit.hdf", curves="fitted")) as file:
        np.testing.assert_allclose(file["xpcs/multitau/normalized_g2"][()].T, band["mean"])
        half = 0.5 * (band.upper - band.lower) / 1.96
        np.testing.assert_allclose(file["xpcs/multitau/normalized_g2_err"][()].T, half, rtol=1e-4)


def formula(x, values, double):
    """pyXpcsViewer's curves."""
    if not double:
        a, b, c, d = values
        return a * np.exp(-2 * (x / b) ** c) + d
    a, b, c, d, b2, c2, f = values
    return a * (np.exp(-((x / b) ** c)) * f + np.exp(-((x / b2) ** c2)) * (1 - f)) ** 2 + d


def of_one_draw(name, values):
    """What `viewer_fit` takes of a result whose only draw has these values, and the curve that the model has there."""
    tau = np.geomspace(1e-3, 10.0, 40)
    shape = handlers.substitute(handlers.seed(bayesfit.get_model(name).program, 0), values)(jnp.asarray(tau))
    curve = values["baseline"] + values["contrast"] * np.asarray(shape, float)
    draws = xr.Dataset({key: (("chain", "draw", "q_bin"), [[[value]]]) for key, value in values.items()})
    bins = xr.Dataset({"verdict": ("q_bin", ["ok"]), "reason": ("q_bin", [""])}, {"q": ("q_bin", [0.01])})
    groups = {"posterior": draws, "diagnostics": bins, "constant_data": xr.Dataset(coords={"tau": tau})}
    tree = xr.DataTree.from_dict(groups | {"fit_curve": xr.Dataset({"mean": (("q_bin", "tau"), curve[None])})})
    tree.attrs["model"] = name
    return tree, curve


IN_MODELS = {
    "single_exponential": {"rate": 2.0},
    "stretched_exponential": {"rate": 2.0, "beta": 0.7},
    "double_exponential": {"rate": 0.5, "rate_fast": 40.0, "fraction": 0.3},
}


@pytest.mark.parametrize("name", IN_MODELS)
def test_parameters_in_the_viewers_terms_draw_the_models_curve(name):
    tree, curve = of_one_draw(name, {**IN_MODELS[name], "contrast": 0.2, "baseline": 1.01})
    fit = viewer_fit(tree)
    np.testing.assert_allclose(formula(fit["fit_x"], fit["fit_val"][0, 0], name[0] == "d"), curve, rtol=1e-6)
    assert fit["fit_val"][0, 1] == pytest.approx(0.0, abs=1e-12)


def test_fixed_values_and_what_a_model_lacks(fitted):
    held, _ = of_one_draw("stretched_exponential", {"rate": 2.0, "beta": 1.0, "contrast": 0.2, "baseline": 1.0})
    held["constant_data"].dataset = held["constant_data"].to_dataset().assign(beta=("q_bin", [1.0]))
    held["posterior"].dataset = held["posterior"].to_dataset().drop_vars("beta")
    assert viewer_fit(held)["fit_val"][0, :, 2].tolist() == [1.0, 0.0]
    lacks, _ = of_one_draw("cumulant", {"rate": 2.0, "mu2": 0.1, "mu3": 0.0, "contrast": 0.2, "baseline": 1.0})
    assert np.isnan(viewer_fit(lacks)["fit_val"][0, :, 2]).all()
    of_dead = viewer_fit(fitted)
    assert np.flatnonzero(~of_dead["success"]).tolist() == [3]
    assert of_dead["msg"][3].startswith("unusable_data: ")


def test_delays_are_whole_frames_where_they_can_be():
    frames = np.array([1, 2, 4, 1000])
    whole, frame = in_frames(frames * 0.0012, 0.0012)
    assert (whole.dtype, whole.tolist(), frame) == (np.int64, frames.tolist(), 0.0012)
    tau = np.geomspace(1e-3, 10.0, 30)
    for frame_time in (0.0, 0.7e-3):
        kept, frame = in_frames(tau, frame_time)
        assert (kept is tau, frame) == (True, 1.0)


@pytest.fixture
def source(saved, tmp_path):
    """A file that was fitted, with something of its own, and its result."""
    path = tmp_path / "source.hdf"
    with h5py.File("data/aps_8idi_sim.hdf") as shipped, h5py.File(path, "w") as file:
        for name in shipped:
            shipped.copy(name, file)
        file["entry/sample/name"] = "silica"
    result = bayesfit.load(saved)
    result.attrs |= {"input_file": path.name, "input_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    return path, result


def test_a_source_is_copied_with_all_it_holds(source, tmp_path):
    path, result = source
    before = path.read_bytes()
    with h5py.File(bayesfit.export(result, tmp_path / "out.hdf", source=path)) as file:
        assert file["entry/sample/name"][()] == b"silica"
        assert file["xpcs/fit/parameters/rate"].shape == (12,)
    assert path.read_bytes() == before
    for changed, words in ((b"x", "is not the file that was fitted (source.hdf)"), (None, "cannot be read")):
        other = tmp_path / "other.hdf"
        other.unlink(missing_ok=True)
        if changed:
            other.write_bytes(changed)
        with pytest.raises(bayesfit.InputError, match=re.escape(words)):
            bayesfit.export(result, tmp_path / "out2.hdf", source=other)
    assert not (tmp_path / "out2.hdf").exists()


REFUSED = {
    "f.txt": ({}, "exports have no ending .txt. Known: .csv, .xlsx, .hdf"),
    "f": ({}, "the export's name has no ending"),
    "f.nc": ({}, "`bayesfit.save` writes .nc"),
    "a.csv": ({"mass": 95}, "between 0 and 1"),
    "b.csv": ({"curves": "fitted"}, "a table holds no curves"),
    "c.hdf": ({"curves": "both"}, "Known: measured, fitted"),
    "d.nxs": ({"source": "x.hdf"}, "only an export for APS 8-ID has a source"),
    "e.hdf": ({"source": "x.hdf", "curves": "fitted"}, "Leave out one of source and curves"),
    "nowhere/f.csv": ({}, "cannot be written: No such file or directory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exported_is_one_line(fitted, tmp_path, name):
    given, words = REFUSED[name]
    with pytest.raises(bayesfit.BayesfitError, match=re.escape(words)) as caught:
        bayesfit.export(fitted, tmp_path / name, **given)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_curves_without_delays_are_no_file_of_the_field(fitted, tmp_path):
    line = fitted.copy()
    line["constant_data"].dataset = line["constant_data"].to_dataset().assign_attrs(delays=0)
    with pytest.raises(bayesfit.SettingsError, match="the x of these curves is no delay"):
        bayesfit.export(line, tmp_path / "f.hdf")
    assert bayesfit.export(line, tmp_path / "f.csv").stat().st_size > 100


def test_the_command_line_exports(saved, tmp_path):
    said = call("export", saved, "-o", tmp_path / "out.csv", "--unit", "D=um^2/s", "--mass", "0.68")
    assert (said.code, said.out) == (0, f"{tmp_path / 'out.csv'}\n")
    with (tmp_path / "out.csv").open() as file:
        assert "D_low [um^2/s]" in next(csv.reader(file))
    assert call("export", saved, "-o", tmp_path / "out.hdf").code == 0
    assert call("export", saved, "-o", tmp_path / "fitted.nxs", "--curves", "fitted").code == 0
    said = call("export", saved, "-o", tmp_path / "out.txt")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "-o: exports have no ending .txt" in said.err
