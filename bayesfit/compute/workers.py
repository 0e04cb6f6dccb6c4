"""Threads in which programs of one device run side by side (see `compute/hardware.py`).

They keep no journal: what runs in them is a part of a stage, and not a stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import jax

from bayesfit.compute.operations import computing


def side_by_side[Made](calls: Sequence[Callable[[], Made]]) -> list[Made]:
    """What each of these calls returns, each called by the thread of a worker."""
    started = [_thread(place).submit(_as_here(call)) for place, call in enumerate(calls)]
    return [made.result() for made in started]


def in_turn[Made](calls: Iterable[Callable[[], Made]], count: int) -> Iterator[Made]:
    """What each of these calls returns, one after the other, while `count` of them are at work. Calls that have not
    begun when the iterator is closed are not made."""
    at_work: deque[Future[Made]] = deque()
    pool = ThreadPoolExecutor(count, "bayesfit turns")
    try:
        for call in calls:
            at_work.append(pool.submit(_as_here(call)))
            if len(at_work) > count:
                yield at_work.popleft().result()
        while at_work:
            yield at_work.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _as_here[Made](call: Callable[[], Made]) -> Callable[[], Made]:
    """The call with the precision of the thread that this is called in."""
    double = jax.config.jax_enable_x64

    def called() -> Made:
        with computing(double):
            return call()

    return called


@cache
def _thread(worker: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, f"bayesfit worker {worker}")
