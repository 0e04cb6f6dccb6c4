"""Where a detector stands, from an isotropic pattern: the posterior of beam centre, distance and tilts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from bayesfit.backends.arrays import ensure_numpy
from bayesfit.compute.errors import InputError, SettingsError, nearest
from bayesfit.compute.operations import computing
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import Report
from bayesfit.diagnose.calibration_verdict import judge
from bayesfit.geometry.detector import PLACE, Detector
from bayesfit.geometry.patterns import optics_of, q_at
from bayesfit.modelling.priors import Prior, build, one_number, parse_common
from bayesfit.posterior.pattern import Pattern, Rings, Smooth, program_of, scene_of
from bayesfit.result.calibration_result import calibration_result, radial_group
from bayesfit.sample.pattern_nuts import PatternSampler
from bayesfit.sample.pattern_starts import Begun, begun

SPACINGS = {"silver_behenate": 58.380}  # angstrom, of layers; Huang et al., J. Appl. Cryst. 26, 180 (1993)
MOST_RINGS = 12  # the first that the detector sees
BELOW_FIRST, ABOVE_LAST = 0.75, 1.15  # of the first and of the last ring, if there are no others
PRIOR_DRAWS = 1000
PIXELS_PER_KNOT, KNOTS = 3.0, (24, 128)

Image = Float[np.ndarray, "row column"]
Good = Bool[np.ndarray, "row column"]


def calibrate(
    image: Any,
    detector: Detector,
    rings: str | Sequence[float] | None = None,
    *,
    symmetry: bool = False,
    mask: Any = None,
    q_range: tuple[float, float] | None = None,
    knots: int | None = None,
    priors: Mapping[str, Any] | None = None,
    fixed: Mapping[str, float] | None = None,
    draws: int = 500,
    chains: int = 4,
    seed: int = 0,
    progress: bool | Report = False,
) -> xr.DataTree:
    """Posterior of where a detector stands, from the photons of an isotropic pattern.

    Args:
        image: photons counted in each pixel (row, column), whole numbers: the sum of frames, not their mean. Pixels
            that are negative, not finite, or the largest number of their type are left out.
        detector: where it stands nominally. Priors are about this place and do not look at the image: `row` and
            `column` of the direct beam Normal with an sd of a tenth of the longer side, `distance` LogNormal with 5 %,
            and the tilts `rot1` and `rot2` Normal with 0.05 rad. Its wavelength and third rotation are taken to be
            exact.
        rings: q of known rings [1/angstrom], in order, or "silver_behenate": gives centre, distance and tilts.
        symmetry: instead of rings, that the intensity depends on q alone: gives the centre, and what can be known of
            the tilts; the distance is then taken to be the nominal one.
        mask: True where a pixel is good; by default all are.
        q_range: smallest and largest q of the pixels that count [1/angstrom], where the detector stands nominally.
        knots: with `symmetry`, the number of coefficients of the spline that is the logarithm of the intensity; by
            default one for three pixels from the smallest to the largest q, 24 to 128.
        priors, fixed: the name of a number of the place to a prior as `fit` takes it, or to a value.
        draws, chains, seed: kept draws per chain, number of chains; the same seed gives the same draws.
        progress: as for `fit`.

    Returns:
        DataTree in ArviZ's schema: `posterior` (chain, draw) of `row`, `column` [pixel], `distance` [m], `rot1` and
        `rot2` [rad] and of what the pattern is like; `sample_stats`; `radial` (point: `q`, photons per pixel `seen` and
        `expected`); and `diagnostics` (`verdict`, `reason`, `r_hat`, `ess_bulk`, `ess_tail`, `divergences`, `chi2`,
        `cells`, `p_chi2`, `contraction`). `bayesfit.geometry.from_calibration` makes it a `Detector` with its
        covariance, which goes from there into `q_err` of q-maps, bins and curves.

    Raises:
        InputError: the image or the mask cannot be used. SettingsError: a setting is impossible.
    """
    counts, good = _image(image, mask, detector.shape)
    places = Smooth.places if rings is None else Rings.places
    pinned = _pinned(fixed or {}, places)
    nominal = detector.placed([pinned.get(name, value) for name, value in zip(PLACE, detector.place, strict=True)])
    free = tuple(name for name in places if name not in pinned)
    given = _given(priors or {}, free)
    known = _known(rings, symmetry)
    pattern = _pattern(counts, good, nominal, known, (q_range, knots, free))
    numbers = _whole(draws, "draws", 4), _whole(chains, "chains", 1)
    with computing(), progress_bar(progress is True) as bar:
        sampler = _sampler(pattern.profile, free, _frozen(given), *numbers)
        start = begun(pattern, sampler)
        report = progress if callable(progress) else bar
        return _result(pattern, sampler, start, _whole(seed, "seed", 0), report)


def _result(pattern: Pattern, sampler: PatternSampler, start: Begun, seed: int, report: Report) -> xr.DataTree:
    """The draws, their verdict, and the radial profile, as one result."""
    data, key = (pattern.scene, start.cells), jax.random.PRNGKey(seed)
    samples, stats = sampler(key, start.mode, *data, report=report)
    cells, expected = start.cells, start.cells.pixels * sampler.intensity(start.mode, *data)
    scalars = {name: samples[name] for name in pattern.free}
    held = cells.pixels > 0
    verdict = judge(scalars, stats, sampler.prior(key, PRIOR_DRAWS, *data), (cells.counts[held], expected[held]))
    q = q_at(start.detector.place, cells.row, cells.column, optics_of(start.detector)) + cells.excess
    attrs = {
        "calibration": "rings" if isinstance(pattern.profile, Rings) else "symmetry",
        "detector": json.dumps({**asdict(pattern.nominal), "covariance": None}),
        "rings": json.dumps(pattern.scene.rings.tolist()),
        "seed": seed,
    }
    return calibration_result(samples, stats, verdict, radial_group(q, cells.counts, cells.pixels, expected), attrs)


@lru_cache(maxsize=8)
def _sampler(
    profile: Rings | Smooth, free: tuple[str, ...], given: tuple[Any, ...], draws: int, chains: int
) -> PatternSampler:
    """The sampler of patterns of one kind, so that images share what is compiled."""
    priors = {name: build(family, dict(values)) for name, family, values in given}
    return PatternSampler(program_of(profile, free, priors), draws, chains)


def _frozen(given: Mapping[str, Prior]) -> tuple[Any, ...]:
    return tuple(
        (name, prior.family, tuple((part, float(value)) for part, value in prior.values.items()))
        for name, prior in sorted(given.items())
    )


def _pattern(image: Image, good: Good, nominal: Detector, rings: Float[np.ndarray, " ring"], how: Any) -> Pattern:
    """The pattern in the pixels that count, and in the rings that the nominal detector sees."""
    q_range, knots, free = how
    rows, columns = np.indices(image.shape)
    q = q_at(nominal.place, rows, columns, optics_of(nominal))
    low, high = _range(q_range, q[good])
    if not rings.size:
        if q_range is not None:
            good = good & (q >= low) & (q <= high)
        across = (high - low) / optics_of(nominal).wave_number * nominal.distance / max(nominal.pixel_size)
        count = int(np.clip(across / PIXELS_PER_KNOT, *KNOTS)) if knots is None else _whole(knots, "knots", 6)
        profile: Rings | Smooth = Smooth(count)
        return Pattern(image, good, nominal, scene_of(nominal, rings, (low, high)), profile, free)
    seen = np.flatnonzero((rings > low) & (rings < high))[:MOST_RINGS]
    if not seen.size:
        problem = f"none is from {low:.4g} to {high:.4g} 1/angstrom, which the nominal detector sees"
        raise SettingsError(problem, field="rings", remedy="Are they q in 1/angstrom, and is the geometry right?")
    first, last = rings[seen[0]], rings[seen[-1]]
    below = np.sqrt(first * rings[seen[0] - 1]) if seen[0] else BELOW_FIRST * first
    above = np.sqrt(last * rings[seen[-1] + 1]) if seen[-1] + 1 < rings.size else ABOVE_LAST * last
    scene = scene_of(nominal, rings[seen], (float(below), float(above)))
    return Pattern(image, good, nominal, scene, Rings(seen.size), free)


def _range(given: tuple[float, float] | None, q: Float[np.ndarray, " pixel"]) -> tuple[float, float]:
    low, high = (float(q.min()), float(q.max())) if given is None else map(float, given)
    if not 0 <= low < high < np.inf:
        raise SettingsError(f"got {given!r}", field="q_range", remedy="Expected a smaller and a larger q above 0")
    return low, high


def _image(given: Any, mask: Any, shape: tuple[int, int]) -> tuple[Image, Good]:
    """Photons, and which pixels hold a number of them.

    Raises:
        InputError: it is no image of photons of this detector, or none are in it.
    """
    image = np.asarray(ensure_numpy(given))
    if image.dtype.kind not in "fiub" or image.shape != shape:
        raise InputError(f"got {image.dtype} {image.shape}, expected photons in {shape} pixels", field="image")
    good = np.isfinite(image) & (image >= 0)
    if image.dtype.kind in "iu":
        good &= image < np.iinfo(image.dtype).max
    if mask is not None:
        own = np.asarray(ensure_numpy(mask)).astype(bool)
        if own.shape != shape:
            raise InputError(f"shape {own.shape} is not that of the detector, {shape}", field="mask")
        good &= own
    counts = np.where(good, image, 0).astype(float)
    if np.any(counts != np.round(counts)):
        first = counts[counts != np.round(counts)][0]
        raise InputError(f"holds {first:g}, no number of photons", field="image", remedy="Give the sum of frames")
    if not counts.any():
        raise InputError("there are no photons in good pixels", field="image")
    return counts, good


def _known(rings: Any, symmetry: bool) -> Float[np.ndarray, " ring"]:
    """The q of known rings, none where only the symmetry is known."""
    if (rings is None) is not bool(symmetry):
        raise SettingsError("give either rings or symmetry=True", field="rings")
    if rings is None:
        return np.zeros(0)
    if isinstance(rings, str):
        if rings not in SPACINGS:
            raise SettingsError(f"unknown calibrant {rings!r}", field="rings", remedy=nearest(rings, SPACINGS))
        return 2 * np.pi / SPACINGS[rings] * np.arange(1, 100)
    found = np.atleast_1d(np.asarray(rings, float))
    if found.ndim != 1 or not np.all(np.isfinite(found)) or found[0] <= 0 or np.any(np.diff(found) <= 0):
        raise SettingsError("expected values of q above 0, in order", field="rings")
    return found


def _pinned(fixed: Mapping[str, Any], places: tuple[str, ...]) -> dict[str, float]:
    _check_names(fixed, places, "fixed")
    if len(fixed) == len(places):
        raise SettingsError("nothing is left to sample", field="fixed")
    return {name: one_number(value, f"fixed.{name}") for name, value in fixed.items()}


def _given(priors: Mapping[str, Any], free: tuple[str, ...]) -> dict[str, Prior]:
    _check_names(priors, free, "priors")
    return {name: parse_common(prior, name) for name, prior in priors.items()}


def _check_names(given: Mapping[str, Any], known: tuple[str, ...], field: str) -> None:
    for name in given:
        if name not in known:
            raise SettingsError(f"unknown parameter {name!r}", field=field, remedy=nearest(str(name), known))


def _whole(value: Any, field: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**32:
        raise SettingsError(f"got {value!r}, expected a whole number from {least}", field=field)
    return int(value)
