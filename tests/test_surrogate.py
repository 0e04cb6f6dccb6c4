"""Surrogates: what is learnt of a simulator, how far off that is said to be, and the file that keeps it."""

import io
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import stats

import bayesfit
from bayesfit import InputError, ResultError, SettingsError
from bayesfit.modelling.noise import get_noise
from bayesfit.modelling.priors import FAMILIES, build, parse_prior
from bayesfit.surrogates import chebyshev, gaussian_process, outputs
from bayesfit.surrogates.allowance import allowed, how_far_off
from bayesfit.surrogates.files import read, with_hash, written
from bayesfit.surrogates.ladder import PREDICT
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.model import model_of
from bayesfit.surrogates.space import END, Space

TAU = np.geomspace(1e-4, 1.0, 24)
SPACE = Space.parse({"rate": "LogUniform(3, 300)", "beta": "Uniform(0.6, 1)"})
OLD_FILE = Path(__file__).parent / "surrogate_format_1.npz"
ABOUT = {"simulator": {"name": "stretched", "sha256": "0"}, "simulator_noise": 0.0, "name": "stretched"}


def stretched(points, tau=TAU):
    return np.exp(-2.0 * (points[:, :1] * tau) ** points[:, 1:])


def learnt_of(count, simulate=stretched, tau=TAU, space=SPACE):
    points = space.design(count, 0)
    with jax.enable_x64(True):
        return with_hash(Learnt.of_runs(space, tau, (points, simulate(points)), ABOUT))


def predicted(learnt, points, tau=TAU):
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(lambda x: learnt.shape(x, jnp.asarray(tau)))(learnt.space.coordinates(points)))


@pytest.fixture(scope="module")
def learnt():
    return learnt_of(120)


