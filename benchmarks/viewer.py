"""Whether pyXpcsViewer's own reader reads what `bayesfit correlate` writes, and finds in it what we do.

uv run bayesfit correlate data/frames_sim.h5 data/frames_qmap.hdf -o frames_g2.hdf
uv run --no-project --with xpcs-viewer==1.2.2 python benchmarks/viewer.py frames_g2.hdf
"""

from __future__ import annotations

import sys

import h5py
import numpy as np
from pyxpcsviewer.core.file_io.qmap_utils import QMapManager
from pyxpcsviewer.core.xpcs_file import XpcsFile


def main(path: str) -> None:
    found = XpcsFile(path, qmap_manager=QMapManager())
    with h5py.File(path) as file:
        g2, err = (file[f"xpcs/multitau/normalized_g2{end}"][()] for end in ("", "_err"))
        seconds = file["entry/instrument/detector_1/frame_time"][()]
        qmap = {name: item[()] for name, item in file["xpcs/qmap"].items()}
        tau, image = file["xpcs/multitau/delay_list"][()] * seconds, file["xpcs/temporal_mean/scattering_2d"][0]
    _, t_el, viewed, viewed_err, labels = found.get_g2_data()
    np.testing.assert_array_equal(viewed, g2)
    np.testing.assert_allclose(t_el, tau)
    np.testing.assert_array_equal(viewed_err[err > 1e-6], err[err > 1e-6])
    np.testing.assert_array_equal(found.saxs_2d, image)
    np.testing.assert_array_equal(found.dqmap, qmap["dynamic_roi_map"])
    assert len(labels) == g2.shape[1]
    if np.isfinite(found.bcx):
        q, edge = found.qmap.qmap["q"], np.ptp(qmap["dynamic_v_list_dim0"]) / max(qmap["dynamic_num_pts"][0] - 1, 1)
        ring = qmap["dynamic_v_list_dim0"][qmap["dynamic_index_mapping"] // qmap["dynamic_num_pts"][1]]
        inside = found.dqmap > 0
        off = np.abs(q[inside] - ring[found.dqmap[inside].astype(int) - 1])
        print(f"pixels lie at most {off.max():.2g} 1/angstrom from the middle of their ring, of width {edge:.2g}")
    fitted = found.fit_g2(bounds=([0, tau[0], 0.5, 0.9], [1, tau[-1], 1.5, 1.1]), fit_flag=[True] * 4)
    print(f"{found.label}: {found.atype}, {g2.shape[1]} bins, {tau.size} delays, first label {labels[0]!r}")
    print(f"its fit of the first bin: {fitted['fit_val'][0, 0]}")


if __name__ == "__main__":
    main(sys.argv[1])
