"""What is not run and not told: no code from results and data, no paths of the user's machine in results."""

import json
import shutil
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import bayesfit
from bayesfit.cli.main import app
from bayesfit.compute.errors import BayesfitError

ROOT = Path(__file__).parent.parent
QUICK = ["--set", "draws=300", "--noise", "scaled"]
MODEL = """
import jax.numpy as jnp, numpyro, numpyro.distributions as dist
from bayesfit import Model

def program(tau):
    rate = numpyro.sample('rate', dist.LogNormal(0.0, 3.0))
    return jnp.exp(-2.0 * rate * tau)

model = Model('plain', program)
"""


def run(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def words_of(tree):
    """All text of a tree: attributes, and values of variables."""
    for node in tree.subtree:
        yield from (str(value) for value in node.attrs.values())
        for variable in node.to_dataset(inherit=False).variables.values():
            yield from (str(value) for value in variable.attrs.values())
            if variable.dtype.kind in "OSU":
                yield from map(str, np.ravel(variable.values))


@pytest.fixture
def place(tmp_path):
    """A folder with data and a model file, of which no path may appear in a result."""
    shutil.copy(ROOT / "data" / "table_sim.csv", tmp_path / "scan.csv")
    shutil.copy(ROOT / "data" / "table_sim.csv", tmp_path / "later.csv")
    (tmp_path / "plain.py").write_text(MODEL)
    tau = np.geomspace(1e-3, 1e2, 60)
    np.savetxt(tmp_path / "g1.txt", np.column_stack([tau, np.exp(-tau)]))
    return tmp_path


@pytest.mark.parametrize(
    "wish",
    [
        ("scan.csv", "--model", "plain.py"),
        ("scan.csv", "--set", "model.name=master_curve", "--set", "model.table=g1.txt"),
        ("scan.csv", "later.csv", "--together", "stack", "--set", "names=[a,b]"),
    ],
    ids=["own model", "own table", "several files"],
)
def test_results_name_files_and_no_folders(place, wish):
    ours = [str(place / word) if (place / word).is_file() else word for word in wish]
    ours = [f"model.table={place / 'g1.txt'}" if word.startswith("model.table") else word for word in ours]
    if "--together" in wish:
        text = (place / "later.csv").read_text()
        (place / "later.csv").write_text(text.replace("1.0", "1.1", 1))  # a copy would be left out
    run("run", *ours, "-o", place / "results", *QUICK)
    (path,) = (place / "results").glob("*.nc")
    tree = bayesfit.load(path)
    assert tree.attrs["input_file"].startswith("scan.csv")
    assert len(tree.attrs["input_sha256"]) >= 64
    for folder in (str(place), str(ROOT)):
        assert not [words for words in words_of(tree) if folder in words]
        assert folder.encode() not in path.read_bytes()


def test_a_result_never_runs_the_file_that_it_names(place, monkeypatch):
    data = bayesfit.read(ROOT / "data" / "table_sim.csv")
    model = place / "plain.py"
    result = bayesfit.fit(data, model, noise="scaled", draws=300)
    bayesfit.save(result, place / "fit.nc")
    monkeypatch.setattr("bayesfit.modelling.model_choice._LOADED", {})  # as in another process
    loaded = bayesfit.load(place / "fit.nc")
    loaded.attrs["model_source"] = str(model)  # as results of older versions state it
    model.write_text(f"open({str(place / 'was_run')!r}, 'w')\n{MODEL}")
    with pytest.raises(BayesfitError, match=r"plain.py.*model=") as refused:
        bayesfit.law(loaded, "diffusion")
    assert "\n" not in str(refused.value)
    assert not (place / "was_run").exists()
    model.write_text(MODEL)
    assert bayesfit.law(loaded, "diffusion", model=model).attrs["law"] == "diffusion"
    assert bayesfit.law(loaded, "diffusion").attrs["law"] == "diffusion"  # run by now, from the same source


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_pickles_in_numpy_files_are_refused_without_being_read(tmp_path, kind):
    class Planted:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "was_run",))

    array = np.array([Planted()], dtype=object)
    path = tmp_path / f"planted.{kind}"
    np.save(path, array, allow_pickle=True) if kind == "npy" else np.savez(path, g2=array, tau=array)
    with pytest.raises(BayesfitError):
        bayesfit.read(path)
    assert not (tmp_path / "was_run").exists()


def test_a_file_of_pickle_is_no_result(tmp_path):
    import pickle

    class Planted:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "was_run",))

    path = tmp_path / "planted.nc"
    path.write_bytes(pickle.dumps(Planted()))
    for use in (bayesfit.load, bayesfit.read):
        with pytest.raises(BayesfitError):
            use(path)
    assert not (tmp_path / "was_run").exists()


def test_names_inside_files_do_not_say_where_results_are_written(place):
    """The name of a result is that of the file, without the folders that names of data may hold."""
    run("run", place / "scan.csv", "-o", place / "out", *QUICK)
    result = bayesfit.load(place / "out" / "scan.nc")
    assert sorted(path.name for path in (place / "out").iterdir()) == ["scan.html", "scan.nc"]
    assert json.loads(result.attrs["run_settings"])["draws"] == 300
    assert isinstance(result, xr.DataTree)


HUGE = (10**5, 10**5, 10)  # 800 GB of float64


def _huge_hdf5(path):
    shutil.copy(ROOT / "data" / "aps_8idi_sim.hdf", path)
    with h5py.File(path, "r+") as file:
        del file["xpcs/multitau/normalized_g2"]
        file.create_dataset("xpcs/multitau/normalized_g2", HUGE, float, chunks=(64, 64, 1), fillvalue=1.0)


def _huge_archive(path, member):
    """A gigabyte or more for each kilobyte, as its directory states it; nothing so large is written."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", "")
        with archive.open(member, "w", force_zip64=True) as file:
            file.write(b"\0" * 10**6)
        archive.infolist()[-1].file_size = 10**12


def _huge_array(path):
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": HUGE})


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("huge.hdf", _huge_hdf5),
        ("huge.npy", _huge_array),
        ("huge.npz", partial(_huge_archive, member="g2.npy")),
        ("huge.xlsx", partial(_huge_archive, member="xl/worksheets/sheet1.xml")),
    ],
)
def test_a_declared_size_that_does_not_fit_is_refused_before_it_is_allocated(tmp_path, name, make):
    make(tmp_path / name)
    tracemalloc.start()
    with pytest.raises(BayesfitError) as refused:
        bayesfit.read(tmp_path / name)
    assert name in str(refused.value)
    assert tracemalloc.get_traced_memory()[1] < 1e8
    tracemalloc.stop()


def test_a_result_that_declares_too_much_is_refused_before_it_is_allocated(tmp_path, fitted):
    bayesfit.save(fitted, tmp_path / "fit.nc")
    with h5py.File(tmp_path / "fit.nc", "r+") as file:
        del file["posterior/rate"]
        file.create_dataset("posterior/rate", HUGE, float, chunks=(64, 64, 1))
    with pytest.raises(BayesfitError, match="would not fit in memory"):
        bayesfit.load(tmp_path / "fit.nc")
