"""A picture of a calibration: the image with the rings that were found on it, and the radial profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayesfit.backends.arrays import ensure_numpy
from bayesfit.compute.errors import InputError
from bayesfit.compute.kinds import expect_result
from bayesfit.geometry.detector import from_calibration
from bayesfit.geometry.scattering import qmap
from bayesfit.report.pictures import check_picture, written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 9.0, 4.2  # inches
BRIGHTEST = 99.5  # percentile, above which all pixels look alike
FOUND = "#D55E00"


def plot_calibration(result: xr.DataTree, image: Any, path: str | Path | None = None) -> Figure:
    """Draw the image with the beam centre and the rings where the calibration has them, and photons per pixel over q as
    seen and as expected.

    Args:
        result: what `calibrate` returned or `load` read.
        image: photons (row, column), as `calibrate` was given.
        path: where to save the picture, if at all; the ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        ResultError: it is no calibration. InputError: the image is of another detector. SettingsError: no picture has
            the path's ending.
    """
    from matplotlib.figure import Figure

    expect_result(result, "calibration")
    check_picture(path)
    detector, photons = from_calibration(result), np.asarray(ensure_numpy(image), float)
    if photons.shape != detector.shape:
        raise InputError(f"shape {photons.shape} is not that of the detector, {detector.shape}", field="image")
    figure = Figure(figsize=SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    good = photons[np.isfinite(photons) & (photons >= 0)]
    left.imshow(photons, cmap="gray_r", vmin=0, vmax=np.percentile(good, BRIGHTEST), interpolation="nearest")
    rings = json.loads(result.attrs["rings"])
    if rings:
        q = ensure_numpy(qmap(detector, backend="numpy").q)
        left.contour(q, levels=rings, colors=FOUND, linewidths=0.7)
    row, column = detector.beam_center
    left.plot(column, row, "+", color=FOUND, ms=10)
    errors = np.sqrt(np.diagonal(np.asarray(detector.covariance)))
    left.set_title(f"row {row:.2f} ± {errors[0]:.2f}, column {column:.2f} ± {errors[1]:.2f}", fontsize=9)
    left.set(xlabel="column", ylabel="row")
    radial = result["radial"].dataset
    right.plot(radial.q, radial.seen, ".", ms=3, color="black", label="seen")
    right.plot(radial.q, radial.expected, color=FOUND, label="expected")
    right.set(xlabel="q [1/Å]", ylabel="photons per pixel", yscale="log")
    right.legend(frameon=False)
    return written(figure, path)
