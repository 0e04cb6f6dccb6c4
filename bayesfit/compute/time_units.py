"""The unit of a time that an HDF5 file states."""

from __future__ import annotations

SECONDS = {
    1.0: {"s", "sec", "second", "seconds"},
    1e-3: {"ms", "msec", "millisecond", "milliseconds"},
    1e-6: {"us", "µs", "μs", "usec", "microsecond", "microseconds"},
    1e-9: {"ns", "nsec", "nanosecond", "nanoseconds"},
}


def seconds_in(unit: str) -> float | None:
    """How many seconds a unit is; None if it is no unit of time."""
    word = unit.strip().lower()
    return next((seconds for seconds, names in SECONDS.items() if word in names), None)
