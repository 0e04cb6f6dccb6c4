"""Programs kept on disk: found again, made again where they are damaged, never taken for another's."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import bayesfit
from bayesfit._devices import Spread, gather, place
from bayesfit._prepare import prepare


@pytest.fixture
def folder(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path / "traced"
    jax.config.update("jax_compilation_cache_dir", before)


def doubled(identity, log, width=4):
    def double(x):
        log.append(x.shape)
        return {"twice": 2.0 * x}

    return gather(Spread(double, identity)(place(jnp.arange(float(width)), 1)))["twice"].tolist()


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


def test_nothing_is_kept_without_an_identity(folder):
    log = []
    doubled(None, log)
    doubled(None, log)
    assert len(log) == 2
    assert not folder.exists()


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
    import numpyro.distributions as dist

    def program(tau):
        return jnp.exp(-numpyro.sample("rate", dist.LogNormal(0.0, 2.0)) * tau)

    assert identity_of(bayesfit.Model(name="mine", program=program)) is None
