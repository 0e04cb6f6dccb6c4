"""The marginal posterior against the full NumPyro program, quadrature, exact rational arithmetic and SciPy."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import log_ndtr
from shipped import shipped_models, spec

import bayesfit
from bayesfit.modelling.noise import NOISES
from bayesfit.modelling.scatter import Scatter
from bayesfit.posterior.bin_data import whitened
from bayesfit.posterior.linear_amplitudes import conditional, truncated_normal
from bayesfit.posterior.linear_amplitudes import regression as on_shape
from bayesfit.posterior.prepare import prepare

NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
COUNTED = {"counts": 0.25, "pixels": 10, "frames": 4000}  # 2,500 pairs
REACH = 9.5  # half width of the quadrature in conditional standard deviations: the rest weighs under 1e-20


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def dataset(bins=1, delays=14, error=0.02, seed=0, contrast=0.2, **options):
    """Curves with one masked point (NaN) and, once prepared, two padded ones."""
    rng = np.random.default_rng(seed)
    tau = np.geomspace(1e-3, 1.0, delays)
    g2 = 1.0 + contrast * np.exp(-2 * (20.0 * tau) ** 0.9) + error * rng.standard_normal((bins, delays))
    g2_err = error * rng.uniform(0.5, 2.0, (bins, delays))
    near = 0.5 * np.exp(-np.abs(np.subtract.outer(np.log(tau), np.log(tau)))) + 0.5 * np.eye(delays)
    estimated = {"g2_cov": g2_err[:, :, None] * near * g2_err[:, None], "cov_samples": 32}
    g2[:, 5] = np.nan
    return bayesfit.curves(tau, g2, g2_err, **{**COUNTED, **estimated, **options})


def problem_of(data, model="stretched_exponential", *args, **options):
    problem = prepare(data, spec(model), *args, **options)
    return problem.posterior, [
        jax.tree.map(lambda array, i=i: jnp.asarray(array[i]), problem.bins) for i in range(len(problem.bins.y))
    ]


def sampled_values(posterior, z, bin):
    """Constrained values of the sampled sites at z."""
    split = len(posterior.curve_names)
    _, curve, _ = posterior.curve(z[:split], bin)
    _, noise, _ = posterior.scatter(z[split:], bin)
    return {name: {**curve, **noise}[name] for name in posterior.names}


def full_log_density(posterior, bin, values):
    return log_density(posterior.full_program, (bin,), {}, values)[0]


def lower_bound(posterior, bin):
    family = dict(posterior.families)["contrast"]
    return {"Normal": -np.inf, "HalfNormal": 0.0}.get(family, bin.priors["contrast"].get("low", 0.0))


def amplitude_grid(posterior, bin, values):
    """Log density (node,), nodes (node, amplitude) and weights of a quadrature over the amplitudes integrated out.

    The full program's log density is a quadratic in them, so its gradient and Hessian give the middle and the widths.
    """
    names = posterior.marginal
    low = [lower_bound(posterior, bin) if name == "contrast" else -jnp.inf for name in names]

    def density(a):
        return full_log_density(posterior, bin, {**values, **dict(zip(names, a, strict=True))})

    inside = jnp.ones(len(names))
    covariance = jnp.linalg.inv(-jax.hessian(density)(inside))
    middle = inside + covariance @ jax.grad(density)(inside)
    width = jnp.sqrt(covariance[0, 0])
    left = jnp.maximum(middle[0] - REACH * width, low[0])
    beyond = jnp.maximum((left - middle[0]) / width, 1e-9)  # past a bound far in the tail it falls as exp(-beyond u)
    length = jnp.maximum(middle[0], left) - left + jnp.minimum(REACH, 45.0 / beyond) * width
    first, weights = left + length * (NODES + 1) / 2, WEIGHTS * length / 2
    points = first[:, None]
    if len(names) == 2:
        slope = covariance[0, 1] / covariance[0, 0]
        rest = REACH * jnp.sqrt(covariance[1, 1] - slope * covariance[0, 1])
        second = middle[1] + slope * (first - middle[0])[:, None] + rest * NODES
        points = jnp.stack([jnp.broadcast_to(points, second.shape), second], axis=-1).reshape(-1, 2)
        weights = (weights[:, None] * WEIGHTS * rest).ravel()
    return jax.vmap(density)(points), points, weights


def reference_log_density(posterior, z, bin):
    """Log marginal density at z from the full program alone: quadrature over amplitudes, Jacobian by autodiff."""
    values = sampled_values(posterior, z, bin)
    log_jacobian = 0.0
    if z.size:
        jacobian = jax.jacfwd(lambda z: jnp.stack(list(sampled_values(posterior, z, bin).values())))(z)
        log_jacobian = jnp.linalg.slogdet(jacobian)[1]
    if not posterior.marginal:
        return full_log_density(posterior, bin, values) + log_jacobian
    terms, _, weights = amplitude_grid(posterior, bin, values)
    return logsumexp(terms, b=weights) + log_jacobian


NOISE_COORDINATES = {  # middle and spread of each, where the data of `dataset` put them or not far off
    "error_scale": (math.log(-math.log(1e-6)), 0.06),  # error scales of 0.2 to 5 under the default prior
    "sigma": (math.log(math.log(0.02) - math.log(1e-12)), 0.03),
    "sigma_slope": (0.0, 0.5),
    "sigma_curvature": (0.0, 0.5),
    "error_range": (math.log(0.1), 1.0),
    "error_share": (0.0, 1.5),
    "speckle_time": (0.0, 1.5),
    "speckle_share": (0.0, 1.5),
    "error_freedom": (2.0, 0.5),
    "dispersion": (0.0, 0.5),
}


def some_points(posterior, count=4):
    """Coordinates z (point, param) where the prior has mass."""
    rng = np.random.default_rng(7)
    points = 1.5 * rng.standard_normal((count, len(posterior.names)))
    for place, name in enumerate(posterior.noise_names, len(posterior.curve_names)):
        middle, spread = NOISE_COORDINATES[name]
        points[:, place] = middle + spread * rng.standard_normal(count)
    return points


@lru_cache(maxsize=64)
def compiled(function, *args):
    """A function of (*args, z, bin) over points, in one program that is compiled once for each posterior, and fast."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(jax.vmap(partial(function, *args), in_axes=(0, None)), compiler_options=options)


