"""Errors planted in the engine, to see that the calibration finds them; and exact draws on a grid, to see it cheaply.

Each error is a patch of the engine's own functions. Most are looked for with exact draws: the engine's log density on a
grid over its one or two coordinates, and the engine's conditional draws of the amplitudes, without estimate or NUTS.
Errors of what becomes of the draws afterwards need the sampler itself, but no program compiled anew.
`python tests/calibration.py --planted` sends all of them through whole fits.
"""

import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calibration import ALPHA, LARGEST, QUICKLY_COMPILED, Sampled, Setting, fitted, ranks_of, simulate
from scipy.special import ndtr
from uniformity import holm, p_value

import bayesfit
from bayesfit.compute import program_files
from bayesfit.modelling import noise as _noise
from bayesfit.modelling.scatter import Scatter
from bayesfit.posterior import coordinates as _coordinates
from bayesfit.posterior import linear_amplitudes as _amplitudes
from bayesfit.posterior import prepare as _prepare
from bayesfit.posterior.density import Posterior
from bayesfit.result import predictions as _predictions
from bayesfit.sample import importance_sampling as _importance
from bayesfit.sample import least_squares as _point
from bayesfit.sample import scheduler as _sample
from bayesfit.sample import slots as _slots

CURVE_CELLS, NOISE_CELLS, TAIL_CELLS = 96, 24, 16
FLAT_PRIORS = {"contrast": "TruncatedNormal(0, 0.2, low=0)", "baseline": "Normal(1, 0.1)", "rate": "LogUniform(2, 200)"}
SMALL = partial(Setting, "single_exponential", delays=14, longest=1.0, error=0.04)


@dataclass(frozen=True)
class Place:
    """Where errors are looked for: a setting of one or two coordinates, and how many simulations it takes, in the tests
    and by whole fits. "whole" shares its compiled programs with other tests; all others are small enough for a grid."""

    setting: Setting
    simulations: int
    sampled: int = 200


PLACES = {
    "whole": Place(Setting("single_exponential", "stated", delays=61, error=0.02), 60, 200),
    "weak": Place(
        SMALL("stated", FLAT_PRIORS | {"contrast": "TruncatedNormal(-0.5, 0.1, low=0)", "baseline": "Normal(1, 0.05)"}),
        400,
        400,
    ),
    "scaled": Place(SMALL("scaled", FLAT_PRIORS | {"error_scale": "LogNormal(0, 0.5)"}), 100),
    "correlated": Place(
        SMALL(
            "correlated", FLAT_PRIORS | {"error_range": "LogNormal(-1, 0.7)"}, {"error_scale": 1.0, "error_share": 0.95}
        ),
        150,
    ),
    "robust": Place(
        SMALL(
            "robust",
            {"rate": "LogUniform(2, 200)", "error_freedom": "Gamma(2, 0.5)"},
            {"contrast": 0.3, "baseline": 1.0, "error_scale": 1.0},
        ),
        150,
    ),
    "smooth": Place(
        SMALL(
            "smooth",
            FLAT_PRIORS | {"sigma": "LogNormal(-3, 0.5)", "sigma_slope": "Normal(0, 1)"},
            {"rate": 20.0, "sigma_curvature": 0.0},
        ),
        100,
    ),
}


PROGRAMS: dict[Posterior, tuple[Callable[..., Any], Callable[..., Any]]] = {}  # what `_programs` made


def exact_sampler(place):
    """A sampler for a place by `exact`, its grid made here and now, before anything is planted."""
    return partial(exact, cells=_cells(PLACES[place].setting))


def exact(setting, simulated, cells):
    """Independent draws from what the engine says is the posterior of each curve, by a grid over the coordinates."""
    with jax.enable_x64(True):
        problem = setting.problem(simulated.data)
        posterior, bins = problem.posterior, jax.tree.map(jnp.asarray, problem.bins)
        if posterior not in PROGRAMS:
            PROGRAMS[posterior] = _programs(posterior)
        log_density, constrain = PROGRAMS[posterior]
        log_densities = np.array(log_density(bins, jnp.asarray(cells.centers)))
        z = _drawn_from(cells, log_densities, np.random.default_rng(len(log_densities)))
        values = constrain(z, bins, jax.random.split(jax.random.key(1), z.shape[:2]))
    inferred = (*posterior.names, *posterior.marginal)
    return Sampled({name: np.array(values[name]) for name in inferred}, np.ones(len(log_densities), bool))


