"""Bad inputs and faults: every row of `bad_inputs` is made, given to the command line and to Python, and gets what it
must."""

import os
import re
import tracemalloc
import warnings

import jax
import numpy as np
import pytest
import xarray as xr
from bad_inputs import (
    DELAYS_61,
    FINE,
    FLAGGED,
    FLAGGED_UNITS,
    MASKED,
    MODELS,
    REFUSED_ARRAYS,
    REFUSED_FILES,
    SETTINGS,
    TOML,
    arrays,
    decay,
    flagged_curves,
    model_text,
)
from healthy_files import FORMATS, long_table, text_of
from in_process import bayesfit as cli

import bayesfit
from bayesfit.compute.processes import ProcessError
from bayesfit.data.curves import MASKED as CAUSES
from bayesfit.modelling.settings import load_settings
from bayesfit.posterior.bin_likelihood import likelihoods

LINES = (".csv", ".dat", ".ASC")  # formats of lines of text
RAW = re.compile(r"\b\w+(Error|Exception):")  # a message of Python or of a library


def one_line(words, users_own=False):
    """The words, which must be one line, and no library's own unless they quote a user's program."""
    assert "\n" not in words.strip()
    assert len(words) < 1000
    assert users_own or not RAW.search(words), words
    return words


def refused_by_run(tmp_path, file, *options, users_own=False):
    """The line with which `bayesfit run` refuses a file, or its options: nothing is written."""
    said = cli("run", file, "-o", tmp_path / "results", *options)
    assert said.code in (1, 2), said
    assert not [*tmp_path.glob("results/*")]
    return one_line(said.err, users_own).removeprefix("error: ")


def counts(data):
    """Number of masked points (cause, bin), only the causes that occur."""
    return {name: data[name].values.tolist() for name in CAUSES if data[name].values.any()}


@pytest.fixture(scope="module")
def good_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.csv"
    path.write_text(long_table())
    return path


@pytest.mark.parametrize("name", MASKED)
def test_a_bad_point_is_masked_and_said_and_no_other_bin_changes(name, tmp_path):
    value, error, cause = MASKED[name]
    given, clean = arrays(), bayesfit.curves(**arrays())
    given["g2"][1, 4], given["g2_err"][1, 4] = value, error
    np.savez(tmp_path / "data.npz", **given)
    for data in (bayesfit.curves(**given), bayesfit.read(tmp_path / "data.npz")):
        assert counts(data) == {cause: [0, 1, 0]}
        assert np.argwhere(~data.valid.values).tolist() == [[1, 4]]
        others = clean.isel(q_bin=[0, 2])
        xr.testing.assert_identical(data.isel(q_bin=[0, 2]).drop_attrs(), others.drop_attrs())
    said = cli("inspect", tmp_path / "data.npz")
    assert (said.code, said.complaints) == (0, "")
    assert f"35 of 36 points used; 1 masked in 1 bins ({CAUSES[cause]})" in said.out


def test_a_delay_of_zero_is_masked_in_every_bin(tmp_path):
    given = arrays(tau=lambda tau: np.where(tau == tau[0], 0.0, tau))
    np.savez(tmp_path / "data.npz", **given)
    for data in (bayesfit.curves(**given), bayesfit.read(tmp_path / "data.npz")):
        assert counts(data) == {"masked_delay": [1, 1, 1]}
    assert "3 masked in 3 bins (tau is 0)" in cli("inspect", tmp_path / "data.npz").out


