"""From the files of a light scattering instrument to the radius of spheres: how long, and is it the true one?

`uv run --extra light python benchmarks/spheres.py [--radius 50 105 30] [--spread 0.04 0.05 0.15] [--folder FOLDER]`

For each radius [nm], whose relative standard deviation is its spread, ALV files of polystyrene spheres are written,
with the headers of real files (13 angles, 3 repeats), Mie's intensities by miepython's amplitudes, and the noise that
theory says of photon pairs and speckles. `bayesfit run` fits them as one, twice, the first time with empty caches.
Printed are the seconds from prompt to saved result, the verdicts, and radii with central 95 % intervals.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from measures import command

import bayesfit
from bayesfit.data.counting import Counting, as_counted
from bayesfit.modelling.lag_sums import lag_grid
from bayesfit.modelling.photon_covariance import speckle_covariance

INDEX, CONTRAST, BOLTZMANN = 1.19, 0.93, 1.380649e-23
SHARED = ("width", "shape_3", "shape_4", "shape_5", "shape_6")
SETTINGS = f"""together = "average_stack"
[model]
name = "mie_spheres"
relative_index = {INDEX}
[across]
rate = "diffusion"
""" + "".join(f'{name} = "shared"\n' for name in SHARED)


def write(like: Path, radius: float, spread: float, rng: np.random.Generator, folder: Path) -> None:
    """Write a file like this one, of spheres whose radii are normal."""
    text = like.read_text("cp1252")
    counted = as_counted(bayesfit.read(like))
    counting, frame_time = Counting.of(counted), counted.attrs["frame_time"]
    rates, weights = intensities(counted, radius * (1.0 + spread * np.linspace(-4.0, 4.0, 61)))
    weights = weights * np.exp(-0.5 * np.linspace(-4.0, 4.0, 61) ** 2)
    g1 = np.exp(-np.outer(lag_grid(counting.frames) * frame_time, rates)) @ (weights / weights.sum())
    (mean,), (covariance,) = speckle_covariance(g1[:, None] ** 2, np.array([CONTRAST]), counting)
    of_pairs = mean / counting.pairs[0]
    values, vectors = np.linalg.eigh(covariance + np.diag(of_pairs))
    g2 = mean + (vectors * np.sqrt(np.maximum(values, 0.0))) @ rng.standard_normal(mean.size)
    apart = np.sqrt(of_pairs) * rng.standard_normal(mean.size)  # the two orders of the cross-correlation
    head, rest = text.split('"Correlation"\n')
    block, tail = rest.split("\n\n", 1)
    lags = [line.split()[0] for line in block.splitlines()]
    lines = [
        f"  {lag}\t {a - 1.0:.5E}\t {b - 1.0:.5E}\t  0.00000E+000\t  0.00000E+000"
        for lag, a, b in zip(lags, g2 + apart, g2 - apart, strict=True)
    ]
    made = "\n".join([f'{head}"Correlation"', *lines, "", tail])
    (folder / like.name).write_text(made, "cp1252")


def intensities(data, radii):
    """Relaxation rate [1/s] and scattered intensity of a sphere of each radius [nm] at the angle of a dataset."""
    from miepython import S1_S2

    attrs, q = data.attrs, float(data.q[0])
    rates = BOLTZMANN * attrs["temperature"] / (6 * np.pi * attrs["viscosity"] * radii * 1e-29) * q**2
    cosine = np.array([np.cos(np.radians(float(data.angle[0])))])
    sizes = 20.0 * np.pi * attrs["refractive_index"] * radii / attrs["wavelength"]
    return rates, np.array([np.abs(S1_S2(INDEX, size, cosine, norm="wiscombe")[0][0]) ** 2 for size in sizes])


def interval(array) -> str:
    """Median and central 95 % interval of the draws."""
    if "q_bin" in array.dims:
        array = array.isel(q_bin=0)
    low, middle, high = array.quantile([0.025, 0.5, 0.975]).values
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--radius", type=float, nargs="+", default=[50.0, 105.0, 30.0])
    parser.add_argument("--spread", type=float, nargs="+", default=[0.04, 0.05, 0.15])
    parser.add_argument("--folder", type=Path, default=Path("../shared/data/dls_alv_cgs3"))
    given = parser.parse_args()
    if not (like := sorted(given.folder.glob("*.ASC"))):
        parser.error(f"{given.folder}: there are no ALV files")
    for radius, spread in zip(given.radius, given.spread, strict=True):
        with tempfile.TemporaryDirectory() as scratch:
            folder, rng = Path(scratch), np.random.default_rng(5)
            (settings := folder / "spheres.toml").write_text(SETTINGS)
            for path in like:
                write(path, radius, spread, rng, folder)
            outs, files = (folder / "first", folder / "second"), sorted(folder.glob("*.ASC"))
            seconds = [
                command("run", *files, "-o", out, "--config", settings, XDG_CACHE_HOME=folder / "caches").wall
                for out in outs
            ]
            result = bayesfit.load(next(outs[-1].glob("*.nc")))
        names = ("hydrodynamic_radius", "radius_mean", "radius_sd")
        found = ", ".join(f"{name} {interval(result['posterior'][name])}" for name in names)
        verdicts = dict(Counter(result["diagnostics"].verdict.values.tolist()))
        print(f"radius {radius:g} nm, sd {radius * spread:.3g}: {found}")
        print(f"  {verdicts}, together {result['across'].joint_verdict.item()}")
        print(f"  with empty caches {seconds[0]:.0f} s, then {seconds[1]:.0f} s", flush=True)


if __name__ == "__main__":
    main()
