"""Price of a posterior against the price of a least-squares fit, side by side in one run; programs compiled before.

`uv run python benchmarks/against_curve_fit.py [BINS ...]` (default 64 512). 72 delays, stretched exponential, 4 chains
of 200 kept draws: what an effective sample size of 400 takes.
"""

import contextlib
import os
import sys
import time

import jax
import numpy as np
from scipy.optimize import curve_fit

import bayesfit

DELAYS = 72


def stretched(tau, rate, beta, contrast, baseline):
    return baseline + contrast * np.exp(-2 * (rate * tau) ** beta)


def least_squares(data) -> float:
    """Seconds that `curve_fit` takes for every bin, by Levenberg-Marquardt from one start, as the field does it."""
    tau, started = data.tau.values, time.perf_counter()
    for g2, g2_err, valid in zip(data.g2.values, data.g2_err.values, data.valid.values, strict=True):
        x, y, error = tau[valid], g2[valid], g2_err[valid]
        high, low = y[:3].mean(), y[-3:].mean()
        start = x[np.argmin(np.abs(y - (high + low) / 2))] ** -1 / 2, 1.0, high - low, low
        with np.errstate(all="ignore"), contextlib.suppress(RuntimeError):
            curve_fit(stretched, x, y, start, error)
    return time.perf_counter() - started


def posterior(data, seed) -> tuple[float, float, object]:
    """Seconds to the end of the estimates and to the end of everything, and the result."""
    marks = {}
    started = time.perf_counter()

    def tell(progress):
        marks[progress.stage] = time.perf_counter() - started

    result = bayesfit.fit(data, draws=200, seed=seed, progress=tell)
    return marks["estimate"], time.perf_counter() - started, result


def main() -> None:
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    print(f"cores {jax.local_device_count()}; ms a bin")
    print(f"{'bins':>6} {'curve_fit':>10} {'estimates':>10} {'posterior':>10} {'ratio':>6}  converged")
    for bins in [int(text) for text in sys.argv[1:]] or [64, 512]:
        data, _ = bayesfit.simulate(bins=bins, delays=DELAYS, seed=1, wrong_errors=True)
        posterior(data, seed=0)
        classical = least_squares(data)
        estimates, whole, result = posterior(data, seed=1)
        found = result["diagnostics"]
        good = (found.r_hat <= 1.01) & (found.ess_bulk >= 400) & (found.ess_tail >= 400)
        numbers = [1e3 * seconds / bins for seconds in (classical, estimates, whole)]
        words = " ".join(f"{number:10.2f}" for number in numbers)
        print(f"{bins:6} {words} {whole / classical:6.1f}  {int(good.sum())} of {bins}", flush=True)


if __name__ == "__main__":
    main()
