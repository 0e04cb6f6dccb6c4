"""Small healthy files of every format that the readers know, for tests that read them and for tests that damage them.

`FORMATS` writes each; `HDF5` are the contents of those in HDF5, before they are written.
"""

import h5py
import numpy as np

G2, ERR, DELAYS = (f"xpcs/multitau/{name}" for name in ("normalized_g2", "normalized_g2_err", "delay_list"))
FRAME_TIME = "entry/instrument/detector_1/frame_time"
QMAP = "xpcs/qmap/"
MASKS = "entry/instrument/masks/"
LAGS = np.array([1, 2, 3, 4, 6, 8, 12, 16])
MAPPING = np.array([0, 2, 3, 5])  # 3 q times 2 phi, where the bins 1 and 4 have no pixels


def curves_of(bins):
    """g2 (tau, bin): every column differs."""
    return (1 + 0.1 * (1 + np.arange(bins)) * np.exp(-LAGS[:, None] / 5)).astype("f4")


def current(**changes):
    """Contents of a file of APS 8-ID in the current layout; None leaves a dataset out."""
    return {
        G2: curves_of(4),
        ERR: np.full((8, 4), 0.01, "f4"),
        DELAYS: LAGS,
        FRAME_TIME: np.array([[1e-3]]),
        "xpcs/multitau/config/stride_frame": np.array([2]),
        "xpcs/multitau/config/avg_frame": np.array(3),
        QMAP + "dynamic_v_list_dim0": np.array([0.01, 0.02, 0.03]),
        QMAP + "dynamic_v_list_dim1": np.array([0.0, 90.0]),
        QMAP + "dynamic_index_mapping": MAPPING,
        QMAP + "map_names": np.array(["q", "phi"], h5py.string_dtype()),
        QMAP + "map_units": np.array([b"1/angstrom", b"degree"]),
        **{name.replace("__", "/"): value for name, value in changes.items()},
    }


def older(**changes):
    """Contents of a file of APS 8-ID in the older layout."""
    return {
        "exchange/norm-0-g2": curves_of(3),
        "exchange/norm-0-stderr": np.full((8, 3), 0.01),
        "exchange/tau": LAGS[None].astype(float),
        "xpcs/dqlist": np.array([[0.01, 0.02, 0.03]]),
        "xpcs/dphilist": np.array([[0.0, 10.0, 20.0]]),
        "measurement/instrument/detector/exposure_period": np.array([[0.5]]),
        **{name.replace("__", "/"): value for name, value in changes.items()},
    }


def nexus(**changes):
    """Contents of a file of NXxpcs."""
    frames = np.array([1, 2, 4, 8, 16])
    g2 = 1 + np.exp(-frames[:, None] / 4) * np.array([0.1, 0.2, 0.3])
    return {
        "entry/data/g2": g2,
        "entry/data/g2_derr": np.full(g2.shape, 0.01),
        "entry/data/delay_difference": frames,
        "entry/instrument/detector/frame_time": 0.25,
        MASKS + "dynamic_q_list": np.array([0.01, 0.02, 0.03]),
        MASKS + "dynamic_phi_list": np.array([0.0, 45.0, 90.0]),
        **changes,
    }


def write_hdf5(path, contents, attributes=()):
    """A file with these datasets, and attributes as (holder, name, value); where contents are None there is none."""
    with h5py.File(path, "w") as file:
        for name, value in contents.items():
            if value is not None:
                file[name] = value
        for holder, name, value in attributes:
            file[holder].attrs[name] = value
    return path


ALV_LAGS = np.array([2.5e-5, 5e-5, 1e-4, 1e-3, 1e-2, 1e-1])  # ms
ALV_DECAY = 0.8 * np.exp(-ALV_LAGS / 2e-3)
ALV_HEADER = {
    "Date :": '"01.02.2023"',
    "Time :": '"14:18:52"',
    "Samplename : ": '"silica: 3 %"',
    "SampMemo(0) : ": '"Angle [°] : 12"',
    "Temperature [K] :": "     298.15000",
    "Viscosity [cp]  :": "       0.89000",
    "Refractive Index:": "       1.33200",
    "Wavelength [nm] :": "     632.80000",
    "Angle [°]       :": "      90.00000",
    "Mode            :": '"SINGLE AUTO CH0"',
}


