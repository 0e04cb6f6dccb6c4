"""Backends: both behind one protocol, chosen by argument, context, process or environment."""

import importlib.util
import threading
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
    monkeypatch.delenv("BAYESFIT_BACKEND", raising=False)
    bayesfit.reset_backend()
    yield
    bayesfit.reset_backend()


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
