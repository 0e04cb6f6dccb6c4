"""From curves and a user's choices to a `Posterior` and the data of every bin; refuses what cannot be fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import xarray as xr
from jaxtyping import Float, Int, UInt32

from bayesfit.compute.devices import take
from bayesfit.compute.errors import InputError, ModelError, SettingsError, nearest
from bayesfit.compute.kinds import expect_table
from bayesfit.compute.processes import refuse_late_fork
from bayesfit.data.counting import Counting
from bayesfit.data.curves import BASELINE_PRIOR, CONTRAST_PRIOR
from bayesfit.modelling.model import AMPLITUDES, BASELINE, CONTRAST, Model, Parameter
from bayesfit.modelling.model_choice import get_model
from bayesfit.modelling.noise import get_noise
from bayesfit.modelling.noise_model import Noise
from bayesfit.modelling.priors import Prior, as_numbers, joined, parse_prior
from bayesfit.posterior.bin_data import Bin
from bayesfit.posterior.bin_layout import as_needed, identity_of_bins, lay_out, oriented
from bayesfit.posterior.bin_program import marginal_amplitudes, normal_amplitudes
from bayesfit.posterior.density import Posterior
from bayesfit.posterior.program_checks import Sites, check_support, model_sites, noise_sites

OfBins = Float[np.ndarray, "*q_bin"]  # one number, or one per bin


@dataclass(frozen=True)
class Problem:
    """A dataset ready to be fitted.

    `bins` holds every bin's data with a leading axis (q_bin,), delays padded; `identity` is a hash of each bin's own
    data, which keys its random numbers; `parameters` describes every parameter of the result; `fixed` and `priors` are
    the choices, of the user and of the kind of data; `counting` says what was counted, where the noise model counts and
    theory knows the errors.
    """

    posterior: Posterior
    bins: Bin
    identity: UInt32[np.ndarray, "q_bin 2"]
    parameters: dict[str, Parameter]
    fixed: dict[str, OfBins]
    priors: dict[str, Prior]
    counting: Counting | None = None

    @property
    def points(self) -> Int[np.ndarray, " q_bin"]:
        """Number of valid points of each bin."""
        return self.bins.valid.sum(axis=1)

    @property
    def needed(self) -> int:
        """Number of parameters of the curve, amplitudes included: a bin needs at least this number of points."""
        return len(self.posterior.curve_names) + len(self.posterior.marginal)

    @property
    def usable(self) -> Int[np.ndarray, " used"]:
        """Indices of the bins that have enough points for the curve."""
        return np.flatnonzero(self.points >= max(self.needed, 1))

    @property
    def fitted(self) -> int:
        """How many numbers are inferred in each bin, the amplitudes included."""
        return len(self.posterior.names) + len(self.posterior.marginal)

    @property
    def unjudged(self) -> frozenset[str]:
        """The parameters that the data need not determine."""
        return frozenset(name for name, parameter in self.parameters.items() if not parameter.judged)

    def of_bins(self, places: Int[np.ndarray, " chosen"]) -> Problem:
        """The same problem for the bins at these places alone."""

        def chosen(value: np.ndarray) -> np.ndarray:
            return value[places] if np.ndim(value) else value

        return replace(
            self,
            bins=take(self.bins, places),
            identity=self.identity[places],
            fixed={name: chosen(value) for name, value in self.fixed.items()},
            priors={name: prior.of_bins(places) for name, prior in self.priors.items()},
            counting=None if self.counting is None else self.counting.of_bins(places),
        )

    def fits(self, other: Problem) -> bool:
        """Whether the bins of both can be fitted side by side: one compiled program serves them all."""
        if self.posterior != other.posterior or self._shapes != other._shapes:
            return False
        if self.counting is None or other.counting is None:
            return self.counting is other.counting
        return self.counting.fits(other.counting)

    @property
    def _shapes(self) -> Any:
        leaves, structure = jax.tree.flatten(self.bins)
        return structure, [leaf.shape[1:] for leaf in leaves]

    def and_(self, others: Sequence[Problem]) -> Problem:
        """These bins and those of other problems, which must fit, one after the other."""
        every = [self, *others]
        counts = [len(problem.identity) for problem in every]
        return replace(
            self,
            bins=jax.tree.map(lambda *arrays: np.concatenate(arrays), *(problem.bins for problem in every)),
            identity=np.concatenate([problem.identity for problem in every]),
            fixed={name: joined([problem.fixed[name] for problem in every], counts) for name in self.fixed},
            priors={name: Prior.of_all([problem.priors[name] for problem in every], counts) for name in self.priors},
            counting=self.counting and self.counting.and_([other.counting for other in others if other.counting]),
        )


class Programs(NamedTuple):
    """The two halves of a fit's program, and the sample sites of each, by name."""

    model: Model
    noise: Noise
    sites: Sites
    noise_sites: Sites

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters, in the order in which results list them."""
        amplitudes = AMPLITUDES if self.model.form == "siegert" else ()
        return (*self.sites, *self.noise_sites, *amplitudes)


def prepare(
    data: xr.Dataset,
    model: Any = "stretched_exponential",
    noise: str | Noise = "scaled",
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Problem:
    """Check the choices against the data and the model, and lay out every bin's data. Call it with x64 on.

    Raises:
        SettingsError: an unknown name, or an impossible value. ModelError: the model breaks the contract.
        InputError: the data do not suit the model. ProcessError: JAX cannot run in this process.
    """
    refuse_late_fork()
    noise = get_noise(noise) if isinstance(noise, str) else noise
    data = oriented(as_needed(data, noise))
    expect_table(priors, "priors")
    expect_table(fixed, "fixed")
    programs = _programs(data, get_model(model), noise)
    model = programs.model
    fixed = {**_known_of_bins(programs, data, fixed or {}), **(fixed or {})}
    pinned = {name: _one_or_per_bin(value, f"fixed.{name}", data) for name, value in fixed.items()}
    given = {name: parse_prior(spec, name) for name, spec in _all_priors(model, data, priors or {}).items()}
    _check_names(programs, pinned, given)
    for name, prior in given.items():
        for value in prior.values.values():
            _one_or_per_bin(value, f"priors.{name}", data)
    check_support(model, {**programs.sites, **programs.noise_sites}, pinned, given)
    posterior = _posterior(programs, pinned, given)
    if not posterior.names:
        raise SettingsError("nothing is left to sample", field="fixed", remedy="Leave a parameter of the curve free")
    bins = lay_out(data, programs.noise, pinned, given)
    bins = bins._replace(log_constant=posterior.log_constant(bins))
    known = programs.noise.counted and programs.model.form == "siegert"  # theory is that of |g1|^2
    counting = Counting.of(data) if known else None
    return Problem(posterior, bins, identity_of_bins(data), _described(programs), pinned, given, counting)


def numpyro_program(
    curves: xr.Dataset,
    q_bin: int,
    model: Any = "stretched_exponential",
    *,
    noise: str = "scaled",
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Callable[[], None]:
    """The full NumPyro program of one bin, every site sampled and `g2` observed, as `MCMC`, `Predictive` or
    `render_model` take it. Arguments as for `fit`; `q_bin` is the bin's place.

    Raises:
        InputError, SettingsError, ModelError: as `fit` does.
    """
    with jax.enable_x64(True):
        problem = prepare(curves, model, noise, priors, fixed)
    one = jax.tree.map(lambda array: array[q_bin], problem.bins)
    return lambda: problem.posterior.full_program(jax.tree.map(jnp.asarray, one))


def _programs(data: xr.Dataset, model: Model, noise: Noise) -> Programs:
    """Both programs with their sites, after checking that they suit the data and each other."""
    tau = data.tau.values.astype(float)
    _check_noise(noise, data)
    _check_x(model, tau, data)
    programs = Programs(model, noise, model_sites(model, tau.size), noise_sites(noise, tau.size))
    for name in sorted(set(programs.sites) & set(programs.noise_sites))[:1]:
        raise ModelError(
            f"parameter name {name!r} is taken by noise {noise.name!r}",
            field=f"model {model.name!r}",
            remedy="Choose another name",
        )
    return programs


def _known_of_bins(programs: Programs, data: xr.Dataset, fixed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values that a model knows of each bin; none where the user fixes all of them."""
    points = {name for name, fn in programs.sites.items() if isinstance(fn, dist.Delta)}
    return {} if programs.model.known is None or points <= set(fixed) else programs.model.known(data)


