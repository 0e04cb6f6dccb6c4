"""A surrogate as a model: to be fitted, saved, and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from bayesfit.compute.errors import SettingsError
from bayesfit.compute.hardware import cores
from bayesfit.modelling.model import Model
from bayesfit.modelling.noise_model import Noise
from bayesfit.surrogates.allowance import allowed
from bayesfit.surrogates.files import read, written
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.runs import Runs, warn_of
from bayesfit.surrogates.simulator import Simulator
from bayesfit.surrogates.space import check_within
from bayesfit.surrogates.workers import Effort

FORMULA = "g2 = baseline + contrast * |g1|^2, |g1|^2 learnt from {runs} runs of {simulator}"


class StandIn:
    """What a surrogate's model knows of the simulator for which it stands. `runs` are None where the model was loaded
    from a file alone, which never says what is run."""

    def __init__(self, learnt: Learnt, runs: Runs | None = None) -> None:
        self.learnt, self.runs = learnt, runs

    @property
    def approximate(self) -> str:
        """That the simulator is random, in words, if it is."""
        noise = self.learnt.about["simulator_noise"]
        return (
            f"the simulator is random, |g1|^2 by {noise:.2g} (sd) from run to run: its mean is learnt" if noise else ""
        )

    def allow(self, curves: xr.Dataset, noise: Noise, widen: bool) -> xr.Dataset:
        """Curves with errors that allow for the surrogate's; see `allowed`."""
        return allowed(self.learnt, curves, noise, widen)

    def check_within(self, priors: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """Refuse priors and fixed values beyond what is learnt; see `space.check_within`."""
        check_within(self.learnt.space, priors, fixed)

    def check_runs(self) -> None:
        """Refuse to run the simulator.

        Raises:
            SettingsError: it is not named, or is random.
        """
        if noise := self.learnt.about["simulator_noise"]:
            problem = f"the simulator is random: |g1|^2 at one place differs by {noise:.2g} (sd) from run to run"
            raise SettingsError(problem, field="exact", remedy="Leave it out; a surrogate of it is approximate")
        self._named()

    def true_curves(self, values: Mapping[str, np.ndarray], tau: Float[np.ndarray, " tau"]) -> np.ndarray:
        """|g1|^2 (draw, tau) of the simulator at parameters (draw,), NaN where it fails."""
        points = np.stack([np.asarray(values[name], float) for name in self.learnt.space.names], axis=1)
        curves, failed = self._named().curves(points)
        warn_of(failed, len(points))
        with jax.enable_x64(True):
            return self.learnt.interpolated(
                np.clip(curves, 0.0, 1.0), np.clip(tau, self.learnt.tau[0], self.learnt.tau[-1])
            )

    def _named(self) -> Runs:
        if self.runs is None:
            known = self.learnt.about["simulator"]["name"]
            remedy = (
                f'Name it: model = {{"name": FILE, "simulator": ...}}, or --set model.simulator=...; it was {known}'
            )
            raise SettingsError("a file alone runs no simulator", field="exact", remedy=remedy)
        return self.runs

    def save(self, path: Path) -> None:
        """Write the surrogate to a file.

        Raises:
            ResultError: it cannot be written.
        """
        written(self.learnt, path)


def model_of(learnt: Learnt, runs: Runs | None = None, file: str = "") -> Model:
    """The model of a surrogate."""

    def program(tau: Float[Array, " tau"]) -> Float[Array, " tau"]:
        return learnt.shape(learnt.space.sample(), tau)

    about = learnt.about
    words = f"a surrogate of {about['simulator']['name']}: {about['emulator']}"
    return Model(
        name=about["name"],
        program=program,
        parameters=learnt.space.parameters,
        description=f"{words}; held-out error of |g1|^2 {about['held_out_rms']:.2g}",
        formula=FORMULA.format(runs=about["runs"], simulator=about["simulator"]["name"]),
        options={
            "file": file,
            "sha256": about["sha256"],
            "held_out_rms": about["held_out_rms"],
            "runs": runs is not None,  # two models of one file differ in this alone
        },
        stands_for=StandIn(learnt, runs),
    )


def make(file: str, simulator: Any = None) -> Model:
    """The model in the file of a surrogate, which runs this `simulator` where it is asked to, or none.

    Raises:
        InputError: the file cannot be read, or is none. SettingsError: the simulator is not the one that was learnt.
    """
    learnt = read(Path(file))
    return model_of(learnt, None if simulator is None else _runs_of(learnt, Simulator.parse(simulator)), file)


def _runs_of(learnt: Learnt, simulator: Simulator) -> Runs:
    """Runs of the simulator that was learnt.

    Raises:
        SettingsError: it is another one, or has changed.
    """
    known = learnt.about["simulator"]
    if simulator.sha256 != known["sha256"]:
        problem = f"{simulator.name} is not {known['name']} as it was learnt"
        remedy = "Learn it again by bayesfit.surrogate"
        raise SettingsError(problem, field="model.simulator", remedy=remedy)
    return Runs.begin(simulator, learnt.space.names, learnt.tau, None, Effort(workers=cores()))
