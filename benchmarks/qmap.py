"""Time of q of every pixel: without trigonometry, on NumPy and compiled by JAX, and by trigonometry in NumPy.

`uv run python benchmarks/qmap.py [--pixels 1024]`

Each is called again and again in one run, on one detector whose distance changes every time. The least time counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bayesfit.geometry import Detector, qmap


def by_trigonometry(detector: Detector) -> np.ndarray:
    """q = 4 pi sin(theta) / wavelength, as textbooks have it."""
    rows, columns = np.indices(detector.shape)
    down = (rows - detector.normal[0]) * detector.pixel_size[0]
    along = (columns - detector.normal[1]) * detector.pixel_size[1]
    two_theta = np.arctan(np.hypot(down, along) / detector.distance)
    return 4 * np.pi / detector.wavelength * np.sin(two_theta / 2)


def least(call: Callable[[Detector], Any], detector: Detector, times: int) -> float:
    """The least wall time of a call, in ms."""
    found = []
    for number in range(times):
        own = replace(detector, distance=5.0 + 0.001 * number)
        started = time.perf_counter()
        call(own)
        found.append(time.perf_counter() - started)
    return 1000 * min(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pixels", type=int, default=1024, help="on a side")
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args()
    middle = (given.pixels / 2 - 0.3,) * 2
    detector = Detector((given.pixels,) * 2, (75e-6, 75e-6), 5.0, middle, wavelength=1.24)
    ways = {
        "trigonometry, NumPy": by_trigonometry,
        "algebra, NumPy": lambda own: qmap(own, backend="numpy").q,
        "algebra, JAX, compiled": lambda own: qmap(own, backend="jax").q.block_until_ready(),
    }
    found = {name: least(call, detector, given.times) for name, call in ways.items()}
    slowest = found["trigonometry, NumPy"]
    print(f"q of {given.pixels} x {given.pixels} pixels")
    for name, ms in found.items():
        print(f"{name:24} {ms:8.1f} ms   {slowest / ms:5.1f} times as fast")


if __name__ == "__main__":
    main()
