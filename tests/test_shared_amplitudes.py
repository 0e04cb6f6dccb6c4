"""Amplitudes that bins share, integrated out: against quadrature, and drawn back."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from test_joint import BINS, TAU, Q, data

from bayesfit.posterior.joint import joint_posterior
from bayesfit.posterior.pooling import parse_across
from bayesfit.posterior.prepare import prepare
from bayesfit.sample.joint_starts import slopes

BY_SECTOR = {"kind": "shared", "by": "sector"}
PRIORS = {"contrast": "TruncatedNormal(0.2, 0.02, low=0.19)", "baseline": "Normal(1, 0.003)"}


def joint_of(across, noise="scaled", law="diffusion"):
    curves = data(error=0.05)
    problem = prepare(curves, "stretched_exponential", noise, PRIORS, {"beta": 0.9})
    return joint_posterior(problem, problem.bins, parse_across({"rate": law, **across}, curves), {}, {})


def middle(joint):
    """Coordinates near the truth."""
    bin = jax.tree.map(lambda array: array[0], joint.bins)
    start = joint.per_bin.noise.start(1.1, bin)
    own = joint.per_bin.unconstrain_noise(start, bin) if joint.per_bin.noise_names else jnp.zeros(0)
    low, high = 0.1 / TAU.max() / Q.max() ** 2, 10.0 / TAU.min() / Q.min() ** 2
    share = np.log(2.0e4 / low) / np.log(high / low)
    return {"D": jnp.log(share / (1.0 - share)), "_own": jnp.tile(own, (BINS, 1))}


def log_joint(joint, point, contrast, baseline=None):
    """Log density at given values of shared amplitudes, their prior included, by the bins' own likelihoods."""
    values, handler = joint.run({"D": point["D"]})
    given = {"contrast": contrast} | ({} if baseline is None else {"baseline": baseline})
    fixed = {**joint.bins.fixed, **values, **{name: jnp.full(BINS, value) for name, value in given.items()}}
    each = jax.vmap(joint.per_bin.log_density)(point["_own"], joint.bins._replace(fixed=fixed))
    prior = jnp.where(contrast >= 0.19, -0.5 * ((contrast - 0.2) / 0.02) ** 2 - np.log(0.02), -jnp.inf)
    prior -= jax.scipy.special.log_ndtr(0.5) + 0.5 * np.log(2 * np.pi)
    if baseline is not None:
        prior += -0.5 * ((baseline - 1.0) / 0.003) ** 2 - np.log(0.003) - 0.5 * np.log(2 * np.pi)
    return each + prior / BINS, handler.log_density


def log_integral(logs, *weights):
    """Log of the integral of exp(logs) over a grid, by its weights along each axis."""
    for weight in reversed(weights):
        logs = logsumexp(logs + np.log(weight), axis=-1)
    return logs


def nodes(low, high, count):
    x, weight = np.polynomial.legendre.leggauss(count)
    return 0.5 * (high - low) * (x + 1.0) + low, 0.5 * (high - low) * weight


