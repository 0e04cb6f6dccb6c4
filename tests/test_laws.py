"""Laws in q: what describes a bin's draws, the integral over scatter, the law's posterior, and its calibration."""

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro.infer import MCMC, NUTS
from scipy.integrate import quad
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import kstest, norm, skewnorm
from uniformity import p_value

import bayesfit
from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.data.dependence import Dependence
from bayesfit.diagnose.law_verdict import LawFit, judge, residuals_of
from bayesfit.modelling.laws import LAWS, Law, get_law
from bayesfit.posterior import sinh_arcsinh as _sinh_arcsinh
from bayesfit.posterior.bin_likelihood import Bins, Likelihood, likelihoods, log_likelihood, log_scattered
from bayesfit.posterior.fitted_problem import FittedPrior, fitted_problem
from bayesfit.posterior.pooling import parse_across
from bayesfit.posterior.second_stage import SecondStage
from bayesfit.posterior.sinh_arcsinh import SinhArcsinh
from bayesfit.report.plots import plot_law
from bayesfit.result.datasets import joined
from bayesfit.result.law_result import grid
from bayesfit.result.units import in_units
from bayesfit.sample.law_nuts import TARGET_ACCEPT, WARMUP, LawSampler

TAU = np.geomspace(1e-5, 1.0, 40)
Q = np.geomspace(0.002, 0.02, 8)
D = 2.0e4
QUANTILES = norm.ppf((np.arange(2000) + 0.5) / 2000).reshape(4, 500)


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def planted(x, width, q=Q, verdict="ok", priors=None, model="single_exponential"):
    """A result whose bins have normal posteriors of log rate, without a fit: draws are the normal's quantiles."""
    bins = len(q)
    noise = np.random.default_rng(1).standard_normal((bins, TAU.size))
    data = bayesfit.curves(TAU, 1.0 + 0.01 * noise, q=q)
    order = np.random.default_rng(0).permutation(QUANTILES.size)
    draws = QUANTILES.ravel()[order].reshape(4, 500, 1) * width + x
    posterior = xr.Dataset(
        {"rate": (("chain", "draw", "q_bin"), np.exp(draws), {"units": "1/s"})}, {"q": data.q, "q_bin": data.q_bin}
    )
    posterior["D"] = posterior.rate / posterior.q**2
    verdicts = np.broadcast_to(np.array(verdict, dtype=object), (bins,)).copy()
    tree = xr.DataTree.from_dict(
        {
            "posterior": posterior,
            "observed_data": data[["g2"]],
            "constant_data": data.drop_vars("g2"),
            "diagnostics": xr.Dataset({"verdict": ("q_bin", verdicts)}),
        }
    )
    chosen = bayesfit.get_model(model)
    tree.attrs.update(
        model=model,
        model_formula=chosen.formula,
        model_source=f"somewhere/models/{model}.py",
        priors=json.dumps(priors or {}),
        fixed="{}",
        settings=json.dumps({"noise": "scaled"}),
        data_pipeline="table",
        data_delays=1,
        data_temperature=298.15,
        data_viscosity=8.9e-4,
    )
    return tree


def normals(x, width):
    """Normal likelihoods of bins, without draws."""
    shape = SinhArcsinh(x, width, np.zeros(len(x)), np.ones(len(x)))
    return Likelihood(shape, None, x, width, x, width)


# The density that describes a bin's draws


def test_density_integrates_to_one_and_has_its_distribution_function():
    shape = SinhArcsinh(1.0, 0.3, 0.4, 0.7)
    low, high = 1.0 - 60, 1.0 + 60
    total = quad(lambda x: float(np.exp(_sinh_arcsinh.log_density(x, shape))), low, high, points=[1.0, 2.0], limit=500)
    assert total[0] == pytest.approx(1.0, abs=1e-8)
    part = quad(lambda x: float(np.exp(_sinh_arcsinh.log_density(x, shape))), low, 1.5, points=[0.5, 1.0], limit=500)
    assert part[0] == pytest.approx(float(_sinh_arcsinh.distribution(1.5, shape)), abs=1e-8)


def test_fit_has_the_largest_likelihood():
    rng = np.random.default_rng(1)
    draws = np.stack([skewnorm.rvs(4.0, 3.0, 0.2, 1500, random_state=rng), 1e4 + rng.standard_t(6, 1500)])
    draws[1, 1400:] = np.nan
    shape, distance = _sinh_arcsinh.fit(draws)
    assert np.all(distance < 0.03)
    for row, one in zip(draws, np.stack(shape, axis=1), strict=True):
        row = row[np.isfinite(row)]

        def loss(p, row=row):
            z = (row - p[0]) / np.exp(p[1])
            s = np.sinh(np.exp(p[3]) * np.arcsinh(z) - p[2])
            return -np.mean(norm.logpdf(s) + p[3] - p[1] + 0.5 * np.log((1 + s**2) / (1 + z**2)))

        start = [np.mean(row), np.log(np.std(row)), 0.0, 0.0]
        best = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 8000, "xatol": 1e-7, "fatol": 1e-11})
        ours = -np.mean(_sinh_arcsinh.log_density(row, SinhArcsinh(*one)))
        assert ours == pytest.approx(best.fun, abs=1e-5)


# The integral over scatter


