"""A series of frames correlated slice by slice of its ages."""

from __future__ import annotations

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
