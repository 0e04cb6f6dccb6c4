"""What to try where the data of single bins do not determine a parameter: let the bins share it, or follow a law; where
the decays of most may be slower than the prior of their rate allows, to measure for longer."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Bool

from bayesfit.diagnose.prior_range import LARGEST_NEAR_END

IN_MOST = 0.5  # share of the bins in which a parameter is not identified, for it to be the dataset's fault
FEWEST_BINS = 3  # of which a law or a common value says something
RATE = "rate"
LAWS = {RATE: "diffusion"}  # parameters that follow a law in q; others have one value in all bins


def advise_pooling(diagnostics: xr.Dataset) -> tuple[str, dict[str, str]]:
    """In one line, which parameters most bins do not determine and what pools them, "" where there is none; and the
    pooling of each of them by name.

    Contrast and baseline are no reason to pool: they may well differ from bin to bin. Nor are decays that may all be
    slower than the priors of their rates allow: what bins have in common would lie at the end of its prior too.
    """
    judged = (diagnostics.points > 0).values & diagnostics.contraction.notnull().any("parameter").values
    if judged.sum() < FEWEST_BINS or not (diagnostics.verdict == "not_identified").any():
        return "", {}
    slow = int(_slow(diagnostics)[judged].sum())
    if slow >= IN_MOST * judged.sum() and not diagnostics.identified.sel(parameter=RATE).values[judged].any():
        words = f"in {slow} of {judged.sum()} bins, decays may be slower than the longest delay: measure for longer"
        known = "baseline" in diagnostics.parameter.values
        return words + (", or set a narrower priors.baseline if the baseline is known" if known else ""), {}
    vague = {}
    for name in diagnostics.parameter.values:
        count = int((~diagnostics.identified.sel(parameter=name).values[judged]).sum())
        if count >= IN_MOST * judged.sum() and name not in ("contrast", "baseline"):
            vague[str(name)] = count
    if not vague:
        return "", {}
    known_q = "q" in diagnostics.coords and bool(np.isfinite(diagnostics.q.values[judged]).all())
    kinds = {name: LAWS.get(name, "shared") if known_q else "shared" for name in vague}
    settings = " ".join(f"--set across.{name}={kind}" for name, kind in kinds.items())
    parameters = " and ".join(f"{name} (in {count} of {judged.sum()} bins)" for name, count in vague.items())
    return f"single bins do not determine {parameters}: fit them together, {settings}", kinds


def _slow(diagnostics: xr.Dataset) -> Bool[np.ndarray, " q_bin"]:
    """Whether the lower end of the prior of each bin's rate cuts off the posterior."""
    if RATE not in diagnostics.parameter.values:
        return np.zeros(diagnostics.sizes["q_bin"], bool)
    rate = diagnostics.sel(parameter=RATE)
    return (rate.near_end > LARGEST_NEAR_END).values & rate.upper_limit.notnull().values
