"""Time from prompt to saved result on the shipped 30-bin file, cold and warm, with peak memory.

`uv run --no-dev python benchmarks/shipped_file.py`, with the libraries that users have: where there is `dask`, xarray
imports it in every run.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from measures import ROOT, Used, command, machine

FILE = ROOT / "data" / "aps_8idi_sim.hdf"


def runs(warm: int = 2) -> list[Used]:
    """One run with empty caches, and so many with what it has left in them; each makes its own result."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        return [
            command("run", FILE, "-o", Path(folder) / f"out {number}", XDG_CACHE_HOME=cache)
            for number in range(1 + warm)
        ]


def sentence(cold: Used, *warm: Used) -> str:
    """What was measured, in one sentence."""
    each = " and ".join(f"{used.wall:.1f} s" for used in warm)
    processor = min(used.processor for used in warm)
    peak = max(used.peak for used in (cold, *warm))
    return (
        f"The shipped file of 30 bins, from prompt to saved result: {cold.wall:.1f} s with empty caches, then {each} "
        f"({processor:.1f} s of processor time); at most {peak:.0f} MiB of memory."
    )


def main() -> None:
    print(machine())
    print(sentence(*runs()))


if __name__ == "__main__":
    main()
