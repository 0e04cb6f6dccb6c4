"""What a GPU computes is the distribution that the CPU computes. Each fit is a command of its own, since JAX starts
once; skipped where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import bayesfit
from bayesfit.sample.convergence import ess_mean

DATA = Path(__file__).parent.parent / "data" / "aps_8idi_sim.hdf"


def bayesfit_command(*arguments):
    """Run the command as a user does; returns what it printed."""
    program = [sys.executable, "-c", "from bayesfit.cli.main import app; app()", *map(str, arguments)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def gpu():
    asked = "import sys; from bayesfit.compute.hardware import has_gpu; sys.exit(not has_gpu())"
    if subprocess.run([sys.executable, "-c", asked], capture_output=True, check=False).returncode:
        pytest.skip("no GPU on this machine")


def test_doctor_on_the_gpu(gpu):
    found = json.loads(bayesfit_command("doctor", "--json", "--device", "gpu"))
    assert found["fit"].startswith("right")
    assert "cpu" not in found["devices"].lower()


@pytest.mark.parametrize("noise", ["scaled", "smooth"])
def test_posteriors_are_those_of_the_cpu(gpu, noise, tmp_path):
    results = []
    for device in ("cpu", "gpu"):
        bayesfit_command("run", DATA, "-o", tmp_path / device, "--device", device, "--noise", noise, "--no-report")
        results.append(bayesfit.load(next((tmp_path / device).rglob("*.nc"))))
    verdicts = [result["diagnostics"].verdict.values for result in results]
    assert np.array_equal(*verdicts)
    drawn = verdicts[0] != "unusable_data"
    log_rates = [np.log(np.moveaxis(result["posterior"].rate.values, -1, 0)[drawn]) for result in results]
    means, sds = ([measure(own) for own in log_rates] for measure in (mean, sd))
    errors = [own_sd / np.sqrt(ess_mean(own)) for own, own_sd in zip(log_rates, sds, strict=True)]
    chi2 = np.sum((means[0] - means[1]) ** 2 / np.sum(np.square(errors), axis=0))
    assert stats.chi2.sf(chi2, means[0].size) > 1e-4
    assert np.all(np.abs(np.log(sds[0] / sds[1])) < 0.25)


def mean(draws):
    return draws.mean((1, 2))


def sd(draws):
    return draws.std((1, 2))


def test_the_gpu_repeats_its_bits_whatever_the_neighbours(gpu):
    program = (
        "import numpy as np, bayesfit; curves, _ = bayesfit.simulate(bins=12, seed=3);"
        "draws = lambda data: bayesfit.fit(data, noise='scaled', seed=5)['posterior'].rate;"
        "whole, part = draws(curves), draws(curves.isel(q_bin=[7, 2]));"
        "assert np.array_equal(whole.isel(q_bin=[7, 2]), part)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
