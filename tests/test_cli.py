"""The command line, run as a user runs it."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayesfit
from bayesfit.cli import steps
from bayesfit.cli.app import FAILED, INTERRUPTED
from bayesfit.cli.bin_table import chosen_bins
from bayesfit.cli.fit_job import Wishes, fit_job
from bayesfit.cli.jobs import Job
from bayesfit.cli.show_result import Wanted
from bayesfit.compute.work import stop_on
from bayesfit.modelling.settings import RunSettings

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).parent / "bayesfit"
TAU = np.geomspace(1e-3, 10.0, 30)
QUICK = ["--set", "draws=300"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")), "COLUMNS": "200"}


@pytest.fixture(scope="module")
def call(environment):
    def run(*arguments, code=0):
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)], env=environment, capture_output=True, text=True, cwd=ROOT, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    return run


@pytest.fixture(scope="module")
def result(call, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    specimen = ["--set", "specimen.temperature=Normal(298.15, 0.1)", "--set", "specimen.viscosity=water"]
    done = call("run", "data/table_sim.csv", "-o", folder, "--plot", *QUICK, *specimen)
    assert f"{folder / 'table_sim.png'}\n" in done.stdout
    return folder / "table_sim.nc"


def test_run_saves_a_result_and_a_picture(result):
    loaded = bayesfit.load(result)
    assert loaded["posterior"].sizes["q_bin"] == 8
    assert loaded.attrs["input_file"] == "table_sim.csv"
    assert len(loaded.attrs["input_sha256"]) == 64
    assert result.with_suffix(".png").stat().st_size > 10_000


def test_run_agrees_with_python_to_the_bit(result, simulated):
    from_python = bayesfit.fit(bayesfit.read(ROOT / "data" / "table_sim.csv"), draws=300)
    saved = bayesfit.load(result)
    np.testing.assert_array_equal(saved["posterior"].rate, from_python["posterior"].rate.astype(np.float32))


def test_show_prints_every_bin(call, result):
    out = call("show", result).stdout
    assert re.findall(r"^ +(\d) ", out, re.MULTILINE) == list("01234567")
    assert "error_scale" not in out
    assert "error_scale" in call("show", result, "--wide").stdout
    assert "Did you mean 'rate'" in call("show", result, "-p", "rats", code=2).stderr


@pytest.mark.parametrize("width", [80, 120, 160])
def test_tables_fit_the_screen(call, environment, result, monkeypatch, width):
    monkeypatch.setitem(environment, "COLUMNS", str(width))
    lines = call("show", result).stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert sum("rate [1/s]" in line for line in lines) == 1
    assert any(" beta " in line for line in lines[2:]) == (width > 80)


def test_show_filters_and_sorts(call, result):
    table = bayesfit.summary(bayesfit.load(result))
    fine = [str(bin) for bin in table.index[table.verdict == "ok"]]
    assert re.findall(r"^ +(\d) ", call("show", result, "--verdict", "ok").stdout, re.MULTILINE) == fine
    order = [str(bin) for bin in table.contrast.sort_values().index]
    assert re.findall(r"^ +(\d) ", call("show", result, "--sort", "contrast").stdout, re.MULTILINE) == order
    assert "Did you mean 'misfit'" in call("show", result, "--verdict", "misfits", code=2).stderr
    assert "Did you mean 'contrast'" in call("show", result, "--sort", "contrasts", code=2).stderr


def test_show_prints_tables_for_programs(call, result):
    table = bayesfit.summary(bayesfit.load(result))
    read = list(csv.DictReader(io.StringIO(call("show", result, "--csv").stdout)))
    assert [float(row["rate"]) for row in read] == pytest.approx(table.rate.tolist())
    rows = json.loads(call("show", result, "--json", "--sort", "rate").stdout)
    assert [row["rate"] for row in rows] == pytest.approx(sorted(table.rate), rel=1e-6)


def test_of_very_many_bins_those_are_listed_that_need_attention():
    rows = pd.DataFrame({"verdict": ["ok"] * 60 + ["misfit"] * 30, "rate": np.arange(90.0)})
    chosen = chosen_bins(rows, Wanted(path="fit.nc"))
    assert chosen.places == list(range(60, 80))
    assert chosen.words.startswith("60 bins that are ok are not listed; 10 more are not ok")
    for wanted, count in (Wanted(every=True), 90), (Wanted(verdict="ok"), 60):
        chosen = chosen_bins(rows, wanted)
        assert (chosen.places, chosen.words) == (list(range(count)), "")


def test_a_run_saves_the_radius_and_it_can_be_found_anew(call, result, tmp_path):
    posterior = bayesfit.load(result)["posterior"]
    assert posterior.hydrodynamic_radius.dims == ("chain", "draw", "q_bin")
    assert posterior.viscosity.dims == ("chain", "draw")
    new = tmp_path / "new.nc"
    options = "--set", "temperature=298.15", "--set", "radius=Normal(1.2e6, 1e4)", "--unit", "D=um^2/s", "-o", new
    out = call("stokes-einstein", result, *options).stdout
    assert "D [um^2/s]" in out
    assert "viscosity [Pa s]" in out
    assert "hydrodynamic_radius [nm]: " in out
    assert "viscosity [cP]" in call("show", new, "--unit", "viscosity=cP").stdout
    assert "Did you mean 'viscosity'" in call("stokes-einstein", result, "--set", "viscosty=1", code=2).stderr


def test_a_radius_that_cannot_be_found_is_said_before_the_fit(call, tmp_path):
    options = ("run", "data/table_sim.csv", "-o", tmp_path, "--set")
    assert "viscosity: is not given" in call(*options, "specimen.temperature=298", code=1).stderr
    assert "Did you mean 'radius'" in call(*options, "specimen.radus=50", code=2).stderr
    assert not list(tmp_path.iterdir())


def test_a_fit_without_a_diffusion_coefficient_is_saved_alone(call, tmp_path):
    curve = tmp_path / "curve.csv"
    rows = (f"{t:.6g},{1 + 0.2 * np.exp(-2 * t):.6g},0.01" for t in TAU)
    curve.write_text("\n".join(["tau,g2,g2_err", *rows]) + "\n")
    options = ["--model", "single_exponential", "--set", "draws=4", "--set", "target_ess=0"]
    done = call("run", curve, "-o", tmp_path, *options, "--set", "specimen={temperature = 298, radius = 50}", code=1)
    assert f"the result has no diffusion coefficient. Fit a rate, of curves with q. The fit alone is in {tmp_path}" in (
        done.stderr
    )
    assert "hydrodynamic_radius" not in bayesfit.load(tmp_path / "curve.nc")["posterior"]


def test_plot_draws_chosen_bins(call, result, tmp_path):
    call("plot", result, "-o", tmp_path / "x.pdf", "-b", 0, "-b", 7)
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")
    assert "there is no bin 8" in call("plot", result, "-o", tmp_path / "y.png", "-b", 8, code=2).stderr


def test_what_is_read_is_not_written_over(call, result):
    before = result.read_bytes()
    for command in (["law", result, "diffusion"], ["compare", f"a={result}", f"b={result}"]):
        assert "would overwrite its own input" in call(*command, "-o", result, code=2).stderr
    assert result.read_bytes() == before


def test_a_picture_that_cannot_be_drawn_is_said(call, tmp_path):
    curve = tmp_path / "curve.csv"
    curve.write_text("tau,g2\n" + "".join(f"{t:.6g},{1 + 0.2 * np.exp(-2 * t):.6g}\n" for t in TAU))
    (tmp_path / "curve.png").mkdir()
    options = ["--model", "single_exponential", "--set", "draws=4", "--set", "target_ess=0", "--plot"]
    done = call("run", curve, "-o", tmp_path, *options, code=1)
    assert f"error: {tmp_path / 'curve.png'}: cannot be drawn" in done.stderr
    assert bayesfit.load(tmp_path / "curve.nc").attrs["model"] == "single_exponential"


def test_models_and_pipelines_are_listed(call):
    assert all(name in call("models").stdout for name in bayesfit.list_models())
    assert all(name in call("pipelines").stdout for name in bayesfit.list_pipelines())


def test_one_bad_file_does_not_stop_the_others(call, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("tau,0.1\n1,nan\n2,nan\n")
    bare = tmp_path / "bare.csv"
    bare.write_text("tau,0.1\n1,1.2\n2,1.1\n3,1.0\n")
    files = bad, bare, "data/table_sim.csv"
    done = call("run", *files, "-o", tmp_path / "out", "--noise", "stated", *QUICK, code=1)
    assert str(bad) in done.stderr
    assert f"error: {bare}: noise: 'stated' needs errors" in done.stderr
    made = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert made == ["index.html", "status.json", "summary.csv", "table_sim.html", "table_sim.nc"]


def test_two_inputs_of_one_name_are_refused(call, tmp_path):
    done = call("run", "data/table_sim.csv", "data/table_sim.csv", "-o", tmp_path, code=2)
    assert "saved as" in done.stderr


def test_a_users_model_file_is_an_equal_citizen(call, tmp_path):
    model = tmp_path / "plain.py"
    model.write_text(
        "import jax.numpy as jnp, numpyro, numpyro.distributions as dist\n"
        "from bayesfit import Model\n"
        "def program(tau):\n"
        "    rate = numpyro.sample('rate', dist.LogNormal(0.0, 3.0))\n"
        "    return jnp.exp(-2.0 * rate * tau)\n"
        "model = Model('plain', program)\n"
    )
    call("run", "data/table_sim.csv", "-o", tmp_path, "--model", model, *QUICK)
    loaded = bayesfit.load(tmp_path / "table_sim.nc")
    assert loaded.attrs["model"] == "plain"
    assert loaded.attrs["model_source"] == model.name


def test_no_bin_ok_is_told_by_the_exit_code(call, tmp_path):
    flat, errors = tmp_path / "flat.csv", tmp_path / "flat_err.csv"
    rng = np.random.default_rng(0)
    rows = [f"{tau:.6g},{1 + 0.01 * rng.standard_normal():.6g}" for tau in np.geomspace(1e-3, 10, 40)]
    flat.write_text("tau,0.01\n" + "\n".join(rows))
    errors.write_text("tau,0.01\n" + "\n".join(row.split(",")[0] + ",0.01" for row in rows))
    said = call("run", flat, errors, "-o", tmp_path / "results", *QUICK, code=3).stdout
    assert "not_identified" in said
    assert "1 of 2 files hold the errors of others" in said


def test_ctrl_c_keeps_what_was_done_and_the_same_command_goes_on(environment, call, tmp_path):
    arguments = ["run", "data/table_sim.csv", "-o", tmp_path, "--set", "draws=8000", "--set", "target_ess=0"]
    process = subprocess.Popen([PROGRAM, *arguments], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    progress = tmp_path / ".table_sim.nc.progress"
    while process.poll() is None and not (progress / "state.npz").exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert time.monotonic() - asked < 5
    assert "interrupted: the same command goes on" in errors
    assert "Traceback" not in errors
    refused = call(*arguments, "--set", "seed=1", code=2).stderr
    assert "made with other seed" in refused
    assert "finished before" not in call(*arguments).stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table_sim.html", "table_sim.nc"]


def test_an_error_made_of_an_interruption_is_one(monkeypatch, tmp_path, capsys):
    """JAX raises a ValueError where a signal arrives while it compares two keys of a cache."""

    def code(*signals):
        def read_all(files, settings):
            try:
                for number in signals:
                    os.kill(os.getpid(), number)
                    time.sleep(0.01)
            except KeyboardInterrupt:
                pass
            raise ValueError("Cache keys should be comparable")

        monkeypatch.setattr(steps, "read_all", read_all)
        job, wishes = Job([tmp_path / "one.csv"], tmp_path / "one.nc"), Wishes(*[False] * 5)
        with stop_on(signal.SIGTERM):
            return fit_job(job, RunSettings(), wishes, lambda progress: None).code

    assert code(signal.SIGTERM, signal.SIGTERM) == INTERRUPTED
    assert "interrupted: the same command goes on" in capsys.readouterr().err
    assert code(signal.SIGTERM) == code() == FAILED


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_that_is_still_compiling_ends_soon_too(environment, tmp_path, number, code):
    cold = {**environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    arguments = ["run", "data/table_sim.csv", "-o", tmp_path]
    process = subprocess.Popen([PROGRAM, *arguments], env=cold, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / ".table_sim.nc.progress").exists():
        time.sleep(0.05)
    process.send_signal(number)
    asked = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert time.monotonic() - asked < 5
    assert "interrupted: the same command goes on" in errors


def test_a_finished_file_is_not_fitted_again(call, tmp_path):
    arguments = ["run", "data/table_sim.csv", "-o", tmp_path, *QUICK]
    assert "finished before" not in call(*arguments).stdout
    written = (tmp_path / "table_sim.nc").stat().st_mtime_ns
    assert "finished before" in call(*arguments).stdout
    assert (tmp_path / "table_sim.nc").stat().st_mtime_ns == written
    assert "finished before" not in call(*arguments, "--fresh").stdout


def test_noise_models_are_listed_and_chosen(call):
    listed = call("noises").stdout
    assert all(name in listed for name in ("scaled", "robust", "correlated"))
    wrong = call("run", "data/table_sim.csv", "-o", "unused", "--noise", "robst", code=2)
    assert "Did you mean 'robust'" in wrong.stderr


def test_advice_is_followed_on_request(call, tmp_path):
    """Eight curves so noisy that none tells its rate by itself."""
    q = np.geomspace(0.002, 0.01, 8)
    rng = np.random.default_rng(5)
    rows = ["q,tau,g2,g2_err"]
    for own in q:
        g2 = 1 + 0.2 * np.exp(-2 * 4e4 * own**2 * TAU) + rng.normal(0, 0.4, TAU.size)
        rows += [f"{own},{tau},{value},0.4" for tau, value in zip(TAU, g2, strict=True)]
    path = tmp_path / "weak.csv"
    path.write_text("\n".join(rows))
    fixed = ["--model", "single_exponential", "--set", "fixed.contrast=0.2", "--set", "fixed.baseline=1"]
    done = call("run", path, "-o", tmp_path, "--advise", *fixed, *QUICK)
    assert "as advised: --set across.rate=diffusion" in done.stdout
    alone, together = (bayesfit.load(tmp_path / f"{name}.nc") for name in ("weak", "weak_advised"))
    assert "across" in together
    counts = [int((each["diagnostics"].verdict == "ok").sum()) for each in (alone, together)]
    assert counts[1] > counts[0]
    assert (
        f"ok: {counts[0]} bins in {tmp_path / 'weak.nc'}, {counts[1]} in {tmp_path / 'weak_advised.nc'}" in done.stdout
    )
    again = call("run", "data/table_sim.csv", "-o", tmp_path, "--advise", *QUICK)
    assert "--advise: the result advises nothing else" in again.stdout
