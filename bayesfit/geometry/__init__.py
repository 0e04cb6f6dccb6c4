"""Where the pixels of a detector look: wave vectors and angles, and the bins that they make."""

import importlib
from typing import Any

from bayesfit.geometry.bins import Bins as Bins
from bayesfit.geometry.bins import Partition as Partition
from bayesfit.geometry.bins import partition as partition
from bayesfit.geometry.detector import Detector as Detector
from bayesfit.geometry.detector import from_calibration as from_calibration
from bayesfit.geometry.detector import from_poni as from_poni
from bayesfit.geometry.qmap_files import read_partition as read_partition
from bayesfit.geometry.qmap_files import save_partition as save_partition
from bayesfit.geometry.scattering import QMap as QMap
from bayesfit.geometry.scattering import qmap as qmap


def __getattr__(name: str) -> Any:
    """`calibrate` samples a posterior, so it is one of the verbs, in a room above, and is found when it is used."""
    if name == "calibrate":
        return importlib.import_module("bayesfit.api.calibrate").calibrate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
