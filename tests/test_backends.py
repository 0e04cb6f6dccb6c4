"""Backends: both behind one protocol, chosen by argument, context, process or environment."""

import importlib.util
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfit
from bayesfit.backends.protocol import BackendProtocol

BOTH = ("numpy", "jax")


class Pair(NamedTuple):
    one: Any
    other: Any


@pytest.fixture(autouse=True)
def unchosen(monkeypatch):
    for name in ("BACKEND", "DEVICE", "MEMORY_FRACTION"):
        monkeypatch.delenv(f"BAYESFIT_{name}", raising=False)
    bayesfit.reset_backend()
    bayesfit.reset_device()
    yield
    bayesfit.reset_backend()
    bayesfit.reset_device()


@pytest.mark.parametrize("name", BOTH)
def test_both_are_backends(name):
    backend = bayesfit.get_backend(name)
    assert isinstance(backend, BackendProtocol)
    assert backend.name == name
    assert bayesfit.get_backend(name) is backend


@pytest.mark.parametrize("name", BOTH)
def test_numbers_are_double_whatever_the_library_is_set_to(name):
    backend = bayesfit.get_backend(name)
    assert not jax.config.jax_enable_x64
    assert backend.asarray(np.float32(0.1)).dtype == np.float64
    assert backend.asarray([1, 2]).dtype.kind == "i"
    tenth = backend.jit(lambda x: x / 3.0)(backend.asarray(1.0))
    assert float(tenth) == 1.0 / 3.0
    assert not jax.config.jax_enable_x64


def test_what_each_can_do():
    numpy, with_jax = map(bayesfit.get_backend, BOTH)
    assert (with_jax.supports_grad, with_jax.supports_jit, with_jax.supports_gpu) == (True, True, True)
    assert (numpy.supports_grad, numpy.supports_jit, numpy.supports_gpu) == (False, False, False)
    assert float(with_jax.grad(lambda x: x**3)(with_jax.asarray(2.0))) == 12.0
    assert numpy.jit(np.sin) is np.sin
    with pytest.raises(bayesfit.SettingsError, match="NumPy has no gradients"):
        numpy.grad(np.sin)


def test_a_static_argument_is_part_of_the_program():
    ones = bayesfit.get_backend("jax").jit(lambda x, shape: x + jnp.zeros(shape), static=("shape",))
    assert ones(jnp.float32(1.0), shape=(2, 3)).shape == (2, 3)


def test_an_argument_comes_before_context_process_and_environment(monkeypatch):
    assert bayesfit.get_backend().name == "jax"
    monkeypatch.setenv("BAYESFIT_BACKEND", "numpy")
    assert bayesfit.get_backend().name == "numpy"
    bayesfit.set_backend("jax")
    assert bayesfit.get_backend().name == "jax"
    with bayesfit.use_backend("numpy"):
        assert bayesfit.get_backend().name == "numpy"
        assert bayesfit.get_backend("jax").name == "jax"
    assert bayesfit.get_backend().name == "jax"
    bayesfit.reset_backend()
    assert bayesfit.get_backend().name == "numpy"


def test_a_context_is_of_its_thread_alone():
    found = []
    with bayesfit.use_backend("numpy"):
        thread = threading.Thread(target=lambda: found.append(bayesfit.get_backend().name))
        thread.start()
        thread.join()
    assert found == ["jax"]


def test_unknown_names_are_refused(monkeypatch):
    for choose in (bayesfit.get_backend, bayesfit.set_backend):
        with pytest.raises(bayesfit.SettingsError, match=r"there is no backend 'nunpy'.*numpy"):
            choose("nunpy")
    monkeypatch.setenv("BAYESFIT_BACKEND", "torch")
    with pytest.raises(bayesfit.SettingsError, match="torch"):
        bayesfit.get_backend()


def test_without_jax_numpy_runs_and_jax_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert bayesfit.get_backend("auto").name == "numpy"
    with pytest.raises(ImportError, match="pip install jax"):
        bayesfit.get_backend("jax")