@pytest.mark.parametrize("shape", [(0.0, 1.0), (0.5, 0.8), (-0.8, 1.3)])
@pytest.mark.parametrize("ratio", [0.01, 1.0, 100.0])
def test_integral_over_scatter_equals_quadrature(shape, ratio):
    width, s = 0.1, 0.1 * ratio
    posterior = SinhArcsinh(2.0, width, *shape)
    x = np.linspace(0.0, 4.0, 20001)
    density = np.exp(_sinh_arcsinh.log_density(x, posterior))
    mean = np.sum(x * density) / density.sum()
    sd = np.sqrt(np.sum((x - mean) ** 2 * density) / density.sum())
    one = Likelihood(posterior, None, 0.0, 1.0, mean, sd)
    for offset in (0.0, 1.5, -4.0):
        at = mean + offset * np.hypot(sd, s)
        inner = sorted({mean - 6 * sd, mean, mean + 6 * sd, at - 6 * s, at, at + 6 * s})
        edges = [mean - 60 * sd, *(p for p in inner if mean - 60 * sd < p < mean + 60 * sd), mean + 60 * sd]

        def product(y, at=at):
            return float(np.exp(_sinh_arcsinh.log_density(y, posterior)) * norm.pdf(y, at, s))

        pieces = itertools.pairwise(edges)
        expected = sum(quad(product, a, b, epsabs=0, epsrel=1e-9, limit=200)[0] for a, b in pieces)
        got = float(log_scattered(at, s, one))
        assert got == pytest.approx(np.log(expected), abs=3e-3)


def test_integral_over_scatter_is_exact_for_normals_however_far():
    for s in (1e-6, 1e-3, 0.1, 30.0):
        for at in (0.0, 0.7, 40.0):
            got = float(log_scattered(at, s, jax.tree.map(lambda a: a[0], normals(np.array([0.5]), np.array([0.02])))))
            assert got == pytest.approx(norm.logpdf(at, 0.5, np.hypot(0.02, s)), rel=1e-6, abs=1e-6)


# The prior of a bin, divided out


def test_an_informative_prior_of_each_bin_is_divided_out():
    x, width = np.log(D * Q**2), np.full(Q.size, 0.2)
    loc, scale = x + 1.0, 0.3
    precision = width**-2 + scale**-2
    posterior = (x * width**-2 + loc * scale**-2) / precision
    priors = {"rate": {"family": "LogNormal", "loc": loc.tolist(), "scale": scale}}
    result = planted(posterior, precision**-0.5, priors=priors)
    found = likelihoods(result, "rate", ("ok",)).likelihood
    np.testing.assert_allclose(found.centre, x, atol=0.01)
    np.testing.assert_allclose(found.width, width, rtol=0.03)
    some = likelihoods(result.isel(q_bin=[2, 5]), "rate", ("ok",)).likelihood
    np.testing.assert_allclose(some.centre, found.centre[[2, 5]])
    forgotten = likelihoods(planted(posterior, precision**-0.5), "rate", ("ok",)).likelihood
    assert np.all(forgotten.centre > x + 0.25)


def test_the_prior_of_a_parameter_that_depends_on_another_is_averaged():
    """rate given rate_fast is log-uniform below it: p(x) ~ log((F - L) / (max(x, S) - L)), in logarithms of rates."""
    result = planted(np.log(D * Q**2), 0.1, model="double_exponential")
    prior = FittedPrior(result, "rate", None)
    slowest, fastest = np.log(0.1 / TAU.max()), np.log(10.0 / TAU.min())
    lowest = slowest + np.log(0.5)
    x = np.linspace(slowest - 0.5, fastest - 3.0, 60)
    exact = np.log(np.log((fastest - lowest) / (np.maximum(x, slowest) - lowest)))
    got = prior.log_density(np.array([0]), x[None])[0]
    inside = x > lowest + 0.1
    np.testing.assert_allclose((got - got[30])[inside], (exact - exact[30])[inside], atol=0.25)
    assert np.all(np.isneginf(got[x < lowest]))


# The law's posterior against closed forms


def test_power_law_without_scatter_is_linear_regression():
    rng = np.random.default_rng(3)
    width = rng.uniform(0.02, 0.1, Q.size)
    x = np.log(3.0 * D * Q**1.7) + width * rng.standard_normal(Q.size)
    fit = bayesfit.law(planted(x, width), "power_law", scatter=False, seed=1)
    u = np.log(Q) - np.log(np.sqrt(Q[0] * Q[-1]))
    design = np.stack([np.ones(Q.size), u], axis=1) / width[:, None]
    covariance = np.linalg.inv(design.T @ design)
    mean = covariance @ design.T @ (x / width)
    posterior = fit["posterior"]
    for name, values, place in (("rate_middle", np.log(posterior.rate_middle), 0), ("n", posterior.n, 1)):
        sd = np.sqrt(covariance[place, place])
        assert float(values.mean()) == pytest.approx(mean[place], abs=0.12 * sd), name
        assert float(values.std()) == pytest.approx(sd, rel=0.08), name
    np.testing.assert_allclose(posterior.D, posterior.rate_middle * (Q[0] * Q[-1]) ** (-0.5 * posterior.n))
    assert fit["diagnostics"].law_verdict == "ok"
    residual = (x - mean[0] - mean[1] * u) / width
    np.testing.assert_allclose(fit["bins"].residual, residual, atol=0.15)
    assert fit["law_curve"].q.values[[0, -1]].tolist() == [Q[0], Q[-1]]


@pytest.fixture(scope="module")
def outlier():
    """Bins about a diffusion law, with one far off and one that is not ok; x, width, result and its law."""
    rng = np.random.default_rng(4)
    width = np.full(Q.size, 0.05)
    x = np.log(D * Q**2) + 0.08 * rng.standard_normal(Q.size)
    x[2] += 0.6
    verdict = ["ok"] * 7 + ["misfit"]
    result = planted(x, width, verdict=verdict)
    return x, width, result, bayesfit.law(result, seed=2)


def test_diffusion_with_scatter_equals_a_grid(outlier):
    x, width, _, fit = outlier
    difference = (x - 2 * np.log(Q))[:7]
    log_d, s = np.linspace(8.5, 11.5, 1200)[:, None], np.linspace(1e-3, 1.6, 800)
    log_p = norm.logpdf(s, 0, 0.3)
    for d, w in zip(difference, width, strict=False):
        log_p = log_p + norm.logpdf(d, log_d, np.hypot(w, s))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    posterior = fit["posterior"]
    for values, axis in ((np.log(posterior.D), log_d), (posterior.scatter, s)):
        mean = np.sum(p * axis)
        sd = np.sqrt(np.sum(p * (axis - mean) ** 2))
        assert float(values.mean()) == pytest.approx(mean, abs=0.15 * sd)
        assert float(values.std()) == pytest.approx(sd, rel=0.12)