def _programs(posterior):
    """Compiled: the engine's log density (bin, cell) of bins at coordinates (cell, param), and its parameters by name
    at coordinates (bin, draw, param)."""

    def log_densities(bins, z):
        return jax.lax.map(lambda bin: jax.vmap(lambda point: -posterior.potential(point, bin))(z), bins)

    def values(z, bins, keys):
        return jax.vmap(jax.vmap(posterior.constrain, (0, None, 0)))(z, bins, keys)

    return jax.jit(log_densities), jax.jit(values, compiler_options=QUICKLY_COMPILED)


@dataclass(frozen=True)
class Cells:
    """Cells of a grid over the coordinates z: `low`, `high` corners (cell, param)."""

    low: np.ndarray
    high: np.ndarray

    @property
    def centers(self):
        """The middles (cell, param)."""
        return 0.5 * (self.low + self.high)


def _cells(setting):
    """The grid of a setting: edges at quantiles of the prior, so that cells are small where the prior is dense."""
    with jax.enable_x64(True):
        problem = setting.problem()
        posterior, bin = problem.posterior, jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)
        draw = jax.jit(jax.vmap(lambda key: posterior.draw_prior(key, bin)[0]), compiler_options=QUICKLY_COMPILED)
        z = np.array(draw(jax.random.split(jax.random.key(0), 30_000)))
    count = len(posterior.curve_names)
    edges = [np.quantile(column, _levels(CURVE_CELLS if i < count else NOISE_CELLS)) for i, column in enumerate(z.T)]
    corners = [
        np.stack(np.meshgrid(*part, indexing="ij"), axis=-1)
        for part in ([e[:-1] for e in edges], [e[1:] for e in edges])
    ]
    return Cells(*(corner.reshape(-1, len(edges)) for corner in corners))


def _levels(cells):
    """Levels of quantiles: about so many evenly spaced, and others close together towards 0 and 1."""
    even, tails = np.linspace(0.0, 1.0, cells + 1)[1:-1], ndtr(np.linspace(-4.0, 4.0, TAIL_CELLS))
    return np.sort(np.concatenate([even, tails]))


def _drawn_from(cells, log_densities, rng):
    """Draws (bin, draw, param) from densities (bin, cell) that are constant within each cell."""
    volume = np.sum(np.log(cells.high - cells.low), axis=1)
    weights = np.exp(log_densities + volume - np.max(log_densities + volume, axis=1, keepdims=True))
    cumulative = np.cumsum(weights, axis=1)
    coin = rng.random((len(log_densities), LARGEST)) * cumulative[:, -1:]
    chosen = np.stack([np.searchsorted(row, coins) for row, coins in zip(cumulative, coin, strict=True)])
    low, high = cells.low[chosen], cells.high[chosen]
    return low + (high - low) * rng.random(low.shape)


@dataclass(frozen=True)
class Error:
    """An error: what is wrong, in words; the name of the place where it is looked for; `plant`, which takes a
    `pytest.MonkeyPatch`; and its `level`: "program" where what is compiled changes, "data" where only the data do, and
    "draws" where only what becomes of the draws does, which only whole fits can show."""

    words: str
    place: str
    plant: Callable[[pytest.MonkeyPatch], None]
    level: str = "program"


ERRORS: list[Error] = []


def error(words, place="weak", level="program"):
    """Register a patch as an error."""

    def register(plant):
        ERRORS.append(Error(words, place, plant, level))
        return plant

    return register


@contextmanager
def engine_with(error):
    """The engine with the error in it; nothing compiled with it stays."""
    with pytest.MonkeyPatch.context() as patch:
        if error.level == "program":
            patch.setitem(program_files._CHOSEN, "place", None)
            patch.setitem(globals(), "PROGRAMS", {})
            forget_programs()
        error.plant(patch)
        yield
    if error.level == "program":
        forget_programs()


def forget_programs():
    """Nothing that the engine has traced is used again."""
    for cached in (
        _point._quick,
        _point._careful,
        _importance.first_stages,
        _importance.evaluations,
        _slots.advancing,
        _predictions._program,
    ):
        cached.cache_clear()


