"""Where the pixels of a detector look: wave vectors and angles, and the bins that they make."""

from bayesfit.geometry.detector import Detector as Detector
from bayesfit.geometry.detector import from_poni as from_poni
from bayesfit.geometry.scattering import QMap as QMap
from bayesfit.geometry.scattering import qmap as qmap
