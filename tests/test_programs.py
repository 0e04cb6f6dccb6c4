"""Compiled programs kept on disk and moved between devices: found again, made again where they are damaged, never taken
for another's."""

import dataclasses
import hashlib
import json
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from in_process import bayesfit as command_line
from jax.experimental.compilation_cache import compilation_cache

import bayesfit
from bayesfit.compute import memory_maps, operations, program_files, signed_files
from bayesfit.compute.devices import Spread, gather, place
from bayesfit.compute.memory_maps import PROGRAMS
from bayesfit.compute.operations import computing
from bayesfit.compute.patience import patiently, small_program
from bayesfit.posterior.prepare import prepare
from bayesfit.sample.nuts import Point


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(program_files, "_CHOSEN", {})
    (tmp_path / "bayesfit").mkdir()
    return tmp_path / "bayesfit" / "programs"


def kept_in(folder):
    """The files of programs, without the secret."""
    return iter(sorted(folder.glob("[!.]*")))


@pytest.fixture
def compilations(monkeypatch):
    """Grows by one with each compilation."""
    made, compiled = [], Spread._compiled

    def counted(self, share, lowered=None):
        made.append(share)
        return compiled(self, share, lowered)

    monkeypatch.setattr(Spread, "_compiled", counted)
    return made


def doubled(identity, log, width=4, devices=1):
    def double(x):
        log.append(x.shape)
        return {"twice": 2.0 * x}

    return gather(Spread(double, identity)(place(jnp.arange(float(width)), devices)))["twice"].tolist()


def test_one_compilation_serves_every_worker(folder, compilations):
    log = []
    assert doubled("double", log, devices=2) == [0.0, 2.0, 4.0, 6.0]
    assert doubled("double", log, devices=2) == [0.0, 2.0, 4.0, 6.0]
    assert len(compilations) == 1


def test_linear_algebra_is_kept_and_moved(folder):
    """Programs that call LAPACK, loaded in a process that has not called it."""
    script = """
        import jax, jax.numpy as jnp, numpy as np
        jax.config.update("jax_num_cpu_devices", 2)
        from bayesfit.compute.devices import Spread, gather, place
        run = Spread(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(3)), "root")
        x = np.random.default_rng(0).standard_normal((4, 3, 3))
        got = gather(run(place(x, 2)))
        expected = np.linalg.cholesky(x @ np.swapaxes(x, 1, 2) + np.eye(3))
        np.testing.assert_allclose(got, expected, rtol=1e-4)
    """
    for _ in range(2):
        subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env={**os.environ})
    assert len(list(kept_in(folder))) == 1


def test_jaxs_own_cache_may_be_on(folder, tmp_path):
    """What JAX has read from its cache cannot be moved: each device then has a compilation of its own."""
    script = f"""
        import jax, numpy as np
        jax.config.update("jax_num_cpu_devices", 2)
        jax.config.update("jax_compilation_cache_dir", {str(tmp_path / "jax")!r})
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        from bayesfit.compute.devices import Spread, gather, place
        run = Spread(lambda x: jax.numpy.sort(x)[::-1], "sorted")
        x = np.random.default_rng(0).standard_normal((4, 30)).astype(np.float32)
        np.testing.assert_array_equal(gather(run(place(x, 2))), -np.sort(-x))
    """
    for _ in range(2):
        subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env={**os.environ})


