"""Tabulated master curves: the shape and its ends, what is refused, fits, and that no table is taken for another."""

import json
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, substitute
from planted import forget_programs
from shipped import g1

import bayesfit
from bayesfit import InputError, SettingsError
from bayesfit.compute.devices import Spread
from bayesfit.modelling.settings import load_settings
from bayesfit.models import master_curve
from bayesfit.models.master_curve import make
from bayesfit.posterior.bin_likelihood import likelihoods
from bayesfit.posterior.prepare import prepare

PROGRAM = Path(sys.executable).parent / "bayesfit"
X = np.geomspace(1e-3, 30.0, 200)
EXPONENTIAL = X, np.exp(-X)
RATES = np.geomspace(0.5, 50.0, 6)
SIGMA, CONTRAST = 0.004, 0.2


def curves_of(g1, seed=3):
    """Curves of a master curve in closed form at RATES."""
    tau = np.geomspace(1e-3, 20.0, 48)
    noise = np.random.default_rng(seed).normal(0.0, SIGMA, (RATES.size, tau.size))
    g2 = 1.0 + CONTRAST * g1(RATES[:, None] * tau) ** 2 + noise
    return bayesfit.curves(tau, g2, np.full(g2.shape, SIGMA), q=np.sqrt(RATES / 2.0e4))


def given(table):
    return {"name": "master_curve", "table": table}


def of_rate(result):
    """Mean and sd of log rate (q_bin,)."""
    log_rate = np.log(result["posterior"].rate)
    return log_rate.mean(("chain", "draw")).values, log_rate.std(("chain", "draw")).values


def shape(table, x):
    """g1 squared at x, by the model's program."""
    with jax.enable_x64(True):
        program = substitute(make(table).program, {"rate": jnp.asarray(1.0)})
        return np.array(seed(program, 0)(jnp.asarray(x)))


# The shape


@pytest.mark.parametrize("g1", [lambda x: np.exp(-x), lambda x: np.exp(-(x**0.6)), g1, lambda x: np.exp(-(x**2))])
def test_shape_is_that_of_the_curve_also_outside_of_the_table(g1):
    """For forms whose ends are powers of x or nearly so."""
    x = np.geomspace(1e-8, 1e8, 4000)
    table = np.geomspace(2e-4, 60.0, 250)
    got = shape((table, g1(table)), x)
    inside = (x >= table[0]) & (x <= table[-1])
    np.testing.assert_allclose(got[inside], g1(x[inside]) ** 2, atol=2e-6)
    np.testing.assert_allclose(got[~inside], g1(x[~inside]) ** 2, atol=1e-5)
    assert np.all(got >= 0)
    assert got[0] == pytest.approx(1.0, abs=1e-4)
    assert got[-1] == pytest.approx(0.0, abs=1e-12)


def test_a_curve_that_turns_negative_is_squared_and_not_cut():
    x = np.geomspace(0.05, 60.0, 600)
    between = np.geomspace(0.1, 50.0, 99)
    np.testing.assert_allclose(shape((x, np.sinc(x / np.pi)), between), np.sinc(between / np.pi) ** 2, atol=1e-5)


TABLES = {
    "exponential": EXPONENTIAL,
    "coarse": (np.geomspace(0.02, 5.0, 12), np.exp(-np.geomspace(0.02, 5.0, 12))),
    "ends at 1 and 0": (np.geomspace(1e-9, 1e4, 300), np.exp(-np.geomspace(1e-9, 1e4, 300))),
    "noisy": (X, np.exp(-X) + 0.004 * np.random.default_rng(0).standard_normal(X.size)),
}


