"""What every long stage shares: progress reported, and a wish to stop that is looked for between chunks of work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Progress:
    """How far the work is: bins done of all, draws that every chain under way has of those wanted, worst R-hat of the
    bins last looked at, divergences among kept draws, seconds left, the share of the stage that is done, and the name
    of the dataset where there are several."""

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
    """Set by the first Ctrl-C (or SIGTERM); the second one raises."""

    def __init__(self) -> None:
        self.asked = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Turn the first SIGINT or SIGTERM into a wish to stop at the next chunk; only in the main thread."""
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