def test_result_says_what_was_used_and_is_saved(outlier, tmp_path):
    _, _, _, fit = outlier
    bins = fit["bins"]
    assert bins.left_out.values.tolist() == [""] * 7 + ["verdict misfit"]
    assert np.isnan(bins.residual.values[7])
    assert int(np.nanargmax(np.abs(bins.residual))) == 2
    assert fit["posterior"].D.attrs["units"] == "angstrom^2/s"
    assert {"lp", "diverging", "energy"} <= set(fit["sample_stats"].data_vars)
    again = bayesfit.load(bayesfit.save(fit, tmp_path / "law.nc"))
    assert again.attrs["law"] == "diffusion"
    np.testing.assert_allclose(again["posterior"].D, fit["posterior"].D, rtol=1e-6)


def test_a_law_has_one_radius(outlier):
    """At the temperature and viscosity that the data state, which the law's result hands on."""
    posterior = bayesfit.stokes_einstein(outlier[3])["posterior"]
    assert posterior.hydrodynamic_radius.dims == ("chain", "draw")
    expected = 1.380649e-23 * 298.15 / (6 * np.pi * 8.9e-4 * posterior.D * 1e-20) * 1e9
    np.testing.assert_allclose(posterior.hydrodynamic_radius, expected, rtol=1e-12)
    assert [get_law({"name": "power_law", "n": n}).parameters[0].unit for n in (2, None)] == [
        "angstrom^2/s",
        "angstrom^n/s",
    ]


