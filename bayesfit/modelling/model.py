"""The contract that a model file fulfils: a NumPyro program for one bin, and a page of words about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from bayesfit.compute.errors import ModelError
from bayesfit.compute.shown import as_html, one_line, with_unit

if TYPE_CHECKING:
    import xarray as xr

    from bayesfit.modelling.noise_model import Noise

Program = Callable[[Any], Any]  # delays (tau,) to the curve (tau,)
Derive = Callable[["xr.Dataset", "xr.Dataset"], "xr.Dataset"]  # posterior and curves to what follows from them
RESERVED = frozenset({"chain", "draw", "q_bin", "tau", "q", "phi", "g2", "g2_err", "valid"})
AMPLITUDES = ("contrast", "baseline")


@dataclass(frozen=True)
class Parameter:
    """One parameter as people meet it: `name`, `unit`, `latex` label, one line of `description`. Of one that is not
    `judged`, a verdict does not ask that the data determine it: it only shapes what is derived."""

    name: str
    unit: str = ""
    latex: str = ""
    description: str = ""
    judged: bool = True


CONTRAST = Parameter("contrast", "", r"C", "height of the decay of g2 above its baseline")
BASELINE = Parameter("baseline", "", r"B", "value of g2 at delays long after the decay")


class StandsFor(Protocol):
    """What a model knows of that for which it only stands, as a surrogate stands for a simulator."""

    @property
    def approximate(self) -> str:
        """In words, why no posterior of the model is more than approximate; else ""."""
        ...

    def allow(self, curves: xr.Dataset, noise: Noise, widen: bool) -> xr.Dataset:
        """Curves as they are fitted with this model: with errors that allow for its own, unless they are not to be
        widened.

        Raises:
            InputError, SettingsError: its own errors are too large.
        """
        ...

    def check_within(self, priors: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """Refuse priors and fixed values for which the model is not known.

        Raises:
            SettingsError: says which.
        """
        ...

    def check_runs(self) -> None:
        """Refuse to give true curves.

        Raises:
            SettingsError: what it stands for is not at hand, or is random.
        """
        ...

    def true_curves(self, values: Mapping[str, Any], tau: Any) -> Any:
        """The true |g1|^2 (draw, tau) at parameters (draw,), NaN where there is none."""
        ...

    def save(self, path: Path) -> None:
        """Write the model to a file from which `get_model` makes it again."""
        ...


@dataclass(frozen=True, eq=False)
class Model:
    """A curve model: the shape of one bin's curve and the priors of its parameters.

    A model file holds one as `model`, or a function `make` that makes one from options, or both. A file with `make`
    alone describes its models by the variables `description` and `formula`.

    Args:
        name: how users call it.
        program: NumPyro program `tau -> curve`, both of shape (tau,). It samples each parameter, a scalar, with
            `numpyro.sample(name, prior)`, and may add others by `numpyro.deterministic`. Priors may depend on `tau`
            (its smallest and largest value), never on the measured values.
        parameters: the sampled parameters, described. If left out, only the names of the sample sites are known.
        form: "siegert" where the program returns |g1|^2, so that the engine adds contrast, baseline and noise;
            "curve" where it returns the whole mean curve of any y = f(x).
        start: one mapping of parameter name to start value for the point estimate, or several of them. Without it
            the engine looks for starts over the prior.
        description, formula, reference: the physics, in words.
        options: everything from which the `make` of a model file made the model, as numbers, text, lists and mappings
            of these, so that a result can state them and the same model can be made again.
        stands_for: what a model that only stands for another one knows of it; `bayesfit.surrogate` makes such.
        known: `curves -> {name: values (q_bin,)}` of those parameters that are not inferred, but known of each bin, as
            an angle: their sites have a point as prior, and are fixed at these values unless the user fixes them.
            Raises InputError where the curves lack what is needed.
        derive: `(posterior, curves) -> Dataset` of quantities that follow from the parameters, as for
            `bayesfit.Pipeline`.
        distribution: `(posterior, curves) -> Dataset` (q_bin, point) of a distribution that the parameters describe,
            as `bayesfit.plot_sizes` draws it: `radius`, and `density` over log radius with its band, `lower` and
            `upper`.

    Raises:
        ModelError: a field breaks the contract; the message names the model and the parameter.
    """

    name: str
    program: Program
    parameters: tuple[Parameter, ...] = ()
    form: Literal["siegert", "curve"] = "siegert"
    start: Mapping[str, float] | tuple[Mapping[str, float], ...] = ()
    description: str = ""
    formula: str = ""
    reference: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    stands_for: StandsFor | None = None
    known: Callable[[xr.Dataset], Mapping[str, Any]] | None = None
    derive: Derive | None = None
    distribution: Derive | None = None

    def __post_init__(self) -> None:
        if not callable(self.program):
            raise ModelError("program must be a function of tau", field=f"model {self.name!r}")
        if self.form not in ("siegert", "curve"):
            raise ModelError(f"form must be 'siegert' or 'curve', got {self.form!r}", field=f"model {self.name!r}")
        try:
            json.dumps(self.options)
        except (TypeError, ValueError) as error:
            raise ModelError(f"options cannot be stated: {error}", field=f"model {self.name!r}") from error
        names = [parameter.name for parameter in self.parameters]
        for name in names:
            check_name(self, name)
            if names.count(name) > 1:
                raise ModelError(f"parameter {name!r} is listed twice", field=f"model {self.name!r}")

    @property
    def starts(self) -> tuple[Mapping[str, float], ...]:
        """The start values as a tuple of mappings, empty where the model gives none."""
        if isinstance(self.start, Mapping):
            return (self.start,)
        return tuple(self.start)

    def __repr__(self) -> str:
        parameters = ", ".join(with_unit(parameter.name, parameter.unit) for parameter in self.parameters)
        return one_line("Model", self.name, parameters, self.formula or self.description)

    def _repr_html_(self) -> str:
        said = (self.description, self.formula, self.reference)
        return as_html(f"Model {self.name}", said, *rows_of(self.parameters))


def rows_of(parameters: tuple[Parameter, ...]) -> tuple[tuple[str, str, str], list[tuple[str, str, str]]]:
    """Parameters as headings and rows of a table."""
    return ("parameter", "unit", "what it is"), [(each.name, each.unit, each.description) for each in parameters]


def check_name(model: Model, name: str) -> None:
    """Refuse a site name that cannot stand in a result.

    Raises:
        ModelError: the name is reserved, is no identifier, or is an amplitude that the engine adds itself.
    """
    taken = RESERVED | (set(AMPLITUDES) if model.form == "siegert" else set())
    if name in taken:
        raise ModelError(
            f"parameter name {name!r} is reserved", field=f"model {model.name!r}", remedy="Choose another name"
        )
    if not name.isidentifier():
        raise ModelError(
            f"parameter name {name!r} is not a plain word",
            field=f"model {model.name!r}",
            remedy="Use letters, digits and underscores, no '/'",
        )
