"""The result of a calibration, in ArviZ's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped

from bayesfit.diagnose.calibration_verdict import CalibrationVerdict
from bayesfit.modelling.model import Parameter
from bayesfit.result.tree import build, described, provenance

PARAMETERS = (
    Parameter("row", "pixel", "y_0", "row at which the direct beam arrives"),
    Parameter("column", "pixel", "x_0", "column at which the direct beam arrives"),
    Parameter("distance", "m", "L", "from the specimen to the plane of the detector, along its normal"),
    Parameter("rot1", "rad", r"\rho_1", "tilt about the axis along the columns"),
    Parameter("rot2", "rad", r"\rho_2", "tilt about the axis along the rows"),
    Parameter("width", "1/angstrom", "w", "half width of the first ring"),
    Parameter("broadening", "", "s", "exponent of the rings' widths in q"),
    Parameter("mixing", "", "m", "share of the Lorentzian in the rings' shape"),
    Parameter("log_height", "", r"\log A", "logarithm of a ring's height in photons per pixel"),
    Parameter("log_background", "", r"\log b", "logarithm of the background in photons per pixel"),
    Parameter("log_intensity", "", r"\log I", "coefficients of the logarithm of photons per pixel"),
)
DIMENSION = {"log_height": "ring", "log_background": "knot", "log_intensity": "coefficient"}
STATS = ("diverging", "n_steps", "acceptance_rate", "energy")
POINTS = 300  # of the radial profile

Drawn = Mapping[str, Shaped[np.ndarray, "chain draw *each"]]


def calibration_result(
    samples: Drawn, stats: Drawn, verdict: CalibrationVerdict, radial: xr.Dataset, attrs: Mapping[str, Any]
) -> xr.DataTree:
    """The tree of a calibration's draws; `radial` is the profile of its pattern."""
    known = {parameter.name: parameter for parameter in PARAMETERS}
    posterior = xr.Dataset(
        {
            name: (("chain", "draw", *([DIMENSION[name]] if name in DIMENSION else [])), samples[name], described(own))
            for name, own in known.items()
            if name in samples
        },
        {name: np.arange(size) for name, size in zip(("chain", "draw"), stats["diverging"].shape, strict=True)},
    )
    sampling = {name: (("chain", "draw"), stats[name]) for name in STATS}
    sampling["lp"] = (("chain", "draw"), -stats["potential"])
    contractions = ("parameter", list(verdict.contractions.values()))
    diagnostics = xr.Dataset(
        {**verdict.numbers, "contraction": contractions}, {"parameter": list(verdict.contractions)}
    ).assign(verdict=verdict.name, reason=verdict.reason)
    groups = {
        "posterior": posterior,
        "sample_stats": xr.Dataset(sampling, posterior.coords),
        "radial": radial,
        "diagnostics": diagnostics,
    }
    own = {"creator": "bayesfit", "inference_library": "numpyro"}
    return build(groups, xr.Dataset(), {**own, **attrs, **provenance()})


def radial_group(
    q: Float[np.ndarray, " cell"],
    counts: Float[np.ndarray, " cell"],
    pixels: Float[np.ndarray, " cell"],
    expected: Float[np.ndarray, " cell"],
) -> xr.Dataset:
    """Photons per pixel that were seen and that are expected over q, from cells [1/angstrom]."""
    edges = np.linspace(q[pixels > 0].min(), q[pixels > 0].max(), POINTS + 1)
    size, seen, wanted = (np.histogram(q, edges, weights=values)[0] for values in (pixels, counts, expected))
    held = size > 0
    middle = 0.5 * (edges[1:] + edges[:-1])
    rates = {name: values[held] / size[held] for name, values in (("seen", seen), ("expected", wanted))}
    words = {"units": "photons per pixel"}
    return xr.Dataset(
        {name: ("point", values, words) for name, values in rates.items()},
        {"q": ("point", middle[held], {"units": "1/angstrom"})},
    )
