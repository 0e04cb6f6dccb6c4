"""Where the chains of a calibration begin: the centre about which an image is most symmetric, and the distance at which
known rings lie on it. Nothing here enters the posterior."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import nnls

from bayesfit.geometry.detector import Detector
from bayesfit.geometry.patterns import optics_of, q_at
from bayesfit.posterior.pattern import Pattern

COARSEST = 64  # blocks on the longer side
REACH = 2.0  # sd of the prior of the centre
MOST_MOVES = 60
WIDTHS = (0.5, 1.0, 2.0, 4.0)  # trial half widths of rings, in pixels
SCALES = np.exp(np.linspace(-0.15, 0.15, 301))  # trial distances over the nominal one

Image = Float[np.ndarray, "row column"]
Good = Bool[np.ndarray, "row column"]


class Blocks(NamedTuple):
    """Photons and good pixels of square blocks that have any, where these are [pixel], and their side [pixel]."""

    counts: Float[np.ndarray, " block"]
    pixels: Float[np.ndarray, " block"]
    row: Float[np.ndarray, " block"]
    column: Float[np.ndarray, " block"]
    side: int


class RingFit(NamedTuple):
    """Rings as they lie on a radial profile: the distance over the nominal one, their half width [1/angstrom], photons
    per pixel at their tops, and the background's at its knots."""

    scale: float
    width: float
    height: Float[np.ndarray, " ring"]
    background: Float[np.ndarray, " knot"]


def blocks_of(image: Image, good: Good, side: int) -> Blocks:
    """An image in blocks."""
    rows, columns = -(-image.shape[0] // side) * side, -(-image.shape[1] // side) * side

    def summed(values: Image) -> Image:
        padded = np.pad(values, ((0, rows - values.shape[0]), (0, columns - values.shape[1])))
        return padded.reshape(rows // side, side, columns // side, side).sum((1, 3))

    pixels = summed(good.astype(float))
    row, column = np.nonzero(pixels)
    middle = (side - 1) / 2
    counts = summed(np.where(good, image, 0.0))[row, column]
    return Blocks(counts, pixels[row, column], row * side + middle, column * side + middle, side)


def centred(image: Image, good: Good, detector: Detector, sd: float) -> Detector:
    """The detector, moved to where the image is most symmetric about the direct beam, within `REACH` sd [pixel]."""
    longer = max(image.shape)
    sides = [2**n for n in range(int(np.log2(max(longer / COARSEST, 1))), -1, -1)]
    best = detector.beam_center
    for place, side in enumerate(sides):
        blocks = blocks_of(image, good, side)
        if place == 0:
            steps = np.arange(-np.ceil(REACH * sd / side), np.ceil(REACH * sd / side) + 1) * side
            around = [(best[0] + down, best[1] + along) for down in steps for along in steps]
            best = max(around, key=lambda centre: symmetry(blocks, detector, centre))
        best = _climbed(blocks, detector, best)
    return detector.placed((*best, *detector.place[2:]))


def _climbed(blocks: Blocks, detector: Detector, centre: tuple[float, float]) -> tuple[float, float]:
    """The centre after steps of a block, and of half of one, to neighbours that are more symmetric."""
    highest = symmetry(blocks, detector, centre)
    for step in (blocks.side, blocks.side / 2):
        for _ in range(MOST_MOVES):
            around = [(centre[0] + a * step, centre[1] + b * step) for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1))]
            found = [symmetry(blocks, detector, other) for other in around]
            if max(found) <= highest:
                break
            highest, centre = max(found), around[int(np.argmax(found))]
    return centre


def symmetry(blocks: Blocks, detector: Detector, centre: tuple[float, float]) -> float:
    """The log likelihood of counts about this centre, each ring of a block's width with its own best intensity."""
    q = q_at((*centre, *detector.place[2:]), blocks.row, blocks.column, optics_of(detector))
    width = optics_of(detector).wave_number * max(detector.pixel_size) * blocks.side / detector.distance
    ring = (q / width).astype(int)
    counts, pixels = np.bincount(ring, blocks.counts), np.bincount(ring, blocks.pixels)
    seen = counts > 0
    return float(np.sum(counts[seen] * np.log(counts[seen] / pixels[seen])))


def radial_profile(
    pattern: Pattern, detector: Detector, edges: Float[np.ndarray, " edge"]
) -> tuple[Float[np.ndarray, " ring"], Float[np.ndarray, " ring"]]:
    """Photons, and pixels, in rings between these edges in q."""
    row, column = np.nonzero(pattern.good)
    q = q_at(detector.place, row, column, optics_of(detector))
    counts, _ = np.histogram(q, edges, weights=pattern.image[row, column])
    return counts, np.histogram(q, edges)[0].astype(float)


def rings_found(pattern: Pattern, detector: Detector, knots: Float[np.ndarray, " knot"]) -> RingFit:
    """The distance at which known rings explain the radial profile best, by least squares without negative parts."""
    rings, k = pattern.scene.rings, optics_of(detector).wave_number
    pixel = k * max(detector.pixel_size) / detector.distance
    edges = np.arange(knots[0] * SCALES[0], knots[-1] * SCALES[-1] + pixel / 2, pixel / 2)
    counts, pixels = radial_profile(pattern, detector, edges)
    seen = pixels > 0
    middle, rate = (0.5 * (edges[1:] + edges[:-1]))[seen], counts[seen] / pixels[seen]
    weight = np.sqrt(pixels[seen] / (rate + 1.0 / pixels[seen]))
    tangent = np.tan(2 * np.arcsin(np.minimum(middle / (2 * k), 0.7)))
    best, found = np.inf, None
    for scale in SCALES:
        q = 2 * k * np.sin(np.arctan(tangent / scale) / 2)
        inside = (q >= knots[0]) & (q <= knots[-1])
        hats = np.array([np.interp(np.log(q), np.log(knots), line) for line in np.eye(knots.size)]).T
        for width in (half * pixel for half in WIDTHS):
            shape = np.exp2(-(((q[:, None] - rings) / width) ** 2))
            design = np.hstack([shape, hats])[inside] * weight[inside, None]
            wanted = (weight * rate)[inside]
            amplitudes, rest = nnls(design, wanted)
            worth = rest**2 - np.sum(wanted**2)
            if worth < best:
                best, found = worth, RingFit(scale, width, *np.split(amplitudes, [rings.size]))
    assert found is not None
    return found
