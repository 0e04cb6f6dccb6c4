"""Pictures: what they draw, of which bins, and with which axes."""

import warnings

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import bayesfit
from bayesfit.report.panels import MOST
from bayesfit.report.series_pictures import short_names
from bayesfit.result.datasets import joined


@pytest.fixture(scope="module")
def result():
    """Five bins; the second is dead, the fourth has a wild point."""
    curves = bayesfit.read("data/table_sim.csv").isel(q_bin=[0, 1, 2, 3, 4])
    g2, error = curves.g2.values.copy(), curves.g2_err.values.copy()
    g2[1], (g2[3, 5], error[3, 5]) = np.nan, (40.0, 35.0)
    data = bayesfit.curves(curves.tau.values, g2, error, q=curves.q.values)
    return bayesfit.fit(data, "single_exponential", noise="scaled", draws=200, seed=0)


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def titles(figure):
    return [axis.get_title().splitlines()[0] for axis in figure.axes if axis.get_title()]


def test_every_bin_is_drawn_with_its_residuals(result):
    figure = bayesfit.plot_curves(result)
    assert [title.split(",")[0] for title in titles(figure)] == [f"bin {number}" for number in range(5)]
    assert len(figure.axes) == 10
    figure.canvas.draw()


def test_bins_that_are_asked_for_are_drawn_in_their_order(result):
    assert [title[:5] for title in titles(bayesfit.plot_curves(result, [4, 2]))] == ["bin 4", "bin 2"]
    with pytest.raises(bayesfit.ResultError, match="there is no bin 7"):
        bayesfit.plot_curves(result, [7])


def test_a_wild_point_is_a_triangle_and_does_not_flatten_the_decay(result):
    axis = bayesfit.plot_curves(result, [3], axes=[Figure().subplots()]).axes[0]
    low, high = axis.get_ylim()
    assert 0.8 < low < 1.0 < high < 2.0
    (triangles,) = [line for line in axis.lines if line.get_marker() == "^"]
    assert triangles.get_ydata() == pytest.approx([high])
    assert triangles.get_xdata() == pytest.approx(result["constant_data"].tau.values[[5]])


def test_axes_that_are_given_are_drawn_on(result):
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert bayesfit.plot_curves(result, [0, 2], axes=axes) is figure
    assert len(figure.axes) == 2
    with pytest.raises(bayesfit.SettingsError, match="2 are needed"):
        bayesfit.plot_curves(result, [0, 2], axes=axes[:1])


def test_residuals_are_those_of_the_result(result):
    axis = bayesfit.plot_residuals(result, [0]).axes[0]
    valid = result["constant_data"].valid.values[0]
    band, g2 = result["fit_curve"].dataset.isel(q_bin=0), result["observed_data"].g2.values[0]
    expected = ((g2 - band["mean"].values) / band.sigma.values)[valid]
    assert axis.lines[-1].get_ydata() == pytest.approx(np.clip(expected, -4.5, 4.5))


def test_parameters_have_symbols_and_units(result):
    figure = bayesfit.plot_parameters(result, ["rate", "contrast"])
    assert [axis.get_ylabel() for axis in figure.axes] == [r"rate $\Gamma$ [1/s]", "contrast $C$"]
    assert figure.axes[0].get_xlabel() == "q [1/Å]"
    with pytest.raises(bayesfit.SettingsError, match="Did you mean 'rate'"):
        bayesfit.plot_parameters(result, "rat")


def test_intervals_of_parameters_are_those_of_the_summary(result):
    axis = bayesfit.plot_parameters(result, "rate").axes[0]
    table = bayesfit.summary(result)
    drawn = [line.get_ydata() for line in axis.lines if len(line.get_ydata()) == 2]
    assert drawn[0] == pytest.approx(table.loc[0, ["rate_low", "rate_high"]].to_numpy(float))


def test_a_law_is_drawn_with_its_band():
    curves = bayesfit.read("data/table_sim.csv").isel(q_bin=[0, 3, 6])
    joint = bayesfit.fit(curves, "single_exponential", noise="scaled", across={"rate": "diffusion"}, draws=200, seed=0)
    axis = bayesfit.plot_parameters(joint, "rate").axes[0]
    assert len(axis.collections) == 1
    assert any(len(line.get_xdata()) == joint["law_curve"].sizes["point"] for line in axis.lines)


def test_distributions_stand_side_by_side(result):
    axis = bayesfit.plot_distribution(result, "rate").axes[0]
    assert len(axis.collections) == 4  # the dead bin has none
    assert [label.get_text() for label in axis.get_xticklabels()] == list("01234")


def test_diagnostics_have_the_limits_of_the_verdicts(result):
    for axis, limit in zip(bayesfit.plot_diagnostics(result).axes, (1.01, 400.0, 0.005, 0.75), strict=True):
        assert limit in [line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == "--"]