def test_a_law_of_ones_own_states_its_units(tmp_path):
    """And where it does not, what needs them says how; its picture needs no formula."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import bayesfit, numpyro, numpyro.distributions as dist\n"
        "def program(q, tau):\n"
        "    return numpyro.sample('D_nm', dist.LogUniform(1.0, 1e4)) * 100 * q**2\n"
        "law = bayesfit.Law('mine', program, parameters=(bayesfit.Parameter('D_nm', 'nm^2/s'),))\n"
    )
    result = planted(np.log(D * Q**2), 0.05)
    options = {"scatter": False, "draws": 100, "chains": 2}
    stated = bayesfit.law(result, str(file), **options)
    assert stated["posterior"].D_nm.attrs["units"] == "nm^2/s"
    radius = bayesfit.stokes_einstein(stated, parameter="D_nm")["posterior"].hydrodynamic_radius
    expected = 1.380649e-23 * 298.15 / (6 * np.pi * 8.9e-4 * stated["posterior"].D_nm * 1e-18) * 1e9
    np.testing.assert_allclose(radius, expected, rtol=1e-12)
    bare = bayesfit.law(result, get_law(str(file)).program, **options)
    remedy = r'State it: bayesfit.Law\("mine", program, parameters=\(bayesfit.Parameter\("D_nm", "angstrom\^2/s"\),\)\)'
    with pytest.raises(InputError, match=f"D_nm: has no stated unit, .*{remedy}"):
        bayesfit.stokes_einstein(bare, parameter="D_nm")
    with pytest.raises(InputError, match="Name it, parameter='D_nm'"):
        bayesfit.stokes_einstein(bare)
    with pytest.raises(
        SettingsError, match=r"units.D_nm: cannot be shown in um.2/s: its unit is not stated. State it: "
    ):
        in_units(bare, {"D_nm": "um^2/s"})
    plot_law(bare, tmp_path / "bare.png")


def test_a_law_of_ones_own_with_a_fixed_parameter():
    def bent(q, tau):
        height = numpyro.sample("height", dist.LogNormal(10.0, 2.0))
        bend = numpyro.sample("bend", dist.Normal(0.0, 1.0))
        return height * q**2 * jnp.exp(bend * jnp.log(q / Q[0]))

    result, u = planted(np.log(D * Q**2.1 / Q[0] ** 0.1), 0.05), np.log(Q / Q[0])
    fit = bayesfit.law(result, bent, scatter=False, fixed={"height": D}, priors={"bend": "Normal(0, 0.05)"}, seed=3)
    precision = np.sum(u**2) / 0.05**2 + 1 / 0.05**2
    bend = fit["posterior"].bend
    assert float(bend.mean()) == pytest.approx(0.1 * np.sum(u**2) / 0.05**2 / precision, abs=0.15 * precision**-0.5)
    assert float(bend.std()) == pytest.approx(precision**-0.5, rel=0.1)
    assert list(fit["posterior"].data_vars) == ["bend"]
    assert json.loads(fit.attrs["fixed"]) == {"height": D}


# Whether bins follow a law


def follows(law, x, width, scatter, q=Q):
    """The record of a law that was fitted exactly to normal bins (x, width), its slopes in log q sampled from their
    closed form, the scatter from its density on a grid; and its verdict."""
    rng, design = (
        np.random.default_rng(2),
        np.stack([np.ones(q.size), np.log(q / q[0])], 1)[:, : 1 + (law != "diffusion")],
    )
    y = x - (2 * np.log(q) if law == "diffusion" else 0.0)
    grid_s = np.geomspace(1e-4, 1.0, 200) if scatter else np.zeros(1)
    log_p, means, roots = [], [], []
    for s in grid_s:
        weight = 1 / (width**2 + s**2)
        covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
        mean = covariance @ design.T @ (weight * y)
        rest = np.sum(np.log(weight)) + np.linalg.slogdet(covariance)[1] - np.sum(weight * (y - design @ mean) ** 2)
        log_p.append(0.5 * rest - 0.5 * (s / 0.3) ** 2 + (np.log(s) if scatter else 0.0))
        means.append(mean)
        roots.append(np.linalg.cholesky(covariance))
    p = np.exp(log_p - np.max(log_p))
    drawn = rng.choice(grid_s.size, 2000, p=p / p.sum())
    slopes = np.array([means[k] + roots[k] @ rng.standard_normal(design.shape[1]) for k in drawn])
    values = np.exp(slopes @ design.T + (x - y)).reshape(4, 500, -1)
    samples = {f"b{k}": row.reshape(4, 500) for k, row in enumerate(slopes.T)}
    prior = {name: rng.normal(0.0, 30.0, 1000) for name in samples}
    spread = grid_s[drawn].reshape(4, 500) if scatter else None
    stats = {"diverging": np.zeros((4, 500))}
    bins = Bins(np.arange(q.size), q, np.full(q.size, "", object), None, True, normals(x, width), None)
    common = samples | ({"scatter": spread} if scatter else {})
    fitted = LawFit(get_law(law), "rate", bins, tuple(samples), common, spread, stats, prior, values)
    return fitted, judge(fitted, residuals_of(fitted), Dependence(np.zeros((q.size, q.size)), []))


@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("bins", [7, 13])
def test_diffusion_coefficients_that_fall_with_q_are_a_misfit(bins, scatter):
    """The row that was seen: D of single angles from 3.61 to 3.20, in order of q, some ten of their errors away."""
    q, rng = np.linspace(0.0007, 0.0026, bins), np.random.default_rng(bins)
    D_, width = 1e8 * np.linspace(3.61, 3.20, bins), np.full(bins, 0.006)
    x = np.log(D_ * q**2) + width * rng.standard_normal(bins)
    _, verdict = follows("diffusion", x, width, scatter, q)
    assert verdict.name == "misfit"
    assert "rate does not follow the law 'diffusion" in verdict.reason
    assert "residuals that go with q (p 0.0" in verdict.reason
    assert ("try another law, as 'diffusion_extrapolated'; bins scatter about the law by " in verdict.reason) == scatter
    assert (verdict.numbers["p_chi2"] < 1e-6) == (not scatter)


def test_diffusion_coefficients_that_fall_with_q_are_a_misfit_from_a_file(tmp_path):
    """The same of a saved result, from the command line and from Python."""
    q, rng = np.linspace(0.0007, 0.0026, 13), np.random.default_rng(13)
    x = np.log(1e8 * np.linspace(3.61, 3.20, 13) * q**2) + 0.006 * rng.standard_normal(13)
    path = bayesfit.save(planted(x, np.full(13, 0.006), q), tmp_path / "angles.nc")
    out = call("law", path, "diffusion", "--set", "seed=1").stdout
    found = bayesfit.law(bayesfit.load(path), "diffusion", seed=1)["diagnostics"]
    assert found.law_verdict == "misfit"
    assert f"misfit: {found.law_reason.item()}" in out


@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("law", ["diffusion", "power_law"])
def test_bins_that_follow_their_law_are_ok(law, scatter):
    rng = np.random.default_rng(8)
    wrong = 0
    for _ in range(40):
        width = rng.uniform(0.02, 0.1, Q.size)
        x = np.log(D * Q**2) + np.hypot(width, 0.05 * scatter) * rng.standard_normal(Q.size)
        wrong += follows(law, x, width, scatter)[1].name != "ok"
    assert wrong <= 3  # 40 at 0.015: more than 3 in 3 of 1000 runs


def test_one_bin_far_off_is_a_misfit_though_bins_scatter():
    rng, q = np.random.default_rng(5), np.geomspace(0.002, 0.02, 30)
    x = np.log(D * q**2) + 0.05 * rng.standard_normal(q.size)
    x[11] += 2.0
    _, verdict = follows("diffusion", x, np.full(q.size, 0.02), True, q)
    assert verdict.name == "misfit"
    assert "a bin far off" in verdict.reason
    assert "farthest bin 11 (+" in verdict.reason


@pytest.mark.parametrize("scatter", [False, True])
def test_residuals_are_roots_of_likelihood_ratios(scatter):
    """Of normal bins in closed form; of a skewed one by a search for the best value."""
    width = np.geomspace(0.01, 0.3, Q.size)
    x = np.log(D * Q**2) + 0.1 * np.linspace(-3, 3, Q.size)
    fitted, _ = follows("diffusion", x, width, scatter)
    found, at = residuals_of(fitted), np.log(fitted.values).mean(axis=(0, 1))
    np.testing.assert_allclose(found.alone, (x - at) / width, rtol=1e-3, atol=1e-3)
    s = np.mean(fitted.scatter) if scatter else 0.0
    np.testing.assert_allclose(found.checked, (x - at) / np.hypot(width, s), rtol=1e-3, atol=2e-3)
    shape = SinhArcsinh(x, width, np.full(Q.size, 0.6), np.full(Q.size, 0.8))
    likelihood = Likelihood(shape, None, x, width, x, width)
    skewed = fitted._replace(bins=replace(fitted.bins, likelihood=likelihood))
    bin = jax.tree.map(lambda a: a[1], likelihood)
    best = minimize_scalar(lambda z: -float(log_likelihood(z, bin)), (x[1] - 1, x[1] + 1))
    at_law = float(log_likelihood(at[1], bin))
    if scatter:
        near = minimize_scalar(lambda z: -float(log_likelihood(z, bin)) + 0.5 * ((z - at[1]) / s) ** 2, (at[1], x[1]))
        at_law = -near.fun
    expected = np.sign(best.x - at[1]) * np.sqrt(2 * (-best.fun - at_law))
    assert residuals_of(skewed).checked[1] == pytest.approx(expected, rel=1e-3)


def test_extrapolation_to_q_zero_is_a_weighted_line():
    """D(q) over q^2, against numpy's weighted least squares; the radius is that of D0."""
    rng = np.random.default_rng(6)
    q = np.linspace(0.0007, 0.0026, 13)
    width = rng.uniform(0.001, 0.003, q.size)
    D_ = 3.7e8 * (1 - 2.5e4 * q**2)
    x = np.log(D_ * q**2) + width * rng.standard_normal(q.size)
    fit = bayesfit.law(planted(x, width, q=q), "diffusion_extrapolated", scatter=False, seed=1)
    measured = np.exp(x) / q**2
    (slope, D0), covariance = np.polyfit(q**2, measured, 1, w=1 / (width * measured), cov="unscaled")
    posterior = fit["posterior"]
    assert float(posterior.D0.mean()) == pytest.approx(D0, abs=0.15 * np.sqrt(covariance[1, 1]))
    assert float(posterior.D0.std()) == pytest.approx(np.sqrt(covariance[1, 1]), rel=0.1)
    assert float((posterior.C * posterior.D0).mean()) == pytest.approx(slope, abs=0.15 * np.sqrt(covariance[0, 0]))
    assert fit["diagnostics"].law_verdict == "ok"
    assert (posterior.D0.attrs["units"], posterior.C.attrs["units"]) == ("angstrom^2/s", "angstrom^2")
    derived = bayesfit.stokes_einstein(fit)
    assert derived.attrs["stokes_einstein_of"] == "D0"
    expected = 1.380649e-23 * 298.15 / (6 * np.pi * 8.9e-4 * posterior.D0 * 1e-20) * 1e9
    np.testing.assert_allclose(derived["posterior"].hydrodynamic_radius, expected, rtol=1e-12)


