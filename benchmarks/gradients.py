"""What a gradient costs, and which part of the sampling goes into gradients that were needed.

`uv run python benchmarks/gradients.py`

First part: log density and gradient of the stretched exponential with 72 delays, amplitudes integrated out, as bayesfit
runs it (compiled, 64 chains side by side), as JAX runs it uncompiled, and written by hand in NumPy, one chain after
another and for all chains at once. Second part: a chunk of the sampler on one device against as many gradients as its
transitions needed.
"""

import resource
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_ndtr

import bayesfit
from bayesfit.compute.devices import CPU_OPTIONS, place, take
from bayesfit.compute.hardware import CPU_LANES
from bayesfit.compute.keys import bin_keys
from bayesfit.compute.work import Stop
from bayesfit.posterior.prepare import prepare
from bayesfit.sample import least_squares as _point
from bayesfit.sample import scheduler as _sample
from bayesfit.sample import slots as _slots
from bayesfit.sample import starts as _estimate
from bayesfit.sample.draws import Schedule
from bayesfit.sample.target import BinTargets

DELAYS, CHAINS_PER_DEVICE, INNER = 72, CPU_LANES, 200


def best(function, repeats=10) -> float:
    """Shortest time of a call in s."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - started)
    return min(times)


def by_hand(z, tau, y, unit, prior):
    """Log density of bayesfit's posterior (noise "scaled") up to a constant, and its gradient, in NumPy: z (..., 3),
    y and unit (..., tau). The derivatives were done by hand."""
    low, high = np.log(0.1 / tau.max()), np.log(10.0 / tau[tau > 0].min())
    s0, s1 = (1.0 / (1.0 + np.exp(-z[..., k])) for k in (0, 1))
    log_rate, beta = low + (high - low) * s0, 0.2 + 1.8 * s1
    floor = np.log(1e-6)
    log_scale = floor + np.exp(z[..., 2])
    density = np.exp(-2.0 * log_scale)
    log_x = log_rate[..., None] + np.log(tau)
    power = np.exp(beta[..., None] * log_x)
    shape = np.exp(-2.0 * power) * unit
    baseline_weight, contrast_weight = prior["baseline_sd"] ** -2, prior["contrast_sd"] ** -2
    weight = density * np.sum(unit * unit, -1) + baseline_weight
    slope = density * np.sum(unit * shape, -1) / weight
    level = (density * np.sum(unit * y, -1) + baseline_weight * prior["baseline"]) / weight
    rest, rest_y = shape - slope[..., None] * unit, y - level[..., None] * unit
    precision = density * np.sum(rest * rest, -1) + baseline_weight * slope**2 + contrast_weight
    product = density * np.sum(rest * rest_y, -1) - baseline_weight * slope * (prior["baseline"] - level)
    mean = (product + contrast_weight * prior["contrast"]) / precision
    baseline = level - mean * slope
    residual = y - mean[..., None] * shape - baseline[..., None] * unit
    squares, points = np.sum(residual**2, -1), np.sum(unit > 0, -1)
    cut = mean * np.sqrt(precision)
    value = (
        -0.5 * density * squares
        - points * log_scale
        - 0.5 * contrast_weight * (mean - prior["contrast"]) ** 2
        - 0.5 * baseline_weight * (baseline - prior["baseline"]) ** 2
        - 0.5 * np.log(precision)
        - 0.5 * np.log(weight)
        + log_ndtr(cut)
        - 0.5 * (log_scale / 3.0) ** 2
        + z[..., 2]
        + np.log(s0 * (1 - s0))
        + np.log(s1 * (1 - s1))
    )
    hazard = np.exp(-0.5 * cut**2 - log_ndtr(cut)) / np.sqrt(2.0 * np.pi)
    d_mean = hazard * np.sqrt(precision)
    d_precision = -0.5 / precision + 0.5 * hazard * mean / np.sqrt(precision)
    d_product = d_mean / precision
    d_precision = d_precision - d_mean * mean / precision
    # Through the curve: residual sum at fixed amplitudes, then the two centred sums, then the slope.
    d_rest, d_rest_y = density * d_precision, density * d_product
    unit_rest = baseline_weight / density * slope
    unit_rest_y = baseline_weight / density * (level - prior["baseline"])
    d_slope = (
        2.0 * baseline_weight * slope * d_precision
        - baseline_weight * (prior["baseline"] - level) * d_product
        - 2.0 * unit_rest * d_rest
        - unit_rest_y * d_rest_y
    )
    along = (
        (density * mean)[..., None] * residual
        + 2.0 * d_rest[..., None] * rest
        + d_rest_y[..., None] * rest_y
        + (d_slope * density / weight)[..., None] * unit
    )
    flow = along * shape * -2.0 * power
    d_log_rate = beta * np.sum(flow, -1)
    d_beta = np.sum(flow * log_x, -1)
    # Through the scale: density and all that is weighted by it.
    sums = {"rest": np.sum(rest * rest, -1), "rest_y": np.sum(rest * rest_y, -1), "unit": np.sum(unit * unit, -1)}
    d_weight = -0.5 / weight
    slope_density = slope / density - slope * sums["unit"] / weight
    level_density = (np.sum(unit * y, -1) - level * sums["unit"]) / weight
    d_level = baseline_weight * slope * d_product - unit_rest * d_rest_y
    d_density = (
        -0.5 * squares
        + d_precision * sums["rest"]
        + d_product * sums["rest_y"]
        + d_slope * slope_density
        + d_level * level_density
        + d_weight * sums["unit"]
    )
    d_log_scale = -2.0 * density * d_density - points - log_scale / 9.0
    gradient = np.stack(
        [
            d_log_rate * (high - low) * s0 * (1 - s0) + 1 - 2 * s0,
            d_beta * 1.8 * s1 * (1 - s1) + 1 - 2 * s1,
            d_log_scale * np.exp(z[..., 2]) + 1.0,
        ],
        axis=-1,
    )
    return value, gradient


def repeated(posterior):
    """A function of one bin and a position that computes log density and gradient `INNER` times."""

    def many(bin, z):
        def step(_, z):
            value, gradient = jax.value_and_grad(posterior.potential)(z, bin)
            return z + 1e-12 * (gradient + value)

        return jax.lax.fori_loop(0, INNER, step, z)

    return many


def the_gradient(problem, z) -> tuple[float, list[str]]:
    """Seconds for one gradient of one chain, compiled; and the lines of the first part."""
    posterior, bins = problem.posterior, take(problem.bins, np.arange(CHAINS_PER_DEVICE))

    started, memory = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    compiled = jax.jit(jax.vmap(repeated(posterior))).lower(bins, z).compile(CPU_OPTIONS)
    took, memory = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    fast = best(lambda: compiled(bins, z)) / INNER / CHAINS_PER_DEVICE
    plain = jax.vmap(jax.value_and_grad(posterior.potential))
    with jax.disable_jit():
        slow = best(lambda: plain(z, bins), 1) / CHAINS_PER_DEVICE
    length = int(bins.valid.sum(axis=1).max())
    data = [np.asarray(array)[:, :length] for array in (bins.y, bins.inverse_error)]
    tau = np.asarray(bins.tau)[0, :length]
    priors = {name: {key: v[0] for key, v in given.items()} for name, given in bins.priors.items()}
    prior = {
        "contrast": priors["contrast"].get("loc", 0.0),
        "contrast_sd": priors["contrast"]["scale"],
        "baseline": priors["baseline"]["loc"],
        "baseline_sd": priors["baseline"]["scale"],
    }
    host = np.asarray(z)
    together = best(lambda: by_hand(host, tau, *data, prior)) / CHAINS_PER_DEVICE
    alone = (
        best(lambda: [by_hand(host[i], tau, data[0][i], data[1][i], prior) for i in range(CHAINS_PER_DEVICE)], 3)
        / CHAINS_PER_DEVICE
    )
    expected = jax.vmap(jax.grad(posterior.potential))(z, bins)
    error = np.max(np.abs(-by_hand(host, tau, *data, prior)[1] - expected) / (1.0 + np.abs(expected)))
    ways = {
        "compiled, 64 chains": fast,
        "NumPy, 64 chains at once": together,
        "NumPy, one by one": alone,
        "JAX uncompiled, 64 chains": slow,
    }
    return fast, [
        f"log density and gradient, {DELAYS} delays, one chain, one core; largest difference {error:.1e}",
        *(f"  {name:26} {1e6 * seconds:10.2f} us   {seconds / fast:8.1f}" for name, seconds in ways.items()),
        f"  compiled in {took:.1f} s, with {memory / 1024:.0f} MiB more at the peak",
    ]


def the_sampler(problem, estimates, keys, gradient: float) -> list[str]:
    """The lines of the second part."""
    schedule = Schedule(4, 1000, 50, 0.6, 400.0)
    few = np.arange(_slots.slots_per_group(4))
    bins = BinTargets(problem.posterior, take(problem.bins, few), keys[few])
    scheduler = _sample.Scheduler(bins, take(estimates, few), schedule)
    scheduler.start()
    slots = scheduler.slots
    group = place(slots.groups(_sample.busy_slots(scheduler)), 1)
    states = [state for state, _ in slots.program(slots.chains, slots.states, place(slots.fresh, 1), group)]
    stay = place(np.zeros(CHAINS_PER_DEVICE, bool), 1)
    times, needed, made = [], 0, 0
    for _ in range(10):
        started = time.perf_counter()
        ((state, left),) = jax.block_until_ready(slots.program(slots.chains, states, stay, group))
        times.append(time.perf_counter() - started)
        states = [state]
        made += int(np.sum(left.made))
        needed += int(np.sum(np.asarray(left.n_steps) * np.asarray(left.made))) + int(np.sum(left.made))
    seconds = min(times) * len(times)
    return [
        f"sampler, one core: {1e6 * seconds / made:.1f} us per transition, which needs {needed / made:.2f} gradients",
        f"  share of the time that these alone take: {gradient * needed / seconds:.0%}",
    ]


def lines() -> list[str]:
    """What was measured, both parts."""
    data, _ = bayesfit.simulate(bins=CHAINS_PER_DEVICE, delays=DELAYS, seed=1, wrong_errors=True)
    with jax.enable_x64(True):
        problem = prepare(data)
        keys = bin_keys(0, problem.identity)
        bins = BinTargets(problem.posterior, problem.bins, keys)
        points = _point.point_estimates(problem.posterior, problem.bins, keys, lambda _: None, Stop())
        estimates = _estimate.estimate_bins(bins, points, 4, lambda _: None, Stop())
        gradient, found = the_gradient(problem, jnp.asarray(estimates.location))
        return found + the_sampler(problem, estimates, keys, gradient)


if __name__ == "__main__":
    print("\n".join(lines()))
