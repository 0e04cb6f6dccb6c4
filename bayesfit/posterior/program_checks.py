"""Checks that the engine can sample the programs of a model and of a noise model; their sites are found by tracing.

A model's program must sample scalars from proper, continuous priors and return a curve of the shape of tau. If it does
anything else, the error says what, with a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Float
from numpyro.primitives import Messenger

from bayesfit.compute.errors import ModelError, SettingsError, nearest
from bayesfit.modelling.mistakes import SAMPLED, mistake
from bayesfit.modelling.model import Model, check_name
from bayesfit.modelling.noise_model import Noise
from bayesfit.modelling.priors import Prior, build
from bayesfit.modelling.scatter import AnyArray
from bayesfit.posterior.bin_data import Bin

Sites = Mapping[str, dist.Distribution]


@lru_cache(maxsize=32)
def model_sites(model: Model, length: int) -> Sites:
    """The sample sites of a model's program by name, for `length` delays, each checked against the contract.

    Raises:
        ModelError: the program raises while traced, breaks the contract, or does not match its parameters.
    """
    field = f"model {model.name!r}"
    try:
        program = _Checked(model.program, model)
        tau = jax.ShapeDtypeStruct((length,), float)
        shape = jax.eval_shape(_seeded(program), tau)
        sites = _trace(program, (tau,))
    except ModelError:
        raise
    except Exception as error:
        problem, remedy = mistake(error, model.program)
        raise ModelError(problem, field=field, remedy=remedy) from error
    _check_shape(field, shape, tau.shape)
    if not sites:
        raise ModelError("samples no parameter", field=field, remedy=f"Write rate = {SAMPLED}")
    _check_names(field, "parameters list", [parameter.name for parameter in model.parameters] or sites, sites)
    for start in model.starts:
        _check_names(field, "start names", start, sites)
    return sites


def _check_shape(field: str, returned: AnyArray, expected: tuple[int, ...]) -> None:
    """Refuse a program that returns anything but an array of the shape of tau."""
    if returned is None:
        raise ModelError("returns nothing, expected the curve", field=field, remedy="End the program with `return ...`")
    shape = getattr(returned, "shape", None)
    if not isinstance(shape, tuple):
        problem = f"returns a {type(returned).__name__}, expected the curve, an array of shape {expected}"
        raise ModelError(problem, field=field, remedy="Return the mean curve alone; noise is added to it")
    if shape != expected:
        raise ModelError(f"returns shape {shape}, expected that of tau, {expected}", field=field)


def _check_names(field: str, who: str, given: Iterable[str], sampled: Iterable[str]) -> None:
    """Refuse names that differ from those of the sample sites; say which one was probably meant."""
    given, sampled = list(given), list(sampled)
    free = [name for name in sampled if name not in given]
    for name in given:
        if name not in sampled:
            problem = f"{who} {name!r}, which the program does not sample"
            raise ModelError(problem, field=field, remedy=nearest(name, free or sampled))
    for name in free:
        problem = f"{who} no {name!r}, which the program samples"
        raise ModelError(problem, field=field, remedy="Name every parameter, or none")


@lru_cache(maxsize=32)
def noise_sites(noise: Noise, length: int) -> Sites:
    """The sample sites of a noise model by name, for `length` delays."""
    delays, flags = (jax.ShapeDtypeStruct((length,), kind) for kind in (float, bool))
    layout = jax.ShapeDtypeStruct(noise.layout(np.arange(1.0, length + 1.0)).shape, float)
    return _trace(noise.program, (Bin(delays, delays, delays, flags, layout, None, {}, {}),))


def _trace(program: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, dist.Distribution]:
    """The sample sites of a program by name, found from the shapes of its arguments."""
    found: dict[str, Any] = {}

    def run(*args: Any) -> Any:
        trace = numpyro.handlers.trace(_seeded(program)).get_trace(*args)
        found.update({name: site for name, site in trace.items() if site["type"] == "sample"})
        return jnp.zeros(())

    jax.eval_shape(run, *args)
    return {name: site["fn"] for name, site in found.items()}


def _seeded(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program with a stand-in for the value of each site, since tracing a draw takes longer than all the rest."""
    return numpyro.handlers.seed(_StandIn(program), 0)


class _StandIn(Messenger):
    """Give each site the value 0.5."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["value"] is None:
            msg["value"] = jnp.full((), 0.5)


class _Checked(Messenger):
    """Check each site against the contract before anything is drawn there."""

    def __init__(self, fn: Callable[..., Any], model: Model) -> None:
        self.model = model
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample":
            return
        if msg["is_observed"]:
            raise ModelError(
                f"observes {msg['name']!r}",
                field=f"model {self.model.name!r}",
                remedy="The engine adds the likelihood: return the curve",
            )
        _check_site(self.model, msg["name"], msg["fn"])


def _check_site(model: Model, name: str, fn: Any) -> None:
    """Refuse a site whose prior is improper, discrete, no scalar or no distribution.

    Raises:
        ModelError: names the parameter.
    """
    field = f"model {model.name!r}"
    check_name(model, name)
    if isinstance(fn, dist.ImproperUniform):
        raise ModelError(f"parameter {name!r} has an improper prior", field=field, remedy="Give it a wide proper one")
    if not isinstance(fn, dist.Distribution):
        raise ModelError(f"parameter {name!r} is no NumPyro distribution", field=field)
    if fn.support.is_discrete:
        raise ModelError(f"parameter {name!r} is discrete", field=field, remedy="NUTS needs continuous parameters")
    if fn.batch_shape or fn.event_shape:
        raise ModelError(
            f"parameter {name!r} has shape {fn.batch_shape + fn.event_shape}", field=field, remedy="Sample scalars only"
        )


def check_support(
    model: Model, sites: Sites, fixed: Mapping[str, Float[np.ndarray, "*q_bin"]], priors: Mapping[str, Prior]
) -> None:
    """Refuse fixed and start values where their prior has no mass. A prior that depends on other parameters is not
    checked.

    Raises:
        SettingsError: of a fixed value. ModelError: of a start value.
    """
    for name, value in fixed.items():
        if name in sites and name not in priors and not _inside(sites[name], value):
            raise SettingsError(f"got {np.ravel(value)[0]:g}, outside what the model allows", field=f"fixed.{name}")
    for start in model.starts:
        for name, number in start.items():
            prior = build(priors[name].family, priors[name].values) if name in priors else sites[name]
            if not _inside(prior, np.asarray(number, float)):
                raise ModelError(f"start of {name!r} is outside its prior: {number:g}", field=f"model {model.name!r}")


def _inside(fn: dist.Distribution, value: Float[np.ndarray, "*q_bin"]) -> bool:
    """Whether values are in the support; True where that depends on other parameters."""
    try:
        return isinstance(fn, dist.Delta) or bool(np.all(fn.support(value)))
    except jax.errors.JAXTypeError:
        return True
