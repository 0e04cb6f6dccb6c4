"""Priors as users write them: three notations, every family against SciPy, and a clear refusal of what is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from bayesfit import SettingsError
from bayesfit.modelling.priors import FAMILIES, LogitNormal, Prior, build, parse_prior

# family: the values, the NumPyro object, SciPy's distribution, where to compare
CASES = {
    "Normal": ((1.0, 0.5), dist.Normal(1.0, 0.5), stats.norm(1.0, 0.5), [-1, 1, 3]),
    "LogNormal": ((3.0, 1.0), dist.LogNormal(3.0, 1.0), stats.lognorm(1.0, scale=np.exp(3)), [0.1, 20, 300]),
    "Uniform": ((-1.0, 3.0), dist.Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0), [-0.9, 0, 2.9]),
    "LogUniform": ((0.1, 50.0), dist.LogUniform(0.1, 50.0), stats.loguniform(0.1, 50.0), [0.2, 1, 49]),
    "TruncatedNormal": (
        (0.1, 0.5, -0.2),
        dist.TruncatedNormal(0.1, 0.5, low=-0.2),
        stats.truncnorm(-0.6, np.inf, loc=0.1, scale=0.5),
        [-0.1, 0.2, 2],
    ),
    "HalfNormal": ((0.3,), dist.HalfNormal(0.3), stats.halfnorm(scale=0.3), [0.01, 0.3, 1]),
    "HalfCauchy": ((0.3,), dist.HalfCauchy(0.3), stats.halfcauchy(scale=0.3), [0.01, 0.3, 10]),
    "Exponential": ((4.0,), dist.Exponential(4.0), stats.expon(scale=0.25), [0.01, 0.3, 2]),
    "Gamma": ((2.0, 0.1), dist.Gamma(2.0, 0.1), stats.gamma(2.0, scale=10.0), [1, 20, 90]),
    "InverseGamma": ((3.0, 2.0), dist.InverseGamma(3.0, 2.0), stats.invgamma(3.0, scale=2.0), [0.2, 1, 9]),
    "Beta": ((2.0, 5.0), dist.Beta(2.0, 5.0), stats.beta(2.0, 5.0), [0.01, 0.3, 0.9]),
    "StudentT": ((4.0, 1.0, 0.2), dist.StudentT(4.0, 1.0, 0.2), stats.t(4.0, 1.0, 0.2), [0, 1, 3]),
    "Cauchy": ((1.0, 0.2), dist.Cauchy(1.0, 0.2), stats.cauchy(1.0, 0.2), [-5, 1, 7]),
    "Laplace": ((1.0, 0.2), dist.Laplace(1.0, 0.2), stats.laplace(1.0, 0.2), [0, 1, 3]),
    "LogitNormal": (
        (0.5, 0.8, 0.2, 2.0),
        LogitNormal(0.5, 0.8, 0.2, 2.0),
        stats.johnsonsb(-0.5 / 0.8, 1.0 / 0.8, loc=0.2, scale=1.8),
        [0.3, 1.2, 1.9],
    ),
}


def test_every_family_is_here():
    assert set(CASES) == set(FAMILIES)


@pytest.mark.parametrize("family", CASES)
def test_every_notation_gives_the_same_prior_and_scipys_density(family):
    values, numpyro_prior, scipy_prior, points = CASES[family]
    names = FAMILIES[family]
    with jax.enable_x64(True):
        named = dict(zip(names, values, strict=True))
        notations = [
            f"{family}({', '.join(map(str, values))})",
            f"  {family}({', '.join(f'{n}={v}' for n, v in named.items())}) ",
            {"family": family, **named},
            {"family": family, **{n: int(v) if v == int(v) else v for n, v in named.items()}},
            jax.tree.map(lambda v: v, numpyro_prior),
            Prior(family, {n: np.asarray(v) for n, v in named.items()}),
        ]
        for spec in notations:
            prior = parse_prior(spec, "rate")
            assert (prior.family, prior.names) == (family, names)
            for name, value in named.items():
                assert prior.values[name] == pytest.approx(value, rel=1e-7)
            built = build(prior.family, {n: jnp.asarray(v) for n, v in named.items()})
            np.testing.assert_allclose(
                built.log_prob(jnp.asarray(points, float)), scipy_prior.logpdf(points), rtol=1e-6
            )
            drawn = np.array(built.sample(jax.random.key(0), (4000,)))
            assert stats.kstest(drawn, scipy_prior.cdf).pvalue > 1e-4


def test_negative_and_mixed_arguments():
    prior = parse_prior("TruncatedNormal(-1, scale=2.5e-1, low=-3)", "contrast")
    assert {name: float(value) for name, value in prior.values.items()} == {"loc": -1.0, "scale": 0.25, "low": -3.0}


@pytest.mark.parametrize(
    "spec",
    [
        "Normal([1, 2, 3], 0.1)",
        "Normal(loc=(1, 2, 3), scale=0.1)",
        {"family": "Normal", "loc": [1, 2, 3], "scale": 0.1},
        {"family": "Normal", "loc": np.array([1, 2, 3]), "scale": [0.1, 0.1, 0.1]},
        dist.Normal(np.array([1.0, 2.0, 3.0]), 0.1),
        dist.Normal(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.1, 0.1])),
    ],
)
def test_values_per_bin(spec):
    prior = parse_prior(spec, "baseline")
    np.testing.assert_array_equal(prior.values["loc"], [1, 2, 3])
    np.testing.assert_allclose(np.broadcast_to(prior.values["scale"], 3), 0.1, rtol=1e-7)
    assert prior.values["scale"].shape in ((), (3,))


def test_a_truncated_normal_per_bin_as_a_numpyro_object():
    prior = parse_prior(dist.TruncatedNormal(np.array([0.1, 0.2, 0.3]), 0.1, low=0.0), "contrast")
    assert prior.family == "TruncatedNormal"
    for name in ("loc", "scale", "low"):
        assert prior.values[name].shape in ((), (3,))


BAD = [
    "",
    "Normal",
    "Normal(",
    "Normal(1 0.1)",
    "Normal()",
    "Normal(1)",
    "Normal(1, 2, 3)",
    "Normal(1, loc=2)",
    "Normal(1, scale=0.1, scale=0.2)",
    "Normal(1, sd=0.1)",
    "Normal(1, 0)",
    "Normal(1, -0.1)",
    "Normal(1, [0.1, -0.1])",
    "Normal(1, nan)",
    "Normal(1, 1e999)",
    "Normal(1, '0.1')",
    "Normal(1, None)",
    "Normal(1, True)",
    "Normal(*[1, 2])",
    "Normal(**{'loc': 1})",
    "Normal([[1, 2]], 0.1)",
    "Normal(1, 0.1) + 1",
    "Normal(1, 0.1); 2",
    "dist.Normal(1, 0.1)",
    "Normall(1, 0.1)",
    "Poisson(3)",
    "__import__('os').system('true')",
    "Uniform(1, 1)",
    "Uniform(2, 1)",
    "Uniform([0, 5], [1, 4])",
    "LogUniform(0, 1)",
    "LogUniform(-1, 1)",
    "Gamma(0, 1)",
    "Beta(1, -1)",
    "StudentT(0, 1, 1)",
    "Exponential(0)",
    "TruncatedNormal(1, 0.1)",
    "0.5",
    0.5,
    None,
    True,
    ["Normal", 1, 0.1],
    {},
    {"loc": 1, "scale": 0.1},
    {"family": 3},
    {"family": "Normal"},
    {"family": "Normal", "loc": 1},
    {"family": "Normal", "loc": 1, "scale": 0.1, "low": 0},
    {"family": "Normal", "loc": "a", "scale": 0.1},
    {"family": "Normal", "loc": {"a": 1}, "scale": 0.1},
    {"family": "normal", "loc": 1, "scale": 0.1},
    dist.Poisson(3.0),
    dist.Delta(1.0),
    dist.Dirichlet(np.ones(3)),
    dist.MultivariateNormal(np.zeros(2), np.eye(2)),
    dist.TruncatedNormal(0.0, 1.0, low=0.0, high=1.0),
    dist.TruncatedNormal(0.0, 1.0, high=1.0),
    dist.TruncatedCauchy(0.0, 1.0, low=0.0),
    dist.ImproperUniform(dist.constraints.real, (), ()),
    dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.ExpTransform()),
    dist.Normal(0.0, 1.0).mask(False),
    dist.Normal(0.0, 1.0).expand([2]).to_event(1),
]


@pytest.mark.parametrize("spec", BAD, ids=lambda spec: (str(spec) or "empty")[:40])
def test_what_is_wrong_is_refused_in_one_line(spec):
    with pytest.raises(SettingsError) as caught:
        parse_prior(spec, "rate")
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("priors.rate")
    assert len(text) < 250


@pytest.mark.parametrize("spec", BAD, ids=lambda spec: (str(spec) or "empty")[:40])
def test_every_refusal_says_what_to_do(spec):
    with pytest.raises(SettingsError) as caught:
        parse_prior(spec, "rate")
    text = str(caught.value)
    assert caught.value.remedy or any(word in text for word in ("takes", "must", "expected", "only"))


@pytest.mark.parametrize(
    ("name", "near"), [("Normall", "Normal"), ("lognormal", "LogNormal"), ("HalfNorm", "HalfNormal")]
)
def test_a_misspelt_family_is_corrected(name, near):
    with pytest.raises(SettingsError, match=f"Did you mean '{near}'"):
        parse_prior(f"{name}(1, 2)", "rate")
