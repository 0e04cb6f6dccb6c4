"""Shared by all tests: JAX set up once, and one fit that many tests look at."""

from pathlib import Path

import jax
import pytest

import bayesfit

ROOT = Path(__file__).parent.parent


def pytest_configure(config):
    """Two CPU devices, as the command line has on two cores, and a compilation cache for this run's processes."""
    jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real measurements; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}")
    return folder


@pytest.fixture(scope="session")
def simulated():
    """Twelve simulated bins with their truth; bin 3 is dead."""
    return bayesfit.simulate(bins=12, seed=5, wrong_errors=True, zero_pairs=0.1, dead_bin=3)


@pytest.fixture(scope="session")
def fitted(simulated):
    """The default fit of the simulated bins."""
    return bayesfit.fit(simulated[0], seed=1)
