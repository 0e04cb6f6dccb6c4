"""The covariance of g2 between delays from XPCS results: as it is stated, or from the products of every pixel that
boost_corr keeps on request (-G), by the same jackknife over blocks of pixels as `bayesfit.correlate` makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from bayesfit.compute.errors import InputError
from bayesfit.compute.hdf5 import Reader, opened
from bayesfit.geometry.bins import Bins, Partition
from bayesfit.pipelines._counting import labels_of

if TYPE_CHECKING:
    from bayesfit.correlation.blocks import Blocks
    from bayesfit.correlation.frame_sums import Sums

STATED = "xpcs/multitau/normalized_g2_cov"
SAMPLES = "xpcs/multitau/normalized_g2_cov_samples"
OF_PIXELS = ("xpcs/multitau/unnormalized_G2", "xpcs/multitau/unnormalized_g2")
LINKED = "G2IPIF"  # in the file beside, where an earlier boost_corr has put them
ROI_MAP = "xpcs/qmap/{}_roi_map"


def covariance_of(reader: Reader, bins: int, mapping: np.ndarray | None) -> tuple[dict[str, Any], str]:
    """`g2_cov` and `cov_samples` as `bayesfit.curves` takes them, nothing where the file does not say; and a note where
    it says that they are in another file, which is not there.

    Args:
        reader: the open file.
        bins: columns of g2.
        mapping: flat index of each column on the map, from 0.

    Raises:
        InputError: the products are of another detector than the map.
    """
    if reader.has(STATED) and reader.has(SAMPLES):
        return {"g2_cov": reader.array(STATED), "cov_samples": reader.vector(SAMPLES)}, ""
    if not reader.has(ROI_MAP.format("dynamic")):
        return {}, ""
    roi_map = reader.matrix(ROI_MAP.format("dynamic"))
    labels = labels_of(roi_map, bins, mapping)
    if labels is None:
        return {}, ""
    for name in OF_PIXELS:
        if reader.has(name):
            return _of_pixels(reader, reader, name, roi_map, labels), ""
        if (path := _beside(reader, name)) is not None:
            if not path.is_file():
                return {}, f"g2 has no covariance: {name} is in {path.name}, which is not there"
            with opened(path) as other:
                return _of_pixels(reader, other, LINKED, roi_map, labels), ""
    return {}, ""


def _beside(reader: Reader, name: str) -> Path | None:
    """The file of the same folder in which boost_corr has put the products, and to which it links; None if there is no
    such link. No other is followed."""
    link = reader.file.get(name, getlink=True) if name.rpartition("/")[0] in reader.file else None
    if not isinstance(link, h5py.ExternalLink) or link.path.strip("/") != LINKED:
        return None
    path = reader.path.parent / link.filename
    return path if Path(link.filename).name == link.filename and not path.is_symlink() else None


def _of_pixels(reader: Reader, other: Reader, name: str, roi_map: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """The covariance from the products of every pixel, which may be in another file."""
    from bayesfit.correlation.blocks import blocks_of
    from bayesfit.correlation.jackknife import covariance
    from bayesfit.correlation.normalise import pairs_of

    blocks = blocks_of(_partition(reader, roi_map, labels), roi_map > 0)
    pairs = pairs_of(_sums(other, name, roi_map.shape, blocks), blocks, "symmetric")
    return {"g2_cov": covariance(pairs, blocks), "cov_samples": blocks.by_dynamic(np.ones(blocks.pixels.size))}


def _partition(reader: Reader, roi_map: np.ndarray, labels: np.ndarray) -> Partition:
    """The bins of the pixels, dynamic ones in the order of the columns of g2."""
    number = np.zeros(int(roi_map.max()) + 1, int)
    number[labels] = np.arange(1, labels.size + 1)
    static = reader.matrix(ROI_MAP.format("static")) if reader.has(ROI_MAP.format("static")) else roi_map
    static = static if static.shape == roi_map.shape else roi_map
    dynamic = number[roi_map.astype(int)]
    used = (dynamic > 0) & (static > 0)
    return Partition(used, _bins(static.astype(int), int(static.max())), _bins(dynamic, labels.size))


def _bins(roi_map: np.ndarray, count: int) -> Bins:
    return Bins(roi_map, np.zeros(count), np.zeros(1), np.arange(count))


def _sums(reader: Reader, name: str, shape: tuple[int, ...], blocks: Blocks) -> Sums:
    """Sums over blocks of the mean product of each pixel, and of its early and late means, delay by delay (tau, 3, row,
    column)."""
    from bayesfit.correlation.frame_sums import Sums

    found = []
    for products in reader.rows(name):
        if products.shape != (3, *shape):
            problem = f"shape {products.shape} of a delay, expected (3, {', '.join(map(str, shape))}) as the q-map has"
            raise InputError(problem, file=reader.path, field=name)
        own = products.reshape(3, -1)[:, blocks.places].astype(float)
        found.append(np.add.reduceat(own, blocks.starts, axis=1))
    pairs, early, late = np.moveaxis(np.array(found), 0, -1)
    nothing = np.zeros_like(pairs)
    means = np.stack([early, late, nothing, nothing])
    none = np.zeros(0)
    return Sums(pairs, means, np.ones(pairs.shape[1]), 1, none, none, none)
