"""A fit in the terms of pyXpcsViewer, which keeps the fits of a file as `XpcsFile.fit_summary`.

Its curves are a exp(-2 (x / b)^c) + d, and a (f exp(-(x / b)^c) + (1 - f) exp(-(x / b2)^c2))^2 + d: a is the contrast,
b and b2 relaxation times [s], c and c2 stretching exponents, d the baseline, f the share of the first decay.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

SINGLE, DOUBLE = ("a", "b", "c", "d"), ("a", "b", "c", "d", "b2", "c2", "f")
OF_SINGLE = {"a": "contrast", "b": "rate", "c": "beta", "d": "baseline"}
OF_DOUBLE = {"a": "contrast", "b": "rate_fast", "d": "baseline", "b2": "rate", "f": "fraction"}
ONE = {"single_exponential": ("c",), "double_exponential": ("c", "c2")}  # exponents that the model has as 1


def viewer_fit(result: xr.DataTree, raise_by: float = 0.0) -> dict[str, Any]:
    """The entries of `fit_summary` as arrays.

    `fit_val` (q_bin, 2, parameter) holds the median and the standard deviation of the parameters `names`, NaN where the
    model has no such parameter; `fit_x` (tau,) [s] and `fit_y` (q_bin, tau) the mean curves; `success` whether a bin
    has draws; `msg` its verdict and the reason; `q_val` (q_bin,) [1/angstrom]. `raise_by` is added to the curves.
    """
    model, checks = result.attrs["model"], result["diagnostics"].dataset
    double = model == "double_exponential"
    names, of = (DOUBLE, OF_DOUBLE) if double else (SINGLE, OF_SINGLE)
    values = np.stack([_median_and_sd(result, name, of, raise_by) for name in names], axis=-1)
    curve = result["fit_curve"].dataset["mean"].values + raise_by
    verdicts, reasons = checks.verdict.values.astype(str), checks.reason.values.astype(str)
    return {
        "fit_func": "double" if double else "single",
        "names": np.array(names, object),
        "fit_val": np.moveaxis(values, 0, 1),
        "fit_x": result["constant_data"].tau.values,
        "fit_y": curve,
        "success": np.isfinite(curve).all(axis=1),
        "msg": np.array([f"{v}: {r}" for v, r in zip(verdicts, reasons, strict=True)], object),
        "q_val": checks.q.values,
        "t_el": result["constant_data"].tau.values,
    }


def _median_and_sd(result: xr.DataTree, name: str, of: dict[str, str], raise_by: float) -> Float[np.ndarray, "2 q_bin"]:
    """Median and standard deviation in each bin of a parameter as the viewer has it."""
    bins = result["diagnostics"].sizes["q_bin"]
    if name in ONE.get(result.attrs["model"], ()):
        return np.array([np.ones(bins), np.zeros(bins)])
    draws = _draws(result, of[name]) if name in of else None
    if draws is None:
        return np.full((2, bins), np.nan)
    draws = 1.0 / draws if name in ("b", "b2") else draws + (raise_by if name == "d" else 0.0)
    return np.array([draws.median(("chain", "draw")).values, draws.std(("chain", "draw")).values])


def _draws(result: xr.DataTree, name: str) -> xr.DataArray | None:
    """The draws of a parameter (chain, draw, q_bin); one draw of its value where it is fixed; None if it is unknown."""
    posterior, fixed = result["posterior"].dataset, result["constant_data"].dataset
    found = posterior[name] if name in posterior else fixed.get(name)
    if found is None:
        return None
    found = found.astype(float)
    found = found if "chain" in found.dims else found.expand_dims(chain=1, draw=1)
    bins = result["diagnostics"].q_bin
    return found if "q_bin" in found.dims else found.expand_dims(q_bin=bins.size).assign_coords(q_bin=bins.values)
