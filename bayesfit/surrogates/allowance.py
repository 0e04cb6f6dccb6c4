"""How far a surrogate is off in measured curves, and what follows: nothing, wider errors, or no fit."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.data.curves import by_bin
from bayesfit.modelling.known_correlation import CORRELATES
from bayesfit.modelling.noise_model import Noise
from bayesfit.surrogates.learnt import Learnt
from bayesfit.surrogates.nearby import Nearby, Search

WIDENS, REFUSED = 0.3, 1.0  # error of the surrogate, in units of the data's sd
ROUNDING = 1e-9  # relative, of delays


class Off(NamedTuple):
    """The surrogate's error in every bin, over the data's standard deviation; 0 where points are not valid. Of a random
    simulator also the `covariance` of the errors, in the same units."""

    ratio: Float[np.ndarray, "q_bin tau"]
    tau: Float[np.ndarray, " tau"]
    covariance: Float[np.ndarray, "q_bin tau tau"] | None = None

    @property
    def worst(self) -> float:
        """The largest one."""
        return float(self.ratio.max(initial=0.0))

    @property
    def place(self) -> tuple[int, float]:
        """The bin and the delay (s) where it is largest."""
        bin, delay = np.unravel_index(np.argmax(self.ratio), self.ratio.shape)
        return int(bin), float(self.tau[delay])


def allowed(learnt: Learnt, curves: xr.Dataset, noise: Noise, widen: bool = True) -> xr.Dataset:
    """Curves with errors that allow for those of the surrogate, in quadrature, at delays where it is off by more than
    0.3 of the data's sd, if errors are to be widened. With a random simulator they always do, and, where the noise
    model has independent normal errors, correlate as those of the mean do (`error_correlation`).

    Raises:
        InputError: it is off by more than the data's sd, or has not learnt these delays. SettingsError: the noise model
        uses no errors that could be widened.
    """
    curves = by_bin(curves)
    check_delays(learnt.tau, curves)
    off = how_far_off(learnt, curves, with_scale=noise.name != "stated")
    bin, tau = off.place
    said = f"{off.worst:.2g} of the data's sd at most (bin {bin}, tau = {tau:.3g} s)"
    if off.worst > REFUSED:
        budget = learnt.budget_for(off.worst / WIDENS)
        remedy = f"A budget of about {budget} would help, or learning near these curves: surrogate(..., data=curves)"
        raise InputError(f"the surrogate's held-out error is {said}", field="model", bin=bin, remedy=remedy)
    if off.covariance is not None and noise.name in CORRELATES:
        words = "its covariance is part of the errors"
        return _with_covariance(curves, off.covariance).assign_attrs(surrogate_error=f"{said}; {words}")
    widened = (off.ratio > WIDENS) & widen
    if widened.any() and (noise.counted or noise.estimated):
        problem = f"{noise.name!r} has no errors to widen, and the surrogate's held-out error is {said}"
        raise SettingsError(problem, field="noise", remedy="Use 'scaled', or a larger budget")
    done = f"errors widened at {widened.sum()} points" if widened.any() and noise.stated else "nothing widened"
    factor = xr.DataArray(np.where(widened, np.sqrt(1.0 + off.ratio**2), 1.0), dims=("q_bin", "tau"))
    return curves.assign(g2_err=curves.g2_err * factor).assign_attrs(surrogate_error=f"{said}; {done}")


def _with_covariance(curves: xr.Dataset, covariance: Float[np.ndarray, "q_bin tau tau"]) -> xr.Dataset:
    """Curves to whose independent errors this covariance, in units of the data's sd, is added."""
    total = covariance + np.eye(curves.sizes["tau"])
    factor = np.sqrt(np.diagonal(total, axis1=1, axis2=2))
    correlation = total / (factor[:, :, None] * factor[:, None, :])
    return curves.assign(
        g2_err=curves.g2_err * xr.DataArray(factor, dims=("q_bin", "tau")),
        error_correlation=(("q_bin", "tau", "tau_other"), correlation),
    )


def check_delays(known: Float[np.ndarray, " tau"], curves: xr.Dataset) -> None:
    """Refuse curves with valid points at delays that are not learnt.

    Raises:
        InputError: names the delay.
    """
    low, high = known[0] * (1.0 - ROUNDING), known[-1] * (1.0 + ROUNDING)
    used = curves.tau.values.astype(float)[curves.valid.values.any(axis=0)]
    for tau in used[(used < low) | (used > high)][:1]:
        problem = f"holds {tau:.6g} s, and the surrogate knows {known[0]:.6g} to {known[-1]:.6g} s"
        remedy = f"Leave it out: tau_min={known[0]:.6g}, tau_max={known[-1]:.6g}"
        raise InputError(problem, file=curves.attrs.get("file") or None, field="tau", remedy=remedy)


def how_far_off(learnt: Learnt, curves: xr.Dataset, with_scale: bool = True) -> Off:
    """The surrogate's held-out error about the posterior of each bin, over the data's sd: the stated errors, times the
    factor that the residuals ask for if they are scaled."""
    tau = curves.tau.values.astype(float)
    with jax.enable_x64(True):
        found = nearby(learnt, curves)
    ratio = np.zeros((curves.sizes["q_bin"], tau.size))
    covariance = np.zeros((*ratio.shape, tau.size)) if learnt.random else None
    for bin, near in enumerate(found):
        if near is not None:
            valid, x = curves.valid.values[bin], near.coordinates.mean(axis=0)
            height = near.contrast / curves.g2_err.values[bin][valid]
            own = np.maximum(tau[valid], learnt.tau[0])
            over = height * learnt.error_at(x, own)
            scale = _error_scale(near.error_scale, over) if with_scale else 1.0
            ratio[bin, valid] = over / scale
            if covariance is not None:
                both = np.ix_(valid, valid)
                covariance[bin][both] = np.outer(height, height) * learnt.covariance_at(x, own) / scale**2
    return Off(ratio, tau, covariance)


def _error_scale(residual: float, over: Float[np.ndarray, " valid"]) -> float:
    """The factor of the stated errors, from the root mean square of the standardised residuals. What the surrogate's
    own error, standardised likewise, adds to them does not count, except that it cannot make the factor less than 1."""
    return max(float(np.sqrt(max(residual**2 - np.mean(over**2), 0.0))), min(residual, 1.0), 1e-12)


def nearby(learnt: Learnt, curves: xr.Dataset, seed: int = 0) -> list[Nearby | None]:
    """The posterior of every bin, None where it has too few points. Call it with x64 on."""
    tau = np.clip(curves.tau.values.astype(float), learnt.tau[0], learnt.tau[-1])
    search = Search(learnt, tau, seed)
    return [search(curves.isel(q_bin=bin)) for bin in range(curves.sizes["q_bin"])]
