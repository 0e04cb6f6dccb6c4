"""Runs of a simulator: in any language, side by side, kept as soon as they are made; and every way to fail."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from in_process import bayesfit as call

import bayesfit
from bayesfit import InputError, SettingsError
from bayesfit.compute.processes import ProcessError
from bayesfit.surrogates.runs import Runs
from bayesfit.surrogates.simulator import Simulator, outside
from bayesfit.surrogates.space import Space
from bayesfit.surrogates.workers import WORKER, Effort

TAU = np.geomspace(1e-4, 1.0, 12)
SPACE = {"rate": "LogUniform(3, 300)", "beta": "Uniform(0.6, 1)"}
SIMULATORS = """
import json, os, sys, time
from pathlib import Path
import numpy as np

tau = np.geomspace(1e-4, 1.0, 12)
HERE = Path(__file__).parent


def curve(p):
    return np.exp(-2.0 * (p["rate"] * tau) ** p["beta"])


def counted(p):
    with open(HERE / "log", "a") as log:
        log.write(f"{p['rate']!r}\\n")
    time.sleep(float(os.environ.get("SLOW", 0)))
    return curve(p)


def fails_now(p):
    place = HERE / f"{p['rate']}"
    now = p["beta"] < 0.7 and not place.exists()
    if now:
        place.touch()
    return now


def crashes_at_first(p):
    if fails_now(p):
        os._exit(3)
    return curve(p)


def crashes(p):
    os.kill(os.getpid(), 11)


def crashes_in_a_corner(p):
    if p["beta"] > 0.98:
        raise ValueError("no solution")
    return curve(p)


def raises(p):
    raise ZeroDivisionError("no photons")


def hangs_at_first(p):
    if fails_now(p):
        time.sleep(1000)
    return curve(p)


def noisy_outside(p):
    return curve(p) + np.random.default_rng().normal(0, 0.03, 12)


def noisy_idle(p):
    return noisy_outside({**p, "beta": 0.8})


def hangs(p):
    time.sleep(1000)


def nan(p):
    return curve(p) * np.nan


def short(p):
    return curve(p)[1:]


def g2(p):
    return 1.0 + curve(p)


def text(p):
    return "curve"


def idle(p):
    return curve({**p, "beta": 1.0})


def noisy(p):
    return np.clip(curve(p) + np.random.default_rng().normal(0, 0.01, 12), 0, 1)


class Shifted:
    def __init__(self, beta):
        self.beta = beta

    def __call__(self, p):
        return curve({**p, "beta": self.beta})


if __name__ == "__main__":
    p, how = json.loads(Path(sys.argv[1]).read_text()), sys.argv[3]
    if how == "json":
        Path(sys.argv[2]).write_text(json.dumps(curve(p).tolist()))
    if how == "npy":
        np.save(sys.argv[2], curve(p))
    if how == "text":
        np.savetxt(sys.argv[2], np.c_[tau, curve(p)], header="tau g")
    if how == "csv":
        np.savetxt(sys.argv[2], np.c_[tau, curve(p)], delimiter=",")
    if how == "words":
        Path(sys.argv[2]).write_text("no numbers")
    if how == "crash":
        sys.exit("out of licences")
    if how == "hang":
        time.sleep(1000)