@pytest.mark.parametrize("name", REFUSED_ARRAYS)
def test_arrays_that_cannot_be_meant_are_refused(name, tmp_path):
    given, field, part, file = REFUSED_ARRAYS[name]
    for where in (None, "run7.csv"):
        with pytest.raises(bayesfit.InputError) as caught:
            bayesfit.curves(**given, file=where)
        line = one_line(str(caught.value))
        assert (caught.value.field, part in line) == (field, True), line
        assert line.startswith(f"{where}: {field}: " if where else field)
    if file:
        path = tmp_path / "data.npz"
        np.savez(path, **given)
        with pytest.raises(bayesfit.InputError) as caught:
            bayesfit.read(path)
        assert refused_by_run(tmp_path, path).strip() == str(caught.value)
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_what_is_no_data_file_is_refused_and_nothing_hangs(name, tmp_path):
    make, part = REFUSED_FILES[name]
    path = make(tmp_path)
    for pipeline in (None, "table", "aps_8idi"):
        with pytest.raises(bayesfit.InputError) as caught:
            bayesfit.read(path, pipeline)
        line = one_line(str(caught.value))
        assert (pipeline or part) in line or part in line, line
        assert line.startswith((f"{path}: ", repr(str(path))))
    if "\0" not in str(path) and name != "folder":  # no shell can hand the first over; the second is all its files
        assert part in refused_by_run(tmp_path, path)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_truncated_anywhere_is_refused_or_said_to_lack_its_end(name, tmp_path):
    """A text that is cut after a whole row cannot be told from a shorter one: its rows are those of the whole one."""
    path = tmp_path / name
    FORMATS[name](path)
    raw, whole = path.read_bytes(), bayesfit.read(path)
    refused, lengths = 0, {*range(1, len(raw), max(1, len(raw) // 40)), len(raw) - 2}
    for length in sorted(lengths):
        path.write_bytes(raw[:length])
        try:
            data = bayesfit.read(path)
        except bayesfit.InputError as error:
            one_line(str(error))
            refused += 1
            continue
        assert path.suffix in LINES
        if "no line ending" not in data.attrs["notes"]:
            assert set(data.g2.values[data.valid].tolist()) <= set(whole.g2.values.ravel().tolist())
            assert (
                data.attrs["errors_stated"] == whole.attrs["errors_stated"] or "none stated" in data.attrs["understood"]
            )
    assert refused == len(lengths) or path.suffix in LINES
    path.write_bytes(raw[: len(raw) // 3])
    if path.suffix not in LINES:
        refused_by_run(tmp_path, path)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_wrong_setting_is_refused(name, good_file, tmp_path):
    python, options, parts = SETTINGS[name]
    lines = [refused_by_run(tmp_path, good_file, *options)]
    if python is not None:
        with pytest.raises(bayesfit.SettingsError) as caught:
            bayesfit.fit(bayesfit.read(good_file), **{"noise": "scaled", **python})
        lines.append(one_line(str(caught.value)))
    for line in lines:
        assert all(part in line for part in parts), line


def test_an_unknown_argument_is_refused_by_python(good_file):
    with pytest.raises(TypeError, match="drows"):
        bayesfit.fit(bayesfit.read(good_file), drows=3)


@pytest.mark.parametrize("name", TOML)
def test_a_wrong_settings_file_is_refused(name, good_file, tmp_path):
    text, part = TOML[name]
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(bayesfit.SettingsError) as caught:
        load_settings(path)
    for line in (one_line(str(caught.value)), refused_by_run(tmp_path, good_file, "--config", path)):
        assert line.startswith(f"{path}: ")
        assert part in line


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_breaks_the_contract_is_refused_by_name(name, tmp_path):
    lines, part = MODELS[name]
    path, data = tmp_path / "mine.py", tmp_path / "data.csv"
    path.write_text(model_text(lines))
    tau = np.geomspace(1e-3, 10.0, 48)
    data.write_text(text_of(["tau", "g2", "g2_err"], tau, 1 + 0.2 * np.exp(-tau), np.full(48, 0.01)))
    with pytest.raises(bayesfit.ModelError) as caught:
        bayesfit.point_estimate(bayesfit.read(data), path)
    for line in (str(caught.value), refused_by_run(tmp_path, data, "--model", path, users_own=True)):
        assert "model 'mine': " in one_line(line, users_own=True)
        assert part in line


@pytest.mark.parametrize("name", FINE)
def test_what_must_just_work(name, tmp_path):
    given = FINE[name]
    np.savez(tmp_path / "data.npz", **given)
    clean = bayesfit.curves(**arrays())
    for data in (bayesfit.curves(**given), bayesfit.read(tmp_path / "data.npz")):
        xr.testing.assert_identical(data.drop_attrs(), clean.drop_attrs())
    assert "36 of 36 points used" in cli("inspect", tmp_path / "data.npz").out


@pytest.mark.parametrize("kind", ["float16", ">f2", "int16", "uint8"])
def test_half_precision_and_integers_are_converted_and_said(kind, tmp_path):
    given = arrays(g2=lambda a: (100 * a).astype(kind))
    np.savez(tmp_path / "data.npz", **given)
    data = bayesfit.curves(**given)
    np.testing.assert_array_equal(data.g2, given["g2"].astype(float))
    note = f"g2 was {np.dtype(kind).name}, converted to float64"
    assert data.attrs["notes"] == note
    assert note in cli("inspect", tmp_path / "data.npz").out


def test_repeated_delays_ragged_bins_and_a_single_bin(tmp_path):
    lengths = [12, 9, 4]
    ragged = arrays(
        tau=lambda tau: np.where(np.arange(12) == 5, tau[4], tau),
        g2=lambda g2: np.where(np.arange(12) < np.array(lengths)[:, None], g2, np.nan),
    )
    one = {name: value[:1] if name in ("g2", "g2_err", "q") else value for name, value in arrays().items()}
    for given, points in ((ragged, lengths), (one, [12])):
        np.savez(tmp_path / "data.npz", **given)
        for data in (bayesfit.curves(**given), bayesfit.read(tmp_path / "data.npz")):
            assert data.valid.sum("tau").values.tolist() == points
        said = cli("inspect", tmp_path / "data.npz")
        assert f"{sum(points)} of {12 * len(points)} points used" in said.out


def test_ten_thousand_bins_in_bounded_memory(tmp_path):
    bins = 10_000
    given = {
        name: np.resize(value, (bins, *value.shape[1:])) if name != "tau" else value for name, value in arrays().items()
    }
    np.savez(tmp_path / "data.npz", **given)
    tracemalloc.start()
    said = cli("inspect", tmp_path / "data.npz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "10000 bins of 12 delays" in said.out
    assert peak < 30 * given["g2"].nbytes + 2**24


@pytest.mark.parametrize("name", FLAGGED_UNITS)
def test_units_that_may_be_wrong_are_said(name, tmp_path):
    tau, q, less, words = FLAGGED_UNITS[name]
    table = np.repeat([0.01, 0.02], 61) * q, np.tile(DELAYS_61, 2) * tau, np.tile(decay(), 2) - less
    path = tmp_path / "table.csv"
    path.write_text(text_of(["q", "tau", "g2"], *table))
    assert words in bayesfit.read(path).attrs["understood"]
    assert words in cli("inspect", path).out


def test_delays_in_frames_are_said(tmp_path):
    frames, path = np.arange(1.0, 41.0), tmp_path / "table.csv"
    g2 = 1 + 0.2 * np.exp(-frames / 9)
    path.write_text(text_of(["tau", "g2"], frames, g2))
    assert "whole numbers: for frames --set units.tau=" in bayesfit.read(path).attrs["understood"]
    assert "whole numbers: for frames --set units.tau=" in cli("inspect", path).out
    assert "are they frames? tau has unit s" in bayesfit.describe(bayesfit.curves(frames, g2))[1]


@pytest.fixture(scope="module")
def flagged_file(tmp_path_factory):
    """A long table of all bins of `FLAGGED`."""
    given = flagged_curves()
    path = tmp_path_factory.mktemp("flagged") / "flagged.csv"
    columns = (
        np.repeat(given["q"], 61),
        np.tile(DELAYS_61, len(FLAGGED)),
        given["g2"].ravel(),
        given["g2_err"].ravel(),
    )
    np.savetxt(path, np.column_stack(columns), delimiter=",", header="q,tau,g2,g2_err", comments="", fmt="%.17g")
    return path


SETTINGS_OF_FIT = {"noise": "scaled", "draws": 300}


@pytest.fixture(scope="module")
def flagged(flagged_file):
    """The fit of all bins of `FLAGGED`."""
    return bayesfit.fit(bayesfit.read(flagged_file), **SETTINGS_OF_FIT)


@pytest.mark.parametrize("name", FLAGGED)
def test_a_fault_of_the_data_is_in_the_verdict_with_its_reason(name, flagged):
    found = flagged["diagnostics"].isel(q_bin=list(FLAGGED).index(name))
    verdict, reason = found.verdict.item(), found.reason.item()
    assert (verdict, FLAGGED[name].part in reason) == (FLAGGED[name].verdict, True), (verdict, reason)
    assert found.errors_wrong.item() == (name.startswith("errors") or name == "strongly correlated noise")


def test_bins_beside_faulty_ones_have_the_bits_that_they_have_alone(flagged, flagged_file):
    good = [place for place, name in enumerate(FLAGGED) if name.startswith("good")]
    alone = bayesfit.fit(bayesfit.read(flagged_file).isel(q_bin=good), **SETTINGS_OF_FIT)
    for name, array in alone["posterior"].data_vars.items():
        np.testing.assert_array_equal(array, flagged["posterior"][name].isel(q_bin=good))


@pytest.fixture(scope="module")
def flagged_run(flagged_file, tmp_path_factory):
    """What `bayesfit run` prints of all bins of `FLAGGED`, and the folder of the result."""
    folder = tmp_path_factory.mktemp("results")
    options = [word for name, value in SETTINGS_OF_FIT.items() for word in ("--set", f"{name}={value}")]
    return cli("run", flagged_file, "-o", folder, *options), folder


def test_the_command_line_says_what_is_wrong(flagged_run, flagged):
    said, folder = flagged_run
    assert (said.code, said.complaints) == (0, "")
    saved = bayesfit.load(folder / "flagged.nc")["diagnostics"]
    for name in ("verdict", "reason"):
        np.testing.assert_array_equal(saved[name], flagged["diagnostics"][name])
    verdicts = [row.verdict for row in FLAGGED.values()]
    for verdict in set(verdicts):
        assert f"{verdicts.count(verdict)} {verdict}" in said.out
    assert f"stated errors are wrong in 4 of {len(FLAGGED)} bins: the noise is" in said.out
    assert "g2 - 1 given for g2?" in re.sub(r"[│\s]+", " ", said.out)  # over several lines of a cell
    assert "masked in" in said.out


def test_a_bin_at_q_of_zero_is_left_out_of_a_law_and_said(flagged):
    some = flagged.isel(q_bin=[list(FLAGGED).index(name) for name in ("good", "good, too", "q = 0")])
    assert np.isnan(some["posterior"].D.isel(q_bin=2)).all()
    with jax.enable_x64(True):
        assert likelihoods(some, "rate", ["ok"]).left_out.tolist() == ["", "", "q is not known"]


def test_precision_that_the_caller_has_switched_off_is_on_within(good_file):
    assert not jax.config.jax_enable_x64
    assert bayesfit.point_estimate(bayesfit.read(good_file), noise="scaled").rate.dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_a_process_forked_after_jax_has_started_is_refused_and_does_not_hang(good_file):
    """JAX has no threads there: a fit would wait for them."""
    data = bayesfit.read(good_file)
    bayesfit.point_estimate(data, noise="scaled")
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            bayesfit.fit(data, noise="scaled")
        except ProcessError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert "forked after JAX had started" in one_line(os.read(read, 10_000).decode())
