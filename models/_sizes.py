"""Positive smooth weights over the logarithm of the radius: what the models of sizes have in common.

The weights are those of a normal distribution over even steps of u from -4 to 4, times the exponential of a smooth
function: the Hermite functions He_j(u) exp(-u^2 / 4) / (j!)^(1/2) of the orders 3 to 6, with coefficients shape_j times
3 / j. The orders 0 to 2 are the norm, the radius and the width. How smooth the distribution is, is inferred: each
coefficient is normal with a variance of its own, which is inverse gamma and integrated out in closed form, so that the
coefficient is Student-t. Near 0 the distribution is log-normal; at 2 and above it may be skewed or have two peaks. Then
log R is u, moved and stretched until its standard deviation is `width`. So the grid goes with the distribution, and
resolves a narrow one as well as a wide one; and the width, which data determine well, does not depend on the shape.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import xarray as xr
from numpy.polynomial.hermite_e import hermeval
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import AffineTransform, ComposeTransform, SoftplusTransform
from scipy.special import factorial

from bayesfit import Parameter
from bayesfit.api.hydrodynamics import hydrodynamic_radius

HALF, STEPS, FINE, ORDERS = 4.0, 17, 161, (3, 4, 5, 6)  # steps of u in the fit, and where quantities are derived
WIDTH, NARROW = (np.log(0.15), 1.0), 0.05  # of its log-normal prior; where its coordinate changes
FREEDOM, SCALE = 8.0, 0.7  # of the Student-t distribution of the coefficients
COEFFICIENTS = tuple(f"shape_{order}" for order in ORDERS)
PARAMETERS = (
    Parameter("width", "", r"\sigma", "standard deviation of the logarithm of the radius"),
    *(
        Parameter(name, "", f"c_{order}", f"part of the Hermite function {order} in the distribution", judged=False)
        for name, order in zip(COEFFICIENTS, ORDERS, strict=True)
    ),
)
NAMES = tuple(parameter.name for parameter in PARAMETERS)
WORDS = {
    "mean": "mean radius",
    "median": "median radius",
    "10": "radius below which 10 % are",
    "90": "radius below which 90 % are",
    "sd": "standard deviation of the radius",
}
LEVELS = {"median": 0.5, "10": 0.1, "90": 0.9}
POINTS, MARGIN = 120, 0.1  # of the grid on which a distribution is drawn; at its ends, relative to its length
TAIL, SHARE = 1e-3, 0.1  # the grid leaves out less than such a tail, in all but such a share of the draws
BAND = 0.025, 0.975


class _Widths(constraints._SoftplusPositive):
    """The widths, all positive, whose coordinate is z of `NARROW` softplus(z): the width itself in units of `NARROW`
    where it is larger, its logarithm where it is smaller."""


@biject_to.register(_Widths)
def _from_coordinate(widths):
    return ComposeTransform([SoftplusTransform(), AffineTransform(0.0, NARROW, domain=constraints.positive)])


class WidthPrior(dist.Distribution):
    """Log-normal. Of a narrow distribution, data tell an upper limit of the width. That is an edge beside a long tail
    of its logarithm, in which chains would be slow; so their coordinate is another one, see `_Widths`."""

    support = _Widths()
    pytree_data_fields = ("log_normal",)

    def __init__(self, *, validate_args=None):
        self.log_normal = dist.LogNormal(*WIDTH)
        super().__init__(validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        return self.log_normal.sample(key, sample_shape)

    def log_prob(self, value):
        return self.log_normal.log_prob(value)

    def cdf(self, value):
        return self.log_normal.cdf(value)

    def icdf(self, q):
        return self.log_normal.icdf(q)


def sample_weights():
    """Sample a distribution: log(R_k / R_0) and the weights, each (step,)."""
    width = numpyro.sample("width", WidthPrior())
    shape = [numpyro.sample(name, dist.StudentT(FREEDOM, 0.0, SCALE)) for name in COEFFICIENTS]
    return weights(width, shape, STEPS, jnp)


def weights(width, shape, steps, xp):
    """log(R_k / R_0), of mean 0, and the weights (..., step) at values (...); `shape` holds the coefficients. `xp` is
    the array library, NumPy's or JAX's."""
    u = np.linspace(-HALF, HALF, steps)
    smooth = sum(xp.asarray(own)[..., None] * row for own, row in zip(shape, hermite_functions(u), strict=True))
    log_weight = smooth - 0.5 * u**2
    weight = xp.exp(log_weight - xp.max(log_weight, axis=-1, keepdims=True))
    weight = weight / xp.sum(weight, axis=-1, keepdims=True)
    off = u - xp.sum(weight * u, axis=-1, keepdims=True)
    sd = xp.sqrt(xp.sum(weight * off**2, axis=-1, keepdims=True))
    return xp.asarray(width)[..., None] * off / sd, weight


def hermite_functions(u):
    """He_j(u) exp(-u^2 / 4) / (j!)^(1/2), times 3 / j, of each order (order, step)."""
    polynomials = (hermeval(u, np.eye(order + 1)[order]) / factorial(order) ** 0.5 for order in ORDERS)
    return [3.0 / order * own * np.exp(-(u**2) / 4.0) for order, own in zip(ORDERS, polynomials, strict=True)]


def about_harmonic(log_radius, weight, xp):
    """log(R_k / R) (..., step), where R is the harmonic mean of the radii."""
    return log_radius + xp.log(xp.sum(weight * xp.exp(-log_radius), axis=-1, keepdims=True))


def quantities(log_radius, weight):
    """Mean, percentiles and standard deviation (...) of radii with these logarithms and weights (..., step)."""
    radius = np.exp(log_radius)
    mean = np.sum(weight * radius, axis=-1)
    found = {name: np.exp(quantile(log_radius, weight, level)) for name, level in LEVELS.items()}
    return {"mean": mean, **found, "sd": np.sqrt(np.sum(weight * (radius - mean[..., None]) ** 2, axis=-1))}


def quantile(log_radius, weight, level):
    """log R (...) below which there is a share `level` of the weights (..., step), each spread evenly over its step."""
    ends = np.cumsum(weight, axis=-1)
    step = np.sum(ends < level, axis=-1, keepdims=True).clip(0, weight.shape[-1] - 1)
    middle, own, end = (np.take_along_axis(array, step, axis=-1)[..., 0] for array in (log_radius, weight, ends))
    return middle + (log_radius[..., 1] - log_radius[..., 0]) * (0.5 - (end - level) / own)


def drawn(posterior, curves, power):
    """For each bin, log R (draw, step) of its draws and their weights times this power of R. R is in nm where q,
    temperature and viscosity are known, else relative to the harmonic mean. Some of the parameters may be fixed."""
    unit = unit_of(posterior["rate"], curves)
    arrays = xr.broadcast(*(posterior[name] for name in NAMES), posterior["rate"] if unit is None else unit)
    for place in range(arrays[0].sizes["q_bin"]):
        width, *shape, radius = (array.isel(q_bin=place).values.ravel() for array in arrays)
        log_radius, weight = weights(width, shape, FINE, np)
        scale = 0.0 if unit is None else np.log(radius)[:, None]
        log_radius = about_harmonic(log_radius, weight, np)
        yield log_radius + scale, times_power(log_radius, weight, power)


def times_power(log_radius, weight, power):
    """Weights (..., step) times a power of the radius."""
    weight = weight * np.exp(power * log_radius)
    return weight / np.sum(weight, axis=-1, keepdims=True)


def unit_of(rate, curves):
    """The radius in nm to which a relaxation rate belongs; None where q, temperature or viscosity are not known."""
    if not {"temperature", "viscosity"} <= set(curves.attrs) or not bool((curves.q > 0).any()):
        return None
    diffusion = rate / curves.q.where(curves.q > 0) ** 2
    return hydrodynamic_radius(diffusion, curves.attrs["temperature"], curves.attrs["viscosity"])


def derived(posterior, curves, power=0.0):
    """Mean, median, 10 and 90 % and standard deviation of the radius: radius_mean and so on in nm, or, where q,
    temperature or viscosity are not known, size_mean and so on relative to the harmonic mean."""
    return as_variables([quantities(*of_bin) for of_bin in drawn(posterior, curves, power)], posterior, curves)


def as_variables(found, posterior, curves):
    """Quantities (draw,) of each bin as variables (q_bin, chain, draw), with units and words."""
    like = posterior[next(name for name in NAMES if "draw" in posterior[name].dims)]
    shape = found and (len(found), like.sizes["chain"], like.sizes["draw"])
    relative = unit_of(posterior["rate"], curves) is None
    prefix, units, words = ("size", "1", ", in harmonic means") if relative else ("radius", "nm", "")
    return xr.Dataset(
        {
            f"{prefix}_{name}": (
                ("q_bin", "chain", "draw"),
                np.reshape([one[name] for one in found], shape),
                {"units": units, "long_name": WORDS[name] + words},
            )
            for name in (found[0] if found else ())
        }
    )


def distribution(posterior, curves, power=0.0):
    """The density over log R of each bin (q_bin, point), as `bayesfit.plot_sizes` draws it."""
    bins = [banded(*of_bin) for of_bin in drawn(posterior, curves, power)]
    group = xr.Dataset({name: (("q_bin", "point"), np.array([one[name] for one in bins])) for name in bins[0]})
    group["radius"].attrs["units"] = "1" if unit_of(posterior["rate"], curves) is None else "nm"
    return group


def banded(log_radius, weight):
    """The density over log R of draws (draw, step), averaged over the cells of an even grid: the grid's `radius`, and
    `density`, `lower` and `upper`, mean and central 95 % band, each (point,); NaN without draws."""
    made = np.isfinite(log_radius[:, 0])
    if not made.any():
        return dict.fromkeys(("radius", "density", "lower", "upper"), np.full(POINTS, np.nan))
    log_radius, weight = log_radius[made], weight[made]
    half = 0.5 * (log_radius[:, 1] - log_radius[:, 0])[:, None]
    edges = np.concatenate([log_radius - half, log_radius[:, -1:] + half], axis=1)
    levels = np.concatenate([np.zeros((len(weight), 1)), np.cumsum(weight, axis=1)], axis=1)
    low = np.quantile([np.interp(TAIL, *pair) for pair in zip(levels, edges, strict=True)], SHARE)
    high = np.quantile([np.interp(1.0 - TAIL, *pair) for pair in zip(levels, edges, strict=True)], 1.0 - SHARE)
    margin = MARGIN * (high - low)
    grid = np.linspace(low - margin, high + margin, POINTS + 1)
    rows = [np.diff(np.interp(grid, *pair)) / np.diff(grid) for pair in zip(edges, levels, strict=True)]
    bounds = dict(zip(("lower", "upper"), np.quantile(rows, BAND, axis=0), strict=True))
    return {"radius": np.exp(0.5 * (grid[1:] + grid[:-1])), "density": np.mean(rows, axis=0), **bounds}