def test_cores_of_one_device_compute_at_once():
    """Each of two parts waits until the other is computed, too."""
    script = """
        import threading
        import jax, jax.numpy as jnp, numpy as np
        import bayesfit
        bayesfit.set_device("cpu", cpu_devices=2)
        from bayesfit.compute.devices import Spread, gather, place
        both = threading.Barrier(2, timeout=60)
        def wait(x):
            both.wait()
            return x
        form = jax.ShapeDtypeStruct((3,), np.float32)
        waited = lambda x: 2.0 * jax.pure_callback(wait, form, x, vmap_method="expand_dims")
        x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
        assert jax.local_device_count() == 1
        np.testing.assert_array_equal(gather(Spread(waited)(place(x))), 2.0 * x)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, env={**os.environ})


def test_a_sleeping_compiler_is_woken():
    """A compilation that ends only when another one is asked for, and errors that are its own."""
    sleeping, woken = Future(), []

    def wake():
        woken.append(small_program().compile()(np.zeros(16, np.float32)))
        if len(woken) == 2:
            sleeping.set_result("compiled")

    assert patiently(sleeping, wake, every=0.01) == "compiled"
    np.testing.assert_array_equal(woken, np.ones((2, 16)))
    failed = Future()
    failed.set_exception(TimeoutError("its own"))
    with pytest.raises(TimeoutError, match="its own"):
        patiently(failed, wake, every=0.01)
    assert small_program().as_text() != small_program().as_text()


def test_a_program_is_traced_once(folder):
    log = []
    assert doubled("double", log) == doubled("double", log) == [0.0, 2.0, 4.0, 6.0]
    assert len(log) == 1
    assert len(list(kept_in(folder))) == 1


def test_another_identity_or_shape_is_another_program(folder):
    log = []
    for identity, width in (("one", 4), ("two", 4), ("two", 6)):
        doubled(identity, log, width)
    assert len(log) == len(list(kept_in(folder))) == 3


def half(whole):
    return whole[: len(whole) // 2]


def flipped(whole):
    return whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: b"not a program", half, flipped])
def test_a_damaged_file_is_made_anew(folder, damage):
    log = []
    doubled("double", log)
    path = next(kept_in(folder))
    path.write_bytes(damage(path.read_bytes()))
    assert doubled("double", log) == [0.0, 2.0, 4.0, 6.0]
    assert len(log) == 2
    doubled("double", log)
    assert len(log) == 2


class Planted:
    """What runs a command when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_no_file_of_somebody_else_is_used(folder, tmp_path):
    """Not a pickle, not one with a hash made anew, and not a program of another secret."""
    log = []
    doubled("double", log)
    path = next(kept_in(folder))
    own, bomb = path.read_bytes(), pickle.dumps((Planted(tmp_path / "owned"), b""))
    forged = own[signed_files.HASHED :]
    for content in (bomb, hashlib.sha256(bomb).digest() + bomb, hashlib.sha256(forged).digest() + forged):
        path.write_bytes(content)
        assert doubled("double", log) == [0.0, 2.0, 4.0, 6.0]
    assert len(log) == 4
    assert not (tmp_path / "owned").exists()
    (folder / signed_files.SECRET).write_bytes(b"x" * signed_files.HASHED)
    doubled("double", log)
    assert len(log) == 5


def test_exchanged_programs_never_run(folder):
    def run(factor):
        program = Spread(lambda x: factor * x, f"times {factor}")
        return gather(program(place(jnp.ones(2), 1))).tolist()

    assert (run(2.0), run(3.0)) == ([2.0, 2.0], [3.0, 3.0])
    first, second = kept_in(folder)
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    assert (run(2.0), run(3.0)) == ([2.0, 2.0], [3.0, 3.0])


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_where_others_may_write_is_refused(folder, mode):
    folder.mkdir()
    folder.chmod(mode)
    with pytest.warns(bayesfit.compute.errors.BayesfitWarning, match="others may write there"):
        assert doubled("double", []) == [0.0, 2.0, 4.0, 6.0]
    with computing():
        assert cubed() == 8.125
    assert not list(folder.iterdir())


def test_the_folder_and_its_secret_are_private(folder):
    doubled("double", [])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / signed_files.SECRET).stat().st_mode & 0o777 == 0o600
    (folder / signed_files.SECRET).chmod(0o644)
    log = []
    with pytest.warns(bayesfit.compute.errors.BayesfitWarning, match="others may read it"):
        doubled("double", log)
    assert len(log) == 1


def test_what_a_program_returns_is_described_and_nothing_else_is_built():
    made = {"a": (jax.ShapeDtypeStruct((2, 3), np.float64), None), "b": [Point(*[jax.ShapeDtypeStruct((), int)] * 4)]}
    again = program_files.described(json.loads(json.dumps(program_files.description(made))))
    assert jax.tree.structure(again) == jax.tree.structure(made)
    first = jax.tree.leaves(again)[0]
    assert (first.shape, first.dtype) == ((2, 3), np.float64)
    for module, name in (("os", "stat_result"), ("bayesfit.compute.devices", "Spread"), ("bayesfit.compute", "os")):
        with pytest.raises(ValueError, match=name if module.startswith("bayesfit") else module):
            program_files.described({"named": [module, name], "items": []})


