"""What the command line computes on, and `bayesfit doctor`. Each case needs a JAX that has not started yet, so that the
command runs as a program of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bayesfit
from bayesfit.api import self_check
from bayesfit.cli.main import app
from bayesfit.compute.errors import SettingsError
from bayesfit.modelling.settings import load_settings

DATA = Path(__file__).parent.parent / "data" / "aps_8idi_sim.hdf"
QUICK = ["--noise", "scaled", "--set", "draws=300"]


def bayesfit_command(*arguments, **environment):
    """Run the command as a user does; returns what it printed."""
    program = [str(Path(sys.executable).with_name("bayesfit")), *map(str, arguments)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done


def test_doctor_computes_the_known_answer_and_says_on_what():
    found = json.loads(bayesfit_command("doctor", "--json", BAYESFIT_CPU_DEVICES="3").stdout)
    assert found["fit"].startswith("right")
    assert found["devices"].startswith("3 x cpu")
    assert found["precision"] == "float64"
    assert found["bayesfit"] == bayesfit.__version__
    assert "jaxlib" in found["packages"]


def test_doctor_finds_a_wrong_answer(monkeypatch):
    mean, sd = self_check.exact()
    monkeypatch.setattr(self_check, "exact", lambda: (mean + sd, sd))
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "WRONG" in done.output


def test_the_exact_answer_is_that_of_a_normal_distribution_where_data_are_good():
    mean, sd = self_check.exact()
    slope = -2 * self_check.TAU * self_check.CONTRAST * np.exp(-2 * self_check.TAU)  # dg2/dlog(rate) at the truth
    assert sd == pytest.approx(self_check.ERROR / np.sqrt(np.sum(slope**2)), rel=0.05)
    assert abs(mean) < 3 * sd


def test_without_a_gpu_the_cpu_is_taken_with_a_warning_and_the_bits_are_the_same(tmp_path):
    usual = bayesfit_command("run", DATA, "-o", tmp_path / "usual", *QUICK)
    asked = bayesfit_command("run", DATA, "-o", tmp_path / "asked", "--device", "gpu", "--cpu-devices", 1, *QUICK)
    assert "no GPU" in asked.stderr
    assert "no GPU" not in usual.stderr
    results = [bayesfit.load(tmp_path / name / "aps_8idi_sim.nc") for name in ("usual", "asked")]
    assert results[0].posterior.equals(results[1].posterior)
    finished = bayesfit_command("run", DATA, "-o", tmp_path / "usual", "--cpu-devices", 1, *QUICK)
    assert "finished before" in finished.stdout  # what computes it does not make it another fit


def test_an_option_overrides_a_setting_and_a_setting_the_environment(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('device = "cpu"\n')
    environment = {"device": "gpu", "memory_fraction": 0.5}
    assert load_settings(config, (), environment).device == "cpu"
    assert load_settings(config, (), environment, device="auto").device == "auto"
    assert load_settings(config, (), environment).memory_fraction == 0.5


@pytest.mark.parametrize(
    ("name", "value"), [("device", "tpu"), ("memory_fraction", 0), ("memory_fraction", 1.5), ("cpu_devices", 0)]
)
def test_impossible_hardware_is_refused_by_name(name, value):
    with pytest.raises(SettingsError, match=name):
        load_settings(**{name: value})


def test_the_library_reads_no_variable_of_the_command_line(simulated):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DEVICE", "MEMORY_FRACTION", "CPU_DEVICES"):
            patch.setenv(f"BAYESFIT_{name}", "nonsense")
        result = bayesfit.fit(simulated[0].isel(q_bin=[0]), "single_exponential", noise="stated", draws=300)
    assert result["diagnostics"].verdict.values[0]


def test_numpyro_is_whole_after_arviz():
    """ArviZ leaves a lazy NumPyro, of which importing a module of a package would load that package twice."""
    code = "import arviz, bayesfit; bayesfit.fit; import numpyro; numpyro.distributions.distribution.Unit"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