@lru_cache(maxsize=64)
def compiled_gradient(posterior):
    return compiled(jax.value_and_grad(posterior.log_density))


def assert_same_density(posterior, bin, points):
    """The density at these points, and at one where the error scale is 4e-6 and log densities reach -1e13."""
    points = np.concatenate([points, np.full((1, points.shape[1]), 0.3)])
    expected = compiled(reference_log_density, posterior)(points, bin)
    got = compiled_gradient(posterior)(points, bin)[0]
    assert np.all(np.isfinite(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


MODELS = shipped_models()


@pytest.mark.parametrize(
    ("model", "noise"),
    [
        *product(MODELS, ["scaled", "stated"]),
        *[("stretched_exponential", noise) for noise in NOISES if noise not in ("scaled", "stated")],
    ],
)
def test_marginal_density_is_the_integral_of_the_full_program(model, noise):
    """Where the density is a normal approximation that the sampler corrects, the integral of that."""
    approximate = replace(NOISES[noise], observed=None)
    posterior, (bin,) = problem_of(dataset(), model, approximate)
    assert posterior.marginal == (("contrast", "baseline") if NOISES[noise].normal else ())
    assert_same_density(posterior, bin, some_points(posterior))


@pytest.mark.parametrize(
    "contrast",
    [
        "Normal(0.1, 0.3)",
        "HalfNormal(0.4)",
        "TruncatedNormal(0, 0.5, low=0)",
        "TruncatedNormal(-0.4, 0.1, 0)",
        "TruncatedNormal(0.1, 0.1, low=0.15)",
        "TruncatedNormal(0.1, 0.3, low=-0.2)",
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_every_closed_form_of_the_contrast(contrast, sign):
    """Falling curves, and rising ones, whose contrast is pressed against its bound."""
    data = dataset(contrast=0.2 * sign, error=0.05)
    posterior, (bin,) = problem_of(data, "single_exponential", "scaled", {"contrast": contrast})
    assert posterior.marginal == ("contrast", "baseline")
    assert_same_density(posterior, bin, some_points(posterior, 3))


@pytest.mark.parametrize(
    ("fixed", "priors", "marginal", "names"),
    [
        ({"baseline": 1.0}, {}, ("contrast",), ("rate", "beta", "error_scale")),
        ({"contrast": 0.2}, {}, ("baseline",), ("rate", "beta", "error_scale")),
        ({"contrast": 0.2, "baseline": 1.01}, {}, (), ("rate", "beta", "error_scale")),
        ({"beta": 1.0}, {}, ("contrast", "baseline"), ("rate", "error_scale")),
        ({"rate": 20.0, "beta": 0.9}, {}, ("contrast", "baseline"), ("error_scale",)),
        ({}, {"beta": "Normal(1, 0.2)"}, ("contrast", "baseline"), ("rate", "beta", "error_scale")),
        ({}, {"rate": "LogNormal(3, 1)"}, ("contrast", "baseline"), ("rate", "beta", "error_scale")),
        (
            {},
            {"rate": {"family": "Gamma", "concentration": 2.0, "rate": 0.1}, "beta": dist.Uniform(0.5, 1.5)},
            ("contrast", "baseline"),
            ("rate", "beta", "error_scale"),
        ),
        ({}, {"error_scale": "HalfCauchy(1)"}, ("contrast", "baseline"), ("rate", "beta", "error_scale")),
        ({}, {"contrast": "Uniform(0, 1)"}, ("baseline",), ("rate", "beta", "contrast", "error_scale")),
        ({}, {"contrast": "LogNormal(-2, 0.5)"}, ("baseline",), ("rate", "beta", "contrast", "error_scale")),
        ({}, {"baseline": "StudentT(4, 1, 0.1)"}, ("contrast",), ("rate", "beta", "baseline", "error_scale")),
        (
            {},
            {"contrast": "Beta(2, 5)", "baseline": "Uniform(0.9, 1.1)"},
            (),
            ("rate", "beta", "contrast", "baseline", "error_scale"),
        ),
        ({"baseline": 1.0}, {"contrast": "Uniform(0, 1)"}, (), ("rate", "beta", "contrast", "error_scale")),
    ],
)
def test_fixed_parameters_and_other_priors(fixed, priors, marginal, names):
    """Amplitudes whose prior is not conjugate are sampled instead, and the density is the same program's."""
    posterior, (bin,) = problem_of(dataset(), "stretched_exponential", "scaled", priors, fixed)
    assert posterior.marginal == marginal
    assert posterior.names == names
    assert_same_density(posterior, bin, some_points(posterior, 3))
    assert posterior.relative == ()
    values = posterior.constrain(some_points(posterior, 1)[0], bin, jax.random.key(0))
    for name, value in fixed.items():
        if name in values:
            assert float(values[name]) == value


@pytest.mark.parametrize(
    ("fixed", "priors", "relative", "names"),
    [
        ({}, {"contrast": "HalfNormal(0.3)"}, ("contrast", "baseline"), ("contrast", "baseline")),
        ({}, {"contrast": "Normal(0.1, 0.3)"}, ("contrast", "baseline"), ("contrast", "baseline")),
        ({}, {"contrast": "Uniform(0, 1)"}, ("baseline",), ("contrast", "baseline")),
        ({}, {"baseline": "Uniform(0.9, 1.1)"}, ("contrast",), ("baseline", "contrast")),
        ({"baseline": 1.01}, {}, ("contrast",), ("contrast",)),
        ({"contrast": 0.2}, {}, ("baseline",), ("baseline",)),
        ({}, {"contrast": "Uniform(0, 1)", "baseline": "Uniform(0.9, 1.1)"}, (), ("contrast", "baseline")),
    ],
)
def test_amplitudes_that_are_sampled_about_their_regression(fixed, priors, relative, names):
    """Whatever of them has a normal prior, the last of the curve's coordinates; the density is the program's."""
    posterior, (bin,) = problem_of(dataset(), "double_exponential", "robust", priors, fixed)
    assert (posterior.marginal, posterior.relative) == ((), relative)
    assert posterior.curve_names == ("rate_fast", "rate", "fraction", *names)
    assert posterior.shape_size == len(posterior.curve_names) - len(relative)
    assert_same_density(posterior, bin, some_points(posterior, 3))


@pytest.mark.parametrize(("contrast", "error"), [(0.2, 0.02), (0.2, 2e-5), (0.001, 0.02), (-0.2, 0.002)])
def test_sampled_amplitudes_are_measured_about_their_regression(contrast, error):
    """At coordinates 0 they are the linear regression of SciPy's least squares, with the priors as two more points; one
    unit is its standard error. A contrast below its bound is just above it."""
    posterior, (bin,) = problem_of(dataset(contrast=contrast, error=error), "double_exponential", "robust")
    z = jnp.array([0.3, -0.2, 0.4, 0.0, 0.0])
    _, values, _ = posterior.curve(z, bin)
    tau, slow, fast, share = map(np.asarray, (bin.tau, values["rate"], values["rate_fast"], values["fraction"]))
    shape = (share * np.exp(-fast * tau) + (1.0 - share) * np.exp(-slow * tau)) ** 2
    (mean_c, sd_c), (mean_b, sd_b) = (posterior.amplitude_prior(name, bin) for name in ("contrast", "baseline"))
    columns = np.stack([shape * bin.inverse_error, bin.inverse_error], axis=1)
    (found, _), sd = regression(columns, bin.y, bin.valid, [mean_c, mean_b], [sd_c, sd_b])
    kept_above = (found + np.hypot(found, 2 * sd)) / 2
    assert float(values["contrast"]) == pytest.approx(kept_above, rel=1e-6)
    (level,), _ = regression(columns[:, 1:], bin.y - kept_above * columns[:, 0], bin.valid, [mean_b], [sd_b])
    assert float(values["baseline"]) == pytest.approx(level, rel=1e-6)
    _, next_values, _ = posterior.curve(z.at[3].set(1.0), bin)
    assert float(jnp.log(next_values["contrast"] / values["contrast"])) == pytest.approx(sd / np.hypot(kept_above, sd))


def regression(columns, y, valid, means, sds):
    """Values of a least-squares fit with priors as more points, and the first one's standard error."""
    free = np.linalg.lstsq(columns, y, rcond=None)[0]
    scale = np.sqrt(np.mean((y - columns @ free)[np.asarray(valid)] ** 2))
    sds = np.array([float(sd) for sd in sds])
    rows = np.concatenate([columns / scale, np.diag(1 / sds)])
    found = np.linalg.lstsq(rows, np.concatenate([y / scale, np.array(means) / sds]), rcond=None)[0]
    return found, np.sqrt(np.linalg.inv(rows.T @ rows)[0, 0])


def test_a_point_prior_can_be_opened():
    posterior, (bin,) = problem_of(dataset(), "cumulant", "stated", {"mu3": "Normal(0, 0.1)"})
    assert posterior.names == ("rate", "mu2", "mu3")
    assert_same_density(posterior, bin, some_points(posterior, 3))


def test_values_per_bin_go_to_their_bin():
    data = dataset(bins=3)
    fixed = {"beta": [0.7, 1.0, 1.3]}
    priors = {"contrast": dist.TruncatedNormal(np.array([0.1, 0.2, 0.3]), 0.1, low=0.0)}
    posterior, bins = problem_of(data, "stretched_exponential", "stated", priors, fixed)
    for i, bin in enumerate(bins):
        alone = data.isel(q_bin=[i])
        one = f"TruncatedNormal({[0.1, 0.2, 0.3][i]}, 0.1, low=0)"
        single, (single_bin,) = problem_of(
            alone, "stretched_exponential", "stated", {"contrast": one}, {"beta": fixed["beta"][i]}
        )
        points = some_points(posterior, 2)
        got, expected = compiled_gradient(posterior)(points, bin), compiled_gradient(single)(points, single_bin)
        np.testing.assert_array_equal(got[0], expected[0])


@pytest.mark.parametrize(
    ("model", "noise", "priors", "fixed"),
    [
        *[(model, noise, {}, {}) for model in MODELS for noise in ("scaled", "stated")],
        *[("stretched_exponential", noise, {}, {}) for noise in NOISES if noise not in ("scaled", "stated")],
        ("stretched_exponential", "scaled", {"contrast": "Uniform(0, 1)"}, {}),
        (
            "stretched_exponential",
            "correlated",
            {"contrast": "Normal(0.1, 0.3)", "beta": "Gamma(20, 20)"},
            {"baseline": 1.0},
        ),
    ],
)
def test_gradient_is_that_of_finite_differences(model, noise, priors, fixed):
    posterior, (bin,) = problem_of(dataset(), model, noise, priors, fixed)
    points, step = some_points(posterior, 3), 1e-5
    moves = step * jnp.eye(points.shape[1])
    value, gradient = compiled_gradient(posterior)(points, bin)
    around = jnp.concatenate([points[:, None] + moves, points[:, None] - moves]).reshape(-1, points.shape[1])
    up, down = compiled_gradient(posterior)(around, bin)[0].reshape(2, *points.shape)
    # The difference's own error: rounding of the value over the step, and the third derivative.
    rounding = 1e-14 * np.abs(value)[:, None] / step
    error = np.abs(gradient - (up - down) / (2 * step))
    np.testing.assert_array_less(error, 1e-6 * np.abs(gradient) + 1e-6 + rounding)


def test_masked_points_change_nothing():
    """Neither their values nor their number: left out, the density is the same; its data may be anything."""
    data = dataset()
    wild = data.copy(deep=True)
    wild["g2"][:, 5], wild["g2_err"][:, 5] = 1e300, np.nan
    kept = data.isel(tau=[i for i in range(data.sizes["tau"]) if i != 5])
    posterior, (bin,) = problem_of(data)
    _, (wild_bin,) = problem_of(wild)
    _, (kept_bin,) = problem_of(kept)
    assert kept_bin.valid.sum() == bin.valid.sum() == 13
    points = some_points(posterior)
    value, wild_value, kept_value = (compiled_gradient(posterior)(points, one) for one in (bin, wild_bin, kept_bin))
    for a, b, c in zip(value, wild_value, kept_value, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-12, atol=1e-12)
    draw = jax.jit(posterior.constrain)
    assert draw(points[0], bin, jax.random.key(3)) == draw(points[0], wild_bin, jax.random.key(3))


def test_padding_changes_nothing():
    data = dataset(delays=16)
    posterior, (bin,) = problem_of(data, "stretched_exponential", "correlated")
    assert bin.valid.size == 16
    longer = jax.tree.map(lambda array: array, bin)._replace(
        tau=jnp.concatenate([bin.tau, jnp.full(16, bin.tau[-1])]),
        y=jnp.concatenate([bin.y, jnp.zeros(16)]),
        inverse_error=jnp.concatenate([bin.inverse_error, jnp.zeros(16)]),
        valid=jnp.concatenate([bin.valid, jnp.zeros(16, bool)]),
        layout=jnp.concatenate([bin.layout, jnp.zeros((16, 1))]),
    )
    points = some_points(posterior)
    short, long = (compiled_gradient(posterior)(points, one)[0] for one in (bin, longer))
    np.testing.assert_allclose(short, long, rtol=1e-13)


@pytest.mark.parametrize(
    ("options", "truth"),
    [
        ({}, 0.2),
        ({}, -0.02),
        ({}, -0.2),
        ({"priors": {"contrast": "Normal(0.1, 0.3)"}}, -0.1),
        ({"priors": {"contrast": "HalfNormal(0.4)"}}, 0.02),
        ({"priors": {"contrast": "TruncatedNormal(0.1, 0.3, low=0.25)"}}, 0.2),
        ({"fixed": {"baseline": 1.0}}, 0.02),
        ({"fixed": {"contrast": 0.2}}, 0.2),
        ({"priors": {"contrast": "Uniform(0, 1)"}}, 0.2),
    ],
)
def test_conditional_draws_follow_the_conditional_density(options, truth):
    """Means, sds, correlation and the whole distribution on a grid; also where the cut at the bound matters."""
    count = 20_000
    data = dataset(contrast=truth, error=0.05)
    posterior, (bin,) = problem_of(data, "single_exponential", "stated", **options)
    z = posterior.unconstrain_curve({"rate": 20.0, "contrast": 0.2}, bin)
    grid = jax.jit(lambda z: amplitude_grid(posterior, bin, sampled_values(posterior, z, bin)))
    log, points, weights = map(np.array, grid(z))
    mass = weights * np.exp(log - log.max())
    mass /= mass.sum()
    keys = jax.random.split(jax.random.key(1), count)
    drawn = jax.jit(jax.vmap(lambda key: posterior.constrain(z, bin, key)))(keys)
    sample = np.stack([np.array(drawn[name]) for name in posterior.marginal], axis=1)
    if "contrast" in posterior.marginal:
        assert sample[:, 0].min() >= lower_bound(posterior, bin)
    mean = mass @ points
    covariance = (points - mean).T @ ((points - mean) * mass[:, None])
    np.testing.assert_array_less(np.abs(sample.mean(0) - mean) / np.sqrt(np.diag(covariance) / count), 4.0)
    for i in range(len(mean)):
        for j in range(i + 1):
            product = (sample[:, i] - mean[i]) * (sample[:, j] - mean[j])
            assert abs(product.mean() - covariance[i, j]) < 4.0 * product.std() / math.sqrt(count)
        edges, inverse = np.unique(np.round(points[:, i], 14), return_inverse=True)
        if edges.size <= 200:  # the first amplitude's nodes repeat: their cumulative mass is its distribution
            cumulative = np.cumsum(np.bincount(inverse, mass))
            nodes_between = (cumulative[:-1] + cumulative[1:]) / 2
            empirical = np.searchsorted(np.sort(sample[:, i]), edges[1:]) / count
            assert np.max(np.abs(empirical - nodes_between)) < 1.95 / math.sqrt(count) + np.max(np.diff(cumulative)) / 4


BOUNDS = [-50.0, -5.0, 0.0, 3.0, 10.0, 29.9, 30.1, 60.0, 1e3, 1e5]


@pytest.mark.parametrize("bound", BOUNDS)
def test_truncated_normal_is_scipys(bound):
    """The excess over the bound, since the draws themselves coincide to rounding far in the tail. SciPy's own
    distribution function is used up to 10 sd, and its log survival function, log_ndtr, beyond."""
    mean, sd, count = 0.7, 0.2, 5000
    low = mean + sd * bound
    keys = jax.random.split(jax.random.key(11), count)
    drawn = np.array(jax.jit(jax.vmap(lambda key: truncated_normal(key, mean, sd, low)))(keys))
    assert np.all(np.isfinite(drawn))
    assert np.all(drawn >= low * (1 - 1e-15))
    if bound <= 10:
        p = stats.kstest(drawn, stats.truncnorm(bound, np.inf, loc=mean, scale=sd).cdf).pvalue
        assert p > 1e-3
    standard = (drawn - mean) / sd
    survival = np.exp(log_ndtr(-standard) - log_ndtr(-bound))
    assert stats.kstest(survival, "uniform").pvalue > 1e-3


def test_truncated_normal_is_the_same_normal_without_a_bound():
    keys = jax.random.split(jax.random.key(5), 5000)
    drawn = np.array(jax.vmap(lambda key: truncated_normal(key, 2.0, 3.0, -1e6))(keys))
    assert stats.kstest(drawn, stats.norm(2.0, 3.0).cdf).pvalue > 1e-3


def exact_log_evidence(posterior, bin, curve, scale, log_prior):
    """Normal evidence in exact rational arithmetic from the floats that the engine is given; one log at the end."""
    mean, sd = zip(*(map(float, posterior.amplitude_prior(name, bin)) for name in posterior.marginal), strict=True)
    valid = np.array(bin.valid)
    columns = [[Fraction(float(v)) for v in np.array(c)[valid]] for c in (curve.shape, curve.baseline, bin.y)]
    shape, unit, y = columns
    s2 = Fraction(scale) ** 2
    w = [1 / Fraction(v) ** 2 for v in sd]
    m = [Fraction(v) for v in mean]

    def dot(a, b):
        return sum(p * q for p, q in zip(a, b, strict=True)) / s2

    a11, a12, a22 = dot(shape, shape) + w[0], dot(shape, unit), dot(unit, unit) + w[1]
    b1, b2 = dot(shape, y) + w[0] * m[0], dot(unit, y) + w[1] * m[1]
    determinant = a11 * a22 - a12**2
    c, b = (b1 * a22 - b2 * a12) / determinant, (a11 * b2 - a12 * b1) / determinant
    square = dot(y, y) + w[0] * m[0] ** 2 + w[1] * m[1] ** 2 - b1 * c - b2 * b
    ratio = determinant / (w[0] * w[1])
    log_ratio = math.log(ratio.numerator) - math.log(ratio.denominator)
    count = int(valid.sum())
    value = -0.5 * count * math.log(2 * math.pi) - count * math.log(scale) - 0.5 * log_ratio - 0.5 * float(square)
    low = lower_bound(posterior, bin)
    contrast_sd = math.sqrt(float(a22 / determinant))
    if np.isfinite(low):
        value += log_ndtr((float(c) - low) / contrast_sd) - log_ndtr((mean[0] - low) / sd[0])
    return (
        value + float(log_prior) + np.sum(np.log(np.array(bin.inverse_error)[valid])),
        float(c),
        contrast_sd,
        float(b),
    )


def all_at(posterior, z, bin):
    curve, _, log_prior = posterior.curve(z, bin)
    priors = posterior.amplitude_priors(bin)
    return (
        jax.value_and_grad(posterior.log_density)(z, bin),
        curve,
        log_prior,
        conditional(on_shape(whitened(curve, Scatter(1.0), bin), 1.0, priors), priors),
        posterior.constrain(z, bin, jax.random.key(0)),
    )


@pytest.mark.parametrize("error", [1e-9, 1e-4, 1.0])
@pytest.mark.parametrize("rate", [1e-9, 1e-4, 1.0, 1e3, 1e5])
@pytest.mark.parametrize("contrast", ["Normal(0.1, 0.3)", "TruncatedNormal(0, 0.5, low=0)"])
def test_tiny_errors_and_flat_shapes_stay_accurate(error, rate, contrast):
    """A decay far after the window (shape flat at 1), inside it, or before it (shape flat at 0)."""
    tau = np.geomspace(1e-3, 1.0, 14)
    rng = np.random.default_rng(4)
    g2 = 1.0 + 0.2 * np.exp(-2 * rate * tau) + error * rng.standard_normal(14)
    data = bayesfit.curves(tau, g2, np.full(14, error))
    priors = {"rate": "LogNormal(0, 20)", "contrast": contrast}
    posterior, (bin,) = problem_of(data, "single_exponential", "stated", priors)
    z = posterior.unconstrain_curve({"rate": rate}, bin)
    everything = jax.tree.map(lambda array: array[0], compiled(all_at, posterior)(z[None], bin))
    (value, gradient), curve, log_prior, given, drawn = everything
    exact, c, sd, b = exact_log_evidence(posterior, bin, curve, 1.0, log_prior)
    # Whitened data of size 1/error carry rounding of 1e-16/error each; the residuals are of order one.
    assert float(value) == pytest.approx(exact, rel=1e-9, abs=1e-6 + 1e-14 / error)
    assert np.all(np.isfinite(gradient))
    assert float(given.contrast_sd) == pytest.approx(sd, rel=1e-6)
    assert float(given.contrast) == pytest.approx(c, abs=1e-3 * sd + 1e-9 * abs(c))
    assert float(given.level - given.contrast * given.slope) == pytest.approx(b, rel=1e-9)
    assert all(np.isfinite(float(v)) for v in drawn.values())


def there_and_back(posterior, key, bin):
    z, values = posterior.draw_prior(key, bin)
    back = jnp.concatenate([posterior.unconstrain_curve(values, bin), posterior.unconstrain_noise(values, bin)])
    return z, back, {name: values[name] for name in posterior.names}, sampled_values(posterior, z, bin)


@pytest.mark.parametrize(("model", "noise"), [*product(MODELS, ["scaled", "robust"]), *product(MODELS[:1], NOISES)])
def test_coordinates_round_trip(model, noise):
    """Values to coordinates and back, for the models' own priors and for those a user gives."""
    for priors in ({}, {"rate": "LogNormal(3, 1)", "contrast": "Uniform(0, 1)"}):
        posterior, (bin,) = problem_of(dataset(), model, noise, priors)
        keys = jax.random.split(jax.random.key(2), 10)
        z, back, drawn, at_z = compiled(there_and_back, posterior)(keys, bin)
        np.testing.assert_allclose(back, z, rtol=1e-8, atol=1e-8)
        for name in posterior.names:
            np.testing.assert_allclose(at_z[name], drawn[name], rtol=1e-9)


@pytest.mark.parametrize(
    "spec", ["Normal(0.1, 0.3)", "TruncatedNormal(0, 0.5, low=0)", "HalfNormal(0.4)", "TruncatedNormal(0.3, 0.1, 0.25)"]
)
def test_amplitude_prior_quantiles_are_scipys(spec):
    posterior, (bin,) = problem_of(dataset(), "single_exponential", "stated", {"contrast": spec})
    mean, sd = (float(v) for v in posterior.amplitude_prior("contrast", bin))
    low = (lower_bound(posterior, bin) - mean) / sd
    levels = np.array([0.001, 0.05, 0.5, 0.95, 0.999])
    expected = stats.truncnorm(low, np.inf, loc=mean, scale=sd).ppf(levels)
    got = posterior.amplitude_prior_quantiles(
        "contrast", levels, jax.tree.map(lambda array: np.array(array)[None], bin)
    )
    np.testing.assert_allclose(got[0], expected, rtol=1e-9, atol=1e-12)