"""
QUICK = Effort(workers=2, time_limit=60.0, retries=1)
IMPATIENT = Effort(workers=2, time_limit=0.3, retries=1)


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "simulators.py"
    path.write_text(SIMULATORS)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "simulators", raising=False)
    yield path
    sys.modules.pop("simulators", None)


def runs(simulator, effort=QUICK, place=None):
    return Runs.begin(Simulator.parse(simulator), ("rate", "beta"), TAU, place, effort)


def points(count=8):
    return Space.parse(SPACE).design(count, 0)


def true(points):
    return np.exp(-2.0 * (points[:, :1] * TAU) ** points[:, 1:])


def test_functions_of_a_file_and_of_a_module(file):
    import simulators

    for simulator in (f"{file}:curve", simulators.curve, partial(simulators.curve)):
        curves, failed = runs(simulator).curves(points())
        np.testing.assert_allclose(curves, true(points()), rtol=1e-14)
        assert failed == {}
    curves, _ = runs(simulators.Shifted(0.8)).curves(points())
    np.testing.assert_allclose(curves, true(np.stack([points()[:, 0], np.full(8, 0.8)], axis=1)), rtol=1e-14)


@pytest.mark.parametrize("how", ["json", "npy", "text", "csv"])
def test_commands_read_and_write_files(file, how):
    curves, _ = runs([sys.executable, str(file), "{input}", "{output}", how]).curves(points(2))
    np.testing.assert_allclose(curves, true(points(2)), rtol=1e-12)


def test_a_changed_program_is_another_simulator(tmp_path):
    program = tmp_path / "simulate"
    hashes = []
    for version in ("1", "2"):
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
        hashes.append(Simulator.parse([str(program), "{input}", "{output}"]).sha256)
    assert hashes[0] != hashes[1]


def test_a_crash_is_tried_again(file):
    curves, failed = runs(f"{file}:crashes_at_first").curves(points())
    np.testing.assert_allclose(curves, true(points()), rtol=1e-14)
    assert failed == {}
    assert len(list(file.parent.glob("*.[0-9]*"))) == (points()[:, 1] < 0.7).sum() > 0


def test_a_run_that_takes_too_long_is_tried_once_more(file):
    curves, failed = runs(f"{file}:hangs_at_first", Effort(workers=2, time_limit=5.0, retries=2)).curves(points(4))
    np.testing.assert_allclose(curves, true(points(4)), rtol=1e-14)
    assert failed == {}
    assert (points(4)[:, 1] < 0.7).any()


FAILING = {  # simulator, effort, words of the message
    "crashes": (QUICK, "fail, the last at rate=", "crashed by SIGSEGV"),
    "raises": (QUICK, "ZeroDivisionError: no photons"),
    "hangs": (IMPATIENT, "took longer than 0.3 s"),
    "nan": (QUICK, "returned NaN or infinity at 12 of 12 delays"),
    "short": (QUICK, "returned shape (11,), expected that of tau, (12,). Return |g1|^2 at every delay"),
    "g2": (QUICK, "but |g1|^2 is from 0 to 1"),
    "text": (QUICK, "ValueError"),
    "absent": (QUICK, "has no attribute 'absent'"),
}
FAILING_COMMANDS = {
    "crash": (QUICK, "crashed, exit code 1: out of licences"),
    "hang": (IMPATIENT, "took longer than 0.3 s"),
    "words": (QUICK, "what it wrote is no curve"),
    "nothing": (QUICK, "wrote no curve to {output}"),
}


@pytest.mark.parametrize("name", FAILING)
def test_failing_functions(file, name):
    effort, *words = FAILING[name]
    with pytest.raises(InputError) as error:
        runs(f"{file}:{name}", effort).curves(points(4))
    assert all(word in str(error.value) for word in words)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("how", FAILING_COMMANDS)
def test_failing_commands(file, how):
    effort, words = FAILING_COMMANDS[how]
    with pytest.raises(InputError) as error:
        runs([sys.executable, str(file), "{input}", "{output}", how], effort).curves(points(4))
    assert words in str(error.value)


def test_a_few_failed_runs_are_left_out(file):
    with pytest.warns(match="runs of the simulator failed and are left out: ValueError: no solution"):
        model = bayesfit.surrogate(f"{file}:crashes_in_a_corner", SPACE, TAU, budget=40, retries=0)
    learnt = model.stands_for.learnt
    assert np.all(learnt.points[:, 1] <= 0.98)
    assert 30 < len(learnt.points) < 39


def test_what_is_no_simulator(file):
    for given, words in (
        (3, "got 3, expected a simulator. Give a function, 'FILE.py:FUNCTION'"),
        (lambda p: p, "cannot be sent to worker processes. Define it at the top of a file"),
        (f"{file}:not a name", "Write it as FILE.py:FUNCTION"),
    ):
        with pytest.raises(SettingsError) as error:
            Simulator.parse(given)
        assert words in str(error.value)
    with pytest.raises(InputError, match="no such file"):
        Simulator.parse("absent.py:curve")
    with pytest.raises(SettingsError, match="cannot be run: No such file or directory: no_such_command"):
        runs(["no_such_command"]).curves(points())


def test_a_module_that_workers_cannot_import(file):
    import simulators

    simulator = Simulator.parse(simulators.curve)
    file.write_text("raise SystemExit(7)")
    with pytest.raises(ProcessError, match="does not start: crashed, exit code"):
        runs(simulator).curves(points())


def test_runs_are_kept_and_damaged_ones_made_again(file):
    kept = runs(f"{file}:counted")
    curves, _ = kept.curves(points())
    again, _ = kept.curves(points(12))
    np.testing.assert_array_equal(again[:8], curves)
    files = sorted(kept.folder.glob("*.run"))
    assert len((file.parent / "log").read_text().split()) == len(files) == 12
    files[0].write_text(files[0].read_text()[:-9])
    stated = json.loads(files[1].read_text())
    stated["curve"][0] += 0.25
    files[1].write_text(json.dumps(stated))
    np.testing.assert_array_equal(kept.curves(points(12))[0], again)
    assert len((file.parent / "log").read_text().split()) == 14


def test_a_changed_simulator_with_an_old_cache(file, tmp_path):
    place = tmp_path / "runs"
    runs(f"{file}:curve", place=place).curves(points(3))
    before = {path: path.read_bytes() for path in place.iterdir()}
    file.write_text(SIMULATORS.replace("-2.0", "-2.1"))
    with pytest.raises(SettingsError) as error:
        bayesfit.surrogate(f"{file}:curve", SPACE, TAU, cache=place)
    assert "cache: holds 3 runs of another simulator, or another version of it" in str(error.value)
    assert str(error.value).endswith("Give another folder")
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    file.write_text(SIMULATORS)
    with pytest.raises(SettingsError, match="holds 3 runs of other delays"):
        bayesfit.surrogate(f"{file}:curve", SPACE, TAU * 2, cache=place)


def test_what_is_killed_goes_on(file, tmp_path):
    script = tmp_path / "learn.py"
    script.write_text(f"""
