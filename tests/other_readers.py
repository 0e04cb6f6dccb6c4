"""Opens what bayesfit writes with the programs that it is written for, each in an environment of its own:

    uv run python tests/other_readers.py [RESULT]

An export in the layout of APS 8-ID is opened by pyXpcsViewer (its class XpcsFile, without its windows), a saved result
by ArviZ 0.23. Both are downloaded. Without RESULT, a file that comes with the project is fitted.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import bayesfit

ROOT = Path(__file__).parent.parent
VIEWER = ("--no-deps", "xpcs-viewer==1.2.2")  # without Qt
OF_VIEWER = ("h5py", "numpy", "scipy", "scikit-learn")
ARVIZ = ("arviz==0.23.*", "h5netcdf", "xarray")

OPEN_IN_VIEWER = """
import sys
import h5py, numpy as np
from pyxpcsviewer.core.file_io.ftype_utils import get_ftype
from pyxpcsviewer.core.file_io.qmap_utils import QMapManager
from pyxpcsviewer.core.xpcs_file import XpcsFile

path = sys.argv[1]
assert get_ftype(path) == "nexus"
file = XpcsFile(path, qmap_manager=QMapManager())
q, tau, g2, g2_err, labels = file.get_g2_data()
with h5py.File(path) as opened:
    np.testing.assert_array_equal(g2, opened["xpcs/multitau/normalized_g2"])
    np.testing.assert_allclose(tau, opened["xpcs/fit/curve/tau"], rtol=1e-9)
    fit = {name: value[()] for name, value in opened["xpcs/fit/pyxpcsviewer"].items()}
lines = zip(fit.pop("fit_y"), fit.pop("success"), fit.pop("msg"))
x = fit.pop("fit_x")
fit["fit_line"] = [{"fit_x": x, "fit_y": y, "success": bool(s), "msg": m.decode()} for y, s, m in lines]
fit["fit_func"] = fit["fit_func"].decode()
file.fit_summary = fit
np.testing.assert_allclose(q, fit["q_val"])
print("bins", g2.shape[1], "of", g2.shape[0], "delays;", labels[0])
print(file.get_fitting_info()["fit_val"][0])
file.fit_tauq((q.min(), q.max()), np.array([[1e-12, -5.0], [1e3, 0.0]]), [True, True])
print("relaxation time over q:", file.get_fitting_info("tauq_fitting"))
"""
OPEN_IN_ARVIZ = """
import sys, warnings
warnings.simplefilter("ignore")
import arviz as az

data = az.from_netcdf(sys.argv[1])
assert type(data).__name__ == "InferenceData" and az.__version__.startswith("0.23")
print("ArviZ", az.__version__, data.groups())
table = az.summary(data, var_names=["rate"], kind="stats")
assert len(table) == data.posterior.sizes["q_bin"]
print(table.head(3))
"""


def python_with(folder, *installs):
    """The Python of a new environment, after these installs."""
    subprocess.run(["uv", "venv", "-q", folder], check=True, cwd=ROOT)
    python = folder / "bin" / "python"
    for packages in installs:
        subprocess.run(["uv", "pip", "install", "-q", "--python", python, *packages], check=True, cwd=ROOT)
    return python


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path, help="a saved result")
    given = parser.parse_args().result
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fitted = (
            bayesfit.load(given) if given else bayesfit.fit(bayesfit.read(ROOT / "data/aps_8idi_sim.hdf"), draws=100)
        )
        saved = given or bayesfit.save(fitted, folder / "result.nc")
        exported = bayesfit.export(fitted, folder / "result.hdf")
        viewer, arviz = python_with(folder / "viewer", VIEWER, OF_VIEWER), python_with(folder / "arviz", ARVIZ)
        subprocess.run([viewer, "-c", OPEN_IN_VIEWER, exported], check=True)
        subprocess.run([arviz, "-c", OPEN_IN_ARVIZ, saved.resolve()], check=True)


if __name__ == "__main__":
    main()
