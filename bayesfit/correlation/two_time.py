"""A series of frames correlated slice by slice of its ages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayesfit.compute.errors import InputError
from bayesfit.compute.work import Report
from bayesfit.correlation.age_sums import AgeSums
from bayesfit.correlation.frames import Frames
from bayesfit.correlation.multitau import Correlated, Masks, Settings, correlated, summed
from bayesfit.geometry.bins import Partition


def two_time(
    frames: Frames, partition: Partition, settings: Settings, masks: Masks, report: Report = lambda progress: None
) -> list[Correlated]:
    """Correlate frames, each slice of `settings.ages` by itself: the pairs of frames whose middle lies in it.

    What is kept in memory grows with pixels times delays, and with blocks times delays times slices; not with frames.

    Raises:
        InputError: frames, masks and bins do not fit together, or a slice has no frame that can be used.
            KeyboardInterrupt: the user wants to stop.
    """
    found = summed(frames, partition, settings, masks, report)
    assert isinstance(found.sums, AgeSums)
    slices = found.sums.of_slices()
    for number, sums in enumerate(slices):
        if not sums.frames:
            problem = f"slice {number} of the ages has no frame that can be used"
            raise InputError(problem, file=frames.file, field="ages", remedy="Give other slices")
    return [correlated(found, sums, settings) for sums in slices]


def usable_delays(found: list[Correlated]) -> np.ndarray:
    """The delays (age, tau) that are of the age of their slice; see `Ages.usable`."""
    first = found[0]
    assert first.settings.ages is not None
    return first.settings.ages.usable(np.stack([each.frame_pairs for each in found]), first.lags, first.summed)


def of_delays(found: Correlated, own: np.ndarray) -> Correlated:
    """What was correlated, at some of its delays (tau,) alone."""
    by_delay = {name: getattr(found, name)[own] for name in ("lags", "summed", "frame_pairs")}
    by_point = {name: getattr(found, name)[:, own] for name in ("g2", "seen", "expected", "scatter")}
    return replace(found, cov=found.cov[:, own][:, :, own], **by_delay, **by_point)
