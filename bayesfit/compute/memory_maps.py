"""How much of the memory map of this process is taken, and when room must be made in it.

Linux lets a process map a limited number of pieces of memory (65,530 unless the administrator says otherwise). The
compiled programs of one fit take some 3,000, and where no piece is left for another, the compiler ends the process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

import jax

SHARE = 0.5  # of the limit, beyond which programs are given back
MARGIN = 0.05  # of the limit: what was not given back is not asked for again before so much more is taken
LIMIT, TAKEN = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")


def share() -> float:
    """The share of the limit that is taken; 0 where the system has no such limit or does not state it."""
    try:
        return TAKEN.read_bytes().count(b"\n") / int(LIMIT.read_text())
    except (OSError, ValueError):
        return 0.0


class Programs(Protocol):
    """Compiled programs; `used` is when one was last called."""

    programs: dict[Any, Any]
    used: float

    def give_back(self) -> None:
        """Let go of them."""


PROGRAMS: WeakSet[Programs] = WeakSet()  # all there are


def give_back(some: Iterable[Programs]) -> None:
    """Let go of all of these, and of their memory."""
    for one in some:
        one.give_back()
    gc.collect()


class Room:
    """Says when pieces of mapped memory become scarce, and makes room. `left` is the share that was still taken when
    all that can be given back was, or less if less is taken since."""

    def __init__(self) -> None:
        self.left = 0.0

    def is_scarce(self) -> bool:
        """Whether programs are to be given back."""
        taken = share()
        self.left = min(self.left, taken)
        return taken > SHARE and taken >= self.left + MARGIN

    def make(self, wanted: Programs) -> None:
        """Give back what was not used for longest, half of all but the `wanted` programs, and if that is not enough,
        all that JAX holds besides."""
        loaded = [one for one in list(PROGRAMS) if one is not wanted and one.programs]
        give_back(sorted(loaded, key=lambda one: one.used)[: (len(loaded) + 1) // 2])
        if share() > SHARE:
            jax.clear_caches()
            gc.collect()
        self.left = share()


ROOM = Room()
