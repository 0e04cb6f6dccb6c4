"""Time from prompt to saved result on the shipped 30-bin file, cold and warm, with peak memory.

`uv run python benchmarks/shipped_file.py`
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).parent / "bayesfit"


def timed(folder: Path) -> float:
    """Wall time in s of one run whose caches lie in `folder`."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    started = time.monotonic()
    subprocess.run(
        [PROGRAM, "run", ROOT / "data" / "aps_8idi_sim.hdf", "-o", folder / "out"],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.monotonic() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        times = [timed(Path(name)) for _ in range(3)]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"cores {len(os.sched_getaffinity(0))}")
    print(f"cold caches {times[0]:.1f} s; warm caches {times[1]:.1f} s, {times[2]:.1f} s")
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