import bayesfit, numpy as np
from simulators import counted
if __name__ == "__main__":
    model = bayesfit.surrogate(counted, {SPACE}, np.geomspace(1e-4, 1.0, 12), budget=40, workers=2)
    print(model.stands_for.learnt.about["runs"])
""")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    log = tmp_path / "log"
    slow = subprocess.Popen([sys.executable, script], env={**environment, "SLOW": "0.2"}, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 60.0
    while not (log.exists() and len(log.read_text().split()) > 8):
        assert time.monotonic() < deadline
        assert slow.poll() is None
        time.sleep(0.05)
    slow.send_signal(signal.SIGKILL)
    slow.communicate()
    folder = next((Path(os.environ["XDG_CACHE_HOME"]) / "bayesfit" / "simulations").iterdir())
    made = len(list(folder.glob("*.run")))
    time.sleep(1.5)  # until the workers see that they are alone
    begun = len(log.read_text().split())
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["39"]
    assert made >= 6
    assert len(log.read_text().split()) - begun == 40 - made


def test_what_cannot_be_learnt(file):
    refused = {
        "budget: 29 runs are too few for 2 parameters. Give 30 or more": {"budget": 29},
        "budget: got 3.5": {"budget": 3.5},
        "space: holds 0 priors": {"space": {}},
        "space.rate: impossible prior": {"space": {"rate": "Uniform(2, 1)"}},
        "space: parameter name 'tau' is reserved": {"space": {"tau": "Uniform(1, 2)"}},
        "space.rate: expected one prior, not one per bin": {
            "space": {"rate": {"family": "Uniform", "low": [0.0, 1.0], "high": 2.0}}
        },
        "tau: expected rising delays above 0. Leave out 0": {"tau": np.linspace(0.0, 1.0, 12)},
        "time_limit: got 0": {"time_limit": 0},
        "parameters: unknown parameter 'rte'. Did you mean 'rate'?": {"parameters": [bayesfit.Parameter("rte")]},
        "data: got 3, expected curves": {"data": 3},
    }
    for words, change in refused.items():
        given = {"space": SPACE, "tau": TAU, **change}
        with pytest.raises(bayesfit.BayesfitError) as error:
            bayesfit.surrogate(f"{file}:counted", **given)
        assert words in str(error.value)
    assert not (file.parent / "log").exists()


def test_a_parameter_that_does_nothing(file):
    with pytest.raises(SettingsError, match=r"space.beta: does nothing: .* Leave it out of the space"):
        bayesfit.surrogate(f"{file}:idle", SPACE, TAU)


def test_a_call_by_its_own_worker(file, monkeypatch):
    monkeypatch.setenv(WORKER, "1")
    with pytest.raises(SettingsError, match='Put the call under: if __name__ == "__main__"'):
        bayesfit.surrogate(f"{file}:curve", SPACE, TAU)


def test_noise_of_the_simulator_is_stated(file):
    noisy = bayesfit.surrogate(f"{file}:noisy", SPACE, TAU, budget=40).stands_for.learnt.about
    exact = bayesfit.surrogate(f"{file}:curve", SPACE, TAU, budget=40).stands_for.learnt.about
    assert 0.003 < noisy["simulator_noise"] < 0.03
    assert exact["simulator_noise"] == 0.0


def test_noise_may_leave_the_range_and_is_not_cut_off(file):
    learnt = bayesfit.surrogate(f"{file}:noisy_outside", SPACE, TAU, budget=60).stands_for.learnt
    assert learnt.curves.min() < -0.01
    assert learnt.curves.max() > 1.01
    assert 0.015 < learnt.about["simulator_noise"] < 0.06
    late = learnt.curves[true(learnt.points) < 1e-3]
    assert abs(late.mean()) < 4.0 * 0.03 / np.sqrt(late.size)


def test_noise_is_told_by_all_runs_together():
    """Of 20,000 noisy curves some look smooth by themselves, and would be left out for the noise that they have."""
    at = Space.parse(SPACE).design(64, 0)
    rng = np.random.default_rng(0)
    curves = true(np.tile(at, (320, 1))) + rng.normal(0, 0.03, (64 * 320, 12))
    alone = [outside(curve[None]) for curve in curves]
    assert 0 < sum(len(each) for each in alone) < 40
    assert outside(curves) == {}
    (strange,) = np.flatnonzero([bool(each) for each in alone])[:1]
    assert outside(curves[[strange]], beside=curves[:5]) == {}
    curves[7, 3] = 1.19
    assert outside(curves[:60]) == {7: "returned 1.19, but |g1|^2 is from 0 to 1"}
    assert outside(np.full((2, 12), np.nan)) == {}


def test_a_parameter_that_noise_hides(file):
    with pytest.warns(match="space.beta: does nothing that the noise of the simulator does not hide"):
        bayesfit.surrogate(f"{file}:noisy_idle", SPACE, TAU, budget=60)


def test_command_line(file):
    priors = [word for name, prior in SPACE.items() for word in ("--prior", f"{name}={prior}")]
    np.savetxt(file.parent / "tau.txt", TAU)
    output = file.parent / "learnt.npz"
    given = f"{sys.executable} {file} {{input}} {{output}} npy"
    said = call("surrogate", given, "-o", output, *priors, "--tau", file.parent / "tau.txt", "--budget", 40)
    assert said.code == 0, said
    assert "held-out error of |g1|^2" in said.out
    assert bayesfit.get_model(output).name == "learnt"
    for words, arguments in (
        ("--tau: is needed where no data are given", (f"{file}:curve", "-o", output, *priors)),
        ("--prior: got 'rate'", (f"{file}:curve", "-o", output, "--prior", "rate")),
        ("saved in .npz alone. Name it learnt.npz", (f"{file}:curve", "-o", output.with_suffix(".nc"), *priors)),
    ):
        said = call("surrogate", *arguments)
        assert said.code != 0
        assert words in said.err
