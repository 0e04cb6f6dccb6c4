"""Polydisperse spheres in light scattering, each weighted by its Mie intensity at the angle of the bin.

Formula     g2(tau) = baseline + contrast * g1^2,
            g1 = sum_k w_k P(R_k, theta) exp(-D_k q^2 tau) / sum_k w_k P(R_k, theta)
Symbols     tau delay [s]; R_k radii, on even steps of log R; w_k shares of the intensity that they would scatter if
            they were small, in proportion to their number times R_k^6; P Mie's intensity of a sphere over that of a
            small one; theta scattering angle; D_k = kB T / (6 pi eta R_k); rate relaxation rate [1/s] of the harmonic
            mean of the radii by these weights, the z-average, so that it is D q^2 at all angles; width standard
            deviation of log R [1], shape_3 to shape_6 [1], as for `size_distribution`, by these weights; cos_angle
            cosine of theta [1]; rate_of_unit_size rate [1/s] of a sphere of size parameter 2 pi n R / wavelength = 1.
            The last two are known of each bin: they follow from its q, and from temperature, viscosity, wavelength and
            index of the solvent.
Validity    Dilute, homogeneous spheres without absorption, of size parameter up to 25, which is a radius of 1.9 um in
            water at 633 nm; no light that is scattered twice, or reflected by the cell. The distribution is the same at
            all angles, so that many are fitted at once by across = {rate = "diffusion", width = "shared", shape_3 =
            "shared", ...}.
Method      Intensities are tabulated by miepython over size and angle for one relative index (`bayesfit[light]`). The
            curve is linear in the weights.
Derived     Mean, median, 10 and 90 % and standard deviation of the radius by number [nm].
Reference   Bohren & Huffman, Absorption and Scattering of Light by Small Particles (1983), ch. 4; Prahl, miepython.
Prior       As for `size_distribution`.
"""

from functools import lru_cache
from typing import NamedTuple

import interpax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.interpolate import CubicSpline

from bayesfit import InputError, Model, Parameter, SettingsError
from bayesfit.api.hydrodynamics import hydrodynamic_radius
from bayesfit.models._sizes import PARAMETERS, about_harmonic, derived, distribution, sample_weights

SIZES = np.linspace(np.log(1e-2), np.log(25.0), 801)  # log of the size parameter
ANGLES = np.linspace(0.0, np.pi, 241)  # of scattering [rad]
WAVES = 60  # partial waves, more than any size needs
POLARISATIONS = ("vertical", "unpolarised")
INDEX = (1.0, 3.0)  # of the particles, relative to the solvent
NEEDED = ("temperature", "viscosity", "wavelength", "refractive_index")
BY_NUMBER = -6.0  # power of the radius that makes numbers of spheres from the weights

description = "polydisperse spheres with Mie intensities; needs the option `relative_index`"
formula = "g2 = baseline + contrast * (sum_k w_k P(R_k, theta) exp(-D_k q^2 tau) / sum_k w_k P(R_k, theta))^2"


class Table(NamedTuple):
    """Mie's intensity over the sixth power of the size parameter, on `ANGLES` and `SIZES`, and its slope over the
    logarithm of the size, each (angle, size)."""

    values: np.ndarray
    slopes: np.ndarray

    def __call__(self, log_size, cosine):
        """The intensity at logarithms of size parameters (...) and one cosine: a cubic spline in the former, in the
        angle the cubic through the four nearest nodes. It is constant below the smallest size, as Rayleigh's is, and
        above the largest."""
        place = jnp.arccos(cosine) / ANGLES[1]
        first = jnp.clip(place.astype(int) - 1, 0, ANGLES.size - 4)
        share = lagrange(place - first)
        values, slopes = (jax.lax.dynamic_slice_in_dim(jnp.asarray(array), first, 4).T for array in self)
        inside = jnp.clip(log_size, SIZES[0], SIZES[-1])
        return interpax.interp1d(inside, SIZES, values, method="cubic2", fx=slopes, even_spacing=True) @ share


def lagrange(place):
    """Shares (4,) of the values at 0, 1, 2, 3 in the value at a place, of the cubic through them (Lagrange)."""
    a, b, c, d = place, place - 1.0, place - 2.0, place - 3.0
    return jnp.stack([-b * c * d / 6.0, a * c * d / 2.0, -a * b * d / 2.0, a * b * c / 6.0])


@lru_cache(maxsize=8)
def tabulated(relative_index, polarisation):
    """The table of one relative index, from miepython's coefficients of the partial waves.

    Raises:
        SettingsError: miepython is not installed.
    """
    try:
        from miepython import coefficients
    except ImportError as error:
        remedy = "pip install 'bayesfit[light]'"
        raise SettingsError("needs miepython, which is not installed", field="mie_spheres", remedy=remedy) from error
    values = np.empty((SIZES.size, ANGLES.size))
    pi, tau = angular(WAVES)
    for row, size in zip(values, np.exp(SIZES), strict=True):
        a, b = (np.asarray(own)[:WAVES] for own in coefficients(relative_index, size))
        order = np.arange(1, a.size + 1)
        factor = (2 * order + 1) / (order * (order + 1))
        p, t = pi[: a.size], tau[: a.size]
        across = np.abs((factor * a) @ p + (factor * b) @ t) ** 2
        along = np.abs((factor * a) @ t + (factor * b) @ p) ** 2
        row[:] = (across if polarisation == "vertical" else 0.5 * (across + along)) / size**6
    slopes = CubicSpline(SIZES, values, bc_type="clamped")(SIZES, 1)
    return Table(values.T.copy(), slopes.T.copy())


