"""Repeats: what is left out of an average, the errors of the average, and datasets stacked into one."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import bayesfit
from bayesfit.data.average import distance_limit
from bayesfit.data.stack import joined_delays
from bayesfit.posterior.pooling import parse_across

BINS, REPEATS = 6, 10
TAU = np.geomspace(1e-4, 10.0, 48)
Q = np.geomspace(2e-3, 2e-2, BINS)
ERROR = 0.004 * TAU**-0.1  # falls with the delay, as counting noise does


def noise_of(kind, rng, repeats):
    """Standard normal noise (repeat, q_bin, tau): white, smooth over neighbouring delays, or moving the whole curve."""
    white = rng.standard_normal((repeats, BINS, TAU.size))
    if kind == "smooth":
        kernel = np.exp(-0.5 * (np.arange(-8, 9) / 3.0) ** 2)
        return np.apply_along_axis(np.convolve, 2, white, kernel / np.linalg.norm(kernel), mode="same")
    if kind == "whole curves":
        return 0.3 * white + rng.standard_normal((repeats, BINS, 1))
    return white


def planted(seed=0, repeats=REPEATS, kind="white", faults=None, stated=1.0, files=True):
    """Repeats of one specimen; `faults` maps a repeat to a change of its g2 (q_bin, tau)."""
    rng = np.random.default_rng(seed)
    mean = 1.0 + 0.2 * np.exp(-2.0 * (2e4 * Q[:, None] ** 2 * TAU) ** 0.9)
    g2 = mean + ERROR * noise_of(kind, rng, repeats)
    for repeat, fault in (faults or {}).items():
        g2[repeat] = fault(g2[repeat])
    return [
        bayesfit.curves(TAU, one, np.tile(stated * ERROR, (BINS, 1)), q=Q, file=f"run_{i}.csv" if files else None)
        for i, one in enumerate(g2)
    ]


@pytest.mark.parametrize("kind", ["white", "smooth", "whole curves"])
@pytest.mark.parametrize("repeats", [3, 5, 10, 30])
def test_good_repeats_are_kept(kind, repeats):
    """Few curves are left out by mistake, whatever the noise: 2 % at most, or 6 % if the noise moves whole curves and
    there are few repeats, since two of them may then lie together by chance."""
    rounds = 120 // repeats
    used = [bayesfit.average(planted(seed, repeats, kind)).was_used.values for seed in range(rounds)]
    allowed = 0.06 if repeats < 8 and kind != "white" else 0.02
    assert 1.0 - np.mean(used) <= allowed


FAULTS = {
    "dust": lambda g2: g2 + 0.3 * np.exp(-TAU / 0.5),
    "dump": lambda g2: 1.0 + 0.5 * (g2 - 1.0) + 0.1,
    "three times as fast": lambda g2: g2 + 0.2 * (np.exp(-6.0 * X) - np.exp(-2.0 * X)),
    "a point far off": lambda g2: np.where(np.arange(TAU.size) == 20, 3.0, g2),
}
X = 2e4 * Q[:, None] ** 2 * TAU


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stated", [1e-3, 1.0, 1e3])
def test_bad_repeats_are_found_whatever_the_stated_errors(fault, stated):
    repeats = planted(1, faults={3: FAULTS[fault], 7: FAULTS[fault]}, stated=stated)
    average = bayesfit.average(repeats)
    used = average.was_used
    assert not used.isel(repeat=[3, 7]).any()
    assert float(used.mean()) == 0.8
    assert list(average.repeats_used.values) == [8] * BINS
    assert average.attrs["repeats_left_out"] == "run_3; run_7"
    good = np.mean([repeat.g2.values for i, repeat in enumerate(repeats) if i not in (3, 7)], axis=0)
    np.testing.assert_allclose(average.g2, good, rtol=1e-12)


def test_one_of_three_is_left_out_if_it_is_far_off():
    one, two = (bayesfit.average(planted(2, 3, faults={1: FAULTS[fault]})) for fault in ("dust", "three times as fast"))
    assert list(one.was_used.all("q_bin").values) == [True, False, True]
    assert two.was_used.values[[0, 2]].all()


def test_a_fault_of_one_bin_costs_that_bin_alone_and_of_most_bins_the_repeat_if_wanted():
    def low(g2):
        return np.where(np.arange(BINS)[:, None] < 1, g2 + 0.3, g2)

    def most(g2):
        return np.where(np.arange(BINS)[:, None] < 4, g2 + 0.3, g2)

    repeats = planted(3, faults={0: low, 4: most})
    average = bayesfit.average(repeats)
    assert average.attrs["repeats_left_out"] == "run_0 (bins 0); run_4 (bins 0, 1, 2, 3)"
    whole = bayesfit.average(repeats, whole=True)
    assert whole.attrs["repeats_left_out"] == "run_0 (bins 0); run_4"


def test_of_two_repeats_none_and_at_level_zero_none():
    assert bayesfit.average(planted(4, 2, faults={0: FAULTS["dust"]})).was_used.all()
    assert bayesfit.average(planted(4, faults={0: FAULTS["dust"]}), level=0).was_used.all()
    assert bayesfit.average(planted(4, 1)).repeats_used.values.tolist() == [1] * BINS


def test_less_than_half_can_be_left_out():
    """Six of ten repeats lie together, and four elsewhere: never is the larger group left out."""
    faults = dict.fromkeys(range(4), FAULTS["dust"])
    average = bayesfit.average(planted(5, faults=faults))
    assert average.was_used.values[4:].all()
    assert all(distance_limit(repeats, share, 0.4) >= 1.0 for repeats in (3, 4, 9) for share in (0.4, 0.9))


def test_the_limit_is_the_stated_quantile():
    """White noise of many repeats: a distance squared is nearly chi-square over its degrees of freedom."""
    for level in (0.01, 0.001):
        chi2 = stats.chi2(48)
        expected = np.sqrt(chi2.isf(level) / chi2.median())
        assert distance_limit(200, 0.0, level) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("stated", [1e-3, 1e3])
def test_errors_are_those_of_the_mean(stated):
    """From the scatter where there are many repeats, whatever is stated; from the stated errors where there are few."""
    many = np.array([bayesfit.average(planted(seed, 20, stated=stated)).g2_err.values for seed in range(5)])
    np.testing.assert_allclose(many.mean(axis=(0, 1)), ERROR / np.sqrt(20), rtol=0.1)
    np.testing.assert_allclose(many, np.broadcast_to(ERROR / np.sqrt(20), many.shape), rtol=0.45)
    few = bayesfit.average(planted(0, 4, stated=stated))
    np.testing.assert_allclose(few.g2_err, np.tile(stated * ERROR / 2.0, (BINS, 1)), rtol=1e-12)


def test_points_of_some_repeats_are_averaged_over_those():
    repeats = planted(6, 4)
    repeats[0]["valid"][2, :5] = False
    for repeat in repeats:
        repeat["valid"][3, 7] = False
    average = bayesfit.average(repeats)
    assert list(average.repeats_valid.values[2, :6]) == [3] * 5 + [4]
    np.testing.assert_allclose(average.g2[2, :5], np.mean([r.g2[2, :5] for r in repeats[1:]], axis=0))
    assert not average.valid[3, 7]
    assert bool(average.valid.sum() == average.valid.size - 1)


def test_an_average_says_what_it_is_of():
    repeats = planted(7, faults={2: FAULTS["dust"]})
    for i, repeat in enumerate(repeats):
        repeat.attrs |= {"sha256": f"{i:064d}", "temperature": 290.0 + i, "samplename": f"s{i}"}
    average = bayesfit.average(repeats)
    assert average.attrs["file"] == "run_0.csv and 9 more"
    assert (average.attrs["temperature"], "samplename" in average.attrs) == (294.5, False)
    assert average.repeat_sha256.values.tolist() == [f"{i:064d}" for i in range(10)]
    assert average.repeat.values.tolist() == [f"run_{i}" for i in range(10)]
    assert bayesfit.stack([average, average], names=["a", "b"]).attrs["file"] == "run_0.csv and 19 more"


def test_a_stack_of_averages_is_fitted_and_saved(tmp_path):
    averages = [bayesfit.average(planted(seed, faults={2: FAULTS["dust"]})).isel(q_bin=[1, 4]) for seed in (7, 8)]
    whole = bayesfit.stack(averages, names=["before", "after"])
    result, single = (bayesfit.fit(data, noise="stated", draws=300) for data in (whole, averages[1]))
    again = bayesfit.load(bayesfit.save(result, tmp_path / "stack.nc"))
    np.testing.assert_array_equal(again["posterior"].rate[..., 2:], single["posterior"].rate.astype(np.float32))
    assert again["posterior"].source.values.tolist() == ["before"] * 2 + ["after"] * 2
    assert again["constant_data"].repeats_used.values.tolist() == [9] * 4
    assert again.attrs["data_repeats_left_out"] == "run_2"


# Stacks


def test_bins_of_several_datasets_stand_one_after_the_other():
    parts = planted(8, 3)
    whole = bayesfit.stack(parts)
    assert dict(whole.sizes) == {"q_bin": 3 * BINS, "tau": TAU.size}
    assert whole.source.values.tolist() == [name for i in range(3) for name in [f"run_{i}"] * BINS]
    assert whole.source_bin.values.tolist() == [*range(BINS)] * 3
    np.testing.assert_array_equal(whole.g2, np.concatenate([part.g2 for part in parts]))
    np.testing.assert_array_equal(whole.q, np.tile(Q, 3))
    assert whole.attrs["files"] == 3


def test_delays_are_joined_and_points_stay_with_their_delays():
    one, two, three = planted(9, 3)
    two = two.isel(tau=slice(0, 40))
    three = three.assign_coords(tau=three.tau * (1.0 + 3e-8)).isel(tau=slice(5, None))
    extra = bayesfit.curves(TAU * 1.3, one.g2.values, one.g2_err.values, q=Q)
    whole = bayesfit.stack([two, three, extra])
    assert whole.sizes["tau"] == 2 * TAU.size
    assert whole.tau.attrs["units"] == "s"
    valid = whole.valid.values.reshape(3, BINS, -1)
    assert valid.sum(axis=(1, 2)).tolist() == [BINS * 40, BINS * 43, BINS * 48]
    g2 = whole.g2.values.reshape(3, BINS, -1)
    for part, values, used in zip((two, three, extra), g2, valid, strict=True):
        np.testing.assert_array_equal(values[used].reshape(BINS, -1), part.g2)
    assert whole.valid.dtype == bool


def test_joined_delays_are_the_union():
    tau, places = joined_delays([np.array([1.0, 2.0]), np.array([2.0 * (1 + 1e-8), 3.0]), np.array([0.5])], [None] * 3)
    np.testing.assert_allclose(tau, [0.5, 1.0, 2.0, 3.0])
    assert [place.tolist() for place in places] == [[1, 2], [2, 3], [0]]


def test_bins_are_shared_by_their_dataset_or_by_their_place_in_it():
    whole = bayesfit.stack([part.isel(q_bin=[1, 4]) for part in planted(10, 3)], names=[20, 30, 40])
    across = {"rate": {"kind": "shared", "by": "source_bin"}, "beta": {"kind": "shared", "by": "source"}}
    rate, beta = parse_across(across, whole)
    assert (rate.groups, rate.group.tolist()) == ((0, 1), [0, 1] * 3)
    assert (beta.groups, beta.group.tolist()) == ((20, 30, 40), [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.isel(q_bin=slice(0, 3)), "run_1.csv: q_bin: 3 bins, but 6 in the first dataset"),
        (lambda data: data.assign_coords(q=data.q * 1.01), "run_1.csv: q: bin 0: 0.00202, but 0.002"),
        (lambda data: data.isel(tau=slice(1, None)), "run_1.csv: tau: its delays are not those"),
        (lambda data: data.assign_attrs(contrast_prior="Normal(0, 1)"), "run_1.csv: contrast_prior: is 'Normal(0, 1)'"),
        (lambda data: data.drop_vars("valid"), "datasets: got Dataset without curves"),
        (lambda data: 3, "datasets: got int without curves"),
    ],
)
def test_what_are_no_repeats_is_refused_in_one_line(change, message):
    one, two = planted(11, 2)
    with pytest.raises(bayesfit.BayesfitError) as caught:
        bayesfit.average([one, change(two)])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_and_levels_are_checked():
    repeats = planted(12, 3)
    with pytest.raises(bayesfit.SettingsError, match="names: got"):
        bayesfit.average(repeats, names=["a", "b"])
    with pytest.raises(bayesfit.SettingsError, match="two datasets have one name"):
        bayesfit.stack(repeats, names=["a", "b", "b"])
    with pytest.raises(bayesfit.SettingsError, match="level: got 2"):
        bayesfit.average(repeats, level=2)
    with pytest.raises(bayesfit.SettingsError, match="expected a list of datasets"):
        bayesfit.average(repeats[0])
    doubled = xr.concat([repeats[0], repeats[0]], "tau", data_vars="minimal").sortby("tau")
    with pytest.raises(bayesfit.InputError, match="a delay is doubled"):
        bayesfit.stack([doubled, repeats[1]])


def test_thirteen_angles_with_three_repeats_each(shared_data):
    """Real curves of one specimen: averaged, stacked, and their least-squares rates are those of one diffusion."""
    files = sorted((shared_data / "dls_alv_cgs3").glob("*.ASC"))
    if len(files) != 39:
        pytest.skip("no real ALV files in shared data")
    averages = [bayesfit.average([bayesfit.read(file) for file in files[i : i + 3]]) for i in range(0, 39, 3)]
    left_out = [average.attrs["repeats_left_out"] for average in averages]
    assert sum(map(bool, left_out)) <= 2
    whole = bayesfit.stack(averages).isel(q_bin=slice(0, None, 2), tau=slice(0, None, 4))
    found = bayesfit.point_estimate(whole, "cumulant")
    slope = np.polyfit(np.log(whole.q), np.log(found.rate), 1)[0]
    assert 1.9 < slope < 2.3
