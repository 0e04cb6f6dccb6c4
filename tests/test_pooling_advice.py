"""What is advised where the data of single bins do not determine a parameter."""

import numpy as np
import pytest
import xarray as xr

from bayesfit.diagnose.pooling_advice import advise_pooling

NAMES = ["rate", "beta", "contrast"]


def diagnostics(vague, bins=6, q=True, verdict="not_identified", slow=0, fast=0):
    """A table of bins; `vague` names the parameters, with the number of bins that do not determine them; `slow` and
    `fast` bins have a rate that lies at the lower, or at the upper end of its prior."""
    ends = np.arange(bins)[:, None] < np.array([slow + fast, 0, 0])
    below = np.arange(bins)[:, None] < np.array([slow, bins, 0])
    identified = np.array([[place >= vague.get(name, 0) for name in NAMES] for place in range(bins)])
    coords = {"parameter": NAMES, **({"q": ("q_bin", np.linspace(0.01, 0.1, bins))} if q else {})}
    return xr.Dataset(
        {
            "verdict": ("q_bin", [verdict if not row.all() else "ok" for row in identified]),
            "points": ("q_bin", np.full(bins, 50)),
            "identified": (("q_bin", "parameter"), identified),
            "contraction": (("q_bin", "parameter"), np.where(identified, 0.9, 0.3)),
            "near_end": (("q_bin", "parameter"), np.where(ends, 0.1, [0.01, np.nan, np.nan])),
            "upper_limit": (("q_bin", "parameter"), np.where(below & ~identified, 1.0, np.nan)),
        },
        coords,
    )


@pytest.mark.parametrize(
    ("vague", "q", "expected"),
    [
        ({"beta": 4}, True, "beta (in 4 of 6 bins): fit them together, --set across.beta=shared"),
        ({"rate": 3}, True, "rate (in 3 of 6 bins): fit them together, --set across.rate=diffusion"),
        ({"rate": 6}, False, "rate (in 6 of 6 bins): fit them together, --set across.rate=shared"),
        (
            {"rate": 5, "beta": 6},
            True,
            "rate (in 5 of 6 bins) and beta (in 6 of 6 bins): fit them together, --set across.rate=diffusion "
            "--set across.beta=shared",
        ),
    ],
)
def test_what_most_bins_do_not_determine_is_pooled(vague, q, expected):
    words, across = advise_pooling(diagnostics(vague, q=q))
    assert words == f"single bins do not determine {expected}"
    assert words.split(": fit them together, ")[1] == " ".join(
        f"--set across.{name}={kind}" for name, kind in across.items()
    )


def test_otherwise_nothing_is_advised():
    assert advise_pooling(diagnostics({"beta": 2})) == ("", {})
    assert advise_pooling(diagnostics({"contrast": 6})) == ("", {})
    assert advise_pooling(diagnostics({"beta": 2}, bins=2)) == ("", {})
    assert advise_pooling(diagnostics({"beta": 6}, verdict="misfit")) == ("", {})


def test_decays_that_may_be_too_slow_are_not_pooled():
    """What bins have in common would lie at the end of its prior too. Fast ones are pooled, and slow ones beside others
    that determine a law."""
    words, across = advise_pooling(diagnostics({"rate": 6, "beta": 6}, slow=4))
    assert words.startswith("in 4 of 6 bins, decays may be slower than the longest delay: measure for longer")
    assert "baseline" not in words  # which these bins do not have
    assert across == {}
    pooled = advise_pooling(diagnostics({"rate": 6}))
    assert pooled[1] == {"rate": "diffusion"}
    assert advise_pooling(diagnostics({"rate": 6}, slow=2)) == pooled
    assert advise_pooling(diagnostics({"rate": 6}, fast=6)) == pooled
    assert advise_pooling(diagnostics({"rate": 5}, slow=5))[1] == {"rate": "diffusion"}
