"""Compiled programs kept on disk and moved between devices: found again, made again where they are damaged, never taken
for another's."""

import dataclasses
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bayesfit
from bayesfit.compute import programs as _programs
from bayesfit.compute.devices import Spread, gather, place
from bayesfit.posterior.prepare import prepare


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESFIT_CACHE", str(tmp_path / "programs"))
    return tmp_path / "programs"


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


def test_one_compilation_serves_every_device(folder, compilations):
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
    assert len(list(folder.iterdir())) == 1


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


def test_a_program_is_traced_once(folder):
    log = []
    assert doubled("double", log) == doubled("double", log) == [0.0, 2.0, 4.0, 6.0]
    assert len(log) == 1
    assert len(list(folder.iterdir())) == 1


def test_another_identity_or_shape_is_another_program(folder):
    log = []
    for identity, width in (("one", 4), ("two", 4), ("two", 6)):
        doubled(identity, log, width)
    assert len(log) == len(list(folder.iterdir())) == 3


def half(whole):
    return whole[: len(whole) // 2]


def flipped(whole):
    return whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: b"not a program", half, flipped])
def test_a_damaged_file_is_made_anew(folder, damage):
    log = []
    doubled("double", log)
    path = next(folder.iterdir())
    path.write_bytes(damage(path.read_bytes()))
    assert doubled("double", log) == [0.0, 2.0, 4.0, 6.0]
    assert len(log) == 2
    doubled("double", log)
    assert len(log) == 2


def test_without_an_identity_a_program_is_known_by_its_text(folder, compilations):
    """It is traced every time, and compiled once; another function of the same shapes is another program."""
    log = []
    assert doubled(None, log) == doubled(None, log) == [0.0, 2.0, 4.0, 6.0]
    assert len(log) == 2
    assert len(compilations) == 1
    tripled = gather(Spread(lambda x: {"twice": 3.0 * x})(place(jnp.arange(4.0), 1)))["twice"].tolist()
    assert tripled == [0.0, 3.0, 6.0, 9.0]


def test_nothing_is_kept_where_the_folder_is_named_empty(monkeypatch, compilations):
    monkeypatch.setenv("BAYESFIT_CACHE", "")
    log = []
    doubled("double", log)
    doubled("double", log)
    assert len(log) == len(compilations) == 2


def test_the_oldest_programs_go_first(folder, monkeypatch):
    monkeypatch.setattr(_programs, "MOST_KEPT", 2)
    log = []
    for age, identity in enumerate(("one", "two", "three")):
        doubled(identity, log)
        for path in folder.iterdir():
            os.utime(path, (path.stat().st_mtime - 10 + age,) * 2)
    assert len(list(folder.iterdir())) == 2
    doubled("three", log)
    assert len(log) == 3


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


def fit_with(data, contrast=0.15, across=None, **choices):
    data = data.assign_attrs(contrast_prior=f"TruncatedNormal({contrast}, 0.2, low=0)")
    plain = {"noise": "stated", "draws": 8, "target_ess": 0.0}
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
