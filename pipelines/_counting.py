"""Counts and pixels of the bins of XPCS results, from the map of the bins and the mean image of a file."""

from typing import Any, NamedTuple

import numpy as np

from bayesfit.compute.hdf5 import Reader
from bayesfit.data.counting import DARK

Numbers = dict[str, Any]


class Maps(NamedTuple):
    """Names of datasets (H, W): `roi` has the bins' numbers, from 1, and 0 where a pixel belongs to none; `image`, or
    (..., H, W), the mean photons per pixel and frame; `static` the static bins, each of which is normalised by a mean
    of its own, "" for none."""

    roi: str
    image: str
    static: str = ""


def numbers_of(reader: Reader, bins: int, maps: Maps, mapping: np.ndarray | None = None) -> tuple[Numbers, str]:
    """`counts` and `pixels` of each column of g2, as `bayesfit.curves` takes them, and a note on what is missing.

    Args:
        reader: the open file.
        bins: columns of g2.
        maps: where the pixels are described.
        mapping: flat index of each column on the map, from 0, where the map counts bins without pixels too.
    """
    roi_map, image, static_map = maps
    if missing := [name for name in (roi_map, image) if not reader.has(name)]:
        return {}, f"photon pairs cannot be counted: the file has no {missing[0]}"
    roi, photons = reader.array(roi_map), reader.array(image).astype(float)
    photons = photons.reshape(-1, *photons.shape[-2:])[0] if photons.ndim > 2 else photons
    if roi.shape != photons.shape:
        return {}, f"photon pairs cannot be counted: {roi_map} has shape {roi.shape}, {image} {photons.shape}"
    labels = labels_of(roi, bins, mapping)
    if labels is None:
        return {}, f"photon pairs cannot be counted: the numbers in {roi_map} are not those of {bins} bins"
    static = reader.array(static_map) if static_map and reader.has(static_map) else np.zeros(roi.shape, int)
    static = static if static.shape == roi.shape else np.zeros(roi.shape, int)
    found = np.array([_of_bin(photons[roi == label], static[roi == label]) for label in labels])
    bright = np.all(np.isfinite(found) & (found > 0), axis=1)
    if not bright.any():
        return {}, f"photon pairs cannot be counted: {image} holds no photons in any bin"
    counts, pixels = np.where(bright[:, None], found, (DARK, 1.0)).T
    dark = ", ".join(map(str, np.flatnonzero(~bright)))
    return {"counts": counts, "pixels": pixels}, f"{image} holds no photons in bin {dark}" if dark else ""


def labels_of(roi: np.ndarray, bins: int, mapping: np.ndarray | None) -> np.ndarray | None:
    """The number on the map of each column; None where they do not match."""
    present = np.unique(roi[roi > 0])
    if present.size == bins and present[-1] == bins:
        return present
    if mapping is not None and np.array_equal(np.sort(mapping) + 1, present):
        return np.asarray(mapping) + 1
    return None


def _of_bin(photons: np.ndarray, static: np.ndarray) -> tuple[float, float]:
    """Photons per pixel and frame, and pixels, of one bin: the root mean square over its static bins' means, since each
    of them gives pairs in proportion to its square."""
    numbers, place = np.unique(static, return_inverse=True)
    size = np.bincount(place, minlength=numbers.size)
    mean = np.bincount(place, weights=photons, minlength=numbers.size) / np.maximum(size, 1)
    return float(np.sqrt(np.sum(size * mean**2) / max(photons.size, 1))), float(photons.size)
