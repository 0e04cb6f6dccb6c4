"""What data were taken for, in words, and which range of delays is used."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bayesfit

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).parent / "bayesfit"
TAU = np.geomspace(1e-3, 10.0, 30)


def curves(bins=2, **given):
    g2 = np.tile(1.0 + 0.2 * np.exp(-2.0 * TAU), (bins, 1))
    return bayesfit.curves(TAU, g2, np.full(g2.shape, 0.01), q=0.01 * np.arange(1, bins + 1), **given)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "wide.csv"
    rows = [f"{t},{1 + 0.2 * np.exp(-2 * t)},{1 + 0.2 * np.exp(-8 * t)}" for t in TAU]
    path.write_text("\n".join(["tau,0.01,0.02", *rows]))
    return path


def call(*arguments, code=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def test_arrays_are_described():
    what, details = bayesfit.describe(curves())
    assert what == "arrays: 2 bins of 30 delays; q 0.01 to 0.02 1/angstrom, tau 0.001 to 10 s"
    assert details == "errors: stated; 60 of 60 points used"


def test_masked_points_units_and_what_is_unknown_are_said():
    g2 = np.full((3, 30), 1.1)
    g2[1, :4] = np.nan
    data = bayesfit.curves(TAU, g2, q=[0.01, 0.02, np.nan], attrs={"tau_unit": "ms", "left_out": "column 'temp'"})
    data.attrs |= {"temperature": 298.15, "temperature_units": "K", "refractive_index": 1.331}
    what, details = bayesfit.describe(data)
    assert "q 0.01 to 0.02 1/angstrom, unknown for 1 bins" in what
    assert "tau 0.001 to 10 s (read in ms)" in what
    assert details.startswith("errors: none stated; 86 of 90 points used; 4 masked in 1 bins (g2 is not finite")
    for part in ("left out: column 'temp'", "temperature 298.15 K", "refractive index 1.331;"):
        assert part in details


def test_a_result_keeps_what_its_data_were_taken_for(fitted):
    assert fitted.attrs["understood"].splitlines()[0].startswith("arrays: 12 bins of")


@pytest.mark.parametrize("file", ["aps_8idi_sim.hdf", "table_sim.csv"])
def test_units_of_a_file_are_said(file):
    what = bayesfit.describe(bayesfit.read(ROOT / "data" / file))[0]
    assert "1/angstrom" in what
    assert file != "aps_8idi_sim.hdf" or "tau 0.001 to 100 s (read in frames of 0.001 s)" in what


def test_a_range_of_delays_for_all_bins_or_for_each():
    data = curves(tau_min=0.01, tau_max=[1.0, 5.0])
    inside = (TAU >= 0.01) & (np.array([[1.0], [5.0]]) >= TAU)
    np.testing.assert_array_equal(data.valid, inside)
    assert data.masked_range.values.tolist() == (~inside).sum(axis=1).tolist()


def test_a_range_when_reading_counts_no_point_twice(table):
    data = bayesfit.read(table, skip_first=3, tau_min=TAU[5], tau_max=5.0)
    assert data.masked_skipped.values.tolist() == [3, 3]
    assert data.masked_range.values.tolist() == [2 + (TAU > 5.0).sum()] * 2
    assert int(data.valid.sum()) == 2 * ((TAU[5] <= TAU) & (TAU <= 5.0)).sum()


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"tau_min": 100.0}, "tau_min: leaves no point of 30 delays"),
        ({"skip_first": 30}, "skip_first: leaves no point of 30 delays"),
        ({"tau_min": [1.0, 2.0, 3.0]}, "expected one number, or one for each of 2 bins"),
        ({"tau_max": -1.0}, "tau_max: got -1"),
        ({"tau_max": float("nan")}, "tau_max: got nan"),
    ],
)
def test_an_impossible_range_is_refused(table, given, part):
    with pytest.raises(bayesfit.InputError, match=part):
        bayesfit.read(table, **given)


def test_a_setting_of_reading_that_nobody_takes_is_refused(table):
    with pytest.raises(bayesfit.SettingsError, match=r"colums: unknown setting of reading\. Did you mean 'columns'"):
        bayesfit.read(table, colums={"tau": "t"})
    with pytest.raises(bayesfit.SettingsError, match="columns: pipeline 'aps_8idi', which reads this file, takes no"):
        bayesfit.read(ROOT / "data" / "aps_8idi_sim.hdf", columns={"tau": "t"})


def test_inspect_describes_files_and_folders(table, tmp_path):
    (tmp_path / "notes.txt").write_text("nothing to read here")
    out = call("inspect", table, "--set", f"tau_min={TAU[3]}").stdout
    assert f"{table}: " in out
    assert "6 masked in 2 bins (tau is outside tau_min to tau_max)" in out
    out = call("inspect", tmp_path).stdout
    assert f"{table}: " in out
    assert f"not read: {tmp_path / 'notes.txt'}: no pipeline recognises it" in out
    assert "error: " in call("inspect", tmp_path / "notes.txt", table, code=1).stderr
    assert "no such file" in call("inspect", tmp_path / "none.csv", code=1).stderr
    (tmp_path / "empty").mkdir()
    assert "holds no files" in call("inspect", tmp_path / "empty", code=1).stderr


def test_run_says_what_it_takes_a_file_for(table, tmp_path):
    out = call("run", table, "-o", tmp_path / "out", "--set", "draws=100", "--set", f"tau_min={TAU[3]}", code=3).stdout
    first, second = out.splitlines()[:2]
    assert first.startswith(f"{table}: ")
    assert "2 bins of 30 delays; q 0.01 to 0.02 1/angstrom" in first
    assert "6 masked in 2 bins" in second
    result = bayesfit.load(tmp_path / "out" / "wide.nc")
    assert result.attrs["understood"].splitlines() == [first.removeprefix(f"{table}: "), second.strip()]


def test_reading_says_what_was_understood(table, caplog):
    with caplog.at_level("INFO", logger="bayesfit"):
        data = bayesfit.read(table)
    assert data.attrs["understood"].splitlines() == bayesfit.describe(data)
    assert str(table) in caplog.text
