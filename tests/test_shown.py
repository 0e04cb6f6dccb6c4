"""What a user sees who types a name: results at a glance, records in a line, and a bar in a notebook's cell."""

import re

import numpy as np
import pytest

import bayesfit
from bayesfit.compute.notebook_bar import _bar, in_notebook
from bayesfit.modelling.laws import get_law
from bayesfit.result.datasets import joined


def test_a_result_at_a_glance(fitted):
    shown = repr(bayesfit.overview(fitted))
    lines, verdicts = shown.splitlines(), fitted["diagnostics"].verdict.values.tolist()
    assert lines[0].startswith(f"{verdicts.count('ok')} of 12 bins ok")
    assert len(lines) < 30
    assert max(map(len, lines)) <= 80
    head = next(place for place, line in enumerate(lines) if line.startswith("bin "))
    assert [line.split()[1] for line in lines[head + 1 : head + 13]] == verdicts
    rate = bayesfit.summary(fitted).rate
    assert f"{rate[0]:.4g} (" in lines[head + 1]


def test_of_many_bins_those_that_are_not_ok_come_first(fitted, monkeypatch):
    monkeypatch.setattr("bayesfit.report.overview.MOST", 2)
    found = bayesfit.overview(fitted)
    others = [str(place) for place, name in enumerate(fitted["diagnostics"].verdict.values) if name != "ok"]
    assert len(found.rows) == 2
    assert found.rows[0][0] == others[0]
    assert found.more == "10 more bins: bayesfit.summary(result)"


def test_a_notebook_shows_a_table_in_which_text_is_text(fitted):
    named = fitted.copy()
    named.attrs["input_file"] = "<b>a & b.csv"
    page = bayesfit.overview(named)._repr_html_()
    assert "&lt;b&gt;a &amp; b.csv" in page
    assert len(re.findall("<tr>", page)) == 13
    assert "● ok" in page


def test_a_series_at_a_glance(fitted):
    shown = repr(bayesfit.overview(joined([fitted, fitted], np.array(["a", "b"], object))))
    assert shown.startswith("2 datasets: ")
    assert " of 24 bins ok" in shown.splitlines()[0]


def test_only_results_have_an_overview(simulated):
    with pytest.raises(bayesfit.ResultError, match="got curves, expected the result of a fit"):
        bayesfit.overview(simulated[0])


def records():
    detector = bayesfit.geometry.Detector((6, 8), (75e-6, 75e-6), 5.0, (2.5, 3.5), wavelength=1.24)
    qmap = bayesfit.geometry.qmap(detector, backend="numpy")
    partition = bayesfit.geometry.partition(qmap, (2, 1))
    events = np.arange(5)
    return {
        "<Model 'single_exponential': rate [1/s]; g2 = ": bayesfit.get_model("single_exponential"),
        "<Law 'diffusion': D [angstrom^2/s]; rate = D q^2>": get_law("diffusion"),
        "<Pipeline 'aps_8idi': APS 8-ID": bayesfit.get_pipeline("aps_8idi"),
        "<Detector of 6 x 8 pixels of 75 x 75 um, 5 m away": detector,
        "<QMap in transmission of <Detector of 6 x 8": qmap,
        "<Bins: 2 bins with pixels, of 2 rings x 1 sectors": partition.dynamic,
        "<Partition: 48 of 6 x 8 pixels are good": partition,
        "<Photons: 5 in 9 frames>": bayesfit.Photons(9, events, events, np.ones(5)),
        "Parameter(name='D'": bayesfit.Parameter("D", "angstrom^2/s"),
    }


def test_records_show_themselves_in_a_line():
    for begins, record in records().items():
        shown = repr(record)
        assert shown.startswith(begins), shown
        assert "\n" not in shown
        assert len(shown) < 300
        assert " at 0x" not in shown


def test_models_laws_and_pipelines_are_tables_in_a_notebook():
    model = bayesfit.get_model("stretched_exponential")._repr_html_()
    assert "<td>rate</td><td>1/s</td><td>relaxation rate of g1</td>" in model
    assert "angstrom^2/s" in get_law("diffusion")._repr_html_()
    assert "stretched_exponential" in bayesfit.get_pipeline("aps_8idi")._repr_html_()


def test_a_bar_is_text_and_a_share():
    """Notebooks themselves are run by `test_site.py`."""
    assert not in_notebook()
    assert 'value="1.000"' in _bar("a < b", 1.7)
    assert "a &lt; b" in _bar("a < b", 0.5)
