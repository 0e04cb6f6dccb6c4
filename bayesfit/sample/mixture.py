"""Mixtures of Student-t components that are fitted to draws, on the host, in NumPy. The points of adaptive importance
sampling (`importance_weights`) and the independence proposals of the chains (`independence`) are drawn from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

KERNELS, COMPONENTS = 64, 16
FREEDOM = 4  # degrees of freedom of all components
FITTED_TO = 2_000  # draws, at most
DRAWS_PER_NUMBER = 10  # draws per component and coordinate, at least
FITTING_STEPS = 30
SMALLEST_VARIANCE = 1e-6

Points = Float[np.ndarray, "draw param"]
Factors = Float[np.ndarray, "component param param"]


class Components(NamedTuple):
    """Components of a mixture, at most `COMPONENTS`: their locations, the lower triangular factors L of their scale
    matrices L L^T, and the logarithms of their masses, which need not sum to 1."""

    locations: Float[np.ndarray, "component param"]
    factors: Factors
    log_masses: Float[np.ndarray, " component"]


class Mixture(NamedTuple):
    """The distribution of independence proposals: a mixture of multivariate Student-t distributions with 4 degrees of
    freedom.

    `KERNELS` round kernels of one `width` form a kernel density estimate. `COMPONENTS` components have locations and
    lower triangular factors of their own; `inverses` are the inverses of these factors. `cumulative` holds the
    cumulative probabilities of the kernels and, after them, the components; `peaks` holds the probability of each over
    its volume, which is proportional to the density at its peak.
    """

    kernels: Float[Any, "param kernel"]
    width: Float[Any, ""]
    locations: Float[Any, "component param"]
    factors: Float[Any, "component param param"]
    inverses: Float[Any, "component param param"]
    cumulative: Float[Any, " each"]
    peaks: Float[Any, " each"]


def mixture(kernels: Float[np.ndarray, "kernel param"], components: Components, share: float) -> Mixture:
    """The mixture of a kernel density estimate, which has this `share` of the probability, and of components, which
    have the rest. The `kernels` are draws from a posterior that is preconditioned to unit covariance.

    The kernels' width is Silverman's: h = (4 / ((d + 2) n))^(1 / (d + 4)).
    """
    size = kernels.shape[1]
    width = (4.0 / ((size + 2.0) * KERNELS)) ** (1.0 / (size + 4.0))
    locations, factors, masses = _padded(components)
    share = share if masses.any() else 1.0
    weights = np.concatenate([np.full(KERNELS, share / KERNELS), (1.0 - share) * masses])
    volumes = np.concatenate([np.full(KERNELS, width**size), np.prod(np.diagonal(factors, axis1=1, axis2=2), axis=1)])
    return Mixture(
        kernels.T, np.array(width), locations, factors, inverses(factors), np.cumsum(weights), weights / volumes
    )


def _padded(some: Components) -> tuple[np.ndarray, Factors, np.ndarray]:
    """Locations, factors and masses, which sum to 1, of exactly `COMPONENTS` components. Those that are missing, or are
    not finite, have no mass."""
    size, missing = some.locations.shape[1], COMPONENTS - len(some.locations)
    finite = np.isfinite(some.locations).all(axis=1) & np.isfinite(some.factors).all((1, 2))
    finite &= np.isfinite(some.log_masses)
    locations, factors = np.zeros((COMPONENTS, size)), np.full((COMPONENTS, size, size), np.eye(size))
    there = np.pad(finite, (0, missing))
    locations[there], factors[there] = some.locations[finite], some.factors[finite]
    masses = np.zeros(COMPONENTS)
    if finite.any():
        masses[there] = special.softmax(some.log_masses[finite])
    return locations, factors, masses


def _padded_with_mass(some: Components) -> tuple[np.ndarray, Factors, np.ndarray]:
    """As `_padded`, with equal masses if no component is finite."""
    locations, factors, masses = _padded(some)
    return locations, factors, masses if masses.any() else np.full(COMPONENTS, 1.0 / COMPONENTS)


def fit_components(u: Points, steps: int = FITTING_STEPS, first: int | None = None) -> Components:
    """Fit normal components to draws from a posterior that is preconditioned to unit covariance, by expectation
    maximisation (Dempster, Laird & Rubin, J. R. Stat. Soc. B 39, 1 (1977)). It begins at evenly spaced draws and uses
    no random numbers.

    Responsibilities use only the `first` coordinates, or all if None. So no component is spent on structure in the
    other coordinates, which are distributed in the same way everywhere.
    """
    size = u.shape[1]
    u = u[np.linspace(0, len(u) - 1, min(len(u), FITTED_TO)).astype(int)]
    used, rest = np.split(u, [size if first is None else first], axis=1)
    count = int(np.clip(len(u) // (DRAWS_PER_NUMBER * max(size, 1)), 1, COMPONENTS))
    begin = np.linspace(0, len(u) - 1, count).astype(int)
    found = Components(used[begin], _equal_factors(count, used.shape[1]), np.zeros(count))
    for _ in range(steps - 1):
        found = _maximised(used, found, _responsibilities(used, found))
    locations = np.concatenate([found.locations, rest[begin]], axis=1)
    return _maximised(u, found._replace(locations=locations), _responsibilities(used, found))


def _equal_factors(count: int, size: int) -> Factors:
    """Factors of `count` round components that together have the unit ball's volume."""
    return np.full((count, size, size), np.eye(size) * count ** (-1.0 / size))


