"""The problem that was fitted, reconstructed from a result: its curves, its model, and the prior of one parameter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import xarray as xr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from bayesfit.compute.errors import BayesfitError, SettingsError
from bayesfit.modelling.model import Model
from bayesfit.modelling.model_choice import get_model, loaded_model, source_of
from bayesfit.modelling.registry import list_models
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.prepare import Problem, prepare

PRIOR_DRAWS = 1024  # of all other parameters, over which a prior that depends on them is averaged


class FittedPrior:
    """The prior of one parameter in each bin of a result, reconstructed from the model's program."""

    def __init__(self, result: xr.DataTree, parameter: str, model: Any) -> None:
        self.problem = fitted_problem(result, model)
        self.parameter = parameter
        if parameter in result["constant_data"] or self._site(jax.random.PRNGKey(0), self._bin(0)) is None:
            inferred = [*self.problem.posterior.names, *self.problem.posterior.marginal]
            raise SettingsError(
                f"{parameter!r} is not sampled but follows from others, so that its prior is not known",
                field="parameter",
                remedy=f"Give one of {', '.join(inferred)}",
            )
        self.positive = self._positive()

    def _bin(self, place: int) -> Bin:
        return jax.tree.map(lambda array: jnp.asarray(array[place]), self.problem.bins)

    def _site(self, key: Array, bin: Bin) -> dist.Distribution | None:
        """The parameter's distribution given one draw of all others, None where it is not sampled."""
        program = numpyro.handlers.seed(self.problem.posterior.full_program, key)
        site = numpyro.handlers.trace(program).get_trace(bin).get(self.parameter)
        return site["fn"] if site is not None and site["type"] == "sample" and not site["is_observed"] else None

    def _sampled(self, key: Array, bin: Bin) -> dist.Distribution:
        """The parameter's distribution given one draw of all others."""
        fn = self._site(key, bin)
        assert fn is not None
        return fn

    def _positive(self) -> bool:
        """Whether the parameter's prior allows no negative values."""
        fn = self._sampled(jax.random.PRNGKey(0), self._bin(0))
        return not bool(np.any(fn.support(jnp.asarray(-np.geomspace(1e-6, 1e6, 25)))))

    def log_density(
        self, places: Int[np.ndarray, " bin"], x: Float[np.ndarray, "bin point"]
    ) -> Float[np.ndarray, "bin point"]:
        """Log prior density of x, up to a constant for each bin, the other parameters averaged out; -inf outside the
        support. `places` are the indices of the bins in the result."""
        bins = jax.tree.map(lambda array: jnp.asarray(array[places]), self.problem.bins)

        def given(key: Array, bin: Bin, x: Float[Array, " point"]) -> Float[Array, " point"]:
            fn, value = self._sampled(key, bin), jnp.exp(x) if self.positive else x
            log_jacobian = x if self.positive else 0.0
            return jnp.where(fn.support(value), fn.log_prob(value) + log_jacobian, -jnp.inf)

        def drawn(count: int, fold: Callable[[Array], Array]) -> np.ndarray:
            keys = jax.random.split(jax.random.PRNGKey(0), count)
            each = jax.vmap(given, (0, None, None))
            return np.asarray(jax.lax.map(lambda pair: fold(each(keys, *pair)), (bins, jnp.asarray(x))))

        one, another = np.moveaxis(drawn(2, lambda logs: logs), 1, 0)
        if np.array_equal(one, another):
            return one
        return drawn(PRIOR_DRAWS, lambda logs: logsumexp(logs, axis=0) - jnp.log(PRIOR_DRAWS))


def fitted_problem(result: xr.DataTree, model: Any) -> Problem:
    """The problem that was fitted, from what the result states."""
    attrs = {str(name): value for name, value in result.attrs.items()}
    if "model" not in attrs or "constant_data" not in result.children:
        raise SettingsError(
            "is no result of bayesfit.fit", field="result", remedy="Give what fit returned or load read"
        )
    if "across" in attrs:
        raise SettingsError(
            "its bins were fitted jointly, so that their posteriors are not independent",
            field="result",
            remedy="Fit them without across",
        )
    data = fitted_curves(result)
    labels = json.loads(attrs.get("q_bins", "[]"))
    places = [labels.index(label) if labels else label for label in data.q_bin.values.tolist()]
    given = {name: _of_bins(prior, places) for name, prior in json.loads(attrs["priors"]).items()}
    fixed = {name: _one_of_bins(value, places) for name, value in json.loads(attrs["fixed"]).items()}
    noise = json.loads(attrs["settings"])["noise"]
    try:
        return prepare(data, _model_of(attrs, model), noise, given, fixed)
    except BayesfitError as error:
        raise SettingsError(
            f"the model's priors cannot be made again ({error})",
            field="result",
            remedy="Give the model that was fitted: law(..., model=...)",
        ) from error


def fitted_curves(result: xr.DataTree) -> xr.Dataset:
    """The curves that were fitted, as `bayesfit.curves` gives them."""
    data = result["constant_data"].to_dataset().assign(g2=result["observed_data"].dataset["g2"])
    data = data.assign(valid=data.valid.astype(bool))
    attrs = {str(name): value for name, value in result.attrs.items()}
    data.attrs = {name.removeprefix("data_"): value for name, value in attrs.items() if name.startswith("data_")}
    return data


def _of_bins(prior: Mapping[str, Any], places: list[int]) -> dict[str, Any]:
    """A prior with its values in those bins that the result still holds."""
    return {name: _one_of_bins(value, places) for name, value in prior.items()}


def _one_of_bins(value: Any, places: list[int]) -> Any:
    """One value for all bins as it is; of one value per bin, those of the bins that the result still holds."""
    return [value[place] for place in places] if isinstance(value, list) else value


def _model_of(attrs: Mapping[str, Any], model: Any) -> Model:
    """The fitted model, made with the options that the result states: the one that is given; else the installed one of
    its name, if it is the same; else one of the same source that this process has run before. A result never says
    which file is run: that would let whoever wrote it run code."""
    if model is not None:
        found = get_model(model)
        if found.name != attrs["model"]:
            raise SettingsError(f"is {found.name!r}, but {attrs['model']!r} was fitted", field="model")
        return found
    source, options = Path(attrs.get("model_source", "")).name, json.loads(attrs.get("model_options", "{}"))
    if (known := loaded_model(str(attrs.get("model_sha256", "")), options)) is not None:
        return known
    if attrs["model"] in list_models():
        found = get_model({**options, "name": attrs["model"]})
        if Path(source_of(found)).name == source and found.formula == attrs["model_formula"]:
            return found
    raise SettingsError(f"{attrs['model']!r} was defined in {source}, which is not at hand", field="model")
