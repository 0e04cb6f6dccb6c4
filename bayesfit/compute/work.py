"""What every long stage has in common: it reports progress, and between chunks of work it checks whether to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass
class Progress:
    """How far the work is.

    `bins_done` of `bins` are done, and each chain at work has made `draws_done` of `draws` draws. `worst_rhat` is the
    worst R-hat of the bins that were assessed last, `divergences` counts those among the kept draws. `share` is the
    part of the stage that is done, from 0 to 1, and `dataset` the name of the dataset if there are several. What is
    counted may be another `unit` than bins. `escalated` says of each bin at work that needs more than the plain run
    what is done, and why."""

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
    unit: str = "bins"
    escalated: tuple[str, ...] = ()


Report = Callable[[Progress], None]


def reported_as(name: str, report: Report) -> Report:
    """Reports of work on the dataset, or datasets, of this name."""
    return lambda progress: report(replace(progress, dataset=name))


class Stop:
    """Whether the user has `asked` to stop, by which `signal`, and whether KeyboardInterrupt was `raised` since: what
    was under way, such as a comparison within JAX, may have made an error of its own of that."""

    def __init__(self) -> None:
        self.asked, self.signal, self.raised = False, 0, False


_HEEDED: ContextVar[Stop | None] = ContextVar("stop", default=None)


def heeded() -> Stop:
    """The wish to stop that fits heed here."""
    return _HEEDED.get() or Stop()


@contextmanager
def stop_on(*numbers: int, grace: float = 0.0) -> Iterator[Stop]:
    """The first of these signals asks the fits within to stop after their current chunk of work. The second one, or so
    many seconds of grace, raises KeyboardInterrupt. Outside the main thread, signals are left alone."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: Any) -> None:
        if stop.asked:
            stop.raised = True
            raise KeyboardInterrupt
        stop.asked, stop.signal = True, number
        if grace:
            signal.setitimer(signal.ITIMER_REAL, grace)

    handled = {*numbers, *([signal.SIGALRM] if grace else [])}
    before = {number: signal.signal(number, ask) for number in handled}
    token = _HEEDED.set(stop)
    try:
        yield stop
    finally:
        _HEEDED.reset(token)
        if grace:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)
