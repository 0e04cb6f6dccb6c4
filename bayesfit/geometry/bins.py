"""The bins that pixels make: static ones, in which the intensity is taken to be one, and dynamic ones, which are made
of static ones and have a correlation function each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayesfit.backends.arrays import ensure_numpy
from bayesfit.compute.errors import InputError, SettingsError
from bayesfit.geometry.scattering import QMap

Scale = Literal["linear", "log"]
Range = tuple[float, float]
MOST_BINS = 1_000_000


@dataclass(frozen=True)
class Bins:
    """A division of the pixels.

    `roi_map` (row, column): the number of each pixel's bin, from 1; 0 where it has none. `q` (n_q,) [1/angstrom] and
    `phi` (n_phi,) [degree]: the centres of all rings and sectors. `index_mapping` (bin,): the place q * n_phi + phi of
    each bin that has pixels; the others have no number. `q_err` (bin,) [1/angstrom]: standard errors of the bins' q,
    where the detector was calibrated.
    """

    roi_map: Int[np.ndarray, "row column"]
    q: Float[np.ndarray, " n_q"]
    phi: Float[np.ndarray, " n_phi"]
    index_mapping: Int[np.ndarray, " bin"]
    q_err: Float[np.ndarray, " bin"] | None = None

    def __repr__(self) -> str:
        q = f"q {self.q.min():.4g} to {self.q.max():.4g} 1/angstrom"
        return f"<Bins: {self.count} bins with pixels, of {self.q.size} rings x {self.phi.size} sectors; {q}>"

    @property
    def count(self) -> int:
        """How many bins have pixels."""
        return self.index_mapping.size

    @property
    def pixels(self) -> Int[np.ndarray, " bin"]:
        """How many pixels each bin has."""
        return np.bincount(self.roi_map.ravel(), minlength=self.count + 1)[1:]

    def mean(self, values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " bin"]:
        """The mean of values over the pixels of each bin."""
        return np.bincount(self.roi_map.ravel(), values.ravel(), self.count + 1)[1:] / self.pixels

    @property
    def centers(self) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
        """q [1/angstrom] and phi [degree] of each bin."""
        ring, sector = np.divmod(self.index_mapping, self.phi.size)
        return self.q[ring], self.phi[sector]


class Partition(NamedTuple):
    """`mask` (row, column), True where a pixel is used, and its bins. Each static bin lies in one dynamic bin."""

    mask: Bool[np.ndarray, "row column"]
    static: Bins
    dynamic: Bins

    def __repr__(self) -> str:
        rows, columns = self.mask.shape
        good = f"{int(np.count_nonzero(self.mask))} of {rows} x {columns} pixels are good"
        return f"<Partition: {good}; static {self.static!r}, dynamic {self.dynamic!r}>"


def partition(
    qmap: QMap,
    dynamic: tuple[int, int],
    static: tuple[int, int] | None = None,
    *,
    mask: Bool[np.ndarray, "row column"] | None = None,
    scale: Scale = "linear",
    q_range: Range | None = None,
    phi_start: float = -180.0,
) -> Partition:
    """Rings in q, divided into sectors in phi.

    Args:
        qmap: what `qmap` returned.
        dynamic: numbers of rings and sectors of the dynamic bins.
        static: the same of the static bins, multiples of the former; by default those of the dynamic bins.
        mask: True where a pixel is good; by default all are.
        scale: rings of equal width in q ("linear") or in its logarithm ("log").
        q_range: the smallest and the largest q of a ring [1/angstrom]; by default those of the good pixels.
        phi_start: where the first sector begins [degree].

    Raises:
        SettingsError: a number is impossible. InputError: the mask has another shape, or leaves no pixel.

    Example:
        >>> import bayesfit
        >>> from bayesfit.geometry import Detector, partition, qmap
        >>> map = qmap(Detector((64, 64), (75e-6, 75e-6), 5.0, (31.5, 31.5), wavelength=1.24))
        >>> found = partition(map, dynamic=(2, 4), static=(4, 4), scale="log")
        >>> found.dynamic.count, found.static.count
        (8, 16)
    """
    static = dynamic if static is None else static
    _check_numbers(dynamic, static)
    q, phi = ensure_numpy(qmap.q), ensure_numpy(qmap.phi)
    good = _mask(mask, q) & np.isfinite(q)
    low, high = _range(q_range, q[good], scale)
    good &= (q >= low) & (q <= high) & (q > 0)
    if not good.any():
        raise InputError(f"no good pixel has a q from {low:g} to {high:g} 1/angstrom", field="mask")
    edges = np.geomspace(low, high, static[0] + 1) if scale == "log" else np.linspace(low, high, static[0] + 1)
    ring = np.clip(np.searchsorted(edges, q, side="right") - 1, 0, static[0] - 1)
    sector = np.clip(((phi - phi_start) % 360.0 / 360.0 * static[1]).astype(int), 0, static[1] - 1)
    made = []
    for rings, sectors in (static, dynamic):
        fewer, narrower = static[0] // rings, static[1] // sectors
        places = np.where(good, ring // fewer * sectors + sector // narrower, -1)
        directions = phi_start + (np.arange(sectors) + 0.5) * 360.0 / sectors
        made.append(_bins(places, _centers(edges[::fewer], scale), (directions + 180.0) % 360.0 - 180.0))
    return Partition(good, *_with_errors(made, qmap))


def _with_errors(made: list[Bins], qmap: QMap) -> list[Bins]:
    """The bins with the errors of their q: the relative ones of the mean q of their pixels, which are off together."""
    shifts = [np.asarray(ensure_numpy(shift)) for shift in qmap.q_shifts()]
    if not shifts:
        return made
    q = ensure_numpy(qmap.q)
    relative = [np.sqrt(sum(bins.mean(shift) ** 2 for shift in shifts)) / bins.mean(q) for bins in made]
    return [replace(bins, q_err=bins.centers[0] * own) for bins, own in zip(made, relative, strict=True)]


def _check_numbers(dynamic: tuple[int, int], static: tuple[int, int]) -> None:
    for name, given in (("dynamic", dynamic), ("static", static)):
        whole = len(given) == 2 and all(isinstance(n, int | np.integer) and n > 0 for n in given)
        if not whole or np.prod(given, dtype=float) > MOST_BINS:
            raise SettingsError(f"got {given!r}", field=name, remedy="Expected numbers of rings and of sectors")
    if any(many % few for many, few in zip(static, dynamic, strict=True)):
        problem = f"{static} are no multiples of {dynamic}, so that a static bin would lie in two dynamic ones"
        raise SettingsError(problem, field="static")


def _mask(given: Bool[np.ndarray, "row column"] | None, q: Float[np.ndarray, "row column"]) -> np.ndarray:
    if given is None:
        return np.ones(q.shape, bool)
    mask = np.array(ensure_numpy(given)).astype(bool)
    if mask.shape != q.shape:
        raise InputError(f"shape {mask.shape} is not that of the q-map, {q.shape}", field="mask")
    return mask


def _range(given: Range | None, q: Float[np.ndarray, " good"], scale: Scale) -> Range:
    """The ends of the rings."""
    if scale not in ("linear", "log"):
        raise SettingsError(f"got {scale!r}", field="scale", remedy="It is 'linear' or 'log'")
    if given is None:
        q = q[q > 0]
        if not q.size:
            raise InputError("it leaves no pixel", field="mask")
        return float(q.min()), float(q.max())
    low, high = map(float, given)
    if not 0 <= low < high < np.inf or (scale == "log" and low == 0):
        raise SettingsError(f"got {given!r}", field="q_range", remedy="Expected a smaller and a larger q above 0")
    return low, high


def _centers(edges: Float[np.ndarray, " edge"], scale: Scale) -> Float[np.ndarray, " n_q"]:
    """The middle of each ring, geometric in a logarithmic scale."""
    return np.sqrt(edges[1:] * edges[:-1]) if scale == "log" else 0.5 * (edges[1:] + edges[:-1])


def _bins(places: Int[np.ndarray, "row column"], q: np.ndarray, phi: np.ndarray) -> Bins:
    """Bins by their place; -1 where a pixel has none."""
    present, number = np.unique(places, return_inverse=True)
    masked = int(present[0] < 0)
    return Bins(number.reshape(places.shape) + 1 - masked, q, phi, present[masked:])