def test_a_shared_contrast_is_integrated_out():
    """Against quadrature over the contrast, each bin's baseline being integrated out by itself."""
    with jax.enable_x64(True):
        joint = joint_of({"contrast": "shared"})
        point = middle(joint)
        assert joint.shapes == {"D": (), "_own": (BINS, 1)}
        grid, weight = nodes(0.19, 0.26, 60)
        each, prior = jax.jit(jax.vmap(lambda c: log_joint(joint, point, c)))(grid)
        found = log_integral(np.asarray(each.sum(axis=1)), weight) + prior[0]
        np.testing.assert_allclose(-joint.potential(point), found, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def both():
    """Contrast and baseline shared: the joint posterior, a point, and the log density over a grid of the two."""
    with jax.enable_x64(True):
        joint = joint_of({"contrast": "shared", "baseline": "shared"})
        point = middle(joint)
        contrasts, baselines = nodes(0.19, 0.26, 60), nodes(0.985, 1.015, 60)
        grid = jax.jit(jax.vmap(lambda c: jax.vmap(lambda b: log_joint(joint, point, c, b))(baselines[0])))
        each, prior = grid(contrasts[0])
        return joint, point, contrasts, baselines, np.asarray(each.sum(axis=2)), float(prior[0, 0])


def test_both_amplitudes_are_integrated_out(both):
    joint, point, contrasts, baselines, logs, prior = both
    with jax.enable_x64(True):
        found = log_integral(logs, contrasts[1], baselines[1]) + prior
        np.testing.assert_allclose(-joint.potential(point), found, rtol=0, atol=1e-6)


@pytest.mark.parametrize("noise", ["scaled", "correlated"])
def test_groups_are_integrated_out_one_by_one(noise):
    """The density of two groups that share nothing else is that of each."""
    with jax.enable_x64(True):
        whole, one = (
            joint_of({"contrast": BY_SECTOR}, noise, "per_bin"),
            joint_of({"contrast": "shared"}, noise, "per_bin"),
        )
        start = {**whole.per_bin.noise.start(1.1, None), "rate": 2.0}
        bin = jax.tree.map(
            lambda array: array[0], whole.bins._replace(fixed={**whole.bins.fixed, "contrast": np.ones(BINS)})
        )
        own = [
            whole.per_bin.unconstrain_curve({**start, **bin.fixed}, bin),
            whole.per_bin.unconstrain_noise(start, bin),
        ]
        z = jnp.tile(jnp.concatenate(own), (BINS, 1))
        total = 0.0
        for sector in range(2):
            chosen = np.arange(BINS) % 2 == sector
            bins = jax.tree.map(lambda array, chosen=chosen: array[chosen], one.bins)
            amplitudes = replace(one.amplitudes, group=jnp.zeros(3, int))
            total += replace(one, bins=bins, amplitudes=amplitudes).potential({"_own": z[chosen]})
        np.testing.assert_allclose(whole.potential({"_own": z}), total, rtol=1e-12)


@pytest.mark.parametrize("across", [{"contrast": BY_SECTOR}, {"contrast": BY_SECTOR, "baseline": BY_SECTOR}])
def test_gradients_are_right(across):
    with jax.enable_x64(True):
        joint = joint_of(across)
        vector = joint.vector(middle(joint))
        potential = jax.jit(lambda vector: joint.potential(joint.point(vector)))
        step = 1e-5 * np.eye(len(vector))
        expected = [(potential(vector + s) - potential(vector - s)) / 2e-5 for s in step]
        np.testing.assert_allclose(slopes(joint)(np.asarray(vector))[1], expected, rtol=1e-6, atol=1e-4)


def test_shared_amplitudes_are_drawn_from_their_conditional_distribution(both):
    joint, point, contrasts, baselines, logs, _ = both
    with jax.enable_x64(True):
        keys = jnp.zeros((BINS, 2), jnp.uint32)
        draw = jax.jit(jax.vmap(lambda key: joint.draw(point, keys, key)[1]))
        drawn = jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(0), 4000)))
    share = np.exp(logs - logs.max()) * contrasts[1][:, None] * baselines[1]
    share /= share.sum()
    assert drawn["contrast"].shape == (4000,)
    assert drawn["contrast"].min() >= 0.19
    for name, (values, _), weight in (
        ("contrast", contrasts, share.sum(axis=1)),
        ("baseline", baselines, share.sum(axis=0)),
    ):
        mean = np.sum(weight * values)
        sd = np.sqrt(np.sum(weight * (values - mean) ** 2))
        assert abs(drawn[name].mean() - mean) < 4.0 * sd / np.sqrt(4000)
        np.testing.assert_allclose(drawn[name].std(), sd, rtol=0.06)


@pytest.mark.parametrize(
    ("across", "noise", "names"),
    [
        ({"contrast": "shared"}, "scaled", ("contrast",)),
        ({"contrast": "shared", "baseline": "shared"}, "scaled", ("contrast", "baseline")),
        ({"contrast": "shared", "baseline": BY_SECTOR}, "scaled", ("contrast",)),
        ({"baseline": "shared"}, "scaled", None),
        ({"contrast": "shared"}, "robust", None),
    ],
)
def test_what_has_no_closed_form_is_sampled(across, noise, names):
    with jax.enable_x64(True):
        joint = joint_of(across, noise)
        assert (joint.amplitudes.names if joint.amplitudes else None) == names
        assert {*joint.names} == {"rate", *across}
        assert set(joint.shapes) == {"_own"} | {"D", *across} - set(names or ())