def test_the_extrapolation_is_positive_wherever_its_prior_reaches():
    (pooling,) = parse_across(
        {"rate": "diffusion_extrapolated"}, bayesfit.curves(TAU, np.ones((Q.size, TAU.size)), q=Q)
    )
    assert [parameter.name for parameter in pooling.parameters] == ["D0", "C"]
    values = [value(get_law("diffusion_extrapolated"), Q, D0=5.0, C=share / Q[-1] ** 2) for share in (-0.999, 0.5)]
    assert np.all(values[0] > 0)
    np.testing.assert_allclose(values[1], 5.0 * Q**2 * (1 + 0.5 * (Q / Q[-1]) ** 2))
    with numpyro.handlers.seed(rng_seed=0):
        site = numpyro.handlers.trace(get_law("diffusion_extrapolated").program).get_trace(Q, TAU)["C"]["fn"]
    np.testing.assert_allclose([site.low, site.high], [-1 / Q[-1] ** 2, 1 / Q[-1] ** 2])


# A series of datasets


@pytest.fixture(scope="module")
def series_law():
    """The law of four datasets, of which the second has two bins less and the last has none that is ok."""
    results = [
        planted(np.log(D * Q**2), 0.05),
        planted(np.log(2 * D * Q**2), 0.05, verdict=["misfit"] * 2 + ["ok"] * 6),
        planted(np.log(3 * D * Q**2), 0.05),
        planted(np.log(D * Q**2), 0.05, verdict="misfit"),
    ]
    for result in results:
        result["sample_stats"] = xr.Dataset({"lp": result["posterior"].rate.isel(q_bin=0, drop=True)})
    results[1].attrs["data_temperature"] = 310.0
    whole = joined(results, np.array([20, 40, 50, 60]))
    with pytest.warns(UserWarning, match="dataset 60 is left out: verdicts: no bin can be used"):
        return results, bayesfit.law(whole, scatter=False, draws=300, chains=2, seed=4)


def test_a_series_has_a_law_for_each_dataset(series_law, tmp_path):
    results, fit = series_law
    assert fit["posterior"].D.dims == ("chain", "draw", "dataset")
    assert fit["steps"].coords["dataset"].values.tolist() == [20, 40, 50]
    assert fit.attrs["datasets_left_out"] == "60"
    assert fit["diagnostics"].law_verdict.dims == ("dataset",)
    np.testing.assert_allclose(fit["law_curve"].q.isel(point=0), [Q[0], Q[2], Q[0]])
    alone, last = (bayesfit.law(results[place], scatter=False, draws=300, chains=2, seed=4) for place in (1, 2))
    np.testing.assert_array_equal(fit["posterior"].D.sel(dataset=50), last["posterior"].D)
    second = bayesfit.one_dataset(bayesfit.load(bayesfit.save(fit, tmp_path / "law.nc")), 40)
    np.testing.assert_allclose(second["posterior"].D, alone["posterior"].D, rtol=1e-6)
    np.testing.assert_array_equal(second["bins"].used, alone["bins"].used)
    np.testing.assert_allclose(second["law_curve"].q, alone["law_curve"].q)
    assert "q" in second["law_curve"].coords
    assert plot_law(second, tmp_path / "law.png").get_suptitle().startswith(second["diagnostics"].law_verdict.item())
    bayesfit.plot_series(fit, tmp_path / "series.png")
    assert (tmp_path / "series.png").stat().st_size > 10_000
    with pytest.raises(bayesfit.ResultError, match="got a series of datasets, expected the result of a law"):
        plot_law(fit)


def test_each_dataset_of_a_law_has_its_own_radius(series_law):
    derived = bayesfit.stokes_einstein(series_law[1], viscosity=1e-3)
    temperature = np.array([298.15, 310.0, 298.15])
    expected = 1.380649e-23 * temperature / (6 * np.pi * 1e-3 * derived["posterior"].D * 1e-20) * 1e9
    np.testing.assert_allclose(derived["posterior"].hydrodynamic_radius, expected, rtol=1e-12)


def test_a_series_without_usable_bins_is_refused():
    result = planted(np.log(D * Q**2), 0.05, verdict="misfit")
    result["sample_stats"] = xr.Dataset()
    with pytest.raises(InputError, match="no bin can be used"):
        bayesfit.law(joined([result, result], np.arange(2)))


