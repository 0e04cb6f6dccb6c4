"""Finding models and pipelines, and reading files that are not what they should be."""

import os
import sys

import h5py
import numpy as np
import pytest
from shipped import spec

import bayesfit

MODEL = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import bayesfit

def program(tau):
    rate = numpyro.sample("rate", dist.LogUniform(1.0, 1e4))
    return jnp.exp(-2.0 * rate * tau)

model = bayesfit.Model(name="{name}", program=program)
"""
WIDE = "tau,0.01,0.02\n0.001,1.2,1.2\n0.01,1.1,1.1\n0.1,1.0,1.0\n"


def refusal(path, pipeline=None):
    """The one line with which `read` refuses."""
    with pytest.raises(bayesfit.InputError) as caught:
        bayesfit.read(path, pipeline)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def aps(tmp_path):
    """A small valid file of the current APS layout, chunked and compressed."""
    path = tmp_path / "small.hdf"
    tau = np.arange(1, 9)
    g2 = 1 + 0.2 * np.exp(-tau[:, None] * np.array([0.1, 0.2]))
    with h5py.File(path, "w") as file:
        file["xpcs/multitau/delay_list"] = tau
        for name, values in (("normalized_g2", g2), ("normalized_g2_err", np.full(g2.shape, 0.01))):
            file.create_dataset(f"xpcs/multitau/{name}", data=values.astype("f4"), compression="gzip")
        file["entry/instrument/detector_1/frame_time"] = 1e-3
        file["xpcs/qmap/dynamic_v_list_dim0"] = [0.01, 0.02]
    return path


def test_shipped_models_and_pipelines_are_listed():
    assert {"single_exponential", "stretched_exponential"} <= set(bayesfit.list_models())
    assert bayesfit.list_pipelines() == ["aps_8idi", "dls_alv", "nxxpcs", "table", "zetasizer"]


@pytest.mark.parametrize("name", bayesfit.list_models())
def test_a_model_is_found_by_its_name(name):
    model = bayesfit.get_model(spec(name))
    assert model.name == name
    assert bayesfit.get_model(model) is model is bayesfit.get_model(spec(name))


@pytest.mark.parametrize("name", bayesfit.list_pipelines())
def test_a_pipeline_is_found_by_its_name(name):
    assert bayesfit.get_pipeline(name).name == name


@pytest.mark.parametrize(
    ("get", "name", "remedy"),
    [
        (bayesfit.get_model, "streched_exponential", "Did you mean 'stretched_exponential'?"),
        (bayesfit.get_model, "xyz", "Known: cumulant, double_exponential, "),
        (bayesfit.get_model, "__init__", "Known: "),
        (bayesfit.get_model, "", "Known: "),
        (bayesfit.get_pipeline, "aps_8id", "Did you mean 'aps_8idi'?"),
        (bayesfit.get_pipeline, "_edge", "Known: aps_8idi, dls_alv, nxxpcs, table"),
    ],
)
def test_unknown_names_suggest_the_nearest(get, name, remedy):
    with pytest.raises(bayesfit.SettingsError, match="unknown") as caught:
        get(name)
    assert remedy in str(caught.value)


def test_a_model_file_is_found_by_its_path(tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text(MODEL.format(name="mine"))
    monkeypatch.chdir(tmp_path)
    assert bayesfit.get_model("mine.py") is bayesfit.get_model("./mine.py") is bayesfit.get_model(path)
    assert bayesfit.get_model(path).name == "mine"
    assert sorted(os.listdir(tmp_path)) == ["mine.py"]


def test_a_changed_model_file_is_run_again_even_within_one_second(tmp_path):
    path = tmp_path / "mine.py"
    for name in ("a", "b", "c"):
        path.write_text(MODEL.format(name=name))
        os.utime(path, (1e9, 1e9))
        assert bayesfit.get_model(path).name == name


def test_a_model_file_may_hold_dataclasses(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        + "@dataclass\nclass Constants:\n    low: float = 1.0\n"
        + MODEL.format(name="mine")
    )
    assert bayesfit.get_model(path).name == "mine"


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("model = 3\n", "holds no model"),
        ("x = 1\n", "holds no model"),
        ("def model(:\n", "fails when run: SyntaxError"),
        ("1 / 0\n", "fails when run: ZeroDivisionError"),
        ("import no_such_module\n", "fails when run: ModuleNotFoundError"),
        ("raise SystemExit(0)\n", "fails when run: SystemExit"),
        ("a = '\0'\n", "fails when run"),
        ("raise ValueError('one\\ntwo')\n", "ValueError: one two"),
        ("import bayesfit\nmodel = bayesfit.Model(name='m', program=3)\n", "program must be a function"),
    ],
)
def test_a_model_file_that_cannot_be_used_is_named(tmp_path, content, part):
    path = tmp_path / "mine.py"
    path.write_text(content)
    before = set(sys.modules)
    with pytest.raises(bayesfit.ModelError) as caught:
        bayesfit.get_model(path)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not {name for name in set(sys.modules) - before if name.startswith("bayesfit_model")}


@pytest.mark.parametrize(("name", "part"), [("none.py", "no such file"), (".", "is a folder"), ("a\0.py", "null")])
def test_a_model_path_without_a_file(tmp_path, name, part):
    with pytest.raises(bayesfit.InputError, match=part):
        bayesfit.get_model(f"{tmp_path}/{name}")


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """Somebody's package with a model, a pipeline, and two entry points that do not work."""
    (tmp_path / "somebody.py").write_text(
        MODEL.format(name="theirs")
        + "pipeline = bayesfit.Pipeline(name='their_files', recognise=lambda path: 'not theirs', read=None)\n"
    )
    info = tmp_path / "somebody-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[bayesfit.models]\ntheirs = somebody\ntheirs_too = somebody:model\nabsent = somebody_else\nodd = math\n"
        + "[bayesfit.pipelines]\na_broken_one = somebody_else\ntheir_files = somebody:pipeline\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("somebody", None)


