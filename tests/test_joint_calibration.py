"""The calibration of joint fits: a small version of it, and its own likelihood against the engine's."""

import jax
import jax.numpy as jnp
import numpy as np
from joint_calibration import SETTINGS, calibrate, log_likelihood, simulated

from bayesfit.modelling.priors import parse_common
from bayesfit.posterior.joint import joint_posterior
from bayesfit.posterior.pooling import parse_across
from bayesfit.posterior.prepare import prepare


def test_fits_are_calibrated():
    """Few simulations: what is found here is large. In full it is `tests/joint_calibration.py`."""
    found = calibrate("diffusion", 24, 5)
    assert set(found["ranks"]) >= {
        "D",
        "beta",
        "contrast",
        "rate[0]",
        "baseline[5]",
        "error_scale[0]",
        "log_likelihood",
    }
    assert min(found["adjusted"].values()) > 1e-3
    assert found["verdicts"].get("poor_mixing", 0) <= 1


def test_likelihoods_are_the_engines():
    """Differences between two truths, where every parameter of every bin is given."""
    setting = SETTINGS["diffusion"]
    truth, curves = simulated(setting, np.random.default_rng(3))
    other = setting.truth(np.random.default_rng(4))
    bins = {"rate", "beta", "contrast", "baseline", "error_scale"}
    with jax.enable_x64(True):
        problem = prepare(
            curves, "stretched_exponential", "scaled", {name: setting.priors[name] for name in bins - {"rate"}}
        )
        across = dict.fromkeys(bins, "pooled")
        given = {"D": parse_common(setting.priors["D"], "D")}
        poolings = parse_across({**across, "rate": "diffusion"}, curves)
        joint = joint_posterior(problem, problem.bins, poolings, given, {})
        values = [
            {name: jnp.broadcast_to(jnp.asarray(one[name], float), (6,)) for name in bins} for one in (truth, other)
        ]
        logs = [sum(jax.vmap(joint.per_bin.log_density, (None, 0))(jnp.zeros(0), joint.at(one))) for one in values]
    expected = log_likelihood(truth, curves.g2.values) - log_likelihood(other, curves.g2.values)
    np.testing.assert_allclose(logs[0] - logs[1], expected, rtol=1e-8)