# From curves to a law


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A fit of simulated curves with D = 2e4, on disk."""
    data, _ = bayesfit.simulate(bins=6, delays=48, seed=5, diffusion=D)
    result = bayesfit.fit(data, draws=100, target_ess=0, seed=1)
    return bayesfit.save(result, tmp_path_factory.mktemp("fit") / "fit.nc")


def test_the_command_line_finds_the_diffusion_coefficient(saved, tmp_path):
    law, picture = tmp_path / "law.nc", tmp_path / "law.png"
    options = ["--set", "verdicts=['ok', 'poor_mixing']", "--set", "scatter=false", "-o", law, "--plot", picture]
    out = call("law", saved, "diffusion", *options).stdout
    assert out.splitlines()[-1] == str(picture)
    assert "D [angstrom^2/s]" in out
    assert "6 bins used" in out
    assert picture.stat().st_size > 10_000
    assert out.endswith(f"{picture}\n")
    found = bayesfit.load(law)["posterior"].D
    assert abs(float(found.mean()) - D) < 3.5 * float(found.std())
    assert float(found.std()) < 0.03 * D
    assert "D [um^2/s]" in call("show", law, "--unit", "D=um^2/s").stdout
    assert "warning" not in call("plot", law, "-o", tmp_path / "again.svg").stderr.lower()
    radius = "--set", "temperature=298.15", "--set", "viscosity=LogNormal(-7, 0.01)", "-o", tmp_path / "radius.nc"
    told = call("stokes-einstein", law, *radius).stdout
    assert "hydrodynamic_radius [nm]" in told
    assert "hydrodynamic_radius from D, diffusion coefficient" in told
    assert bayesfit.load(tmp_path / "radius.nc")["posterior"].viscosity.dims == ("chain", "draw")


def test_the_command_line_refuses_in_one_line(saved):
    assert "Did you mean 'diffusion'" in call("law", saved, "difusion", code=2).stderr
    assert "no option 'm'" in call("law", saved, "diffusion", "--set", "m=1", code=2).stderr


def call(*arguments, code=0):
    program = Path(sys.executable).parent / "bayesfit"
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.mark.slow
def test_light_scattering_at_thirteen_angles(shared_data):
    """Real curves, one file an angle: exponent of q and D are those of the least-squares rates by hand."""
    files = sorted((shared_data / "dls_alv_cgs3").glob("*_0001.ASC"))
    assert len(files) == 13
    read = [bayesfit.read(file).isel(q_bin=[0]) for file in files]
    parts = {name: np.concatenate([part[name].values for part in read]) for name in ("g2", "g2_err", "q")}
    whole = bayesfit.curves(
        read[0].tau.values,
        **parts,
        contrast_prior=read[0].attrs["contrast_prior"],
        baseline_prior=read[0].attrs["baseline_prior"],
    )
    result = bayesfit.fit(whole, "cumulant", noise="scaled", draws=100, target_ess=0, seed=1)
    converged = ("ok", "misfit", "not_identified", "poor_mixing")
    fit = bayesfit.law(result, "power_law", verdicts=converged, seed=1)
    posterior, bins = fit["posterior"], fit["bins"]
    assert int(bins.used.sum()) >= 10
    slope, _ = np.polyfit(np.log(bins.q), np.log(result["point_estimate"].rate), 1)
    assert abs(float(posterior.n.mean()) - slope) < 0.08, (float(posterior.n.mean()), slope)
    assert 1.9 < slope < 2.3
    middle = np.sqrt(bins.q.min() * bins.q.max())
    by_hand = np.median((result["posterior"].rate / result["posterior"].q ** 2).mean(("chain", "draw")))
    assert float(posterior.rate_middle.mean() / middle**2) == pytest.approx(by_hand, rel=0.1)
    check_derived(result, read)


def check_derived(result, read):
    """Of the angles' cumulant fits: polydispersity, mean time, and the radius in water of uncertain temperature."""
    posterior = result["posterior"]
    np.testing.assert_allclose(posterior.polydispersity**2, posterior.mu2, rtol=1e-9)
    np.testing.assert_allclose(posterior.mean_relaxation_time, (1 + posterior.mu2) / posterior.rate, rtol=1e-9)
    temperature = np.mean([file.attrs["temperature"] for file in read])
    found = bayesfit.stokes_einstein(result, temperature=f"Normal({temperature}, 0.1)", viscosity="water")
    stated = xr.DataArray([file.attrs["temperature"] / file.attrs["viscosity"] for file in read], dims="q_bin")
    by_hand = 1.380649e-23 * stated / (6 * np.pi * posterior.D.mean(("chain", "draw")) * 1e-20) * 1e9
    radius = found["posterior"].hydrodynamic_radius.mean(("chain", "draw"))
    np.testing.assert_allclose(radius, by_hand, rtol=0.02)


# Laws


def value(law, q, **sites):
    return np.asarray(numpyro.handlers.seed(numpyro.handlers.substitute(law.program, sites), 0)(q, TAU))


def test_de_gennes_equals_a_hand_calculation():
    table_q = np.linspace(0.001, 0.03, 60)
    structure, hydrodynamic = 1 + 0.5 * np.sin(200 * table_q), np.full(60, 0.8)
    law = get_law({"name": "de_gennes", "S": (table_q, structure), "H": (table_q, hydrodynamic)})
    expected = 3.0e4 * Q**2 * 0.8 / (1 + 0.5 * np.sin(200 * Q))
    np.testing.assert_allclose(value(law, Q, D0=3.0e4), expected, rtol=1e-3)
    assert law.q_range == (0.001, 0.03)