def adjusted_p(setting, simulated, sampler, error=None):
    """Quantity to Holm-adjusted p-value, with an error planted while the curves are fitted, or none."""
    with engine_with(error) if error else nullcontext():
        sampled = sampler(setting, simulated)
    ranks = ranks_of(setting, simulated, sampled)
    return holm({name: p_value(found, LARGEST) for name, found in ranks.items()})


def whole_pipeline(seed=0):
    """Every error through whole fits: one line each; the exit code says whether all were found, and nothing without."""
    wrong, sampler = 0, partial(fitted, target_ess=0.0)  # an error may leave no posterior on which chains could agree
    for error in [*(Error("nothing", place, _nothing) for place in PLACES), *ERRORS]:
        started = time.monotonic()
        place = PLACES[error.place]
        simulated = simulate(place.setting, place.sampled, [seed])
        try:
            adjusted = adjusted_p(place.setting, simulated, sampler, error)
            smallest = min(adjusted.values())
            text = f"smallest adjusted p {smallest:.2g} ({min(adjusted, key=adjusted.get)})"
        except bayesfit.BayesfitError as refusal:
            smallest, text = 0.0, f"refused: {refusal}"
        healthy = error.plant is _nothing
        wrong += healthy != (smallest >= ALPHA)
        word = "found " if smallest < ALPHA else "silent" if healthy else "MISSED"
        print(f"{word} {error.place:10} {error.words:80} {text}  {time.monotonic() - started:.0f} s", flush=True)
    return int(wrong > 0)


def _nothing(patch):
    """Leave the engine as it is."""


def _change_bins(patch, change):
    """The engine's data of all bins, changed."""
    original = _prepare.lay_out
    patch.setattr(_prepare, "lay_out", lambda *args: change(original(*args)))


def _change_scatter(patch, name, change):
    """The scatter that a noise model's program returns, changed."""
    noise = _noise.NOISES[name]
    patch.setitem(_noise.NOISES, name, replace(noise, program=lambda bin: change(noise.program(bin))))


def _change_amplitudes(patch, draw):
    """Contrast and baseline drawn by `draw(given, low, keys)`."""

    def drawn(self, given, bin, key):
        contrast, baseline = draw(given, self.lower_bound(bin), jax.random.split(key))
        return {"contrast": contrast, "baseline": baseline}

    patch.setattr(Posterior, "draw_amplitudes", drawn)


def _change_draws(patch, change):
    """What comes of the sampler, name to draws (bin, chain, draw), changed."""
    original = _sample.sample_bins

    def sample_bins(*args):
        draws = original(*args)
        return replace(draws, values=change(draws.values))

    patch.setattr(_sample, "sample_bins", sample_bins)


@error("the Jacobian of the coordinates is lost")
def _(patch):
    class Flat:
        def __init__(self, transform):
            self.transform, self._inverse = transform, transform._inverse

        def __call__(self, z):
            return self.transform(z)

        def log_abs_det_jacobian(self, z, x):
            return jnp.zeros_like(z)

    original = _coordinates.biject_to
    patch.setattr(_coordinates, "biject_to", lambda support: Flat(original(support)))


@error("the errors' scale is squared: a variance in the place of a standard deviation", "scaled")
def _(patch):
    _change_scatter(patch, "scaled", lambda scatter: scatter._replace(scale=scatter.scale**2))


@error("the stated errors are taken for variances", "scaled", level="data")
def _(patch):
    original = _prepare.lay_out
    patch.setattr(_prepare, "lay_out", lambda data, *rest: original(data.assign(g2_err=data.g2_err**0.5), *rest))


@error("the square in Siegert's relation is forgotten: a factor 2 in the exponent", "scaled")
def _(patch):
    def halved(name):
        model = bayesfit.get_model(name)
        return replace(model, program=lambda tau: jnp.sqrt(model.program(tau)))

    patch.setattr(_prepare, "get_model", halved)


@error("delays are off by one", "scaled", level="data")
def _(patch):
    def shifted(bins):
        return bins._replace(tau=np.concatenate([bins.tau[:, 1:], bins.tau[:, -1:]], axis=1))

    _change_bins(patch, shifted)