@pytest.mark.usefixtures("third_party")
def test_models_and_pipelines_of_other_packages_are_found():
    assert {"theirs", "theirs_too"} < set(bayesfit.list_models())
    assert bayesfit.get_model("theirs") is bayesfit.get_model("theirs_too")
    assert bayesfit.get_pipeline("their_files").name == "their_files"


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(("name", "part"), [("absent", "ModuleNotFoundError"), ("odd", "no `model`")])
def test_another_packages_model_that_does_not_work_is_named(name, part):
    with pytest.raises(bayesfit.ModelError, match=f"model '{name}': .*{part}"):
        bayesfit.get_model(name)


@pytest.mark.usefixtures("third_party")
def test_another_packages_broken_pipeline_does_not_keep_a_file_from_its_own(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(WIDE)
    assert bayesfit.read(path).attrs["pipeline"] == "table"
    with pytest.raises(bayesfit.ModelError, match="pipeline 'a_broken_one': cannot be loaded"):
        bayesfit.read(path, "a_broken_one")


@pytest.mark.usefixtures("third_party")
def test_an_unknown_layout_says_who_was_asked_and_what_was_missing(tmp_path):
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        file["xpcs/multitau/normalized_g2"] = np.ones((3, 2))
        file["entry/data/g2"] = np.ones((3, 2))
    line = refusal(path)
    for part in (
        "aps_8idi: no xpcs/multitau/normalized_g2_err, and no exchange/norm-0-g2",
        "dls_alv: does not begin with ALV",
        "nxxpcs: no entry/data/g2_derr",
        "table: not text",
        "their_files: not theirs",
        "a_broken_one: failed: pipeline 'a_broken_one': cannot be loaded",
    ):
        assert part in line


def test_a_file_is_recognised_by_content_and_its_hash_kept(tmp_path):
    path = tmp_path / "measurement.xyz"
    path.write_text(WIDE)
    data = bayesfit.read(str(path))
    assert (data.attrs["pipeline"], data.attrs["file"]) == ("table", str(path))
    assert len(data.attrs["sha256"]) == 64
    assert bayesfit.read(path, "table").attrs == data.attrs


@pytest.mark.parametrize("pipeline", bayesfit.list_pipelines())
def test_the_wrong_pipeline_says_what_it_misses(tmp_path, aps, pipeline):
    path = tmp_path / "wide.csv"
    path.write_text(WIDE)
    wrong = path if pipeline != "table" else aps
    assert f"not a file of pipeline {pipeline!r}: " in refusal(wrong, pipeline)


def test_an_unknown_pipeline_is_a_wrong_setting(aps):
    with pytest.raises(bayesfit.SettingsError, match="unknown pipeline 'aps'"):
        bayesfit.read(aps, "aps")


def test_an_unknown_home_is_refused():
    assert "home" in refusal("~nobody_of_this_name/data.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("pipeline", [None, "table"])
def test_a_file_that_may_not_be_read_is_refused(tmp_path, pipeline):
    path = tmp_path / "secret.csv"
    path.write_text(WIDE)
    path.chmod(0)
    assert "permission denied" in refusal(path, pipeline)


def test_a_link_to_a_file_is_read(tmp_path, aps):
    (tmp_path / "link").symlink_to(aps)
    assert bayesfit.read(tmp_path / "link").sizes["q_bin"] == 2


def test_damaged_hdf5_is_refused_or_read_but_never_breaks(tmp_path, aps):
    whole = aps.read_bytes()
    random = np.random.default_rng(11)
    path = tmp_path / "damaged.hdf"
    refused = 0
    for _ in range(60):
        content = bytearray(whole)
        start = int(random.integers(8, len(whole) - 64))
        content[start : start + 64] = bytes(64) if random.random() < 0.5 else random.bytes(64)
        path.write_bytes(content)
        try:
            bayesfit.read(path)
        except bayesfit.InputError:
            refused += 1
    assert refused > 10
