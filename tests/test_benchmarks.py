"""The script that measures the figures of speed runs, in its smallest size, and leaves the prose of the page alone."""

import re
import subprocess
import sys

import pytest
from measures import ROOT, mixing, stacked

from bayesfit.sample.convergence import worst

SCRIPT, PAGE = ROOT / "benchmarks" / "all.py", ROOT / "docs" / "performance.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A copy of the page after a quick run."""
    copy = tmp_path_factory.mktemp("docs") / "performance.md"
    copy.write_text(PAGE.read_text())
    done = subprocess.run([sys.executable, SCRIPT, "--quick", "--page", copy], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return copy.read_text()


def test_the_tables_are_written_between_the_markers(page):
    parts = re.compile(r"(.*<!-- begin: [^\n]*-->)(.*)(<!-- end: .*)", re.DOTALL)
    before, tables, after = parts.fullmatch(page).groups()
    kept = parts.fullmatch(PAGE.read_text())
    assert (before, after) == (kept[1], kept[3])
    assert re.search(r"## Measured on \d{4}-\d\d-\d\d\n\nOn .* cores .* commit [0-9a-f]{7}", tables)


def test_ratios_and_shares_of_converged_bins_stand_in_the_table(page):
    rows = {cells[1]: cells[2:-1] for line in page.splitlines() if len(cells := re.split(r" *\| *", line)) > 9}
    assert rows["`curve_fit`, bounds"][2] == rows["`curve_fit`, bounds"][4] == "1.00"
    for what in ("bayesfit, posterior", "bayesfit, command to saved result"):
        bins, wall, ratio, *_, ess, converged = rows[what]
        assert converged == f"{bins} of {bins}" == "8 of 8"
        assert float(ess) > 400
        assert float(ratio) == pytest.approx(float(wall) / float(rows["`curve_fit`, bounds"][1]), rel=0.02)
    assert rows["healthy"][4] == "1.00"


def test_mixing_of_each_bin_is_that_of_its_worst_parameter(fitted):
    posterior, names = fitted["posterior"].dataset.isel(q_bin=[0, 5]), ["rate", "beta", "contrast"]
    found = mixing({name: posterior[name] for name in names})
    draws = [posterior[names].isel(q_bin=bin).to_array().values for bin in (0, 1)]
    for bin, (r_hat, *ess) in enumerate(map(worst, draws)):
        assert found.r_hat[bin] == pytest.approx(r_hat)
        assert found.ess[bin] == pytest.approx(min(ess))
    assert mixing(stacked(draws, names)).said() == found.said()