def test_arrays_of_any_library_become_writable_copies():
    ones = np.ones(2)
    given = {"a": [jnp.ones(2), (ones, "word")], "pair": Pair(jnp.zeros(1), None), "number": 3}
    found = bayesfit.ensure_numpy(given)
    assert isinstance(found["pair"], Pair)
    assert found["pair"].other is None
    assert found["number"] == 3
    for array in (found["a"][0], found["a"][1][0], found["pair"].one):
        assert isinstance(array, np.ndarray)
        array[:] = 5
    assert ones.tolist() == [1, 1]
    assert found["a"][1][1] == "word"


def test_masks_are_kept_and_numbers_stay_numbers():
    given = {"masked": np.ma.masked_less(np.arange(3), 1), "number": np.float64(2.0)}
    found = bayesfit.ensure_numpy(given)
    assert found["masked"].mask.tolist() == [True, False, False]
    assert type(found["number"]) is np.float64


# ---- devices


def test_devices_are_listed_and_chosen():
    assert bayesfit.list_devices()[-1].name.startswith("cpu:")
    assert bayesfit.get_device() is None
    chosen = bayesfit.set_device("cpu")
    assert chosen.name == "cpu:0"
    assert bayesfit.get_device() == jax.local_devices(backend="cpu")[0]
    assert bayesfit.get_backend("jax").asarray(1.0).devices() == {bayesfit.get_device()}
    bayesfit.reset_device()
    assert bayesfit.get_device() is None


def test_without_a_gpu_it_warns_and_takes_the_processor(monkeypatch):
    if any(not device.name.startswith("cpu") for device in bayesfit.list_devices()):
        pytest.skip("there is a GPU")
    monkeypatch.setenv("BAYESFIT_DEVICE", "gpu")
    bayesfit.reset_device()
    with pytest.warns(UserWarning, match="no GPU"):
        assert bayesfit.get_backend("jax").asarray(1.0).devices() == {jax.local_devices(backend="cpu")[0]}
    bayesfit.get_device()  # which is said once


def test_memory_comes_too_late_once_jax_runs():
    with pytest.warns(UserWarning, match="memory fraction 0.5: JAX runs already"):
        bayesfit.set_device("cpu", memory_fraction=0.5)


def test_impossible_devices_are_refused(monkeypatch):
    with pytest.raises(bayesfit.SettingsError, match="there is no device 'tpu'"):
        bayesfit.set_device("tpu")
    with pytest.raises(bayesfit.SettingsError, match="memory_fraction: got 2"):
        bayesfit.set_device(memory_fraction=2)
    monkeypatch.setenv("BAYESFIT_MEMORY_FRACTION", "half")
    with pytest.raises(bayesfit.SettingsError, match="BAYESFIT_MEMORY_FRACTION: got 'half'"):
        bayesfit.get_backend("jax").asarray(1.0)


def test_all_threads_have_one_device(monkeypatch):
    monkeypatch.setenv("BAYESFIT_DEVICE", "cpu")
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: bayesfit.get_device(), range(64)))
    assert found == {jax.local_devices(backend="cpu")[0]}


def test_memory_is_chosen_before_jax_starts():
    """In a process of its own, by the environment alone, and read when an array is first made."""
    program = (
        "import os, bayesfit; assert 'XLA_CLIENT_MEM_FRACTION' not in os.environ;"
        "bayesfit.get_backend('jax').asarray(1.0); print(os.environ['XLA_CLIENT_MEM_FRACTION'])"
    )
    own = {"BAYESFIT_DEVICE": "cpu", "BAYESFIT_MEMORY_FRACTION": "0.25"}
    clean = {name: value for name, value in os.environ.items() if "MEM_FRACTION" not in name}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=clean | own)
    assert (done.stdout.strip(), done.stderr) == ("0.25", "")