@pytest.mark.parametrize("name", TABLES)
def test_gradient_is_that_of_finite_differences_everywhere(name):
    """Inside, at each end and to both sides of it, and outside; the first derivative is continuous at the ends too."""
    x, values = TABLES[name]
    curve = master_curve.spline(np.log(x), values)
    ends = np.log(x[[0, -1]])
    near = np.add.outer(ends, [-1e-3, -1e-9, 0.0, 1e-9, 1e-3]).ravel()
    at = np.concatenate([np.linspace(ends[0] - 9.0, ends[1] + 9.0, 301), near])
    with jax.enable_x64(True):
        first = jax.grad(lambda log_x: curve(log_x[None])[0])
        slope, bend = (np.array(jax.jit(jax.vmap(derivative))(at)) for derivative in (first, jax.grad(first)))
        numeric = np.subtract(*(curve(jnp.asarray(at + step)) for step in (1e-6, -1e-6))) / 2e-6
    np.testing.assert_allclose(slope, numeric, atol=2e-4 if name == "noisy" else 1e-6)
    assert np.all(np.isfinite(bend))


def test_gradient_of_the_density_is_finite_wherever_the_prior_is():
    with jax.enable_x64(True):
        problem = prepare(curves_of(g1), given(EXPONENTIAL))
        bin = jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)
        z = jnp.stack([jnp.linspace(-30.0, 30.0, 121), jnp.zeros(121)], axis=1)
        value, slope = jax.jit(jax.vmap(jax.value_and_grad(lambda z: problem.posterior.log_density(z, bin))))(z)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(slope))


def test_prior_follows_the_tables_own_time_scale():
    """The same curve in another unit of time: the prior of the decay's time stays."""
    with jax.enable_x64(True):
        problems = [prepare(curves_of(g1), given((unit * X, np.exp(-X)))) for unit in (1.0, 1e-6)]
        bin = jax.tree.map(lambda array: jnp.asarray(array[0]), problems[0].bins)
        one, other = (float(p.posterior.curve(jnp.array([0.7]), bin)[1]["rate"]) for p in problems)
    assert other == pytest.approx(1e-6 * one, rel=1e-9)


# Tables that cannot be used

FINE = np.geomspace(1e-2, 8.0, 80)
JUMP = np.exp(-FINE) + 0.1 * (FINE < 0.5) * (FINE > 0.3)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ((FINE[30:], np.exp(-FINE[30:])), "begins at x = 0.12"),
        ((FINE[:50], np.exp(-FINE[:50])), "ends at x = 0.6"),
        ((FINE, 0.2 * np.exp(-2 * FINE)), "not near 1. Begin at a smaller x, and give g1"),
        ((FINE, 1.2 * np.exp(-FINE)), "outside -1 to 1"),
        ((FINE[::12], np.exp(-FINE[::12])), "7 points are too few"),
        ((FINE[::9], np.exp(-(FINE[::9] ** 2))), "too few points, or too noisy ones"),
        ((FINE, JUMP), "too few points, or too noisy ones"),
        ((np.append(0.0, FINE), np.append(1.0, np.exp(-FINE))), "x must be positive"),
        ((np.append(FINE, FINE[-1]), np.exp(-np.append(FINE, FINE[-1]))), "each value once"),
        ((FINE, np.where(FINE > 1, np.nan, np.exp(-FINE))), "is nan"),
        ((FINE, np.exp(-FINE[1:])), "of one length"),
        ((FINE, ["a"] * 80), "cannot be read as numbers"),
        (3.0, "cannot be read as numbers"),
        ({"x": [1.0]}, "'values' is missing"),
        ("nowhere.csv", "nowhere.csv: master_curve.table: no such file"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_one_line(table, words):
    with pytest.raises(InputError) as caught:
        bayesfit.get_model(given(table))
    assert words in str(caught.value)
    assert "master_curve.table" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("master_curve", "needs the option 'table'"),
        ({"name": "master_curve", "tabel": EXPONENTIAL}, "has no option 'tabel'. Did you mean 'table'?"),
        ({"name": "cumulant", "table": EXPONENTIAL}, "model 'cumulant': takes no options, got 'table'"),
        ({"name": "master_curv", "table": EXPONENTIAL}, "Did you mean 'master_curve'?"),
        ({"table": EXPONENTIAL}, "expected a model"),
    ],
)
def test_wrong_options_are_refused(spec, words):
    with pytest.raises(SettingsError) as caught:
        bayesfit.get_model(spec)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["x,g1\n{}", "# a comment\n{}", "{}"])
