"""Makes the datasets of this folder, bit for bit: `uv run python data/make.py [FOLDER]`.

aps_8idi_sim.hdf    APS 8-ID layout: 30 q-bins, 61 delays, points without photon pairs, a dead bin, a q without pixels;
                    stated errors right at low q and up to 30 times too small at high q
table_sim.csv       8 q-bins, 48 delays, wide form; errors in table_sim_err.csv
*_truth.csv         the true parameters of each bin
"""

import sys
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from bayesfit import simulate

FRAME_TIME = 1e-3


def main(folder: Path) -> None:
    """Write all files into `folder`."""
    data, truth = simulate(bins=30, delays=61, seed=8, wrong_errors=True, zero_pairs=0.1, dead_bin=11)
    write_aps_8idi(folder / "aps_8idi_sim.hdf", data)
    write_truth(folder / "aps_8idi_sim_truth.csv", truth)
    data, truth = simulate(bins=8, delays=48, seed=9)
    header = ",".join(["tau", *(f"{q:.6g}" for q in data.q.values)])
    for name, values in (("table_sim", data.g2), ("table_sim_err", data.g2_err)):
        columns = np.column_stack([data.tau.values, values.values.T])
        np.savetxt(folder / f"{name}.csv", columns, delimiter=",", header=header, comments="", fmt="%.8g")
    write_truth(folder / "table_sim_truth.csv", truth)


def write_aps_8idi(path: Path, data: xr.Dataset) -> None:
    """The curves in the current layout of APS 8-ID; the map has one q more, whose bin has no pixels and no column."""
    bins, q = data.sizes["q_bin"], data.q.values
    columns = np.delete(np.arange(bins + 1), 5)
    list_of_q = np.insert(q, 5, (q[4] + q[5]) / 2)
    contents = {
        "entry/instrument/detector_1/frame_time": np.array([[FRAME_TIME]]),
        "entry/start_time": "2026-01-01T00:00:00",
        "xpcs/multitau/delay_list": np.round(data.tau.values / FRAME_TIME).astype(np.int64),
        "xpcs/multitau/normalized_g2": data.g2.values.T.astype(np.float32),
        "xpcs/multitau/normalized_g2_err": data.g2_err.values.T.astype(np.float32),
        "xpcs/multitau/config/stride_frame": np.array(1),
        "xpcs/multitau/config/avg_frame": np.array(1),
        "xpcs/qmap/dynamic_v_list_dim0": list_of_q,
        "xpcs/qmap/dynamic_v_list_dim1": np.array([0.0]),
        "xpcs/qmap/dynamic_num_pts": np.array([bins + 1, 1]),
        "xpcs/qmap/dynamic_index_mapping": columns.astype(np.int64),
        "xpcs/qmap/map_names": np.array(["q", "phi"], dtype=h5py.string_dtype()),
        "xpcs/qmap/map_units": np.array(["1/angstrom", "degree"], dtype=h5py.string_dtype()),
        "xpcs/qmap/energy": np.array(10.9),
    }
    with h5py.File(path, "w", libver="earliest") as file:
        for name, value in contents.items():
            if isinstance(value, np.ndarray) and value.size > 100:
                file.create_dataset(name, data=value, compression="gzip", track_times=False)
            else:
                file.create_dataset(name, data=value, track_times=False)


def write_truth(path: Path, truth: xr.Dataset) -> None:
    """One row a bin."""
    names = ["q", *(str(name) for name in truth.data_vars)]
    columns = np.column_stack([truth[name].values for name in names])
    np.savetxt(path, columns, delimiter=",", header=",".join(names), comments="", fmt="%.8g")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
