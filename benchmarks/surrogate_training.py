"""One training step of a surrogate's networks: compiled, uncompiled, op by op, and in NumPy.

    uv run python benchmarks/surrogate_training.py [--steps 10000]

For each, in a process of its own: the time of the first step, that of a warm step (median), and the peak memory above
that before the first step. Then a whole training, and the memory of the compiled step over many steps. The ensemble is
that which is trained for a simulator of seven parameters: 5 networks of two layers of 32, 300 runs, 12 components, in
double precision. Uncompiled, JAX still runs some of its own functions as compiled ones; op by op (`jax.disable_jit`)
it does not.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import jax
import numpy as np

from bayesfit.surrogates.training import Config, Data, begin, step_compiled, step_numpy, step_uncompiled
from bayesfit.surrogates.training import trained as train


def step_op_by_op(state, data, config):
    with jax.disable_jit():
        return step_uncompiled(state, data, config)


STEPS = {
    "compiled": step_compiled,
    "uncompiled": step_uncompiled,
    "op by op": step_op_by_op,
    "numpy": step_numpy,
}
REPEATS = {"compiled": 1000, "uncompiled": 10, "op by op": 5, "numpy": 200}
RUNS, PARAMETERS, COMPONENTS = 300, 7, 12
MIB = 2**20


def problem():
    rng = np.random.default_rng(0)
    config = Config()
    x, y = rng.uniform(-1, 1, (RUNS, PARAMETERS)), rng.standard_normal((RUNS, COMPONENTS))
    weight = (np.arange(RUNS) % config.members != np.arange(config.members)[:, None]).astype(float)
    return config, begin(config, PARAMETERS, COMPONENTS, 0), Data(x, y, weight)


def resident():
    """Memory of this process [MiB]."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def timed(step, state, data, config):
    begun = time.perf_counter()
    state = jax.block_until_ready(step(state, data, config))
    return time.perf_counter() - begun, state


def measure(name):
    """First and warm time [s] and peak memory [MiB] of one way."""
    config, state, data = problem()
    before = peak()
    first, state = timed(STEPS[name], state, data, config)
    if name != "numpy":
        data = jax.device_put(data)
    warm = []
    for _ in range(REPEATS[name]):
        seconds, state = timed(STEPS[name], state, data, config)
        warm.append(seconds)
    return {"first": first, "warm": float(np.median(warm)), "peak": peak() - before}


def measure_training(steps=1000):
    """Time [s] of training with so many steps, the first included, and of the same again, per step."""
    config, state, data = problem()
    config = config._replace(steps=steps)
    begun = time.perf_counter()
    train(state, data, config)
    first, begun = time.perf_counter() - begun, time.perf_counter()
    train(state, data, config)
    return {"first": first, "warm": (time.perf_counter() - begun) / steps}


def memory(steps):
    """Memory [MiB] of the compiled step after a tenth of so many steps, and after all."""
    config, state, data = problem()
    found = []
    for step in range(1, steps + 1):
        _, state = timed(step_compiled, state, data, config)
        if step in (steps // 10, steps):
            found.append(resident())
    return {"early": found[0], "late": found[1]}


def elsewhere(*words):
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--only", choices=[*STEPS, "training", "memory"])
    given = parser.parse_args()
    if given.only:
        with jax.enable_x64(True):
            others = {"memory": lambda: memory(given.steps), "training": measure_training}
            print(json.dumps(others.get(given.only, lambda: measure(given.only))()))
        return
    found = {name: elsewhere("--only", name) for name in STEPS}
    print(f"{'step':12}{'first [s]':>12}{'warm [ms]':>12}{'peak memory [MiB]':>20}")
    for name, row in found.items():
        print(f"{name:12}{row['first']:12.3f}{1e3 * row['warm']:12.3f}{row['peak']:20.1f}")
    for name in ("uncompiled", "op by op", "numpy"):
        print(f"compiled is {found[name]['warm'] / found['compiled']['warm']:.0f} times faster than {name}")
    whole = elsewhere("--only", "training")
    print(f"training of 1000 steps takes {whole['first']:.2f} s, and again {1e3 * whole['warm']:.3f} ms a step")
    kept = elsewhere("--only", "memory", "--steps", str(given.steps))
    print(f"memory after {given.steps // 10} steps {kept['early']:.1f} MiB, after {given.steps} {kept['late']:.1f} MiB")


if __name__ == "__main__":
    main()
