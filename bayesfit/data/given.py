"""Arrays as users give them: what is refused, and why."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesfit.compute.errors import InputError


def check_left(any_left: bool, g2: np.ndarray, g2_err: np.ndarray, file: str | None) -> None:
    """Refuse data of which no point is left, neither by its error nor as a number of pairs."""
    if any_left:
        return
    if not np.isfinite(g2).any():
        raise InputError("every value is NaN or infinite", file=file, field="g2")
    if not (g2_err > 0).any():
        raise InputError("no error is above zero", file=file, field="g2_err", remedy="Without errors, pass g2_err=None")
    raise InputError("no point of any bin can be used", file=file, field="g2")


def real_numbers(array: Any, field: str, file: str | None, notes: list[str]) -> np.ndarray:
    """A float64 array in native byte order, masked entries as NaN."""
    try:
        given = np.ma.asarray(array)
    except ValueError as error:
        raise InputError("rows differ in length", file=file, field=field, remedy="Pad short rows with NaN") from error
    if given.dtype.kind not in "fiu":
        raise InputError(
            f"expected real numbers, got {given.dtype}", file=file, field=field, remedy="Convert them to float"
        )
    if given.dtype.kind in "iu" or given.dtype.itemsize < 4:
        notes.append(f"{field} was {given.dtype.name}, converted to float64")
    return np.ma.filled(given.astype(float), np.nan)


def _check_delays(tau: np.ndarray, delays: bool, file: str | None) -> None:
    if tau.ndim != 1 or tau.size == 0:
        raise InputError(f"expected delays of shape (tau,), got {tau.shape}", file=file, field="tau")
    if (bad := ~np.isfinite(tau) | ((tau < 0) & delays)).any():
        index = int(np.argmax(bad))
        remedy = "Delays are positive times in s" + ("; for any x pass delays=False" if tau[index] < 0 else "")
        raise InputError(f"index {index}: got {tau[index]:g}", file=file, field="tau", remedy=remedy)


def check_points(tau: np.ndarray, g2: np.ndarray, g2_err: np.ndarray, delays: bool, file: str | None) -> None:
    """Refuse delays (tau,), values and errors (q_bin, tau) that do not match or that no curve can have."""
    _check_delays(tau, delays, file)
    if g2.ndim not in (1, 2) or g2.shape[-1] != tau.size:
        turned = g2.ndim == 2 and g2.shape[0] == tau.size
        remedy = "It looks transposed: pass g2.T" if turned else "Expected axes (q_bin, tau)"
        raise InputError(
            f"shape {g2.shape} does not match (q_bin, tau) with {tau.size} delays", file=file, field="g2", remedy=remedy
        )
    if g2.size == 0:
        raise InputError("there are no bins", file=file, field="g2")
    if np.atleast_2d(g2_err).shape != np.atleast_2d(g2).shape:
        raise InputError(f"shape {g2_err.shape} differs from g2's {g2.shape}", file=file, field="g2_err")
