"""A million frames, killed in the middle and gone on with: the same bits, and how much work was lost; and the memory.

`uv run python benchmarks/killed.py [--frames 1000000] [--side 64] [--counts 0.01] [--share 0.7]
[--format bin]`

The frames are a file of Rigaku's photons, or of IMM, made here. `bayesfit correlate` runs once undisturbed; then again,
killed (SIGKILL) in the middle, and once more with the same command. Sums are kept every 10 s or more. Memory is that of
the processes themselves (Linux), without the pages of the file.
"""

from __future__ import annotations

import argparse
import itertools
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bayesfit.geometry import Detector, partition, qmap, save_partition

AT_ONCE = 20_000  # frames that are made together
PROGRAM = Path(sys.executable).with_name("bayesfit")


def photons(frames: int, side: int, counts: float) -> Iterator[tuple[Any, Any, Any, int]]:
    """Frames and pixels of photons, how many are in each, in order; and the number of frames that they are from."""
    rng = np.random.default_rng(1)
    for start in range(0, frames, AT_ONCE):
        some = min(AT_ONCE, frames - start)
        frame = np.repeat(np.arange(some), rng.poisson(counts * side**2, some))
        place, number = np.unique(frame * side**2 + rng.integers(side**2, size=frame.size), return_counts=True)
        yield start + place // side**2, place % side**2, number, some


def write_rigaku(path: Path, given: argparse.Namespace) -> int:
    """Write a file of photons as Rigaku's detectors do, of at most 2^21 pixels, and return their number."""
    written = 0
    with path.open("wb") as file:
        for frame, pixel, number, _ in photons(given.frames, given.side, given.counts):
            words = frame.astype("<u8") << np.uint64(40) | pixel.astype("<u8") << np.uint64(16) | number.astype("<u8")
            file.write(words.tobytes())
            written += int(number.sum())
    return written


def write_imm(path: Path, given: argparse.Namespace) -> int:
    """The same as IMM, with a header for every frame."""
    written, first = 0, 0
    header = bytearray(1024)
    struct.pack_into("<i", header, 4, 6)
    struct.pack_into("<3i", header, 108, given.side, given.side, 2)
    with path.open("wb") as file:
        for frame, pixel, number, some in photons(given.frames, given.side, given.counts):
            ends = np.searchsorted(frame, first + np.arange(some + 1))
            pixel, number = pixel.astype("<u4"), number.astype("<u2")
            for begin, end in itertools.pairwise(ends.tolist()):
                struct.pack_into("<I", header, 152, end - begin)
                file.write(bytes(header) + pixel[begin:end].tobytes() + number[begin:end].tobytes())
            written, first = written + int(number.sum()), first + some
    return written


WRITERS = {"bin": write_rigaku, "imm": write_imm}


def correlate(folder: Path, output: str) -> subprocess.Popen[str]:
    (frames,) = folder.glob("frames.*")
    command = [PROGRAM, "correlate", frames, "qmap.hdf", "-o", output, "--frame-time", "1e-5"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def finished(folder: Path, output: str) -> tuple[float, float]:
    """Run to the end, and return the time it took [s], and the largest memory [MiB]."""
    began, peak = time.perf_counter(), 0.0
    process = correlate(folder, output)
    while process.poll() is None:
        peak = max(peak, own_memory(process.pid))
        time.sleep(0.05)
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}")
    print(said.strip(), flush=True)
    return time.perf_counter() - began, peak


def own_memory(process: int) -> float:
    """The memory of a process now [MiB], without the pages of files that it maps, which the system takes back."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def killed(folder: Path, output: str, after: float) -> None:
    """Run for so long [s], and kill."""
    process = correlate(folder, output)
    time.sleep(after)
    if process.poll() is not None:
        raise SystemExit("it ended before it was killed: give more frames")
    process.kill()
    process.communicate()


def same(one: Path, other: Path) -> bool:
    """Whether all that two files hold is the same, to the bit."""
    names: list[str] = []
    with h5py.File(one) as a, h5py.File(other) as b:
        a.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        return all(bits(a[name][()]) == bits(b[name][()]) for name in names)


def bits(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return repr(value.tolist()).encode() if value.dtype == object else bytes(value.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--counts", type=float, default=0.01)
    parser.add_argument("--share", type=float, default=0.7, help="of the undisturbed time, after which it is killed")
    parser.add_argument("--format", choices=WRITERS, default="bin", help="Rigaku's, or IMM")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / f"frames.{given.format}"
        written = WRITERS[given.format](path, given)
        print(f"{given.frames} frames, {written} photons, {path.stat().st_size / 1e6:.0f} MB", flush=True)
        detector = Detector((given.side, given.side), (75e-6, 75e-6), 5.0, (-4.0, -4.0), 1.24)
        save_partition(partition(qmap(detector), (10, 1)), folder / "qmap.hdf", detector)
        whole, peak = finished(folder, "whole.hdf")
        killed(folder, "again.hdf", given.share * whole)
        rest, again = finished(folder, "again.hdf")
        print(
            f"undisturbed {whole:.0f} s; killed at {given.share} of it, the rest took {rest:.0f} s",
            flush=True,
        )
        bits_are_same = same(folder / "whole.hdf", folder / "again.hdf")
        print(f"the same bits: {bits_are_same}; largest memory {max(peak, again):.0f} MiB")


if __name__ == "__main__":
    main()
