"""Error and coverage of calibrations of simulated images, each with a detector drawn from the priors.

`uv run python benchmarks/calibrate.py [--images 100] [--symmetry]`

An image holds photon-noisy rings of silver behenate, or with --symmetry a smooth pattern. Of each number of the place:
the root mean square error, the mean posterior sd, mean and sd of the z-scores, and in how many images the central 50
and 95 % of the posterior hold the truth.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.stats import norm

from bayesfit.geometry import Detector, calibrate, qmap

NOMINAL = Detector((256, 256), (172e-6, 172e-6), 0.5, (127.5, 127.5), wavelength=1.0)
SPREAD = np.array([12.0, 12.0, 0.015, 0.02, 0.02])  # of row, column, distance / m and tilts
RINGS = 2 * np.pi / 58.380 * np.arange(1, 20)
WIDTH = 0.002  # 1/angstrom, half at half the height


def rings(q: np.ndarray, photons: float) -> np.ndarray:
    """Rings and a background that falls with q, in photons per pixel."""
    lines = sum(0.8**k * np.exp2(-(((q - ring) / WIDTH) ** 2)) for k, ring in enumerate(RINGS))
    return photons * (lines + 0.1 * RINGS[0] / np.maximum(q, 0.02))


def smooth(q: np.ndarray, photons: float) -> np.ndarray:
    """A broad peak on a background."""
    return photons * (np.exp(-0.5 * ((q - 0.15) / 0.04) ** 2) + 0.05 * 0.1 / np.maximum(q, 0.02))


def simulated(seed: int, photons: float, symmetry: bool) -> tuple[np.ndarray, tuple[float, ...]]:
    """Counts, and the place of the detector that saw them."""
    draw = np.random.default_rng(seed)
    shift = SPREAD * draw.standard_normal(5) * np.array([1, 1, not symmetry, 1, 1])
    true = NOMINAL.placed(np.array(NOMINAL.place) + shift)
    q = qmap(true, backend="numpy").q
    return draw.poisson((smooth if symmetry else rings)(q, photons)), true.place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--photons", type=float, default=1.0, help="per pixel at the top of the first ring")
    parser.add_argument("--symmetry", action="store_true")
    parser.add_argument("--draws", type=int, default=500)
    given = parser.parse_args()
    how = {"symmetry": True} if given.symmetry else {"rings": RINGS}
    names = [name for name in ("row", "column", "distance", "rot1", "rot2") if name != "distance" or not given.symmetry]
    z, errors, sds, verdicts, started = [], [], [], [], time.perf_counter()
    for seed in range(given.images):
        image, place = simulated(seed, given.photons, given.symmetry)
        result = calibrate(image, NOMINAL, **how, draws=given.draws)
        truth = dict(zip(("row", "column", "distance", "rot1", "rot2"), place, strict=True))
        draws = {name: result["posterior"][name].values for name in names}
        errors.append([draws[name].mean() - truth[name] for name in names])
        sds.append([draws[name].std() for name in names])
        z.append([norm.ppf(np.clip(np.mean(draws[name] < truth[name]), 1e-3, 1 - 1e-3)) for name in names])
        verdicts.append(str(result["diagnostics"].verdict.values))
    z, errors, sds = map(np.array, (z, errors, sds))
    seconds = (time.perf_counter() - started) / given.images
    print(f"{given.images} images of some {image.sum()} photons, {seconds:.1f} s each")
    print({name: verdicts.count(name) for name in sorted(set(verdicts))})
    for place, name in enumerate(names):
        held = [np.mean(np.abs(z[:, place]) < norm.ppf(0.5 + level / 2)) for level in (0.5, 0.95)]
        spread = f"rms error {np.sqrt(np.mean(errors[:, place] ** 2)):.3g}, sd {sds[:, place].mean():.3g}"
        scores = f"z {z[:, place].mean():+.2f} +- {z[:, place].std():.2f}"
        print(f"{name:8} {spread}, {scores}, held {held[0]:.0%}, {held[1]:.0%}")
    print(f"largest error of the centre {np.abs(errors[:, :2]).max():.3f} pixel")


if __name__ == "__main__":
    main()
