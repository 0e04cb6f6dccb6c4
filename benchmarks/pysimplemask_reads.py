"""Whether pySimpleMask's own readers find in bayesfit's files, bit for bit, what bayesfit has put there.

`uv run --with pysimplemask python benchmarks/pysimplemask_reads.py`

A q-map file is read as pySimpleMask reads the q-maps of its reports, and a correlated result as it opens one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pysimplemask.core.reader.beamlines.xpcs_result import XPCSResultReader
from pysimplemask.core.report import _load_qmap_data

from bayesfit.correlation.aps_files import save_correlated
from bayesfit.correlation.frames import frames_of
from bayesfit.correlation.multitau import Masks, Settings, multitau
from bayesfit.geometry import Detector, partition, qmap, save_partition
from bayesfit.geometry.qmap_files import qmap_content

DETECTOR = Detector((80, 100), (75e-6, 75e-6), 5.0, (35.2, 52.8), wavelength=1.24)


def compare(name: str, read: dict[str, Any], wrote: dict[str, Any]) -> None:
    """Refuse anything that differs in its values or their type."""
    for field in sorted(read.keys() & wrote.keys()):
        own, other = np.asarray(wrote[field]), np.asarray(read[field])
        if own.dtype.kind == "U":
            own, other = own.tolist(), [word.decode() if isinstance(word, bytes) else word for word in read[field]]
            same = own == other
        else:
            same = np.array_equal(own, other) and (own.dtype == other.dtype or not own.ndim)
        if not same:
            raise SystemExit(f"{name}: {field} is not what was written")
    print(
        f"{name}: {len(read.keys() & wrote.keys())} fields bit-equal: {', '.join(sorted(read.keys() & wrote.keys()))}"
    )


def main() -> None:
    mask = np.ones(DETECTOR.shape, bool)
    mask[30:40] = False
    known = DETECTOR.placed(DETECTOR.place, np.diag([0.1, 0.1, 1e-3, 1e-3, 1e-3]) ** 2)
    bins = partition(qmap(known, backend="numpy"), (3, 4), (9, 8), mask=mask, scale="log")
    wrote = qmap_content(bins, known)
    with tempfile.TemporaryDirectory() as folder:
        arrays, places, *_ = _load_qmap_data(save_partition(bins, Path(folder) / "qmap.hdf", known))
        compare("q-map file", {**arrays, **places}, wrote)
        frames = np.random.default_rng(0).poisson(0.3, (64, *DETECTOR.shape)).astype(np.uint16)
        result = Path(folder) / "result.hdf"
        save_correlated(multitau(frames_of(frames, DETECTOR.shape), bins, Settings(), Masks()), result, 1e-3)
        compare("result", XPCSResultReader(str(result)).saved_partition, qmap_content(bins))


if __name__ == "__main__":
    main()
