"""The covariance of g2 between the delays of each bin, as it was estimated from independent samples, and its checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import InputError

DIMS = ("q_bin", "tau", "tau_other")
FEWEST_SAMPLES = 8  # of which a covariance is estimated
ROUNDING = 1e-5  # of the largest variance, by which float32 may spoil symmetry and eigenvalues

Matrices = Float[np.ndarray, "q_bin tau tau_other"]


def error_of(g2_cov: Any) -> Float[np.ndarray, "*q_bin tau"]:
    """The standard errors on the diagonal of covariances (q_bin, tau, tau) or (tau, tau); NaN where there are none."""
    matrices = _matrices(g2_cov)
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        raise InputError(f"expected shape (q_bin, tau, tau), got {matrices.shape}", field="g2_cov")
    variance = np.diagonal(matrices, axis1=1, axis2=2)
    errors = np.sqrt(np.where(variance > 0, variance, np.nan))
    return errors[0] if np.ndim(g2_cov) == 2 else errors


def with_covariance(data: xr.Dataset, g2_cov: Any, samples: Any, order: np.ndarray) -> xr.Dataset:
    """The dataset with the covariance of its points, and how many independent samples it was estimated from.

    Args:
        data: curves, with delays in order.
        g2_cov: (q_bin, tau, tau), or (tau, tau) for one curve; NaN for a bin without; None changes nothing.
        samples: one number, or one per bin.
        order: of the delays as they were given.

    Raises:
        InputError: shapes do not match, or a matrix is no covariance of the bin's valid points; names the bin.
    """
    if g2_cov is None:
        return data
    file, size = data.attrs.get("file") or None, (data.sizes["q_bin"], data.sizes["tau"])
    matrices = _matrices(g2_cov)
    if matrices.shape != (*size, size[1]):
        expected = f"expected shape (q_bin, tau, tau) = {(*size, size[1])}, got {matrices.shape}"
        raise InputError(expected, file=file, field="g2_cov")
    matrices = matrices[:, order[:, None], order]
    counts = _samples(samples, len(matrices), file)
    known = np.isfinite(matrices).any(axis=(1, 2))
    for bin in np.flatnonzero(known):
        if problem := _fault(matrices[bin][np.ix_(*2 * (data.valid.values[bin],))]):
            remedy = "Give NaN for a bin without a covariance"
            raise InputError(problem, file=file, field="g2_cov", bin=int(bin), remedy=remedy)
    words = {"units": "1", "long_name": "covariance of g2 between delays"}
    of_samples = {"units": "1", "long_name": "independent samples that the covariance was estimated from"}
    counted = np.where(known, counts, 0.0)
    return data.assign(g2_cov=(DIMS, matrices, words), cov_samples=("q_bin", counted, of_samples))


def as_estimated(data: xr.Dataset) -> xr.Dataset:
    """The dataset with `g2_err` from the diagonal of `g2_cov`; bins without a covariance lose their points.

    Raises:
        InputError: no bin has one, or it does not belong to the delays.
    """
    file = data.attrs.get("file") or None
    if "g2_cov" not in data or "cov_samples" not in data:
        remedy = "Give it to bayesfit.curves, or choose another noise model"
        raise InputError("is missing, and noise 'covariance' needs it", file=file, field="g2_cov", remedy=remedy)
    if data.g2_cov.shape != (*data.g2.shape, data.sizes["tau"]):
        problem = f"has shape {data.g2_cov.shape} for {data.sizes['tau']} delays"
        raise InputError(problem, file=file, field="g2_cov", remedy="Choose delays before bayesfit.curves")
    variance = np.diagonal(data.g2_cov.values, axis1=1, axis2=2)
    known = (data.cov_samples.values >= FEWEST_SAMPLES)[:, None] & (variance > 0)
    valid = data.valid.values & known
    if not valid.any():
        problem = f"no bin has a covariance of at least {FEWEST_SAMPLES} samples"
        raise InputError(problem, file=file, field="g2_cov", remedy="Choose another noise model")
    error = np.where(known, np.sqrt(np.where(known, variance, 1.0)), data.g2_err.values)
    return data.assign(g2_err=(data.g2.dims, error, data.g2_err.attrs), valid=(data.g2.dims, valid, data.valid.attrs))


def _matrices(g2_cov: Any) -> np.ndarray:
    try:
        given = np.ma.filled(np.ma.asarray(g2_cov).astype(float), np.nan)
    except (ValueError, TypeError) as error:
        raise InputError("holds no real numbers", field="g2_cov", remedy="It has shape (q_bin, tau, tau)") from error
    return given[None] if given.ndim == 2 else given


def _samples(given: Any, bins: int, file: str | None) -> Float[np.ndarray, " q_bin"]:
    """How many samples each bin's covariance is of."""
    if given is None:
        remedy = "Give the number of blocks, repeats or segments that it was estimated from"
        raise InputError("is missing beside g2_cov", file=file, field="cov_samples", remedy=remedy)
    counts = np.atleast_1d(np.asarray(given, float))
    if counts.shape not in ((1,), (bins,)):
        raise InputError(f"expected one number, or {bins}, got shape {counts.shape}", file=file, field="cov_samples")
    if not np.all(np.isfinite(counts) & (counts >= 0)):
        raise InputError("expected numbers of samples", file=file, field="cov_samples")
    return np.broadcast_to(counts, (bins,)).copy()


def _fault(matrix: Float[np.ndarray, "point point"]) -> str:
    """Why a matrix is no covariance, "" if it is one."""
    if not np.isfinite(matrix).all():
        return "is not finite at valid points"
    largest = float(np.max(np.diagonal(matrix), initial=0.0))
    if np.any(np.abs(matrix - matrix.T) > ROUNDING * largest):
        return "is not symmetric"
    if matrix.size and not np.all(np.diagonal(matrix) > 0):
        return "has a variance that is not above 0 at a valid point"
    lowest = float(np.min(np.linalg.eigvalsh(matrix), initial=0.0))
    if lowest < -ROUNDING * max(largest * len(matrix), np.finfo(float).tiny):
        return f"is no covariance: it has the eigenvalue {lowest:.2g}, and variances up to {largest:.2g}"
    return ""