def test_a_comparison_is_drawn():
    curves = bayesfit.read("data/table_sim.csv").isel(q_bin=[0, 3])
    names = ("single_exponential", "stretched_exponential")
    fits = {n: bayesfit.fit(curves, n, noise="scaled", draws=200, include=("log_likelihood",)) for n in names}
    comparison = bayesfit.compare(fits)
    above, below = bayesfit.plot_compare(comparison).axes
    assert [text.get_text() for text in above.get_legend().get_texts()] == list(names)
    heights = np.array([bar.get_height() for bar in below.patches]).reshape(2, 2)
    assert heights.sum(axis=0) == pytest.approx(1.0)
    with pytest.raises(bayesfit.ResultError, match="is no comparison"):
        bayesfit.plot_compare(curves)


def test_of_very_many_bins_those_come_first_that_are_not_ok(result):
    many = result.isel(q_bin=[1] + [0] * MOST)
    figure = bayesfit.plot_residuals(many)
    assert len(titles(figure)) == MOST
    assert titles(figure)[0].startswith("bin 1")
    assert f"{MOST} of {MOST + 1} bins" in figure.get_suptitle()


@pytest.mark.parametrize(("size", "width"), [("column", 3.4), ("page", 7.0)])
def test_sizes_are_those_of_journals(result, size, width):
    for figure in (bayesfit.plot_parameters(result, size=size), bayesfit.plot_curves(result, size=size)):
        assert figure.get_size_inches()[0] == pytest.approx(width)
    with pytest.raises(bayesfit.SettingsError, match="Known: column, page"):
        bayesfit.plot_diagnostics(result, size="poster")


def test_a_series_is_drawn_line_by_line(result):
    """Of the bins and the parameter that are asked for, on axes that are given, under short names."""
    names = np.array([f"C042_300K_{number:03d}_0001-2000.hdf" for number in range(3)])
    whole = joined([result] * 3, names)
    axis = Figure().subplots()
    figure = bayesfit.plot_series(whole, parameter="contrast", bins=[4, 0], axes=[axis])
    assert figure.axes == [axis]
    lines, labels = axis.get_legend_handles_labels()
    medians = result["posterior"].contrast.median(("chain", "draw")).values
    assert [line.get_ydata()[0] for line in lines] == pytest.approx(medians[[4, 0]].tolist())
    assert len(labels) == 2
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["000", "001", "002"]
    assert axis.get_xlabel() == "dataset C042_300K_…_0001-2000.hdf"
    with pytest.raises(bayesfit.SettingsError, match="Did you mean 'rate'"):
        bayesfit.plot_series(whole, parameter="rates")
    with pytest.raises(bayesfit.ResultError, match="there is no bin 9"):
        bayesfit.plot_series(whole, bins=[9])


def test_wide_intervals_that_are_not_believed_do_not_stretch_a_series(result):
    wide = result.copy()
    verdicts = result["diagnostics"].verdict.values.copy()
    verdicts[3] = "not_identified"
    wide["diagnostics"] = wide["diagnostics"].dataset.assign(verdict=("q_bin", verdicts))
    rate = wide["posterior"].rate.copy()
    rate[..., 3] = rate[..., 3] * np.geomspace(1e-6, 1e6, rate.sizes["draw"])
    wide["posterior"] = wide["posterior"].dataset.assign(rate=rate)
    low, high = bayesfit.plot_series(joined([wide] * 2, np.array([1.0, 2.0]))).axes[0].get_ylim()
    medians = bayesfit.summary(result).rate
    assert medians.min() / 3 < low < high < 3 * medians.max()


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a_01.hdf", "a_02.hdf"], (["01.hdf", "02.hdf"], "a_…")),
        (["s-1-x", "s-22-x"], (["1", "22"], "s-…-x")),
        (["one"], (["one"], "")),
        (["a", "a_b"], (["a", "a_b"], "")),
        (["x" * 40, "y" * 40], (["…" + "x" * 15, "…" + "y" * 15], "")),
    ],
)
def test_short_names_of_datasets(names, short):
    assert short_names(names) == short


def test_what_the_range_of_a_prior_cuts_off_is_crossed_out(result):
    changed = result.copy()
    checks = changed["diagnostics"].dataset
    known = checks.identified.copy(deep=True)
    known.loc[{"parameter": "rate"}] = [True, False, False, True, True]  # the second bin is dead
    changed["diagnostics"] = xr.DataTree(checks.assign(identified=known))
    for drawn, expected in ((result, []), (changed, [2])):
        axis = bayesfit.plot_diagnostics(drawn).axes[-1]
        crosses = np.concatenate([line.get_xdata() for line in axis.lines if line.get_marker() == "x"])
        assert crosses.tolist() == [result["constant_data"].q.values[place] for place in expected]