VALUES = {
    "Normal": (1.0, 2.0),
    "LogNormal": (1.0, 0.5),
    "Uniform": (-1.0, 2.0),
    "LogUniform": (0.1, 10.0),
    "TruncatedNormal": (1.0, 2.0, 0.5),
    "HalfNormal": (2.0,),
    "HalfCauchy": (2.0,),
    "Exponential": (0.5,),
    "Gamma": (2.0, 3.0),
    "InverseGamma": (3.0, 2.0),
    "Beta": (2.0, 3.0),
    "StudentT": (4.0, 1.0, 2.0),
    "Cauchy": (1.0, 2.0),
    "Laplace": (1.0, 2.0),
    "LogitNormal": (0.3, 1.2, -1.0, 3.0),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_designs_follow_the_prior(family):
    """NumPyro's draws, in the quantiles of the design, are uniform."""
    space = Space.parse({"x": {"family": family, **dict(zip(FAMILIES[family], VALUES[family], strict=True))}})
    design = np.sort(space.design(512, 1)[:, 0])
    with jax.enable_x64(True):
        prior = parse_prior(space.priors["x"], "x")
        draws = np.asarray(build(family, prior.values).sample(jax.random.key(0), (4000,)))
        traced = numpyro.handlers.trace(numpyro.handlers.seed(space.sample, 3)).get_trace()
        x = numpyro.handlers.substitute(space.sample, {"x": traced["x"]["value"]})()
    assert stats.ks_2samp(draws, design).statistic < 0.05 + 2 * END
    inside = space.coordinates(np.array([[float(traced["x"]["value"])]]))
    np.testing.assert_allclose(np.asarray(x), np.clip(inside[0], -1, 1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(space.points(space.coordinates(design[:, None]))[:, 0], design, rtol=1e-9)
    assert np.abs(space.coordinates(design[:, None])).max() <= 1.0 + 1e-12
    assert Space.of_plain(json.loads(json.dumps(space.plain))).plain == space.plain


def test_a_larger_design_begins_with_the_same_points():
    np.testing.assert_array_equal(SPACE.design(300, 4)[:100], SPACE.design(100, 4))


@pytest.mark.parametrize("module", [chebyshev, gaussian_process])
def test_held_out_predictions_are_those_of_fits_without_the_run(module, monkeypatch):
    """For the Gaussian process with the same lengths and components, whatever is held out."""
    points = SPACE.design(40, 0)
    x, h = SPACE.coordinates(points), outputs.linked(stretched(points), "loglog")
    whole = module.fit(x, h)[-1]
    for place in (0, 17):
        others = np.delete(np.arange(40), place)
        if module is chebyshev:
            without = module.fit(x[others], h[others])
            arrays = next(each.arrays for each in without if each.words == whole.words)
        else:
            arrays = dict(whole.arrays)
            scores = (h - arrays["mean"]) @ np.linalg.pinv(arrays["components"])
            made = [
                gaussian_process._conditioned(x[others], column[others], setting)[0]
                for column, setting in zip(scores.T, arrays["settings"], strict=True)
            ]
            arrays |= {"x": x[others], "weights": np.array(made)}
        with jax.enable_x64(True):
            found = np.asarray(PREDICT[whole.kind](arrays, jnp.asarray(x[place])))
        np.testing.assert_allclose(whole.held_out[place], found, atol=2e-5)


def test_marginal_likelihood_and_its_slope():
    x, rng = SPACE.coordinates(SPACE.design(20, 0)), np.random.default_rng(0)
    y, settings = rng.standard_normal(20), np.array([-0.3, 0.4, 0.2, -3.0])
    gaps = (x[:, None, :] - x) ** 2
    covariance = gaussian_process.kernel(x, x, settings, np) + np.exp(settings[-1]) * np.eye(20)
    value, slope = gaussian_process._objective(settings, x, y, gaps)
    density = stats.multivariate_normal.logpdf(y, cov=covariance)
    assert value == pytest.approx(-density - 10.0 * np.log(2 * np.pi), rel=1e-10)
    for place in range(4):
        step = 1e-5 * np.eye(4)[place]
        both = [gaussian_process._objective(settings + s, x, y, gaps)[0] for s in (step, -step)]
        assert slope[place] == pytest.approx((both[0] - both[1]) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("count", [40, 300])
def test_held_out_errors_are_true_errors(count):
    found = learnt_of(count)
    points = SPACE.design(512, 9)
    points = points[np.abs(SPACE.coordinates(points)).max(axis=1) < 0.98]  # farther out, it extrapolates
    error = predicted(found, points) - stretched(points)
    rms = found.about["held_out_rms"]
    assert found.kind == ("gaussian_process" if count == 40 else "chebyshev")
    assert 0.3 < np.sqrt(np.mean(error**2)) / rms < 2.0
    assert rms < (3e-3 if count == 40 else 1e-4)


def test_polynomials_are_exact_for_polynomials():
    """Three parameters: |g1|^2 is a polynomial of degree two in them at every delay."""
    space = Space.parse(dict.fromkeys("abc", "Uniform(-1, 1)"))

    def quadratic(p):
        a, b, c = p.T
        return 0.5 + 0.1 * (a * b - c**2)[:, None] * np.linspace(0, 1, 24) + 0.1 * a[:, None]

    found = learnt_of(60, quadratic, space=space)
    points = space.design(64, 3)
    assert found.kind == "chebyshev"
    assert "degree 2" in found.about["emulator"]
    np.testing.assert_allclose(predicted(found, points), quadratic(points), atol=1e-12)


def test_a_polynomial_of_one_parameter_is_numpys():
    x, h = np.linspace(-1, 1, 30)[:, None], np.exp(np.linspace(-1, 1, 30))[:, None]
    fitted = chebyshev.fit(x, h)[7]
    theirs = np.polynomial.Chebyshev.fit(x[:, 0], h[:, 0], 7, domain=[-1, 1])
    np.testing.assert_allclose(fitted.arrays["coefficients"][:, 0], theirs.coef, atol=1e-12)


def test_outputs_are_physical(learnt):
    """From 0 to 1, falling as every curve of the simulator does, also between its delays and from few runs."""
    tau = np.sort(np.concatenate([TAU, np.geomspace(TAU[0], TAU[-1], 301)]))
    points = SPACE.design(256, 5)
    for found in (learnt, learnt_of(30)):
        curves = predicted(found, points, tau)
        assert curves.min() >= 0.0
        assert curves.max() <= 1.0
        assert np.diff(curves, axis=1).max() <= 1e-12
    between = np.abs(predicted(learnt, points, tau) - stretched(points, tau))
    assert between.max() < 0.01
    assert np.sqrt(np.mean(between**2)) < 5e-4


def test_curves_that_rise_may_rise():
    def beats(points):
        return stretched(points) * np.cos(2.0 * TAU * points[:, :1]) ** 2

    found = learnt_of(100, beats)
    assert not found.falls
    curves = predicted(found, SPACE.design(64, 5))
    assert np.diff(curves, axis=1).max() > 0.01


def test_its_gradient_is_that_of_finite_differences(learnt):
    with jax.enable_x64(True):
        x, tau = jnp.array([0.21, -0.37]), jnp.asarray(np.geomspace(2e-4, 0.9, 31))
        slope = np.asarray(jax.jacfwd(lambda x: learnt.shape(x, tau))(x))
        for place in range(2):
            step = 1e-4 * np.eye(2)[place]
            both = [np.asarray(learnt.shape(x + s, tau)) for s in (step, -step)]
            np.testing.assert_allclose(slope[:, place], (both[0] - both[1]) / 2e-4, atol=2e-6)


def test_links_come_back():
    curves = stretched(SPACE.design(50, 0))
    for link in outputs.LINKS:
        np.testing.assert_allclose(outputs.unlinked(outputs.linked(curves, link), link), curves, atol=1e-13)
    assert outputs.unlinked(np.array([-50.0, 50.0]), "loglog").tolist() == [1.0, 0.0]


def data(sd, tau=TAU, rate=40.0, beta=0.8):
    rng = np.random.default_rng(0)
    g2 = 1.0 + 0.2 * np.exp(-2.0 * (rate * tau) ** beta) + sd * rng.standard_normal(tau.size)
    return bayesfit.curves(tau, g2[None], np.full((1, tau.size), sd))


def test_errors_decide_on_a_fit():
    """The same surrogate with data ever more precise: nothing, wider errors, no fit."""
    coarse = learnt_of(30)
    points = np.array([[40.0, 0.8]])
    contrast_error = 0.2 * coarse.error_at(SPACE.coordinates(points)[0], TAU).max()
    fine = allowed(coarse, data(20 * contrast_error), get_noise("scaled"))
    assert "nothing widened" in fine.attrs["surrogate_error"]
    before = data(2 * contrast_error)
    wider = allowed(coarse, before, get_noise("stated"))
    factor = (wider.g2_err / before.g2_err).values
    off = how_far_off(coarse, before, with_scale=False).ratio
    assert 0.3 < off.max() < 1.0
    np.testing.assert_allclose(factor, np.where(off > 0.3, np.sqrt(1 + off**2), 1.0), rtol=1e-12)
    assert f"errors widened at {(off > 0.3).sum()} points" in wider.attrs["surrogate_error"]
    own = allowed(coarse, before, get_noise("stated"), widen=False)  # whose draws are corrected
    np.testing.assert_array_equal(own.g2_err, before.g2_err)
    assert "nothing widened" in own.attrs["surrogate_error"]
    with pytest.raises(InputError) as error:
        bayesfit.fit(data(0.2 * contrast_error), model_of(coarse), noise="scaled")
    assert "the surrogate's held-out error is" in str(error.value)
    budget = int(str(error.value).split("budget of about ")[1].split()[0])
    assert 60 <= budget <= 5000
    assert how_far_off(learnt_of(budget), data(0.2 * contrast_error)).worst < 1.0
    counting = get_noise("covariance")
    with pytest.raises(SettingsError, match="'covariance' has no errors to widen"):
        allowed(coarse, before, counting)


def test_its_full_program_is_numpyros(learnt):
    model = model_of(learnt)
    program = bayesfit.numpyro_program(data(1e-3), 0, model, noise="stated")
    with jax.enable_x64(True):
        values = {"rate": 40.0, "beta": 0.8, "contrast": 0.2, "baseline": 1.0}
        trace = numpyro.handlers.trace(numpyro.handlers.substitute(program, values)).get_trace()
    mean = np.asarray(trace["g2"]["fn"].mean_curve)[: TAU.size]
    np.testing.assert_allclose(mean, 1.0 + 0.2 * stretched(np.array([[40.0, 0.8]]))[0], atol=2e-4)


def test_delays_outside_are_refused(learnt):
    early = data(1e-3, np.geomspace(1e-5, 0.5, 30))
    with pytest.raises(InputError) as error:
        bayesfit.point_estimate(early, model_of(learnt))
    assert str(error.value).startswith("tau: holds 1e-05 s, and the surrogate knows 0.0001 to 1 s. Leave it out")
    kept = early.assign(valid=early.valid & (early.tau >= 1e-4))
    assert allowed(learnt, kept, get_noise("scaled")).valid.sum() < 30


def test_a_file_gives_the_same_bits(learnt, tmp_path):
    path = bayesfit.save(model_of(learnt), tmp_path / "learnt.npz")
    again = bayesfit.get_model(path)
    assert again is bayesfit.get_model({"name": str(path)})
    points = SPACE.design(16, 7)
    np.testing.assert_array_equal(predicted(again.stands_for.learnt, points), predicted(learnt, points))
    assert again.stands_for.learnt.about == learnt.about
    assert again.options["sha256"] == learnt.about["sha256"]
    assert [each.name for each in again.parameters] == ["rate", "beta"]


def test_files_that_are_none(learnt, tmp_path):
    path = bayesfit.save(model_of(learnt), tmp_path / "learnt.npz")
    whole = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())

    def stated(**change):
        made = io.BytesIO()
        np.savez(made, **{**arrays, "header": np.frombuffer(json.dumps({**header, **change}).encode(), np.uint8)})
        return made.getvalue()

    curves = io.BytesIO()
    np.savez(curves, tau=TAU, g2=TAU[None])
    moved = io.BytesIO()
    np.savez(moved, **{**arrays, "curves": arrays["curves"] + 1e-9})
    for content, words in {
        whole[: len(whole) // 2]: "is no surrogate, or a damaged one",
        b"": "is empty",
        curves.getvalue(): "is no surrogate, or a damaged one",
        stated(kind="other"): "is no surrogate of bayesfit",
        stated(format=2): "has format 2, known is 1. Update bayesfit",
        stated(space=header["space"][::-1]): "is damaged: its content is not what was written",
        moved.getvalue(): "is damaged: its content is not what was written",
    }.items():
        path.write_bytes(content)
        with pytest.raises(InputError) as error:
            bayesfit.get_model(path)
        assert words in str(error.value)
    with pytest.raises(InputError, match="no such file"):
        bayesfit.get_model(tmp_path / "absent.npz")
    with pytest.raises(ResultError, match=r"saved in .npz alone. Name it learnt.npz"):
        bayesfit.save(model_of(learnt), tmp_path / "learnt.nc")
    with pytest.raises(ResultError, match="is a program, which is not saved"):
        bayesfit.save(bayesfit.get_model("cumulant"), tmp_path / "cumulant.npz")


def test_files_of_format_1_are_read():
    """The file was written by `python tests/test_surrogate.py`, when this was the format."""
    old = read(OLD_FILE)
    points = np.array([[10.0, 0.7], [100.0, 0.9]])
    np.testing.assert_allclose(predicted(old, points, old.tau), stretched(points, old.tau), atol=0.01)
    assert old.about["name"] == "stretched"


if __name__ == "__main__":
    written(learnt_of(40, lambda p: stretched(p, TAU[::3]), tau=TAU[::3]), OLD_FILE)
