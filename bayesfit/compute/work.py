"""What every long stage has in common: it reports progress, and between chunks of work it checks whether to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Progress:
    """How far the work is.

    `bins_done` of `bins` are done, and each chain at work has made `draws_done` of `draws` draws. `worst_rhat` is the
    worst R-hat of the bins that were assessed last, `divergences` counts those among the kept draws. `share` is the
    part of the stage that is done, from 0 to 1, and `dataset` the name of the dataset if there are several."""

    stage: str
    bins: int
    bins_done: int = 0
    draws_done: int = 0
    draws: int = 0
    worst_rhat: float = float("nan")
    divergences: int = 0
    seconds_left: float = float("nan")
    share: float = 0.0
    dataset: str = ""


Report = Callable[[Progress], None]


class Stop:
    """Whether the user has asked to stop, by Ctrl-C or SIGTERM."""

    def __init__(self) -> None:
        self.asked = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """The first SIGINT or SIGTERM asks the work to stop after the current chunk; the second one raises
    KeyboardInterrupt. Outside the main thread, signals are left alone."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
