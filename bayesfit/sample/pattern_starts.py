"""The cells of an image and the values at which a calibration's chains begin, found from coarse to fine."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bayesfit.geometry.detector import PLACE, Detector
from bayesfit.geometry.patterns import Cells, cells_of, optics_of, q_at
from bayesfit.posterior.pattern import Pattern, Rings, Scene, Smooth
from bayesfit.sample.pattern_nuts import PatternSampler
from bayesfit.sample.pattern_search import centred, radial_profile, rings_found

PER_WIDTH, WIDTHS = 3, 4  # cells per half width of a ring, and half widths on either side in which they are so small
BETWEEN = 6  # cells between the rings
PER_KNOT = 4  # cells per coefficient of a spline
MOST_ROUNDS = 6
SETTLED = 0.2  # of a cell's width: how far a detector may still move when its cells are kept
FAINT = 1e-4  # photons per pixel, where none were seen

Values = dict[str, Any]


class Begun(NamedTuple):
    """An image in cells, the detector at which these were made, and the mode of the posterior that they give."""

    cells: Cells
    detector: Detector
    mode: Float[np.ndarray, " param"]


def begun(pattern: Pattern, sampler: PatternSampler) -> Begun:
    """The mode of a pattern's posterior; cells are made anew while it moves."""
    scene, here = pattern.scene, pattern.nominal
    if {"row", "column"} <= {*pattern.free}:
        here = centred(pattern.image, pattern.good, here, float(scene.sd[0]))
    here, values = (_ring_values if isinstance(pattern.profile, Rings) else _smooth_values)(pattern, here)
    for _ in range(MOST_ROUNDS):
        edges = _edges(values, scene, pattern.profile)
        cells = cells_of(pattern.image, pattern.good, here, edges)
        values = values | dict(zip(PLACE, here.place, strict=True))
        mode = sampler.mode(sampler.begin(values, scene, cells), scene, cells)
        values = values | sampler.values(mode, scene, cells)
        before, here = here, here.placed([float(values[name]) for name in PLACE])
        if _movement(before, here) < SETTLED * np.min(np.diff(edges)):
            break
    return Begun(cells, here, mode)


def _ring_values(pattern: Pattern, here: Detector) -> tuple[Detector, Values]:
    """The detector at the distance at which the rings lie on the radial profile, and what they are like there."""
    scene = pattern.scene
    assert isinstance(pattern.profile, Rings)
    found = rings_found(pattern, here, np.asarray(pattern.profile.knots(scene)))
    if "distance" in pattern.free:
        row, column, distance, *tilts = here.place
        here = here.placed((row, column, distance * found.scale, *tilts))
    values = {"log_height": _log(found.height), "log_background": _log(found.background), "broadening": 0.0}
    low, high = scene.width_range
    return here, values | {"width": np.clip(found.width, 1.1 * low, 0.9 * high), "mixing": 0.3}


def _smooth_values(pattern: Pattern, here: Detector) -> tuple[Detector, Values]:
    """The detector as it is, and the logarithm of the radial profile about it at the spline's knots."""
    middles = np.linspace(pattern.scene.q_range[0], pattern.scene.q_range[1], pattern.profile.count - 2)
    step = middles[1] - middles[0]
    counts, pixels = radial_profile(pattern, here, np.append(middles - step / 2, middles[-1] + step / 2))
    logs = _log((counts + FAINT) / np.maximum(pixels, 1.0))
    return here, {"log_intensity": np.concatenate([logs[:1], logs, logs[-1:]])}


def _edges(values: Values, scene: Scene, profile: Rings | Smooth) -> Float[np.ndarray, " edge"]:
    """The edges of cells in q, close together where the intensity changes fast."""
    low, high = scene.q_range
    if isinstance(profile, Smooth):
        return np.linspace(low, high, PER_KNOT * (profile.count - 3) + 1)
    knots = np.asarray(profile.knots(scene))
    widths = values["width"] * (scene.rings / scene.rings[0]) ** values["broadening"]
    steps = np.linspace(-WIDTHS, WIDTHS, 2 * WIDTHS * PER_WIDTH + 1)
    close = [ring + width * steps for ring, width in zip(scene.rings, widths, strict=True)]
    close = [line[(line > a) & (line < b)] for line, a, b in zip(close, knots[:-1], knots[1:], strict=True)]
    apart = [np.linspace(a, b, BETWEEN, endpoint=False) for a, b in pairwise(knots)]
    return np.unique(np.concatenate([*close, *apart, knots[-1:]]))


def _movement(one: Detector, other: Detector) -> float:
    """The largest change of q at the corners and the middle of the detector [1/angstrom]."""
    row, column = one.shape[0] * np.array([0.0, 0.0, 0.5, 1.0, 1.0]), one.shape[1] * np.array([0.0, 1.0, 0.5, 0.0, 1.0])
    q, moved = (q_at(each.place, row, column, optics_of(one)) for each in (one, other))
    return float(np.max(np.abs(moved - q)))


def _log(values: Float[np.ndarray, " value"]) -> Float[np.ndarray, " value"]:
    return np.log(np.maximum(values, FAINT))
