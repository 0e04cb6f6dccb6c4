"""A series of frames through a multi-tau correlator, bin by bin."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.backends.choice import NUMPY, get_backend
from bayesfit.compute.errors import InputError, SettingsError, nearest
from bayesfit.compute.journal import Record, begin_stage
from bayesfit.compute.work import Progress, Report, heeded
from bayesfit.correlation import compiled
from bayesfit.correlation.age_sums import AgeDense, AgeSparse, AgeSums
from bayesfit.correlation.ages import Ages
from bayesfit.correlation.blocks import Blocks, blocks_of, of_used
from bayesfit.correlation.delays import delays
from bayesfit.correlation.dense import no_photons
from bayesfit.correlation.frame_sums import FrameSums, Sums, up_to
from bayesfit.correlation.frames import Frames
from bayesfit.correlation.jackknife import covariance, covariance_by_time, g2_of, scatter
from bayesfit.correlation.lag_products import CHUNK
from bayesfit.correlation.normalise import WAYS, Normalise, pairs_of
from bayesfit.correlation.photon_sums import PhotonSums
from bayesfit.correlation.photons import Chunk, Photons, photons_of, whole_frames
from bayesfit.correlation.products import few_photons, products_of
from bayesfit.geometry.bins import Partition

Flatten = Literal["static_bins", "dynamic_bins"]
MOST_PER_LEVEL = 512
ENOUGH, FEWEST_FRAMES = 0.5, 2  # of the frames, and frames, must be usable
EVERY, SELDOM = 10.0, 20.0  # the sums are kept after so many seconds, and so many times as long as that takes


@dataclass(frozen=True)
class Settings:
    """How frames are correlated; see `bayesfit.correlate`."""

    delays_per_level: int = 8
    normalise: Normalise = "symmetric"
    flatten: Flatten = "static_bins"
    backend: str | None = None
    ages: Ages | None = None

    def __post_init__(self) -> None:
        d = self.delays_per_level
        if isinstance(d, bool) or not isinstance(d, int | np.integer) or not 1 <= d <= MOST_PER_LEVEL:
            raise SettingsError(f"got {d!r}", field="delays_per_level", remedy=f"Expected 1 to {MOST_PER_LEVEL}")
        for name, known in (("normalise", WAYS), ("flatten", get_args(Flatten))):
            if (given := getattr(self, name)) not in known:
                raise SettingsError(f"got {given!r}", field=name, remedy=nearest(str(given), known))


class Masks(NamedTuple):
    """True for the frames (frame,) and the pixels (row, column) that are good; None where all are."""

    frames: Bool[np.ndarray, " frame"] | None = None
    pixels: Bool[np.ndarray, "row column"] | None = None


@dataclass(frozen=True)
class Correlated:
    """What frames hold, for every dynamic bin of the `partition`.

    `lags` and `summed` (tau,): delays, and how many frames are summed at each, in frames. `g2`, and the photon pairs
    `seen` and `expected` (bin, tau) of which it is the ratio; `cov` (bin, tau, tau), its covariance between delays, NaN
    for a bin of few pixels, from so many blocks as `cov_samples` (bin,) says. `counts` and `pixels` (bin,): photons per
    pixel and frame, and pixels that were used. `frames`: how many were used. `image` (row, column) and `intensity`
    (frame,): photons per pixel and frame.
    `frame_pairs` (tau,): pairs of frames at each delay. `scatter` (bin, tau): standard deviation over the pixels of a
    bin of the g2 of each, NaN where pixels were not kept apart.
    """

    partition: Partition
    settings: Settings
    lags: Int[np.ndarray, " tau"]
    summed: Int[np.ndarray, " tau"]
    g2: Float[np.ndarray, "bin tau"]
    cov: Float[np.ndarray, "bin tau tau"]
    cov_samples: Float[np.ndarray, " bin"]
    seen: Float[np.ndarray, "bin tau"]
    expected: Float[np.ndarray, "bin tau"]
    counts: Float[np.ndarray, " bin"]
    pixels: Float[np.ndarray, " bin"]
    frames: int
    image: Float[np.ndarray, "row column"]
    intensity: Float[np.ndarray, " frame"]
    notes: tuple[str, ...]
    frame_pairs: Float[np.ndarray, " tau"]
    scatter: Float[np.ndarray, "bin tau"]


class Summed(NamedTuple):
    """The `sums` over all frames that were taken in, and what they are of."""

    sums: FrameSums
    blocks: Blocks
    partition: Partition
    notes: tuple[str, ...]


def multitau(
    frames: Frames, partition: Partition, settings: Settings, masks: Masks, report: Report = lambda progress: None
) -> Correlated:
    """Correlate frames.

    Raises:
        InputError: frames, masks and bins do not fit together, or hardly a frame can be used. KeyboardInterrupt: the
            user wants to stop.
    """
    found = summed(frames, partition, settings, masks, report)
    return correlated(found, found.sums.finish(), settings)


def summed(frames: Frames, partition: Partition, settings: Settings, masks: Masks, report: Report) -> Summed:
    """Take all frames in; raises as `multitau` does."""
    _check_shapes(frames, partition, masks)
    if settings.flatten == "dynamic_bins":
        partition = partition._replace(static=partition.dynamic)
    record, started = begin_stage(), time.monotonic()
    good_pixels = partition.mask if masks.pixels is None else partition.mask & masks.pixels
    partition = partition._replace(mask=good_pixels if frames.good is None else good_pixels & frames.good)
    work = _again(record, partition, settings)
    number = first = work.sums.frames if work else 0
    for chunk in frames.chunks(first):
        work = work or _begin(chunk, partition, settings)
        size = chunk.frames if isinstance(chunk, Photons) else len(chunk)
        work.sums.take(work.prepared(chunk), _good(frames, masks, number, size))
        number += size
        report(_progress(number, frames.count, started))
        work.keep(record, heeded().asked)
    if masks.frames is not None and len(masks.frames) != number:
        raise InputError(f"has {len(masks.frames)} entries, and there are {number} frames", field="frame_mask")
    notes = _notes(frames, work, partition) if work else []
    if work is None or number < FEWEST_FRAMES:
        problem = f"there are {number}, and pairs need {FEWEST_FRAMES} or more"
        raise InputError(problem, file=frames.file, field="frames")
    if work.sums.used < max(FEWEST_FRAMES, ENOUGH * number):
        problem = "; ".join([f"only {work.sums.used} of {number} can be used", *notes])
        raise InputError(problem, file=frames.file, field="frames", remedy="Mask bad pixels with pixel_mask")
    return Summed(work.sums, work.blocks, partition, tuple(notes))


def _good(frames: Frames, masks: Masks, number: int, size: int) -> Bool[np.ndarray, " frame"]:
    """Which of so many frames, from a number on, are good."""
    good = np.ones(size, bool) if masks.frames is None else masks.frames[number : number + size]
    if len(good) != size:
        raise InputError(f"has {number + len(good)} entries, fewer than there are frames", field="frame_mask")
    return good if frames.missing is None else good & ~frames.missing[number : number + size]


def _notes(frames: Frames, work: Work, partition: Partition) -> list[str]:
    """What was left out, and why."""
    sums, notes = work.sums, []
    if work.dead.any():
        notes.append(f"pixels without numbers that were left out: {work.dead.sum()}")
    if frames.good is not None and not frames.good.all():
        notes.append(f"{(~frames.good).sum()} pixels of the detector are not good, as the file says")
    used = np.bincount(partition.dynamic.roi_map[partition.mask & ~work.dead], minlength=partition.dynamic.count + 1)
    if (empty := np.flatnonzero(used[1:] == 0)).size:
        notes.append(f"no pixel is left of bin{'s' * (empty.size > 1)} {', '.join(map(str, empty))}")
    if frames.missing is not None and frames.missing.any():
        first, many = int(np.argmax(frames.missing)), frames.missing.sum()
        notes.append(f"{many} of {sums.frames} frames are missing in the file, the first of them frame {first}")
    if sums.spoilt:
        frame, pixel = sums.first_spoilt
        place = divmod(pixel, partition.mask.shape[1])
        where = f"first in frame {frame}, pixel {place}, bin {partition.dynamic.roi_map[place] - 1}"
        notes.append(
            f"{sums.spoilt} of {sums.frames} frames were left out: some pixel is saturated or no number, {where}"
        )
    return notes


@dataclass
class Work:
    """The `sums` that are made over `blocks`, by all pixels or by the `few` that see photons, and `dead` pixels (row,
    column). `kept` is when the sums were last kept, and how long that took [s]."""

    blocks: Blocks
    sums: FrameSums
    few: bool
    dead: Bool[np.ndarray, "row column"]
    kept: tuple[float, float]

    def prepared(self, chunk: Chunk | Photons) -> Chunk | Photons:
        """Frames, or photons, as the sums take them."""
        return photons_of(chunk) if self.few else whole_frames(chunk, self.blocks.detector)

    def keep(self, record: Record | None, stop: bool) -> None:
        """Keep the sums so far if there is a record and it is time, or the user wants to stop.

        Raises:
            KeyboardInterrupt: the user wants to stop.
        """
        begun, (last, took) = time.monotonic(), self.kept
        if record is not None and (stop or begun - last > max(EVERY, SELDOM * took)):
            record.write(self.sums.state() | {"few": np.array(self.few), "dead": self.dead})
            self.kept = (time.monotonic(), time.monotonic() - begun)
        if stop:
            raise KeyboardInterrupt


def _begin(chunk: Chunk | Photons, partition: Partition, settings: Settings) -> Work:
    """Choose by the first frames which pixels can be used, and whether all pixels are looked at or only photons."""
    dead = np.zeros(partition.mask.shape, bool)
    if not isinstance(chunk, Photons):
        dead = no_photons(chunk[:CHUNK]).all(axis=0).reshape(dead.shape) & partition.mask
        if not (partition.mask & ~dead).any():  # the series may begin with frames that are not good
            dead = no_photons(chunk).all(axis=0).reshape(dead.shape) & partition.mask
    return _work(partition, settings, few_photons(chunk, (partition.mask & ~dead).ravel()), dead)


def _again(record: Record | None, partition: Partition, settings: Settings) -> Work | None:
    """What was at work when the same series was stopped; None if nothing was kept."""
    state = {} if record is None else record.state()
    if not state:
        return None
    work = _work(partition, settings, bool(state["few"]), state["dead"])
    work.sums.restore(state)
    return work


def _work(partition: Partition, settings: Settings, few: bool, dead: Bool[np.ndarray, "row column"]) -> Work:
    """The work at its beginning."""
    blocks = blocks_of(partition, ~dead)
    if not blocks.pixels.size:
        if blocks_of(partition, np.ones_like(dead)).pixels.size:
            raise InputError("no pixel of any bin holds a number of photons", field="frames")
        raise InputError("it leaves no pixel of any bin", field="pixel_mask")
    return Work(blocks, _sums(blocks, settings, few), few, dead, (time.monotonic(), 0.0))


def _sums(blocks: Blocks, settings: Settings, few: bool) -> FrameSums:
    """What frames are summed up by."""
    per_level, by_frame = settings.delays_per_level, settings.normalise == "frame"
    backend = get_backend(settings.backend, auto=NUMPY)
    if (ages := settings.ages) is not None:
        by_age = AgeSparse(blocks, per_level, ages) if few else AgeDense(blocks, per_level, backend, ages)
        return AgeSums(blocks, by_age, per_level, by_frame)
    if few and compiled.available:
        return PhotonSums(blocks, per_level, by_frame)
    return FrameSums(blocks, products_of(blocks, per_level, backend, few), per_level, by_frame)


def _check_shapes(frames: Frames, partition: Partition, masks: Masks) -> None:
    if frames.shape != partition.mask.shape:
        problem = f"have {frames.shape} pixels, and the bins are of a detector of {partition.mask.shape}"
        raise InputError(problem, file=frames.file, field="frames", remedy="Give the q-map of this detector")
    if masks.pixels is not None and masks.pixels.shape != frames.shape:
        raise InputError(f"has shape {masks.pixels.shape}, and frames have {frames.shape}", field="pixel_mask")
    if masks.frames is not None and frames.count is not None and masks.frames.shape != (frames.count,):
        raise InputError(f"has shape {masks.frames.shape}, and there are {frames.count} frames", field="frame_mask")


def _progress(number: int, count: int | None, started: float) -> Progress:
    took = time.monotonic() - started
    left = float("nan") if count is None else took * (count - number) / number
    return Progress("correlate", count or number, number, seconds_left=left, unit="frames")


def correlated(found: Summed, sums: Sums, settings: Settings) -> Correlated:
    """The results of all bins, at delays of up to half the series, from these sums of what was found."""
    _, blocks, partition, notes = found
    lags, m = delays(max(sums.intensity.size // 2, 1), settings.delays_per_level)
    sums = up_to(sums, lags.size)
    pairs = pairs_of(sums, blocks, settings.normalise)
    pixels = blocks.by_dynamic(blocks.pixels.astype(float))
    cov, samples = covariance(pairs, blocks), blocks.by_dynamic(np.ones(blocks.pixels.size))
    if sums.by_time is not None:
        cov[sums.by_time.bins], samples[sums.by_time.bins] = covariance_by_time(sums.by_time, settings.normalise)
    of_static = blocks.by_static(sums.photons) ** 2 / np.maximum(blocks.by_static(blocks.pixels.astype(float)), 1)
    return Correlated(
        partition=of_used(partition, blocks),
        settings=settings,
        lags=lags,
        summed=m,
        g2=g2_of(pairs),
        cov=cov,
        cov_samples=samples,
        seen=pairs.seen,
        expected=pairs.expected,
        counts=np.sqrt(blocks.over_static(of_static) / np.maximum(pixels, 1)) / sums.frames,
        pixels=pixels,
        frames=sums.frames,
        image=(sums.image / sums.frames).reshape(partition.mask.shape),
        intensity=sums.intensity,
        notes=notes,
        frame_pairs=sums.weights / m,
        scatter=scatter(pairs, sums.squares, blocks),
    )
