"""From curves and a user's choices to a `Posterior` and the data of every bin; refuses what cannot be fitted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import xarray as xr
from jaxtyping import Int
from numpyro.primitives import Messenger

from bayesfit.compute.devices import take
from bayesfit.compute.errors import InputError, ModelError, SettingsError, nearest
from bayesfit.compute.kinds import expect_curves, expect_table
from bayesfit.data.curves import BASELINE_PRIOR, CONTRAST_PRIOR, by_bin
from bayesfit.modelling.mistakes import SAMPLED, mistake
from bayesfit.modelling.model import AMPLITUDES, BASELINE, CONTRAST, Model, Parameter, check_name
from bayesfit.modelling.noise import Noise, get_noise
from bayesfit.modelling.priors import Prior, as_numbers, build, parse_prior
from bayesfit.modelling.registry import get_model
from bayesfit.posterior.density import Bin, Posterior, closed_amplitudes, marginal_amplitudes

PADDED = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True)
class Problem:
    """A dataset ready to be fitted.

    `bins` holds every bin's data with a leading axis (q_bin,), delays padded; `identity` (q_bin, 2) is a hash of each
    bin's own data, which keys its random numbers; `parameters` describes every parameter of the result.
    """

    posterior: Posterior
    bins: Bin
    identity: np.ndarray
    parameters: dict[str, Parameter]
    fixed: dict[str, np.ndarray]
    priors: dict[str, Prior]

    @property
    def points(self) -> np.ndarray:
        """Number of valid points of each bin (q_bin,)."""
        return self.bins.valid.sum(axis=1)

    @property
    def needed(self) -> int:
        """Number of parameters of the curve, amplitudes included: so many points a bin must have."""
        return len(self.posterior.curve_names) + len(self.posterior.marginal)

    @property
    def usable(self) -> np.ndarray:
        """Indices of the bins that have points enough for the curve."""
        return np.flatnonzero(self.points >= max(self.needed, 1))

    @property
    def fitted(self) -> int:
        """How many numbers are inferred in each bin, the amplitudes included."""
        return len(self.posterior.names) + len(self.posterior.marginal)

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
        )


def prepare(
    data: xr.Dataset,
    model: Any = "stretched_exponential",
    noise: str = "scaled",
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Problem:
    """Check the choices against the data and the model, and lay out every bin's data. Call it with x64 on.

    Raises:
        SettingsError: an unknown name, or an impossible value. ModelError: the model breaks the contract.
        InputError: the data do not suit the model.
    """
    data = _oriented(data)
    expect_table(priors, "priors")
    expect_table(fixed, "fixed")
    model, noise_model = get_model(model), get_noise(noise)
    file = data.attrs.get("file") or None
    if noise == "stated" and not data.attrs.get("errors_stated", 1):
        raise SettingsError("'stated' needs errors, and the data state none", field="noise", remedy="Use 'scaled'")
    if noise_model.delays and not data.attrs.get("delays", 1):
        raise SettingsError(f"{noise!r} needs delays, and the data are of any x", field="noise", remedy="Use 'scaled'")
    tau = data.tau.values.astype(float)
    _check_x(model, tau, data, file)
    sites = _sites(model, tau.size)
    noise_sites = _noise_sites(noise_model, tau.size)
    if clash := sorted(set(sites) & set(noise_sites)):
        raise ModelError(
            f"parameter name {clash[0]!r} is taken by noise {noise!r}",
            field=f"model {model.name!r}",
            remedy="Choose another name",
        )
    known = {**sites, **noise_sites, **(dict.fromkeys(AMPLITUDES) if model.form == "siegert" else {})}
    pinned = {name: _one_or_per_bin(value, f"fixed.{name}", data) for name, value in (fixed or {}).items()}
    given = {name: parse_prior(spec, name) for name, spec in _all_priors(model, data, priors or {}).items()}
    for kind, names in (("fixed", pinned), ("priors", given)):
        for name in names:
            if name not in known:
                raise SettingsError(f"unknown parameter {name!r}", field=kind, remedy=nearest(name, known))
    for name, prior in given.items():
        for value in prior.values.values():
            _one_or_per_bin(value, f"priors.{name}", data)
    _check_support(model, {**sites, **noise_sites}, pinned, given)
    posterior = _posterior(model, noise_model, sites, noise_sites, pinned, given)
    if not posterior.names:
        raise SettingsError("nothing is left to sample", field="fixed", remedy="Leave a parameter of the curve free")
    bins = _bins(data, noise_model, pinned, given)
    bins = bins._replace(log_constant=posterior.log_constant(bins))
    described = (*model.parameters, CONTRAST, BASELINE, *noise_model.parameters)
    described_by_name = {parameter.name: parameter for parameter in described}
    parameters = {name: described_by_name.get(name, Parameter(name)) for name in known}
    return Problem(posterior, bins, _identity(data), parameters, pinned, given)


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


def _oriented(data: xr.Dataset) -> xr.Dataset:
    """The dataset with dims (q_bin, tau), delays in order; also after the user's own `isel` of one bin."""
    expect_curves(data)
    for name in ("g2", "g2_err", "valid"):
        if name not in data:
            raise InputError("is missing", field=name, remedy="Make the dataset with bayesfit.curves or bayesfit.read")
    data = by_bin(data)
    if "tau" not in data.dims:
        raise InputError("holds one delay, a curve has some", field="tau", remedy="Choose delays by isel(tau=[...])")
    bad = data.valid & ~(np.isfinite(data.g2) & np.isfinite(data.g2_err) & (data.g2_err > 0))
    for bin in np.flatnonzero(bad.any("tau"))[:1]:
        raise InputError(
            "a point is marked valid that is not finite or has no error",
            file=data.attrs.get("file") or None,
            field="valid",
            bin=int(bin),
            remedy="Make the dataset with bayesfit.curves",
        )
    return data


