"""Every bin's data laid out for compiled programs: delays padded, data standardised, and a hash of each bin."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import xarray as xr
from jaxtyping import Float, UInt32

from bayesfit.compute.errors import InputError
from bayesfit.compute.kinds import expect_curves
from bayesfit.data.counting import Counting, as_counted
from bayesfit.data.covariance import as_estimated
from bayesfit.data.curves import by_bin
from bayesfit.modelling import known_correlation
from bayesfit.modelling.averaged_delays import neighbour_factors
from bayesfit.modelling.compression import Estimated, layout_of
from bayesfit.modelling.noise_model import Noise
from bayesfit.modelling.photon_layout import uncorrelated, with_white_data
from bayesfit.modelling.priors import Prior
from bayesfit.posterior.bin_data import Bin

PADDED = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # lengths, so that datasets share compiled programs

OfBins = Float[np.ndarray, "*q_bin"]
OfPoints = Float[np.ndarray, "q_bin padded"]


def as_needed(data: xr.Dataset, noise: Noise) -> xr.Dataset:
    """The dataset as the noise model takes it: as numbers of pairs, or with the errors of an estimated covariance.

    Raises:
        InputError: the data do not have what it needs.
    """
    if noise.counted:
        return as_counted(by_bin(data))
    return as_estimated(by_bin(data)) if noise.estimated else data


def oriented(data: xr.Dataset) -> xr.Dataset:
    """The dataset with dims (q_bin, tau), also where a user chose a single bin by `isel`.

    Raises:
        InputError: a variable is missing, there is a single delay, or a valid point is not finite or has no error.
    """
    expect_curves(data)
    for name in ("g2", "g2_err", "valid"):
        if name not in data:
            raise InputError("is missing", field=name, remedy="Make the dataset with bayesfit.curves or bayesfit.read")
    data = by_bin(data)
    if "tau" not in data.dims:
        raise InputError("holds one delay, a curve has some", field="tau", remedy="Choose delays by isel(tau=[...])")
    bad = data.valid & ~(np.isfinite(data.g2) & np.isfinite(data.g2_err) & (data.g2_err > 0))
    for bin in np.flatnonzero(bad.any("tau"))[:1]:
        raise InputError(
            "a point is marked valid that is not finite or has no error",
            file=data.attrs.get("file") or None,
            field="valid",
            bin=int(bin),
            remedy="Make the dataset with bayesfit.curves",
        )
    return data


def lay_out(data: xr.Dataset, noise: Noise, fixed: Mapping[str, OfBins], priors: Mapping[str, Prior]) -> Bin:
    """Every bin's data. Delays are padded to one of a few lengths by points that are not valid.

    Args:
        fixed, priors: values and priors as given, each number one for all bins or one per bin.
    """
    count, length = data.sizes["q_bin"], data.sizes["tau"]
    padded = next((size for size in PADDED if size >= length), -(-length // 512) * 512)
    valid = np.zeros((count, padded), bool)
    valid[:, :length] = data.valid.values
    g2, g2_err = np.zeros((count, padded)), np.ones((count, padded))
    g2[:, :length] = data.g2.values
    if noise.stated:
        g2_err[:, :length] = data.g2_err.values
    tau = _padded(data.tau.values.astype(float), padded, bool(data.attrs.get("delays", 1)))
    inverse_error = np.where(valid, 1.0 / np.where(valid, g2_err, 1.0), 0.0)
    y = np.where(valid, np.where(valid, g2, 0.0) * inverse_error, 0.0)

    def per_bin(value: OfBins) -> Float[np.ndarray, " q_bin"]:
        return np.broadcast_to(value, (count,)).astype(float)

    return Bin(
        tau=np.broadcast_to(tau, (count, padded)).copy(),
        y=y,
        inverse_error=inverse_error,
        valid=valid,
        layout=_layouts(data, noise, tau, (y, inverse_error)),
        log_constant=np.zeros(count),
        fixed={name: per_bin(value) for name, value in fixed.items()},
        priors={name: {key: per_bin(v) for key, v in prior.values.items()} for name, prior in priors.items()},
    )


def _layouts(
    data: xr.Dataset, noise: Noise, tau: Float[np.ndarray, " padded"], standardised: tuple[OfPoints, OfPoints]
) -> Float[np.ndarray, "q_bin padded column"]:
    """What the noise model's program must know of each bin beside its points, of which the `standardised` y and the
    inverse errors are given."""
    if noise.counted:
        more = ((0, 0), (0, tau.size - data.sizes["tau"]))
        seen = np.where(data.valid, data.g2 * data.pairs, 1.0)
        pairs = np.pad(data.pairs.values, more, mode="edge")
        seen, counted = np.pad(seen, more, constant_values=1.0), Counting.of(data)
        factors = neighbour_factors(counted.lags, counted.summed)
        return with_white_data(uncorrelated(pairs, seen, standardised[1] > 0, factors), *standardised)
    if noise.estimated:
        own = tau[: data.sizes["tau"]]
        rows = zip(data.valid.values, data.g2_cov.values, data.cov_samples.values, strict=True)
        return np.array([layout_of(own, valid, Estimated(each, n), tau.size) for valid, each, n in rows])
    if noise.correlates:
        return known_correlation.layout_of(data, tau.size)
    layout = noise.layout(tau)
    return np.broadcast_to(layout, (data.sizes["q_bin"], *layout.shape)).copy()


def _padded(tau: Float[np.ndarray, " tau"], length: int, delays: bool) -> Float[np.ndarray, " padded"]:
    """The x of all points, with the last repeated up to this length. A delay of 0, which is never valid, becomes the
    smallest positive one."""
    if delays:
        tau = np.where(tau > 0, tau, np.min(tau[tau > 0]))
    return np.concatenate([tau, np.repeat(tau[-1], length - tau.size)])


def identity_of_bins(data: xr.Dataset) -> UInt32[np.ndarray, "q_bin 2"]:
    """Two 32-bit words from the hash of each bin's valid points, which key its random numbers."""
    tau = data.tau.values.astype(float)
    words = []
    for g2, g2_err, valid in zip(data.g2.values, data.g2_err.values, data.valid.values, strict=True):
        used = np.stack([tau[valid], g2[valid], g2_err[valid]]).astype(float)
        words.append(np.frombuffer(hashlib.sha256(used.tobytes()).digest()[:8], np.uint32))
    return np.array(words)