def angular(waves):
    """pi_n and tau_n (wave, angle) of the orders from 1 on, on `ANGLES`: Bohren & Huffman, eq. 4.47."""
    cosine = np.cos(ANGLES)
    pi = np.zeros((waves + 1, cosine.size))
    pi[1] = 1.0
    for n in range(2, waves + 1):
        pi[n] = ((2 * n - 1) * cosine * pi[n - 1] - n * pi[n - 2]) / (n - 1)
    order = np.arange(1, waves + 1)[:, None]
    return pi[1:], order * cosine * pi[1:] - (order + 1) * pi[:-1]


def make(relative_index, polarisation="vertical"):
    """The model of spheres whose index is `relative_index` times that of the solvent (polystyrene in water at 633 nm:
    1.19). `polarisation` of the light is "vertical", perpendicular to the plane of scattering, or "unpolarised".

    Raises:
        SettingsError: an option is impossible, or miepython is not installed.
    """
    check(relative_index, polarisation)
    relative_index = float(relative_index)
    intensity = tabulated(relative_index, polarisation)

    def program(tau):
        rate = numpyro.sample("rate", dist.LogUniform(0.1 / jnp.max(tau), 10.0 / jnp.min(tau)))
        cosine = jnp.asarray(numpyro.sample("cos_angle", dist.Delta(0.0)))
        unit = numpyro.sample("rate_of_unit_size", dist.Delta(1.0))
        log_radius, weight = sample_weights()
        log_radius = about_harmonic(log_radius, weight, jnp)
        seen = weight * intensity(jnp.log(unit) - jnp.log(rate) + log_radius, cosine)
        return (jnp.exp(-rate * jnp.exp(-log_radius) * tau[:, None]) @ (seen / jnp.sum(seen))) ** 2

    return Model(
        name="mie_spheres",
        program=program,
        parameters=(
            Parameter("rate", "1/s", r"\bar\Gamma", "relaxation rate of the z-average of the radii"),
            *PARAMETERS,
            Parameter("cos_angle", "", r"\cos\theta", "cosine of the scattering angle; known of each bin"),
            Parameter("rate_of_unit_size", "1/s", r"\Gamma_1", "rate of size parameter 1; known of each bin"),
        ),
        description=description,
        formula=formula,
        reference="Bohren & Huffman, Absorption and Scattering of Light by Small Particles (1983)",
        options={"relative_index": relative_index, "polarisation": polarisation},
        known=known,
        derive=lambda posterior, curves: derived(posterior, curves, BY_NUMBER),
        distribution=lambda posterior, curves: distribution(posterior, curves, BY_NUMBER),
    )


def check(relative_index, polarisation):
    """Refuse options that make no sense."""
    field = "model.relative_index"
    try:
        inside = INDEX[0] < float(relative_index) < INDEX[1]
    except (TypeError, ValueError):
        inside = False
    if not inside:
        problem = f"got {relative_index!r}, expected a number between {INDEX[0]:g} and {INDEX[1]:g}"
        raise SettingsError(problem, field=field, remedy="It is the index of the particles over that of the solvent")
    if polarisation not in POLARISATIONS:
        remedy = f"It is {POLARISATIONS[0]!r} or {POLARISATIONS[1]!r}"
        raise SettingsError(f"got {polarisation!r}", field="model.polarisation", remedy=remedy)


def known(curves):
    """`cos_angle` and `rate_of_unit_size` of each bin (q_bin,), from its q and what the data state.

    Raises:
        InputError: something is not stated, or q is none of this light.
    """
    file = curves.attrs.get("file") or None
    for name in NEEDED:
        if name not in curves.attrs:
            remedy = "Give attrs= to bayesfit.curves: temperature [K], viscosity [Pa s], wavelength [angstrom], "
            raise InputError("is not stated", file=file, field=name, remedy=remedy + "refractive_index of the solvent")
    temperature, viscosity, wavelength, index = (float(curves.attrs[name]) for name in NEEDED)
    q, largest = curves.q.values, 4.0 * np.pi * index / wavelength
    for bin in np.flatnonzero(~((q > 0) & (q <= largest)))[:1]:
        problem = f"q is {q[bin]:g}, expected 0 to {largest:.4g} 1/angstrom for this wavelength"
        raise InputError(problem, file=file, field="q", bin=int(bin), remedy="Leave the bin out")
    unit = wavelength / (20.0 * np.pi * index)  # nm, radius of size parameter 1
    rate = hydrodynamic_radius(curves.q**-2.0, temperature, viscosity).values / unit
    return {"cos_angle": 1.0 - 2.0 * (q / largest) ** 2, "rate_of_unit_size": rate}