def _check_x(model: Model, tau: np.ndarray, data: xr.Dataset, file: str | None) -> None:
    if model.form == "siegert" and not (np.all(tau >= 0) and np.any(tau > 0)):
        raise InputError(
            "holds negative values, and the model needs delays", file=file, field="tau", remedy="Use another model"
        )
    if model.form == "siegert" and data.valid.values[:, tau == 0].any():
        raise InputError("a delay of 0 is marked valid", file=file, field="tau", remedy="Pass delays=True to curves")


def _one_or_per_bin(value: Any, field: str, data: xr.Dataset) -> np.ndarray:
    array = as_numbers(value, field)
    if array.ndim == 1 and array.size != data.sizes["q_bin"]:
        raise SettingsError(f"{array.size} values for {data.sizes['q_bin']} bins", field=field)
    return array


def _all_priors(model: Model, data: xr.Dataset, given: Mapping[str, Any]) -> dict[str, Any]:
    """The kind of data's priors of the amplitudes, overridden by the user's."""
    if model.form != "siegert":
        return dict(given)
    carried = {
        "contrast": data.attrs.get("contrast_prior", CONTRAST_PRIOR),
        "baseline": data.attrs.get("baseline_prior", BASELINE_PRIOR.format(reference=1.0)),
    }
    return {**carried, **given}


@lru_cache(maxsize=32)
def _sites(model: Model, length: int) -> Mapping[str, dist.Distribution]:
    """The sample sites of a model's program for so many delays, by name, after checking each against the contract.

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


def _check_shape(field: str, returned: Any, expected: tuple[int, ...]) -> None:
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
def _noise_sites(noise: Noise, length: int) -> Mapping[str, dist.Distribution]:
    """The sample sites of a noise model for so many delays, by name."""
    delays, flags = (jax.ShapeDtypeStruct((length,), kind) for kind in (float, bool))
    layout = jax.ShapeDtypeStruct(noise.layout(np.arange(1.0, length + 1.0)).shape, float)
    return _trace(noise.program, (Bin(delays, delays, delays, flags, layout, None, {}, {}),))


def _trace(program: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Sample sites of a program by name, found without running it in numbers."""
    found: dict[str, Any] = {}

    def run(*args: Any) -> Any:
        trace = numpyro.handlers.trace(_seeded(program)).get_trace(*args)
        found.update({name: site for name, site in trace.items() if site["type"] == "sample"})
        return jnp.zeros(())

    jax.eval_shape(run, *args)
    return {name: site["fn"] for name, site in found.items()}


def _seeded(program: Callable[..., Any]) -> Callable[..., Any]:
    """A program that runs by itself; a site's value is a stand-in, since to trace a draw takes longer than the rest."""
    return numpyro.handlers.seed(_StandIn(program), 0)


class _StandIn(Messenger):
    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["value"] is None:
            msg["value"] = jnp.full((), 0.5)


class _Checked(Messenger):
    """Check each site against the contract before anything is drawn at it."""

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