def test_a_file_is_a_table_and_its_hash_is_kept(tmp_path, text):
    path = tmp_path / "g1.csv"
    path.write_text(
        text.format(
            "\n".join(f"{x!r}, {y!r}" for x, y in zip(*(column.tolist() for column in EXPONENTIAL), strict=True))
        )
    )
    table = bayesfit.read_table(path)
    np.testing.assert_array_equal((table.x, table.values), EXPONENTIAL)
    model = bayesfit.get_model(given(path))
    assert model.options["table"]["file"] == path.name
    assert len(model.options["table"]["sha256"]) == 64
    assert bayesfit.get_model({"name": "master_curve", **json.loads(json.dumps(model.options))}) is model


def test_settings_name_a_model_and_its_options(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[model]\nname = "master_curve"\ntable = "g1.csv"\n')
    expected = {"name": "master_curve", "table": "g1.csv"}
    assert load_settings(path).model == load_settings(path, model="master_curve").model == expected
    assert load_settings(None, ["model.name=master_curve", "model.table=g1.csv"]).model == expected
    assert load_settings(None, ["model.table=g1.csv"], model="master_curve").model == expected
    assert load_settings(path, model="cumulant").model == "cumulant"
    with pytest.raises(SettingsError, match="model: input should be a valid string, got 3"):
        load_settings(None, ["model=3"])


# Models that are made


MAKER = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from bayesfit import Model

def make(power, offset=0.0):
    def program(tau):
        return jnp.exp(-2.0 * (numpyro.sample("rate", dist.LogNormal(0.0, 2.0)) * tau) ** power)
    return Model("powered", program)
"""


def test_a_users_file_may_make_its_model(tmp_path):
    path = tmp_path / "powered.py"
    path.write_text(MAKER)
    one, two = (bayesfit.get_model({"name": str(path), "power": power}) for power in (1, 2))
    assert (one.options, two.options) == ({"power": 1}, {"power": 2})
    with pytest.raises(SettingsError, match="model 'powered': needs the option 'power'"):
        bayesfit.get_model(path)
    path.write_text("def make():\n    return 3\n")
    with pytest.raises(bayesfit.ModelError, match="`make` returns int, no model"):
        bayesfit.get_model(path)
    path.write_text("def make(power):\n    return 1 / power\n")
    with pytest.raises(bayesfit.ModelError, match="cannot be made: ZeroDivisionError"):
        bayesfit.get_model({"name": path, "power": 0})


# Fits


@pytest.fixture(scope="module")
def data():
    return curves_of(lambda x: np.exp(-x))


@pytest.fixture(scope="module")
def fitted(data):
    return bayesfit.fit(data, given(EXPONENTIAL), noise="stated", seed=1)


def test_the_table_of_an_exponential_is_the_single_exponential(data, fitted):
    """Densities over the whole prior, and the draws against quadrature of the other model's density."""
    z = np.linspace(-12.0, 12.0, 4001)[:, None]
    with jax.enable_x64(True):
        logs = {}
        for name in ("master_curve", "single_exponential"):
            problem = prepare(data, given(EXPONENTIAL) if name == "master_curve" else name, "stated")
            at = jax.jit(jax.vmap(jax.vmap(problem.posterior.log_density, (0, None)), (None, 0)))
            logs[name] = np.array(at(z, problem.bins))
        rate = jax.vmap(lambda z: problem.posterior.curve(z, jax.tree.map(lambda a: a[0], problem.bins))[1]["rate"])(z)
    np.testing.assert_allclose(logs["master_curve"], logs["single_exponential"], atol=0.01)
    weights = np.exp(logs["single_exponential"] - logs["single_exponential"].max(axis=1, keepdims=True))
    exact = weights @ np.log(rate) / weights.sum(axis=1)
    exact_sd = np.sqrt(weights @ np.log(rate) ** 2 / weights.sum(axis=1) - exact**2)
    mean, sd = of_rate(fitted)
    assert np.all(np.abs(mean - exact) < 0.15 * exact_sd)
    np.testing.assert_allclose(sd, exact_sd, rtol=0.15)
    assert set(fitted["diagnostics"].verdict.values) == {"ok"}


def test_a_known_rate_is_found_and_two_tables_are_two_models(data, fitted, monkeypatch):
    """Fits with one table and another, in turns; then with all programs read from disk, as another process does."""
    x = np.geomspace(1e-3, 100.0, 60)
    others = curves_of(g1)
    fits = [(others, (x, g1(x))), (others, EXPONENTIAL), (data, EXPONENTIAL)]

    def all_rates():
        return [of_rate(bayesfit.fit(curves, given(table), noise="stated", seed=1)) for curves, table in fits]

    found = all_rates()
    misses = [np.sum(((mean - np.log(RATES)) / sd) ** 2) for mean, sd in found]
    assert misses[0] < 16.8  # 99 % of chi-square with 6 degrees of freedom
    assert misses[1] > 50.0
    assert misses[2] < 16.8
    np.testing.assert_array_equal(found[2], of_rate(fitted))
    forget_programs()
    monkeypatch.setattr(Spread, "_compiled", None)
    np.testing.assert_array_equal(all_rates(), found)


def test_identity_says_of_which_table_and_is_unknown_where_nothing_is_said(data):
    one, two = make(EXPONENTIAL), make((X, np.exp(-(X**0.99))))
    silent = replace(one, options={})
    with jax.enable_x64(True):
        identities = [prepare(data, model).posterior.identity for model in (one, make(EXPONENTIAL), two, silent)]
    assert identities[0] == identities[1] != identities[2]
    assert None not in identities[:3]
    assert identities[3] is None


def test_a_saved_fit_makes_its_model_again(fitted, tmp_path):
    """The likelihoods that a law takes are those of the result in memory; they ask the model for its prior."""
    loaded = bayesfit.load(bayesfit.save(fitted, tmp_path / "fit.nc"))
    table = json.loads(loaded.attrs["model_options"])["table"]
    np.testing.assert_array_equal((table["x"], table["values"]), EXPONENTIAL)
    with jax.enable_x64(True):
        bins = likelihoods(loaded, "rate", ("ok",))
        expected = likelihoods(fitted, "rate", ("ok",), make(EXPONENTIAL))
        assert bins.used.all()
        np.testing.assert_allclose(bins.likelihood.centre, expected.likelihood.centre, atol=1e-5)
        loaded.attrs["model_options"] = "{}"
        with pytest.raises(SettingsError, match="needs the option 'table'"):
            likelihoods(loaded, "rate", ("ok",))


def test_command_line_in_a_process_of_its_own(data, fitted, tmp_path):
    """Time in half the unit: rates are half as large, though the programs of another table of this size are kept."""
    table, curves = tmp_path / "g1.csv", tmp_path / "curves.csv"
    np.savetxt(table, np.column_stack([0.5 * EXPONENTIAL[0], EXPONENTIAL[1]]), delimiter=",", header="x,g1")
    rows = data[["g2", "g2_err"]].to_dataframe().reset_index()[["q", "tau", "g2", "g2_err"]]
    rows.to_csv(curves, index=False)

    def run(*arguments):
        command = [PROGRAM, "run", curves, "-o", tmp_path, "--model", "master_curve", "--noise", "stated", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run("--set", f"model.table={table}")
    assert done.returncode == 0, done.stderr
    result = bayesfit.load(tmp_path / "curves.nc")
    mean, sd = of_rate(fitted)
    assert np.all(np.abs(of_rate(result)[0] - (mean - np.log(2.0))) < 0.2 * sd)
    assert json.loads(result.attrs["model_options"])["table"]["sha256"] == sha256(table.read_bytes()).hexdigest()
    wrong = run()
    assert wrong.returncode == 2
    assert "needs the option 'table'" in wrong.stderr
    assert len(wrong.stderr.strip().splitlines()) == 1