def alv(
    *,
    tau=ALV_LAGS,
    columns=ALV_DECAY[None],
    errors=None,
    first="ALV-7004/USB",
    title="Correlation",
    titles=None,
    **header,
):
    """A whole file of an ALV correlator as text; `errors` adds the standard deviations, `titles` a line of column
    titles."""
    lines = [first, *(f"{key}\t{value}" for key, value in {**ALV_HEADER, **header}.items() if value is not None), ""]
    correlation = alv_block(title, np.vstack([tau, columns]))
    if titles:
        correlation.insert(1, "\t".join(f'"{name}"' for name in ["Lag [ms]", *titles]) + "\t")
    counts = alv_block("Count Rate", np.array([[1.0, 2.0], [55.5, 56.5]]))
    lines += correlation + counts + ["Monitor Diode\t  1562861.47", ""]
    if errors is not None:
        lines += alv_block("StandardDeviation", np.vstack([tau, errors]))[:-1]
    return "\r\n".join(lines) + "\r\n"


def alv_block(title, columns):
    """The lines of one block."""
    rows = ("\t".join(f"  {value:.5E}" for value in row) for row in columns.T)
    return [f'"{title}"', *rows, ""]


ZETASIZER_HEADINGS = [
    f"{what} - sample {n} [Steady state]" for n in (1, 2) for what in ("Time (µs)", "Correlation Coefficient (g₂-1)")
]
ZETASIZER_TAU = [0.5, 1.0, 2.0, 4.0]  # microseconds
ZETASIZER_G2 = [[0.9, 0.5, 0.1, 0.0], [0.8, 0.4, 0.0, 0.0]]
ZETASIZER_ROWS = [[tau, a, tau, b] for tau, a, b in zip(ZETASIZER_TAU, *ZETASIZER_G2, strict=True)]

TAU = np.geomspace(1e-3, 10.0, 16)  # s
Q = np.array([0.01, 0.02, 0.03])  # 1/angstrom
DECAYS = 1.0 + 0.2 * np.exp(-2.0 * np.outer([1.0, 4.0, 9.0], TAU))
ERRORS = np.outer([0.01, 0.02, 0.03], np.linspace(1.0, 2.0, TAU.size))


def text_of(header, *columns, separator=","):
    """A table as text, with one row per entry of the columns."""
    rows = (separator.join(f"{value:.9g}" for value in row) for row in zip(*columns, strict=True))
    return "\n".join([separator.join(header), *rows]) + "\n"


def long_table(separator=","):
    """A table with one row per point."""
    columns = np.repeat(Q, TAU.size), np.tile(TAU, Q.size), DECAYS.ravel(), ERRORS.ravel()
    return text_of(["q [1/angstrom]", "tau [s]", "g2", "g2_err"], *columns, separator=separator)


def wide_table(values):
    """A table with one column per bin."""
    return text_of(["tau", *map(str, Q)], TAU, *values)


def write_workbook(path, rows):
    """A workbook of one sheet."""
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def _wide(path):
    path.with_stem(path.stem + "_err").write_text(wide_table(ERRORS))
    path.write_text(wide_table(DECAYS))


def _sheet(path):
    head, *lines = long_table().splitlines()
    write_workbook(path, [head.split(","), *([float(cell) for cell in line.split(",")] for line in lines)])


def _zetasizer(path):
    lines = [",".join(ZETASIZER_HEADINGS), *(",".join(map(str, row)) for row in ZETASIZER_ROWS)]
    path.write_text("\n".join(lines) + "\n")


def _matrix(path):
    np.save(path, np.block([[np.zeros((1, 1)), Q[None]], [TAU[:, None], DECAYS.T]]))


HDF5 = {"aps_current.hdf": current, "aps_older.hdf": older, "nexus.nxs": nexus}
FORMATS = {  # name of the file, and what writes it there
    **{name: lambda path, contents=contents: write_hdf5(path, contents()) for name, contents in HDF5.items()},
    "alv.ASC": lambda path: path.write_bytes(alv(errors=0.01 + 0 * ALV_DECAY[None]).encode("cp1252")),
    "zetasizer.csv": _zetasizer,
    "zetasizer.xlsx": lambda path: write_workbook(path, [ZETASIZER_HEADINGS, *ZETASIZER_ROWS]),
    "long.csv": lambda path: path.write_text(long_table()),
    "long.dat": lambda path: path.write_text(long_table(" ").replace("q [1/angstrom] tau [s]", "q tau", 1)),
    "wide.csv": _wide,
    "book.xlsx": _sheet,
    "arrays.npz": lambda path: np.savez(path, tau=TAU, q=Q, g2=DECAYS, g2_err=ERRORS),
    "packed.npz": lambda path: np.savez_compressed(path, tau=TAU, q=Q, g2=DECAYS, g2_err=ERRORS),
    "matrix.npy": _matrix,
}
