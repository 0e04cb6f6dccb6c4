"""How much of the memory map of this process is taken.

Linux lets a process map a limited number of pieces of memory (65,530 unless the administrator says otherwise). The
compiled programs of one fit take some 3,000, and where no piece is left for another, the compiler ends the process.
"""

from pathlib import Path

SHARE = 0.5  # of the limit, beyond which programs are given back
LIMIT, TAKEN = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")


def nearly_full() -> bool:
    """Whether pieces of mapped memory become scarce; False where the system has no such limit or does not state it."""
    try:
        return TAKEN.read_bytes().count(b"\n") > SHARE * int(LIMIT.read_text())
    except (OSError, ValueError):
        return False
