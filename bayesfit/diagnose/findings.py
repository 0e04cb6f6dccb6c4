"""What is known of one bin after sampling: the record that its verdict is based on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

OfDraws = Float[np.ndarray, "chain draw"]


@dataclass(frozen=True)
class Findings:
    """What is known of one bin after sampling.

    `draws`: parameter name to draws; `convergence`: their worst R-hat, bulk and tail effective sample size, NaN where
    there are too few draws; `potential`, `n_steps`, `diverging`, `independence_accepted`: statistics of each
    transition; `mode_potential`: the lowest potential seen before; `sampled`: number of sampled coordinates;
    `prior_quantiles`: parameter name to evenly spaced quantiles of its prior; `prior_tails`: parameter name to the
    prior's probability of a value as far out as the median draw; `noise`: name of the noise model; `scores`: normal
    scores of the residuals of the valid points; `speckle_log_ratio`: see `predictive_checks`, NaN without delays;
    `errors_disputed`: in words, that a measured covariance gives larger errors than theory's, else "";
    `theory_change`: how far off the log likelihood is by theory's errors; `learnt`: in words, that the model is the
    mean of a random simulator, else ""; `chi2`: sum of squares of the residuals from the posterior mean curve, in
    stated errors, with noise "photons" in those of theory; `tau` of the valid points, has unit s where these are
    `delays`; `tau_min`: from which delay on the curve fits, where only the first delays are off, else 0; `free`:
    number of free parameters of the curve; `contrast`, `contrast_sd`: the least-squares contrast and its standard
    error, NaN where the model has none; `max_tree_depth`; `wanted`: draws asked for; `units`: parameter name to
    unit; `unjudged`: the parameters that the data need not determine; `prior_ranges`: parameter name to the ends of its
    log-uniform prior, NaN for other priors; `in_common`: name of a parameter that all bins have in common to draws of
    it; `original_quantiles`: where a prior was made from other data, parameter name to those of the original one.
    """

    draws: dict[str, OfDraws]
    convergence: tuple[float, float, float]
    potential: OfDraws
    n_steps: Int[np.ndarray, "chain draw"]
    diverging: Bool[np.ndarray, "chain draw"]
    independence_accepted: Bool[np.ndarray, "chain draw"]
    mode_potential: float
    sampled: int
    prior_quantiles: dict[str, Float[np.ndarray, " quantile"]]
    prior_tails: dict[str, float]
    noise: str
    scores: Float[np.ndarray, "draw point"]
    speckle_log_ratio: float
    chi2: float
    tau: Float[np.ndarray, " point"]
    delays: bool
    tau_min: float
    free: int
    contrast: float
    contrast_sd: float
    max_tree_depth: int
    wanted: int
    units: dict[str, str] = field(default_factory=dict)
    unjudged: frozenset[str] = frozenset()
    prior_ranges: dict[str, Float[np.ndarray, 2]] = field(default_factory=dict)
    in_common: dict[str, OfDraws] = field(default_factory=dict)
    original_quantiles: dict[str, Float[np.ndarray, " quantile"]] = field(default_factory=dict)
    theory_change: float = 0.0
    learnt: str = ""
    errors_disputed: str = ""