def _check_support(
    model: Model, sites: Mapping[str, Any], fixed: Mapping[str, np.ndarray], priors: Mapping[str, Prior]
) -> None:
    """Fixed and start values must lie where their prior has mass, as far as that can be told without other values."""
    for name, value in fixed.items():
        if name in sites and name not in priors and not _inside(sites[name], value):
            raise SettingsError(f"got {np.ravel(value)[0]:g}, outside what the model allows", field=f"fixed.{name}")
    for start in model.starts:
        for name, number in start.items():
            prior = build(priors[name].family, priors[name].values) if name in priors else sites[name]
            if not _inside(prior, np.asarray(number, float)):
                raise ModelError(f"start of {name!r} is outside its prior: {number:g}", field=f"model {model.name!r}")


def _inside(fn: dist.Distribution, value: np.ndarray) -> bool:
    try:
        return isinstance(fn, dist.Delta) or bool(np.all(fn.support(value)))
    except jax.errors.JAXTypeError:
        return True


def _posterior(
    model: Model,
    noise: Noise,
    sites: Mapping[str, Any],
    noise_sites: Mapping[str, Any],
    fixed: Mapping[str, Any],
    priors: Mapping[str, Prior],
) -> Posterior:
    families = {name: prior.family for name, prior in priors.items()}
    names = tuple(sorted(fixed))

    def free(name: str, fn: Any) -> bool:
        return name not in fixed and (name in priors or not isinstance(fn, dist.Delta))

    curve_names = tuple(name for name, fn in sites.items() if free(name, fn))
    if model.form == "siegert":
        marginal = marginal_amplitudes(model, noise, families, names)
        closed = closed_amplitudes(model, families, names)
        sampled = (name for name in AMPLITUDES if name not in marginal and name not in fixed)
        curve_names += tuple(sorted(sampled, key=lambda name: name in closed))
    noise_names = tuple(name for name, fn in noise_sites.items() if free(name, fn))
    return Posterior(model, noise, tuple(sorted(families.items())), names, curve_names, noise_names)


def _bins(data: xr.Dataset, noise: Noise, fixed: Mapping[str, np.ndarray], priors: Mapping[str, Prior]) -> Bin:
    """Every bin's data, delays padded to one of a few lengths by repeating the last as points that are not valid."""
    count, length = data.sizes["q_bin"], data.sizes["tau"]
    padded = next((size for size in PADDED if size >= length), -(-length // 512) * 512)
    valid = np.zeros((count, padded), bool)
    valid[:, :length] = data.valid.values
    g2, g2_err = np.zeros((count, padded)), np.ones((count, padded))
    g2[:, :length] = data.g2.values
    if noise.stated:
        g2_err[:, :length] = data.g2_err.values
    tau = _delays(data.tau.values.astype(float), padded, bool(data.attrs.get("delays", 1)))
    inverse_error = np.where(valid, 1.0 / np.where(valid, g2_err, 1.0), 0.0)
    y = np.where(valid, np.where(valid, g2, 0.0) * inverse_error, 0.0)

    def spread(value: np.ndarray) -> np.ndarray:
        return np.broadcast_to(value, (count,)).astype(float)

    layout = noise.layout(tau)
    return Bin(
        tau=np.broadcast_to(tau, (count, padded)).copy(),
        y=y,
        inverse_error=inverse_error,
        valid=valid,
        layout=np.broadcast_to(layout, (count, *layout.shape)).copy(),
        log_constant=np.zeros(count),
        fixed={name: spread(value) for name, value in fixed.items()},
        priors={name: {key: spread(v) for key, v in prior.values.items()} for name, prior in priors.items()},
    )


def _delays(tau: np.ndarray, padded: int, delays: bool) -> np.ndarray:
    """Padded delays; a delay of 0, which is never valid, takes the place of its neighbour."""
    if delays:
        tau = np.where(tau > 0, tau, np.min(tau[tau > 0]))
    return np.concatenate([tau, np.repeat(tau[-1], padded - tau.size)])


def _identity(data: xr.Dataset) -> np.ndarray:
    """Two 32-bit words from the hash of each bin's valid points; (q_bin, 2)."""
    tau = data.tau.values.astype(float)
    words = []
    for g2, g2_err, valid in zip(data.g2.values, data.g2_err.values, data.valid.values, strict=True):
        used = np.stack([tau[valid], g2[valid], g2_err[valid]]).astype(float)
        words.append(np.frombuffer(hashlib.sha256(used.tobytes()).digest()[:8], np.uint32))
    return np.array(words)
