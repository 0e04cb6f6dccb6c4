"""A surrogate as a model: to be fitted, saved, and loaded."""

from __future__ import annotations

from pathlib import Path

import xarray as xr
from jaxtyping import Array, Float

from bayesfit.modelling.model import Model
from bayesfit.modelling.noise_model import Noise
from bayesfit.surrogates.allowance import allowed
from bayesfit.surrogates.files import read, written
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.runs import Runs

FORMULA = "g2 = baseline + contrast * |g1|^2, |g1|^2 learnt from {runs} runs of {simulator}"


class StandIn:
    """What a surrogate's model knows of the simulator for which it stands. `runs` are None where the model was loaded
    from a file."""

    def __init__(self, learnt: Learnt, runs: Runs | None = None) -> None:
        self.learnt, self.runs = learnt, runs

    def allow(self, curves: xr.Dataset, noise: Noise) -> xr.Dataset:
        """Curves with errors that allow for the surrogate's; see `allowed`."""
        return allowed(self.learnt, curves, noise)

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
