"""Simulation-based calibration of joint fits: `uv run python tests/joint_calibration.py`.

As `calibration.py`, with all bins of a dataset in one posterior: truth is drawn from the prior of what the bins have in
common and of what is each bin's own, curves from the truth, and the truth's ranks among the draws are uniform where all
is right. Priors, poolings, curves and likelihood are written here a second time, in NumPy.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from calibration import ALPHA, LARGEST, rank, write
from scipy import stats
from uniformity import holm, p_value

import bayesfit

BINS, TAU = 6, np.geomspace(1e-3, 10.0, 32)
Q = np.geomspace(4e-3, 1.6e-2, BINS)
SECTOR = np.arange(BINS) % 2
ERROR = 0.004
AMPLITUDES = {"contrast": "TruncatedNormal(0.15, 0.1, low=0)", "baseline": "Normal(1, 0.02)"}


def amplitude(rng, count):
    """Contrasts and baselines (count,) from their priors."""
    return stats.truncnorm.rvs(-1.5, np.inf, 0.15, 0.1, size=count, random_state=rng), rng.normal(1.0, 0.02, count)


@dataclass(frozen=True)
class Setting:
    """What is calibrated: how parameters are pooled, priors, noise, and `truth(rng)`: names in the result to the values
    of bins (q_bin,), of groups (group,) or of all."""

    across: dict
    priors: dict
    noise: str
    truth: Callable
    fixed: dict = field(default_factory=dict)


def diffusion(rng):
    D, beta = rng.lognormal(9.9, 0.7), rng.uniform(0.5, 1.5)
    contrast, baseline = amplitude(rng, BINS)
    own = {"rate": D * Q**2, "baseline": baseline, "error_scale": rng.lognormal(0.0, 0.5, BINS)}
    return {"D": D, "beta": beta, "contrast": contrast[0], **own}


def scattered(rng):
    middle, n = rng.lognormal(1.0, 1.0), rng.normal(2.0, 0.3)
    scatter, spread = abs(rng.normal(0.0, 0.3)), abs(rng.normal(0.0, 0.2))
    mean = rng.lognormal(-0.1, 0.2)
    contrast, baseline = amplitude(rng, BINS)
    law = middle * (Q / np.sqrt(Q.min() * Q.max())) ** n
    return {
        **{"rate_middle": middle, "n": n, "rate_scatter": scatter, "beta_mean": mean, "beta_spread": spread},
        "rate": law * np.exp(scatter * rng.standard_normal(BINS)),
        "beta": mean * np.exp(spread * rng.standard_normal(BINS)),
        **{"contrast": contrast, "baseline": baseline},
    }


def smooth(rng):
    first, spread = rng.lognormal(1.0, 1.0), abs(rng.normal(0.0, 0.5))
    steps = np.sqrt(np.diff(np.log(Q))) * rng.standard_normal(BINS - 1)
    contrast, baseline = amplitude(rng, 2)
    return {
        **{"rate_mean": first, "rate_spread": spread, "beta": rng.uniform(0.5, 1.5, 2)},
        "rate": first * np.exp(spread * np.concatenate([[0.0], np.cumsum(steps)])),
        **{"contrast": contrast, "baseline": baseline},
    }


BY_SECTOR = {"kind": "shared", "by": "sector"}
SETTINGS = {
    "diffusion": Setting(
        {"rate": "diffusion", "beta": "shared", "contrast": "shared"},
        {**AMPLITUDES, "D": "LogNormal(9.9, 0.7)", "beta": "Uniform(0.5, 1.5)", "error_scale": "LogNormal(0, 0.5)"},
        "scaled",
        diffusion,
    ),
    "scattered": Setting(
        {"rate": {"name": "power_law", "scatter": True}, "beta": "pooled"},
        {
            **AMPLITUDES,
            **{"rate_middle": "LogNormal(1, 1)", "n": "Normal(2, 0.3)"},
            **{"beta": "LogNormal(-0.1, 0.2)", "beta_spread": "HalfNormal(0.2)"},
        },
        "stated",
        scattered,
    ),
    "smooth": Setting(
        {"rate": "smooth", "beta": BY_SECTOR, "contrast": BY_SECTOR, "baseline": BY_SECTOR},
        {
            **AMPLITUDES,
            **{"rate": "LogNormal(1, 1)", "rate_spread": "HalfNormal(0.5)", "beta": "Uniform(0.5, 1.5)"},
        },
        "stated",
        smooth,
    ),
}


def of_bins(value):
    """Values (..., q_bin) from those of bins, of groups or of all (...)."""
    value = np.asarray(value)
    if value.shape[-1:] == (BINS,):
        return value
    return value[..., SECTOR] if value.shape[-1:] == (2,) else np.repeat(value[..., None], BINS, axis=-1)


def parts(values):
    """Mean curves (..., q_bin, tau) and standard deviations (..., q_bin, 1) over the stated ones."""
    rate, beta, contrast, baseline = (
        of_bins(values[name])[..., None] for name in ("rate", "beta", "contrast", "baseline")
    )
    scale = of_bins(values.get("error_scale", np.ones(np.shape(values["rate"]))))[..., None]
    return baseline + contrast * np.exp(-2.0 * (rate * TAU) ** beta), scale


def log_likelihood(values, g2):
    """Log density (...) of the curves of all bins."""
    mean, scale = parts(values)
    return np.sum(stats.norm.logpdf(g2, mean, scale * ERROR), axis=(-2, -1))


def simulated(setting, rng):
    """Truth, and the curves."""
    truth = setting.truth(rng)
    mean, scale = parts(truth)
    g2 = mean + scale * ERROR * rng.standard_normal(mean.shape)
    curves = bayesfit.curves(TAU, g2, np.full_like(g2, ERROR), q=Q)
    return truth, curves.assign_coords(sector=("q_bin", SECTOR))


def ranks_of(setting, seed):
    """Quantity to the truth's rank in one fit, and the fit's verdict."""
    rng = np.random.default_rng(seed)
    truth, curves = simulated(setting, rng)
    options = {"priors": setting.priors, "fixed": setting.fixed, "noise": setting.noise, "across": setting.across}
    result = bayesfit.fit(curves, seed=int(rng.integers(2**31)), **options)
    draws = {name: thinned(array) for name, array in result["posterior"].data_vars.items() if name in truth}
    found = {}
    for name, drawn in draws.items():
        value = np.atleast_1d(truth[name])
        for place in {0, value.size - 1}:
            label = name if value.size == 1 else f"{name}[{place}]"
            found[label] = rank(value[[place]], drawn.reshape(LARGEST, -1)[:, place][None], rng)[0]
    there = {name: np.asarray(truth[name])[None] for name in draws}
    logs = log_likelihood(draws, curves.g2.values), log_likelihood(there, curves.g2.values)
    found["log_likelihood"] = rank(logs[1], logs[0][None], rng)[0]
    return {name: int(value) for name, value in found.items()}, str(result["across"].joint_verdict.item())


def thinned(array):
    """LARGEST draws (draw, ...), evenly spread over chains and draws."""
    flat = array.transpose("chain", "draw", ...).values
    flat = flat.reshape(-1, *flat.shape[2:])
    return flat[np.linspace(0, len(flat) - 1, LARGEST).round().astype(int)]


def calibrate(name, count, seed):
    """Ranks of every quantity, their p-values plain and adjusted for their number, and how often each verdict came."""
    ranks, verdicts = {}, {}
    for number in range(count):
        found, verdict = ranks_of(SETTINGS[name], [seed, list(SETTINGS).index(name), number])
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        for quantity, value in found.items():
            ranks.setdefault(quantity, []).append(value)
        if (number + 1) % 100 == 0:
            print(f"{name}: {number + 1} of {count} simulations", file=sys.stderr, flush=True)
    p = {quantity: p_value(np.array(found), LARGEST) for quantity, found in ranks.items()}
    return {"ranks": ranks, "p": p, "adjusted": holm(p), "verdicts": verdicts}


def main(given=None):
    """Calibrate every setting that is asked for; the exit code says whether all have passed."""
    parser = argparse.ArgumentParser(description="Simulation-based calibration of joint fits.")
    parser.add_argument("--setting", nargs="+", default=list(SETTINGS), choices=list(SETTINGS), metavar="NAME")
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results/joint_calibration"), metavar="FOLDER")
    options = parser.parse_args(given)
    options.output.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in options.setting:
        started = time.monotonic()
        found = calibrate(name, options.simulations, options.seed)
        write(options.output / f"{name}.json", json.dumps(found))
        worst = min(found["adjusted"], key=found["adjusted"].get)
        passed = found["adjusted"][worst] >= ALPHA
        failed += not passed
        word = "passed" if passed else "FAILED"
        print(
            f"{name:12} {word}  smallest adjusted p {found['adjusted'][worst]:.2g} ({worst})  "
            f"{options.simulations} simulations  {time.monotonic() - started:.0f} s  {found['verdicts']}",
            flush=True,
        )
    return int(failed > 0)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    raise SystemExit(main())
