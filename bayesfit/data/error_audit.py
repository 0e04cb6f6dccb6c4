"""Are the stated errors right? The scatter of neighbouring points against their errors, without any model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

WRONG = 1.5  # factor between true and stated errors from which they are called wrong


def error_audit(data: xr.Dataset) -> dict[str, Any]:
    """The audit of the stated errors, from the data alone: variables of each bin (q_bin,).

    `error_ratio`: noise of the data over stated error, NaN where there are fewer than 5 valid points or no errors are
    stated; near 1 where the errors are right, smaller where the noise of neighbouring delays is correlated.
    `errors_wrong`: whether it differs from 1 by more than a factor 1.5 and by more than 3 of its own standard errors.
    """
    ratio, sd = error_ratio(data)
    with np.errstate(invalid="ignore", divide="ignore"):  # unknown, or neighbours that are all equal
        distance = np.abs(np.log(ratio))
        wrong = (distance > np.log(WRONG)) & (distance > 3.0 * sd)
    return {
        "error_ratio": ("q_bin", ratio, {"long_name": "true noise over stated error, from the data"}),
        "errors_wrong": ("q_bin", wrong, {"long_name": "the stated errors are wrong by more than half"}),
    }


def error_ratio(data: xr.Dataset) -> tuple[Float[np.ndarray, " q_bin"], Float[np.ndarray, " q_bin"]]:
    """True noise over stated error of each bin (q_bin,), without any model, and the relative standard error of that.

    The robust spread (1.4826 times the median absolute value) of z_i, the difference of a valid point from the line
    through its two neighbours (in the logarithm of the delay), over its stated error (Gasser, Sroka & Jennen-Steinmetz
    1986), so that a decay hardly counts.
    """
    tau = data.tau.values
    x = np.log(np.where(tau > 0, tau, np.nan)) if data.attrs.get("delays", 1) else tau
    rows = zip(data.g2.values, data.g2_err.values, data.valid.values, strict=True)
    stated = bool(data.attrs.get("errors_stated", 1))
    found = [_neighbour_spread(x[valid], g2[valid], g2_err[valid]) for g2, g2_err, valid in rows]
    ratio, sd = np.reshape(found, (-1, 2)).T
    return np.where(stated, ratio, np.nan), sd


def _neighbour_spread(x: np.ndarray, g2: np.ndarray, g2_err: np.ndarray) -> tuple[float, float]:
    if g2.size < 5:
        return math.nan, math.nan
    width = x[2:] - x[:-2]
    share = np.where(width > 0, (x[2:] - x[1:-1]) / np.where(width > 0, width, 1.0), 0.5)
    difference = g2[1:-1] - share * g2[:-2] - (1.0 - share) * g2[2:]
    error = np.sqrt(g2_err[1:-1] ** 2 + (share * g2_err[:-2]) ** 2 + ((1.0 - share) * g2_err[2:]) ** 2)
    z = difference / error
    return float(1.4826 * np.median(np.abs(z))), float(1.35 / math.sqrt(z.size))