def _check_noise(noise: Noise, data: xr.Dataset) -> None:
    """Refuse a noise model that needs more than the data have."""
    if noise.stated and not noise.parameters and not data.attrs.get("errors_stated", 1):
        raise SettingsError("'stated' needs errors, and the data state none", field="noise", remedy="Use 'scaled'")
    if noise.delays and not data.attrs.get("delays", 1):
        problem = f"{noise.name!r} needs delays, and the data are of any x"
        raise SettingsError(problem, field="noise", remedy="Use 'scaled'")


def _check_x(model: Model, tau: Float[np.ndarray, " tau"], data: xr.Dataset) -> None:
    """Refuse negative delays, and valid points at delay 0, where the model is a decay."""
    file = data.attrs.get("file") or None
    if model.form == "siegert" and not (np.all(tau >= 0) and np.any(tau > 0)):
        raise InputError(
            "holds negative values, and the model needs delays", file=file, field="tau", remedy="Use another model"
        )
    if model.form == "siegert" and data.valid.values[:, tau == 0].any():
        raise InputError("a delay of 0 is marked valid", file=file, field="tau", remedy="Pass delays=True to curves")


def _check_names(programs: Programs, fixed: Mapping[str, OfBins], priors: Mapping[str, Prior]) -> None:
    """Refuse values and priors of unknown parameters."""
    known = programs.parameters
    for kind, names in (("fixed", fixed), ("priors", priors)):
        for name in names:
            if name not in known:
                raise SettingsError(f"unknown parameter {name!r}", field=kind, remedy=nearest(name, known))


