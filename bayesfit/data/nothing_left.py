"""Why no point of a dataset can be used."""

import numpy as np

from bayesfit.compute.errors import InputError


def nothing_left(g2: np.ndarray, g2_err: np.ndarray, file: str | None) -> InputError:
    """Why no point is data, neither by its error nor as a number of pairs."""
    if not np.isfinite(g2).any():
        return InputError("every value is NaN or infinite", file=file, field="g2")
    if not (g2_err > 0).any():
        remedy = "Without errors, pass g2_err=None"
        return InputError("no error is above zero", file=file, field="g2_err", remedy=remedy)
    return InputError("no point of any bin can be used", file=file, field="g2")
