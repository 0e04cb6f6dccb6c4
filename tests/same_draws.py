"""Hashes of draws: did a change of the code change a number?

    uv run python tests/same_draws.py                      print the hash of the draws of each case
    uv run python tests/same_draws.py --against 4d48581    compare them with those that the code of this commit draws

The cases are small fits: every model with every noise model, a joint fit, a law, a series. Bits depend on the processor
and on the versions of the libraries, so that hashes kept in a file would say little; `--against` runs both codes on the
same machine, the older one from a temporary worktree. `--only PART` takes the cases whose names hold this part. Each
model has a process of its own, since a process may map a limited number of pieces of memory.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from inspect import signature
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
ROOT = HERE.parent.parent
MODELS = ("single_exponential", "stretched_exponential", "double_exponential", "cumulant", "master_curve")
NOISES = ("stated", "scaled", "inferred", "smooth", "robust", "correlated", "speckle")
X = np.geomspace(1e-5, 1e5, 1001)
TABLE = {"name": "master_curve", "table": (X, (1.0 + X / 2.0) ** -2.0)}
QUICK = {"noise": "scaled", "chains": 2, "draws": 40, "warmup": 40, "target_ess": 0, "seed": 3}


def data(seed=1, bins=2, **given):
    """A few simulated bins of 24 delays."""
    import bayesfit

    return bayesfit.simulate(bins=bins, delays=24, seed=seed, **given)[0]


def pair(model, noise):
    """The fit of one model with one noise model."""
    import bayesfit

    return bayesfit.fit(data(), TABLE if model == "master_curve" else model, **{**QUICK, "noise": noise})


def joint():
    """A joint fit: a diffusion coefficient and a beta for all bins."""
    import bayesfit

    across = {"rate": "diffusion", "beta": "shared"}
    return bayesfit.fit(data(bins=4), across=across, **{**QUICK, "draws": 100})


def law():
    """A law through the posteriors of bins."""
    import bayesfit

    fit = bayesfit.fit(data(bins=5), "single_exponential", **{**QUICK, "draws": 200})
    verdicts = ("ok", "misfit", "not_identified", "poor_mixing", "multimodal")
    return bayesfit.law(fit, "power_law", verdicts=verdicts, draws=100, chains=2)


def series():
    """Two datasets, the posterior of the first the prior of the second."""
    import bayesfit

    datasets = [data(seed=seed) for seed in (1, 2)]
    sequential = next(name for name in ("sequential_prior", "carry") if name in signature(bayesfit.series).parameters)
    options = {**QUICK, "draws": 200, sequential: 1.5}
    return bayesfit.series(datasets, "single_exponential", names=[0, 1], **options)


CASES = {f"{model} {noise}": (pair, model, noise) for model in MODELS for noise in NOISES}
CASES |= {"joint": (joint,), "law": (law,), "series": (series,)}


def digest(result):
    """SHA-256 over the draws of every parameter, by name."""
    posterior = result["posterior"].dataset
    found = hashlib.sha256()
    for name in sorted(map(str, posterior.data_vars)):
        found.update(name.encode() + np.ascontiguousarray(posterior[name].values).tobytes())
    return found.hexdigest()[:16]


def drawn(names):
    """Print the hash of each of these cases as soon as it is there."""
    for name in names:
        make, *arguments = CASES[name]
        print(f"{name}: {digest(make(*arguments))}", flush=True)


def hashes(root, part):
    """Case to hash, as the code at `root` draws them."""
    found = {}
    environment = {**os.environ, "PYTHONPATH": str(root)}
    for group in dict.fromkeys(name.split()[0] for name in CASES if part in name):
        command = [sys.executable, str(HERE), "--drawn", *(name for name in CASES if part in name and group in name)]
        lines = subprocess.run(command, env=environment, cwd=root, check=True, capture_output=True, text=True).stdout
        found |= dict(line.split(": ") for line in lines.splitlines())
    return found


def compared(commit, part):
    """How many cases differ between the code here and that of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", folder, commit], cwd=ROOT, check=True)
        try:
            before = hashes(folder, part)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, check=True)
    now = hashes(ROOT, part)
    for name in now:
        print(f"{name}: {'same' if now[name] == before[name] else f'{before[name]} -> {now[name]}'}")
    return sum(now[name] != before[name] for name in now)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--only", default="", metavar="PART")
    parser.add_argument("--drawn", nargs="+", metavar="CASE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drawn:
        drawn(given.drawn)
    elif given.against:
        sys.exit(1 if compared(given.against, given.only) else 0)
    else:
        for case, found in hashes(ROOT, given.only).items():
            print(f"{case}: {found}")