def _described(programs: Programs) -> dict[str, Parameter]:
    """Every parameter by name, described where it can be."""
    described = (*programs.model.parameters, CONTRAST, BASELINE, *programs.noise.parameters)
    by_name = {parameter.name: parameter for parameter in described}
    return {name: by_name.get(name, Parameter(name)) for name in programs.parameters}


def _one_or_per_bin(value: Any, field: str, data: xr.Dataset) -> OfBins:
    """A number, or one per bin."""
    array = as_numbers(value, field)
    if array.ndim == 1 and array.size != data.sizes["q_bin"]:
        raise SettingsError(f"{array.size} values for {data.sizes['q_bin']} bins", field=field)
    return array


def _all_priors(model: Model, data: xr.Dataset, given: Mapping[str, Any]) -> dict[str, Any]:
    """The priors that the kind of data has for the amplitudes, and those of the user, which replace them."""
    if model.form != "siegert":
        return dict(given)
    of_data = {
        "contrast": data.attrs.get("contrast_prior", CONTRAST_PRIOR),
        "baseline": data.attrs.get("baseline_prior", BASELINE_PRIOR.format(reference=1.0)),
    }
    return {**of_data, **given}


def _posterior(programs: Programs, fixed: Mapping[str, OfBins], priors: Mapping[str, Prior]) -> Posterior:
    """The posterior of one bin, its coordinates in the order of the programs' sites."""
    model, noise, families = programs.model, programs.noise, {name: prior.family for name, prior in priors.items()}
    names = tuple(sorted(fixed))

    def free(sites: Sites) -> tuple[str, ...]:
        sampled = (name for name, fn in sites.items() if name in priors or not isinstance(fn, dist.Delta))
        return tuple(name for name in sampled if name not in fixed)

    curve_names = free(programs.sites)
    if model.form == "siegert":
        marginal = marginal_amplitudes(model, noise, families, names)
        normal = normal_amplitudes(model, families, names)
        sampled = (name for name in AMPLITUDES if name not in marginal and name not in fixed)
        curve_names += tuple(sorted(sampled, key=lambda name: name in normal))
    return Posterior(model, noise, tuple(sorted(families.items())), names, curve_names, free(programs.noise_sites))
