"""Simulation-based calibration of fits with a surrogate: the stretched exponential as a "slow simulator".

    uv run python tests/surrogate_calibration.py [--simulations 1000] [--budget 300] [--noise stated scaled]

Truth and curves are those of `calibration.py`, from the stretched exponential itself; the fits know only the surrogate.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import calibration
import numpy as np

import bayesfit

SPACE = {"rate": "LogUniform(1, 100)", "beta": "Uniform(0.6, 1)"}
SCALE = {"error_scale": "LogNormal(0, 0.5)"}  # with that of a fit, some data are too precise for any surrogate
SIMULATOR = """
import numpy as np


def curve(p):
    return np.exp(-2.0 * (p["rate"] * np.geomspace(1e-3, 10.0, 40)) ** p["beta"])
"""


@dataclass(frozen=True)
class OfSurrogate(calibration.Setting):
    """The setting of the stretched exponential, fitted with a `surrogate` of it."""

    surrogate: Any = None

    @property
    def options(self):
        """The arguments of `bayesfit.fit` that say what is fitted."""
        return super().options | {"model": self.surrogate}


def learnt(budget, folder):
    """The surrogate of the stretched exponential, from so many runs, at the delays of the setting."""
    file = Path(folder) / "simulator.py"
    file.write_text(SIMULATOR)
    cache = Path(folder) / "runs"
    return bayesfit.surrogate(f"{file}:curve", SPACE, np.geomspace(1e-3, 10.0, 40), budget=budget, cache=cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--noise", nargs="+", default=["stated", "scaled"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = learnt(given.budget, folder)
    print(model.description, flush=True)
    failed = 0
    for noise in given.noise:
        priors = calibration.AMPLITUDES | (SCALE if noise == "scaled" else {})
        setting = OfSurrogate(noise=noise, priors=priors, surrogate=model)
        run = calibration.calibrate(setting, given.simulations, [0, 23])
        calibration.report(f"surrogate-{noise}", [run])
        failed += not run.passed
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