def test_without_an_identity_a_program_is_known_by_its_text(folder, compilations):
    """It is traced every time, and compiled once; another function of the same shapes is another program."""
    log = []
    assert doubled(None, log) == doubled(None, log) == [0.0, 2.0, 4.0, 6.0]
    assert len(log) == 2
    assert len(compilations) == 1
    tripled = gather(Spread(lambda x: {"twice": 3.0 * x})(place(jnp.arange(4.0), 1)))["twice"].tolist()
    assert tripled == [0.0, 3.0, 6.0, 9.0]


def test_programs_are_kept_where_the_user_says(folder, tmp_path):
    bayesfit.set_cache(tmp_path / "elsewhere")
    doubled("double", [])
    assert len(list(kept_in(tmp_path / "elsewhere"))) == 1
    assert not folder.exists()


def test_the_command_line_alone_reads_its_variables(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("BAYESFIT_CACHE", str(tmp_path / "elsewhere"))
    doubled("double", [])
    assert len(list(kept_in(folder))) == 1
    assert json.loads(command_line("doctor", "--json").out)["cache"] == str(tmp_path / "elsewhere")
    assert json.loads(command_line("doctor", "--json", "--cache", "none").out)["cache"] == "none"


def test_nothing_is_kept_where_there_is_no_cache(folder, compilations):
    bayesfit.set_cache(None)
    log = []
    doubled("double", log)
    doubled("double", log)
    assert len(log) == len(compilations) == 2


def test_programs_that_were_not_used_for_longest_go_first(folder, monkeypatch):
    monkeypatch.setattr(program_files, "MOST_KEPT", 2)
    log = []
    for age, identity in enumerate(("one", "two", "one", "three")):
        doubled(identity, log)
        for path in kept_in(folder):
            os.utime(path, (path.stat().st_mtime - 10 + age,) * 2)
    assert len(log) == 3
    assert len(list(kept_in(folder))) == 2
    doubled("three", log)
    doubled("one", log)
    assert len(log) == 3


@pytest.fixture
def found(folder):
    """What JAX has found on disk instead of compiling it."""
    events = []

    def heard(event, **_):
        events.append(event)

    jax.monitoring.register_event_listener(heard)
    yield lambda: events.count("/jax/compilation_cache/cache_hits")
    jax.monitoring.unregister_event_listener(heard)


def cubed():
    """An operation that JAX compiles, as if in a new process."""
    jax.clear_caches()
    return float(jax.jit(lambda x: x**3 + 0.125)(2.0))


def test_operations_that_jax_compiles_on_the_way_are_kept(folder, found):
    for hits in (0, 1):
        with computing():
            assert cubed() == 8.125
        assert found() == hits
    assert (folder / operations.FOLDER).stat().st_mode & 0o777 == 0o700


def test_operations_outside_bayesfit_are_not_kept(folder, found):
    assert cubed() == cubed() == 8.125
    with computing():
        pass
    assert cubed() == 8.125
    assert found() == 0
    assert not folder.exists()
    assert jax.config.jax_compilation_cache_dir is None


def test_programs_do_not_pass_through_the_files_of_operations(folder):
    """They are compiled in other threads; read back as an operation, a program could not be kept again."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    try:
        for _ in range(2):
            with computing():
                assert doubled("double", []) == doubled("double", []) == [0.0, 2.0, 4.0, 6.0]
            for path in kept_in(folder):
                path.unlink()
            jax.clear_caches()
        with computing(), ThreadPoolExecutor(1) as elsewhere:
            kept = len(list((folder / operations.FOLDER).glob("[!.]*")))
            assert elsewhere.submit(cubed).result() == 8.125
            assert len(list((folder / operations.FOLDER).glob("[!.]*"))) == kept
    finally:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)


@pytest.mark.parametrize("content", [lambda held: b"", lambda held: held[:-1] + bytes([held[-1] ^ 1])])
def test_a_damaged_operation_is_compiled_again(folder, found, content):
    for _ in range(2):
        with computing():
            assert cubed() == 8.125
        for path in kept_in(folder / operations.FOLDER):
            path.write_bytes(content(path.read_bytes()))
    assert found() == 0


def test_no_operation_is_kept_without_a_cache(folder, found):
    bayesfit.set_cache(None)
    for _ in range(2):
        with computing():
            assert cubed() == 8.125
    assert found() == 0
    assert not folder.exists()


def test_the_users_own_cache_of_jax_is_left_alone(folder, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    try:
        with computing():
            cubed()
        assert not folder.exists()
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()


def test_a_folder_that_cannot_be_written_keeps_nothing(folder):
    folder.write_text("a file where the folder should be")
    log = []
    assert doubled("double", log) == [0.0, 2.0, 4.0, 6.0]


def identity_of(model, **options):
    data, _ = bayesfit.simulate(bins=2, seed=1)
    with jax.enable_x64(True):
        return prepare(data, model, **options).posterior.identity


def test_identity_tells_apart_what_is_traced_apart():
    plain = bayesfit.get_model("stretched_exponential")
    started = dataclasses.replace(plain, start={"rate": 1.0, "beta": 1.0})
    identities = [
        identity_of(plain),
        identity_of(started),
        identity_of("single_exponential"),
        identity_of(plain, noise="stated"),
        identity_of(plain, fixed={"beta": 1.0}),
        identity_of(plain, priors={"rate": "LogNormal(0, 1)"}),
    ]
    assert len(set(identities)) == len(identities)
    assert None not in identities


def test_a_users_model_has_no_identity():
    import numpyro

    def program(tau):
        return jnp.exp(-numpyro.sample("rate", dist.LogNormal(0.0, 2.0)) * tau)

    assert identity_of(bayesfit.Model(name="mine", program=program)) is None


@pytest.fixture(scope="module")
def few():
    data, _ = bayesfit.simulate(bins=2, seed=1)
    return data


def fit_with(data, contrast=0.15, across=None, noise="stated", **choices):
    data = data.assign_attrs(contrast_prior=f"TruncatedNormal({contrast}, 0.2, low=0)")
    plain = {"noise": noise, "draws": 8, "target_ess": 0.0}
    return bayesfit.fit(data, "single_exponential", across=across, **plain, **choices)


def test_a_changed_prior_compiles_nothing(few, compilations):
    """Numbers of priors and fixed values are data of the bins, one for all or one for each; also those that a pipeline
    gives."""
    first = fit_with(few, priors={"rate": "LogNormal(3, 2)"}, fixed={"baseline": 1.0})
    made = len(compilations)
    others = [
        fit_with(few, priors={"rate": "LogNormal(2, 2)"}, fixed={"baseline": 1.0}),
        fit_with(few, priors={"rate": "LogNormal(3, 2)"}, fixed={"baseline": 1.001}),
        fit_with(few, priors={"rate": "LogNormal(3, 2)"}, fixed={"baseline": 1.0}, contrast=0.5),
        fit_with(few, priors={"rate": dist.LogNormal(np.array([1.0, 2.5]), 2.0)}, fixed={"baseline": [1.0, 0.999]}),
    ]
    assert len(compilations) == made
    for other in others:
        assert not (other.posterior.rate == first.posterior.rate).all("draw").any()


def test_a_changed_prior_of_what_bins_have_in_common_compiles_nothing(few, compilations):
    across = {"rate": {"name": "diffusion", "scatter": True}}
    numbers = [(10, 0.15, 0.1), (11, 0.5, 0.2)]
    for loc, contrast, scatter in numbers:
        made = len(compilations)
        fit_with(few, contrast, across, priors={"D": f"LogNormal({loc}, 3)"}, fixed={"rate_scatter": scatter})
    assert len(compilations) == made


def pieces_of_memory():
    return memory_maps.TAKEN.read_bytes().count(b"\n")


@pytest.mark.skipif(not memory_maps.TAKEN.exists(), reason="this system does not state the memory map of a process")
def test_programs_are_given_back_before_memory_maps_run_out(few, monkeypatch):
    """Beyond the limit the compiler would end the process; draws are the same from programs that were loaded again."""
    first = fit_with(few)
    fit_with(few, noise="scaled")
    before = pieces_of_memory()
    monkeypatch.setattr(memory_maps, "SHARE", 0.0)
    monkeypatch.setattr(memory_maps, "MARGIN", 0.0)
    for noise in ("speckle", "robust"):
        fit_with(few, noise=noise)
        assert pieces_of_memory() < before + 500
    again = fit_with(few)
    np.testing.assert_array_equal(again.posterior.rate, first.posterior.rate)
    loaded = [spread for spread in PROGRAMS if spread.programs]
    monkeypatch.setattr(memory_maps, "SHARE", 0.9)
    fit_with(few, noise="scaled")
    assert all(spread.programs for spread in loaded)
