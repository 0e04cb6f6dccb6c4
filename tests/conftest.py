"""Shared by all tests: JAX set up once, and one fit that many tests look at."""

import ctypes
import os
import sys
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")  # as for the engine's own programs

import jax
import pytest

import bayesfit
from bayesfit.compute.memory_maps import PROGRAMS, give_back

os.environ["COLUMNS"] = "200"  # what is printed does not depend on who runs the tests


ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session", autouse=True)
def kept_programs(tmp_path_factory):
    """One folder of compiled programs for this run's processes; pytest's workers have folders under a common one."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    os.environ.pop("BAYESFIT_CACHE", None)


@pytest.fixture(scope="module", autouse=True)
def compiled_programs():
    """Give back each module's compiled programs: a process may map a limited number of pieces of memory."""
    yield
    give_programs_back()


def give_programs_back():
    """Let go of all compiled programs, and of the memory that they were compiled in."""
    give_back(list(PROGRAMS))
    jax.clear_caches()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


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
    """The fit of the simulated bins."""
    return bayesfit.fit(simulated[0], noise="scaled", seed=1)
