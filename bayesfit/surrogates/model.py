"""A surrogate as a model: to be fitted, saved, and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.compute.hardware import cores
from bayesfit.modelling.model import Model
from bayesfit.modelling.noise_model import Noise
from bayesfit.surrogates.allowance import allowed
from bayesfit.surrogates.files import read, written
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.runs import Runs, warn_of
from bayesfit.surrogates.simulator import Simulator
from bayesfit.surrogates.workers import Effort

FORMULA = "g2 = baseline + contrast * |g1|^2, |g1|^2 learnt from {runs} runs of {simulator}"


class StandIn:
    """What a surrogate's model knows of the simulator for which it stands. `runs` are None where the model was loaded
    from a file."""

    def __init__(self, learnt: Learnt, runs: Runs | None = None) -> None:
        self.learnt, self.runs = learnt, runs

    def allow(self, curves: xr.Dataset, noise: Noise) -> xr.Dataset:
        """Curves with errors that allow for the surrogate's; see `allowed`."""
        return allowed(self.learnt, curves, noise)

    def check_runs(self) -> None:
        """Refuse to run the simulator.

        Raises:
            SettingsError: it is not at hand, has changed, or is random.
        """
        if noise := self.learnt.about["simulator_noise"]:
            problem = f"the simulator is random: |g1|^2 at one place differs by {noise:.2g} (sd) from run to run"
            raise SettingsError(problem, field="exact", remedy="Leave it out; a surrogate of it is approximate")
        self._runs()

    def true_curves(self, values: Mapping[str, np.ndarray], tau: Float[np.ndarray, " tau"]) -> np.ndarray:
        """|g1|^2 (draw, tau) of the simulator at parameters (draw,), NaN where it fails."""
        points = np.stack([np.asarray(values[name], float) for name in self.learnt.space.names], axis=1)
        curves, failed = self._runs().curves(points)
        warn_of(failed, len(points))
        with jax.enable_x64(True):
            return self.learnt.interpolated(curves, np.clip(tau, self.learnt.tau[0], self.learnt.tau[-1]))

    def _runs(self) -> Runs:
        """The runs of the simulator, which is looked for where the model comes from a file."""
        if self.runs is None:
            stated = self.learnt.about["simulator"]
            again = "Make the model again by bayesfit.surrogate; that costs no run"
            try:
                simulator = Simulator.parse(stated["stated"])
            except (SettingsError, InputError) as error:
                problem = f"the simulator {stated['name']} is not at hand"
                raise SettingsError(problem, field="exact", remedy=again) from error
            if simulator.sha256 != stated["sha256"]:
                problem = f"the simulator {stated['name']} has changed since it was learnt"
                raise SettingsError(problem, field="exact", remedy=again)
            effort = Effort(workers=cores())
            self.runs = Runs.begin(simulator, self.learnt.space.names, self.learnt.tau, None, effort)
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
        options={"file": file, "sha256": about["sha256"], "held_out_rms": about["held_out_rms"]},
        stands_for=StandIn(learnt, runs),
    )


def make(file: str) -> Model:
    """The model in the file of a surrogate.

    Raises:
        InputError: the file cannot be read, or is none.
    """
    return model_of(read(Path(file)), file=file)
