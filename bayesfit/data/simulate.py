"""Simulated curves with known truth: stretched exponentials with the faults of real files."""

from __future__ import annotations

import numpy as np
import xarray as xr

from bayesfit.data.curves import curves

CONTRAST, BASELINE = "TruncatedNormal(0.15, 0.2, low=0)", "Normal(1, 0.1)"  # priors


def simulate(
    bins: int = 30,
    delays: int = 61,
    *,
    seed: int = 0,
    diffusion: float = 2.0e4,
    beta: float = 0.9,
    contrast: float = 0.18,
    baseline: float = 1.0,
    noise: float = 1.5e-3,
    wrong_errors: bool = False,
    zero_pairs: float = 0.0,
    dead_bin: int | None = None,
) -> tuple[xr.Dataset, xr.Dataset]:
    """Curves of a diffusing specimen as an X-ray detector sees them, and their true parameters.

    g2 = baseline + contrast exp(-2 (rate tau)^beta) with rate = diffusion q^2, q from 0.003 to 0.03 1/angstrom, delays
    from 1e-3 to 1e2 s on a near-logarithmic grid of whole frames, and normal noise that falls with the square root of
    the delay (more frame pairs per channel) and grows with q (fewer photons).

    Args:
        bins, delays: how many of each.
        seed: of the random numbers.
        diffusion: has unit angstrom^2/s. contrast falls by a fifth and beta varies by a tenth over the bins.
        noise: standard deviation of g2 at the longest delay of the lowest q.
        wrong_errors: stated errors right at low q, and up to 30 times too small at high q, as in real averages.
        zero_pairs: share of the points of the upper half of the bins, at short delays, that saw no photon pair
            (g2 = g2_err = 0).
        dead_bin: a bin that saw nothing at all.

    Returns:
        The curves as `bayesfit.curves` gives them, and a Dataset of the true `rate` (1/s), `beta`, `contrast`,
        `baseline` and `error_scale` (true error over stated error), dims (q_bin).
    """
    rng = np.random.default_rng(seed)
    tau = _frames(delays) * 1e-3
    q = np.linspace(0.003, 0.03, bins) if bins > 1 else np.array([0.01])
    place = np.linspace(0.0, 1.0, bins)
    amplitudes = {"beta": beta, "contrast": contrast, "baseline": baseline}
    truth = _truth(q, place, diffusion * q**2, amplitudes, wrong_errors)
    column = {name: array.values[:, None] for name, array in truth.data_vars.items()}
    g2 = column["baseline"] + column["contrast"] * np.exp(-2 * (column["rate"] * tau) ** column["beta"])
    sigma = noise * (1 + 2 * place[:, None]) * np.sqrt(1 + 20 * tau[0] / tau)
    g2 = g2 + sigma * rng.standard_normal(g2.shape)
    g2_err = sigma / column["error_scale"]
    unseen = rng.random(g2.shape) < zero_pairs * 4 * (place[:, None] > 0.5) * (np.arange(tau.size) < tau.size // 2)
    if dead_bin is not None:
        unseen[dead_bin] = True
    g2[unseen] = g2_err[unseen] = 0.0
    data = curves(tau, g2, g2_err, q, np.zeros(bins), contrast_prior=CONTRAST, baseline_prior=BASELINE)
    return data, truth


def _truth(
    q: np.ndarray, place: np.ndarray, rate: np.ndarray, given: dict[str, float], wrong_errors: bool
) -> xr.Dataset:
    """The true parameters of bins at these q, whose `place` among all goes from 0 to 1."""
    return xr.Dataset(
        {
            "rate": ("q_bin", rate, {"units": "1/s"}),
            "beta": ("q_bin", given["beta"] * (1 + 0.1 * np.sin(2 * np.pi * place))),
            "contrast": ("q_bin", given["contrast"] * (1 - 0.2 * place)),
            "baseline": ("q_bin", np.full(q.size, given["baseline"])),
            "error_scale": ("q_bin", 30.0 ** np.clip(2 * place - 1, 0, 1) if wrong_errors else np.ones(q.size)),
        },
        coords={"q_bin": np.arange(q.size), "q": ("q_bin", q)},
    )


def _frames(delays: int) -> np.ndarray:
    """Delays in whole frames from 1 to 1e5, as near to evenly spaced in the logarithm as whole numbers can be."""
    wanted = delays
    while (frames := np.unique(np.round(np.geomspace(1, 1e5, wanted)).astype(int))).size < delays:
        wanted += 1
    return frames[-delays:] if frames.size > delays else frames