def _responsibilities(u: Points, components: Components) -> Float[np.ndarray, "component draw"]:
    """The probability that each draw comes from each component."""
    to_standard = inverses(components.factors)
    rest = to_standard @ u.T
    rest -= to_standard @ components.locations[..., None]
    volumes = np.sum(np.log(np.diagonal(components.factors, axis1=1, axis2=2)), axis=1)
    logs = (components.log_masses - volumes)[:, None] - 0.5 * np.einsum("kdn,kdn->kn", rest, rest)
    found = np.exp(logs - logs.max(axis=0))
    return found / found.sum(axis=0)


def _maximised(u: Points, before: Components, responsibilities: Float[np.ndarray, "component draw"]) -> Components:
    """The components of maximum likelihood given the responsibilities; one that has none stays where it was."""
    least, size = 1e-3, u.shape[1]
    sums, first = np.sum(responsibilities, axis=1), responsibilities @ u
    counts = sums + least
    locations = (first + least * before.locations) / counts[:, None]
    second = responsibilities @ (u[:, :, None] * u[:, None, :]).reshape(len(u), -1)
    crossed = locations[:, :, None] * (sums[:, None] * locations - first)[:, None, :]
    about = second.reshape(-1, size, size) - first[:, :, None] * locations[:, None, :] + crossed
    covariances = about / counts[:, None, None]
    factors = np.linalg.cholesky(covariances + SMALLEST_VARIANCE * np.eye(size))
    return Components(locations, factors, np.log(counts))


def draw_points(random: np.random.Generator, components: Components, count: int) -> Points:
    """Draws from a mixture of Student-t distributions with these components."""
    locations, factors, masses = _padded_with_mass(components)
    which = random.choice(COMPONENTS, count, p=masses)
    stretch = np.sqrt(random.chisquare(FREEDOM, (count, 1)) / FREEDOM)
    step = random.standard_normal((count, locations.shape[1])) / stretch
    return locations[which] + np.einsum("nij,nj->ni", factors[which], step)


def log_densities(u: Points, components: Components) -> Float[np.ndarray, " draw"]:
    """The log density, at any points, of the distribution that `draw_points` draws from."""
    locations, factors, masses = _padded_with_mass(components)
    size = u.shape[1]
    to_standard = inverses(factors)
    x = 1.0 + np.sum((to_standard @ (u - locations[:, None]).swapaxes(1, 2)) ** 2, axis=1) / FREEDOM
    power = (FREEDOM + size) / 2.0
    constant = special.gammaln(power) - special.gammaln(FREEDOM / 2.0) - 0.5 * size * np.log(FREEDOM * np.pi)
    peaks = masses * np.prod(np.diagonal(to_standard, axis1=1, axis2=2), axis=1)
    return constant + special.logsumexp(-power * np.log(x), axis=0, b=peaks[:, None])


def outwards(u: Points) -> Points:
    """The same draws sorted by their distance from 0, so that evenly spaced ones represent all distances."""
    return u[np.argsort(np.sum(u**2, axis=1), kind="stable")]


def inverses(factors: Factors) -> Factors:
    """The inverses of lower triangular matrices, NaN for a singular one."""
    regular = np.all(np.diagonal(factors, axis1=1, axis2=2) != 0.0, axis=1)
    inverse = np.full(factors.shape, np.nan)
    inverse[regular] = np.linalg.inv(factors[regular])
    return inverse