@error("the mask is off by one", level="data")
def _(patch):
    original = _prepare.lay_out

    def shifted(data, *rest):
        unmasked = data.assign(
            g2=data.g2.where(data.valid, 1.0),
            g2_err=data.g2_err.where(data.g2_err > 0, 0.04),
            valid=data.valid.roll(tau=1),
        )
        return original(unmasked, *rest)

    patch.setattr(_prepare, "lay_out", shifted)


@error("points that are masked or padding are counted", "scaled")
def _(patch):
    patch.setattr(Scatter, "log_volume", lambda self, bin: bin.valid.size * jnp.log(self.scale))


@error("amplitudes are their conditional means, and not drawn")
def _(patch):
    _change_amplitudes(patch, lambda given, low, keys: (given.contrast, given.level - given.contrast * given.slope))


@error("the baseline's slope has the wrong sign")
def _(patch):
    def draw(given, low, keys):
        contrast = _amplitudes.truncated_normal(keys[0], given.contrast, given.contrast_sd, low)
        return contrast, given.level + contrast * given.slope + given.baseline_sd * jax.random.normal(keys[1])

    _change_amplitudes(patch, draw)


@error("one random key for both amplitudes")
def _(patch):
    def draw(given, low, keys):
        contrast = _amplitudes.truncated_normal(keys[0], given.contrast, given.contrast_sd, low)
        return contrast, given.level - contrast * given.slope + given.baseline_sd * jax.random.normal(keys[0])

    _change_amplitudes(patch, draw)


@error("the contrast's lower bound is ignored where it is drawn")
def _(patch):
    patch.setattr(_amplitudes, "truncated_normal", lambda key, mean, sd, low: mean + sd * jax.random.normal(key))


@error("the mass below the contrast's lower bound is ignored in the density (log_ndtr)")
def _(patch):
    patch.setattr(_amplitudes, "log_ndtr", jnp.zeros_like)


@error("the prior of the rate is shifted by a factor 1.5", level="data")
def _(patch):
    def shifted(bins):
        rate = {name: 1.5 * value for name, value in bins.priors["rate"].items()}
        return bins._replace(priors={**bins.priors, "rate": rate})

    _change_bins(patch, shifted)


@error("correlations are ignored", "correlated")
def _(patch):
    _change_scatter(patch, "correlated", lambda scatter: scatter._replace(correlation=None))


@error("the determinant of the correlations is lost", "correlated")
def _(patch):
    patch.setattr(Scatter, "log_volume", lambda self, bin: jnp.sum(bin.valid) * jnp.log(self.scale))


@error("neighbours' distances are natural logarithms", "correlated", level="data")
def _(patch):
    _change_bins(patch, lambda bins: bins._replace(layout=np.log(10.0) * bins.layout))


@error("the Student-t is not normalised", "robust")
def _(patch):
    class Loose:
        def __init__(self, freedom):
            self.freedom = freedom

        def log_prob(self, x):
            return -0.5 * (self.freedom + 1.0) * jnp.log1p(x**2 / self.freedom)

    patch.setattr(Scatter, "white", property(lambda self: Loose(self.freedom)))


@error("the deviation's parabola is that of the variance", "smooth")
def _(patch):
    _change_scatter(patch, "smooth", lambda scatter: scatter._replace(relative=jnp.sqrt(scatter.relative)))


@error("the deviation's slope has the wrong sign", "smooth")
def _(patch):
    _change_scatter(patch, "smooth", lambda scatter: scatter._replace(relative=1.0 / scatter.relative))


@error("bins are swapped: each has the draws of its neighbour", "whole", level="draws")
def _(patch):
    _change_draws(patch, lambda values: {name: np.roll(array, 1, axis=0) for name, array in values.items()})


@error("contrasts are those of other draws: right one by one, wrong together", "whole", level="draws")
def _(patch):
    _change_draws(patch, lambda values: {**values, "contrast": np.roll(values["contrast"], 7, axis=-1)})


@error("of every two draws the one with the smaller rate is kept", "whole", level="draws")
def _(patch):
    def kept(values):
        rate = values["rate"]
        two = rate.reshape(*rate.shape[:-1], -1, 2)
        smaller = np.repeat(np.argmin(two, axis=-1), 2, axis=-1) + np.arange(rate.shape[-1]) // 2 * 2
        return {name: np.take_along_axis(array, smaller, axis=-1) for name, array in values.items()}

    _change_draws(patch, kept)