def test_a_law_may_stand_in_a_file(tmp_path):
    """So that the command line and TOML can name it; what a file lacks is said in one line."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpyro, numpyro.distributions as dist\n"
        "FACTOR = 2.0\n"
        "def law(q, tau):\n"
        "    return FACTOR * numpyro.sample('speed', dist.LogNormal(0.0, 1.0)) * q\n"
    )
    np.testing.assert_allclose(value(get_law(str(file)), Q, speed=3.0), 6.0 * Q)
    curves = bayesfit.curves(TAU, np.ones((Q.size, TAU.size)), q=Q)
    (pooling,) = parse_across({"rate": {"name": str(file), "scatter": True}}, curves)
    assert [parameter.name for parameter in pooling.parameters] == ["speed", "rate_scatter"]
    with pytest.raises(SettingsError, match="a law of your own has no option 'n'"):
        get_law({"name": str(file), "n": 1})
    for text, words in (("law = 3", "holds no law. Add"), ("law = 1 / 0", "fails when run: ZeroDivisionError")):
        file.write_text(text)
        with pytest.raises(SettingsError, match=f"mine.py: law: {words}"):
            get_law(str(file))
    with pytest.raises(InputError, match=r"absent.py: law: no such file"):
        get_law("absent.py")


def test_laws_have_their_formulas(tmp_path):
    middle = np.sqrt(Q[0] * Q[-1])
    np.testing.assert_allclose(value(get_law("diffusion"), Q, D=5.0), 5.0 * Q**2)
    ballistic = get_law({"name": "power_law", "n": 1})
    np.testing.assert_allclose(value(ballistic, Q, rate_middle=4.0), 4.0 * Q / middle)
    offset = value(get_law("diffusion_plus_offset"), Q, D=5.0, share=0.5)
    np.testing.assert_allclose(offset, 5.0 * Q**2 + 5.0 * Q[0] ** 2)
    np.testing.assert_allclose(value(get_law("constant"), Q, value=0.9), 0.9)
    file = tmp_path / "table.csv"
    file.write_text("q,rate\n" + "\n".join(f"{q},{3 * q}" for q in np.linspace(0.001, 0.03, 60)))
    np.testing.assert_allclose(value(get_law({"name": "from_table", "table": file}), Q, scale=2.0), 6.0 * Q, rtol=1e-3)


@pytest.mark.slow
def test_calibrated():
    """Ranks of the truth among the draws, over sets simulated from the prior, are uniform."""
    sets, kept, thin = 100, 99, 4
    q, width = grid(Q), np.geomspace(0.03, 0.3, Q.size)
    program = SecondStage(get_law("power_law"), scatter=True).program(logarithmic=True)
    sampler = LawSampler(program, kept, 1)
    drawn = sampler.prior(jax.random.PRNGKey(5), q, TAU, normals(np.zeros(Q.size), width))
    truths = {name: np.asarray(values[:sets, None]) for name, values in drawn.items()}
    x = np.log(truths["rate_middle"]) + truths["n"] * np.log(Q / np.sqrt(Q[0] * Q[-1]))
    x = x + np.hypot(truths["scatter"], width) * np.random.default_rng(6).standard_normal(x.shape)
    kernel = NUTS(program, dense_mass=True, target_accept_prob=TARGET_ACCEPT)
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=kept * thin, thinning=thin, progress_bar=False)

    def one(key, x):
        data = (q, TAU, normals(x, width))
        starts, _ = sampler.modes(key, *data)
        mcmc.run(key, *data, init_params=jax.tree.map(lambda z: z[0], starts))
        return {name: mcmc.get_samples()[name] for name in truths}

    keys = jax.random.split(jax.random.PRNGKey(7), sets)
    samples = jax.jit(lambda *all_sets: jax.lax.map(lambda pair: one(*pair), all_sets))(keys, x)
    samples = {**samples, "D": samples["rate_middle"] * (Q[0] * Q[-1]) ** (-0.5 * samples["n"])}
    truths["D"] = truths["rate_middle"] * (Q[0] * Q[-1]) ** (-0.5 * truths["n"])
    for name, truth in truths.items():
        ranks = np.sum(np.asarray(samples[name]) < truth, axis=1)
        assert p_value(ranks, kept) > 0.005, (name, sorted(ranks))
        assert kstest((ranks + 0.5) / (kept + 1), "uniform").pvalue > 0.005, name


def test_values_of_each_bin_stay_with_their_bins():
    """Also where the bins of the data were a part of others, and only a part of the result is left."""
    result = planted(np.log(D * Q**2), 0.1)
    result = result.map_over_datasets(
        lambda group: group.assign_coords(q_bin=10 + np.arange(Q.size)) if "q_bin" in group.dims else group
    )
    means = np.log(D * Q**2) + np.linspace(0.0, 1.0, Q.size)
    priors = {"rate": {"family": "LogNormal", "loc": means.tolist(), "scale": 1.0}}
    result.attrs |= {"priors": json.dumps(priors), "q_bins": json.dumps((10 + np.arange(Q.size)).tolist())}
    with jax.enable_x64(True):
        problem = fitted_problem(result.isel(q_bin=[5, 2]), None)
    np.testing.assert_array_equal(problem.bins.priors["rate"]["loc"], means[[5, 2]])


# Errors


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("difusion", "Did you mean 'diffusion'"),
        ({"name": "power_law", "m": 1}, "no option 'm'"),
        ({"name": "power_law", "n": "one"}, "power_law.n"),
        ({"name": "de_gennes"}, "needs the option 'S'"),
        ({"n": 1}, "expected a law"),
        (3.0, "expected a law"),
        ({"name": "constant", "low": 2, "high": 1}, "0 < low < high"),
        ({"name": "from_table", "table": "nowhere.csv"}, "no such file"),
        ({"name": "from_table", "table": ([1, 2, 3, 4], [1, 1, 0, 1])}, "q = 3 is 0"),
        ({"name": "from_table", "table": ([1, 2, 3], [1, 1, 1])}, "too few"),
        ({"name": "from_table", "table": 3}, "cannot be read"),
    ],
)
def test_impossible_laws_are_refused(spec, words):
    with pytest.raises((SettingsError, InputError), match=words.replace("(", r"\(")):
        get_law(spec)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parameter": "rat"}, "Did you mean 'rate'"),
        ({"parameter": "D"}, "its prior is not known"),
        ({"verdicts": ("okay",)}, "Did you mean 'ok'"),
        ({"verdicts": ("misfit",)}, "no bin can be used"),
        ({"priors": {"E": "Normal(0, 1)"}}, "unknown parameter 'E'"),
        ({"law": "power_law", "fixed": {"D": 2e4}}, "fixed.D: 'D' follows from what the law samples. Give "),
        ({"law": "power_law", "priors": {"D": "Normal(0, 1)"}}, "priors.D: 'D' follows from what the law samples"),
        ({"priors": {"D": "Normal(0, 1"}}, "cannot read"),
        ({"fixed": {"D": [1.0, 2.0]}}, "one number"),
        ({"fixed": {"D": 2e4}, "scatter": False}, "nothing is left"),
        ({"draws": 0}, "whole number"),
        ({"scatter": 0.3}, "true or false"),
        ({"priors": "D"}, "expected a table"),
        ({"verdicts": 3}, "names of verdicts"),
        ({"model": "stretched_exponential"}, "was fitted"),
        ({"law": lambda q, tau: q[:3]}, "returns shape"),
        ({"law": lambda q, tau: 1 / 0}, "ZeroDivisionError"),
        ({"law": lambda q, tau: -q}, "positive"),
        ({"law": {"name": "de_gennes", "S": (np.linspace(0.003, 0.03, 9), np.ones(9))}}, "q = 0.002 "),
    ],
)
def test_impossible_arguments_are_refused(arguments, words):
    with pytest.raises((SettingsError, InputError), match=words):
        bayesfit.law(planted(np.log(D * Q**2), 0.1), **arguments)


def test_one_chain_is_a_result_too():
    result = bayesfit.law(planted(np.log(D * Q**2), 0.1), "diffusion", chains=1, draws=200)
    assert result["posterior"].sizes == {"chain": 1, "draw": 200}
    assert abs(np.log(result["posterior"].D).mean() - np.log(D)) < 0.2


def test_draws_outside_the_prior_are_refused():
    with pytest.raises(InputError, match="bin 0: its draws lie outside"):
        bayesfit.law(planted(np.log(1e-9 * D * Q**2), 0.1))


def test_too_few_bins_are_refused():
    result = planted(np.log(D * Q**2), 0.1, verdict=["ok", "ok", *["misfit"] * 6])
    with pytest.raises(InputError, match="2 usable bins for 2 parameters of the law; left out: 6 of verdict misfit"):
        bayesfit.law(result, "power_law")


def test_a_law_needs_good_names():
    with pytest.raises(SettingsError, match="reserved"):
        Law("mine", lambda q, tau: q, (bayesfit.Parameter("scatter"),))
    assert set(LAWS) == {
        "diffusion",
        "diffusion_extrapolated",
        "power_law",
        "diffusion_plus_offset",
        "de_gennes",
        "from_table",
        "constant",
    }


def test_draws_that_no_density_describes_are_warned_of():
    result = planted(np.log(D * Q**2), 0.1)
    rate = result["posterior"].rate.values
    rate[:, ::2, 3] *= 3.0
    result["posterior"]["rate"] = result["posterior"].rate.copy(data=rate)
    with pytest.warns(UserWarning, match="bin 3"):
        likelihoods(result, "rate", ("ok",))


# ---- q with an error


@pytest.mark.parametrize("law", ["diffusion", {"name": "power_law", "n": 3}])
def test_an_error_of_all_q_is_carried_into_the_coefficient(law):
    """By the closed form: log D is normal, with the variance of the weighted mean of log rate - n log q, and that of n
    times the relative error of q."""
    exponent, dq = (2 if law == "diffusion" else 3), 0.03
    width = np.full(Q.size, 0.05)
    middle = np.sqrt(Q[0] * Q[-1])
    result = planted(np.log(50.0) + exponent * np.log(Q / middle), width)
    name = "D" if law == "diffusion" else "rate_middle"
    exact = bayesfit.law(result, law, scatter=False, draws=2000)["posterior"][name]
    found = bayesfit.law(result, law, scatter=False, draws=2000, q=dq)
    own = np.log(found["posterior"].D)
    statistical = 0.05 / np.sqrt(Q.size)
    assert float(np.log(exact).std()) == pytest.approx(statistical, rel=0.1)
    assert float(own.std()) == pytest.approx(np.hypot(statistical, exponent * dq), rel=0.06)
    shift = found["posterior"].q_shift
    assert abs(float(shift.mean())) < 0.1
    assert float(shift.std()) == pytest.approx(1.0, rel=0.06)
    assert float(np.corrcoef(own.values.ravel(), shift.values.ravel())[0, 1]) < -0.9
    assert found.attrs["q"] == dq


def test_the_errors_of_q_are_those_of_the_curves(tmp_path):
    """From the coordinate that curves have, through a saved result."""
    result = planted(np.log(2e4 * Q**2), np.full(Q.size, 0.05))
    with pytest.raises(bayesfit.InputError, match=r"q_err: .*does not hold them.*curves"):
        bayesfit.law(result, q="uncertain")
    with_errors = result.map_over_datasets(
        lambda group: group.assign_coords(q_err=("q_bin", 0.03 * Q)) if "q_bin" in group.dims else group
    )
    bayesfit.save(with_errors, tmp_path / "result.nc")
    found = bayesfit.law(bayesfit.load(tmp_path / "result.nc"), scatter=False, q="uncertain", draws=1000)
    assert float(np.log(found["posterior"].D).std()) == pytest.approx(0.0606, rel=0.08)
    for wrong in ("maybe", -0.1, 0.5, True):
        with pytest.raises(bayesfit.SettingsError, match="q: got"):
            bayesfit.law(result, q=wrong)


def test_curves_hold_errors_of_q():
    tau = np.geomspace(1e-3, 1, 20)
    g2 = 1 + 0.2 * np.exp(-20 * tau)
    data = bayesfit.curves(tau, g2, np.full(20, 0.01), q=[0.01], q_err=[1e-4])
    assert data.q_err.attrs["units"] == "1/angstrom"
    result = bayesfit.fit(data, "single_exponential", noise="stated", draws=100)
    assert result["posterior"].q_err.values == 1e-4
    with pytest.raises(bayesfit.InputError, match=r"q_err.*bin 0: got -1"):
        bayesfit.curves(tau, g2, np.full(20, 0.01), q=[0.01], q_err=[-1])
