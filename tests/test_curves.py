"""The input record: what is masked, what is refused, what must just work."""

import jax
import numpy as np
import pytest
import xarray as xr

import bayesfit
from bayesfit.data.curves import MASKED, by_bin
from bayesfit.data.error_audit import error_audit, error_ratio
from bayesfit.posterior.prepare import prepare

TAU = np.geomspace(1e-4, 1e-1, 12)
Q = np.array([0.01, 0.02, 0.03])


def good(bins=3):
    """tau, g2, g2_err of `bins` plain decays."""
    g2 = np.stack([1 + 0.2 * np.exp(-2 * 50 * (b + 1) * TAU) for b in range(bins)])
    return TAU.copy(), g2, np.full(g2.shape, 0.01)


def counts(data):
    """Number of masked points (cause, bin), only the causes that occur."""
    return {name: data[name].values.tolist() for name in MASKED if data[name].values.any()}


def refusal(*args, **kwargs):
    """The one line with which `curves` refuses."""
    with pytest.raises(bayesfit.InputError) as caught:
        bayesfit.curves(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return caught.value


def test_record_has_dims_units_and_everything_valid():
    tau, g2, g2_err = good()
    data = bayesfit.curves(tau, g2, g2_err, q=Q, phi=[0.0, 90.0, 180.0])
    assert dict(data.sizes) == {"q_bin": 3, "tau": 12}
    assert data.valid.values.all()
    assert counts(data) == {}
    assert [data[name].attrs["units"] for name in ("tau", "q", "phi", "g2")] == ["s", "1/angstrom", "degree", "1"]
    assert data.attrs["notes"] == ""
    assert all(isinstance(value, str | int | float) for value in data.attrs.values())


def test_each_masked_point_counts_once_whatever_is_wrong_with_it():
    tau, g2, g2_err = good()
    tau[0] = 0.0
    g2[0, :3], g2_err[0, :3] = (np.nan, 0.0, 1.1), (0.0, 0.0, -1.0)
    data = bayesfit.curves(tau, g2, g2_err, skip_first=2)
    total = sum(data[name] for name in MASKED)
    np.testing.assert_array_equal(total, (~data.valid).sum("tau"))
    of_the_point = {"masked_delay": [1, 1, 1], "masked_zero_pairs": [1, 0, 0], "masked_error": [1, 0, 0]}
    assert counts(data) == of_the_point | {"masked_skipped": [0, 1, 1]}


@pytest.mark.parametrize("left", [0, 1, 2])
def test_empty_and_nearly_empty_bins_are_kept_beside_good_ones(left):
    tau, g2, g2_err = good()
    g2[1, left:] = np.nan
    data = bayesfit.curves(tau, g2, g2_err, q=Q)
    assert data.valid.sum("tau").values.tolist() == [12, left, 12]


def test_q_zero_and_unknown_q_are_kept():
    data = bayesfit.curves(*good(), q=[0.0, np.nan, 0.03])
    np.testing.assert_array_equal(data.q, [0.0, np.nan, 0.03])


def test_nothing_left_after_skipping_is_refused():
    assert "skip_first: leaves no point of 12 delays" in str(refusal(*good(), skip_first=12))


def test_repeated_delays_keep_all_their_values():
    tau, g2, g2_err = good()
    tau[5] = tau[4]
    data = bayesfit.curves(tau[::-1], g2[:, ::-1], g2_err[:, ::-1])
    assert data.valid.values.all()
    assert sorted(data.g2.values[0, 4:6]) == sorted(g2[0, 4:6])


@pytest.mark.parametrize("kind", [">f8", ">f4", "<f4", "f8"])
def test_byte_order_and_single_precision_just_work(kind):
    tau, g2, g2_err = (array.astype(kind) for array in good())
    data = bayesfit.curves(tau, g2, g2_err)
    assert data.g2.dtype == np.dtype("=f8")
    assert data.attrs["notes"] == ""
    np.testing.assert_array_equal(data.g2, g2.astype(float))


def test_masked_arrays_are_masked_points():
    tau, g2, g2_err = good()
    hidden = np.zeros(g2.shape, bool)
    hidden[2, [1, 7]] = True
    data = bayesfit.curves(tau, np.ma.array(g2, mask=hidden), g2_err)
    np.testing.assert_array_equal(data.valid, ~hidden)
    assert counts(data) == {"masked_value": [0, 0, 2]}


def test_masked_integers_do_not_turn_into_their_fill_value():
    tau, g2, _ = good()
    data = bayesfit.curves(tau, np.ma.masked_equal((10 * g2).astype(int), 10), None)
    assert np.nanmax(data.g2.values) <= 12


def test_one_curve_may_be_one_dimensional():
    tau, g2, g2_err = good(1)
    flat = bayesfit.curves(tau, g2[0], g2_err[0], q=0.01)
    xr.testing.assert_identical(flat, bayesfit.curves(tau, g2, g2_err, q=[0.01]))


def test_lists_and_data_arrays_are_arrays():
    tau, g2, g2_err = good()
    xr.testing.assert_identical(
        bayesfit.curves(list(tau), g2.tolist(), xr.DataArray(g2_err)), bayesfit.curves(tau, g2, g2_err)
    )


def test_ragged_bins_padded_with_nan():
    tau = np.geomspace(1e-4, 1.0, 64)
    lengths = [64, 40, 9, 4]
    g2 = np.stack([np.where(np.arange(64) < n, 1 + 0.1 * np.exp(-tau), np.nan) for n in lengths])
    data = bayesfit.curves(tau, g2, np.where(np.isnan(g2), np.nan, 0.01))
    assert data.valid.sum("tau").values.tolist() == lengths
    assert counts(data) == {"masked_value": [64 - n for n in lengths]}


def test_errors_that_are_not_stated_are_one_and_said():
    tau, g2, _ = good()
    data = bayesfit.curves(tau, g2)
    assert (data.attrs["errors_stated"], data.attrs["notes"]) == (0, "no errors are stated: g2_err is 1 everywhere")
    assert (data.g2_err == 1).all()


def test_any_x_is_allowed_for_a_curve():
    x = np.array([-2.0, -1.0, 0.0, 1.0])
    data = bayesfit.curves(x, np.array([-999.0, 1.0, 2.0, 3.0]), np.ones(4), delays=False)
    assert data.valid.values.all()
    assert (data.tau.attrs["units"], data.attrs["pipeline"]) == ("", "")


@pytest.mark.parametrize(("reference", "prior"), [(1.0, "Normal(1, 0.1)"), (0.0, "Normal(0, 0.1)")])
def test_baseline_prior_follows_the_reference(reference, prior):
    assert bayesfit.curves(*good(), baseline_reference=reference).attrs["baseline_prior"] == prior


def test_what_users_do_to_a_dataset_leaves_it_one():
    """They choose bins and delays by `isel` or `where`, and turn delays round."""
    tau, g2, g2_err = good()
    data = bayesfit.curves(tau, g2, g2_err, q=Q)
    with jax.enable_x64(True):
        whole = prepare(data)
        chosen = prepare(data.where(data.q > 0.015))
        assert chosen.points.tolist() == [0, 12, 12]
        assert prepare(data.where(data.q > 0.015, drop=True)).points.tolist() == [12, 12]
        np.testing.assert_array_equal(chosen.bins.y[1:], whole.bins.y[1:])
        turned = prepare(data.isel(tau=slice(None, None, -1)))
        np.testing.assert_array_equal(turned.bins.tau, whole.bins.tau)
        np.testing.assert_array_equal(turned.bins.y, whole.bins.y)
        with pytest.raises(bayesfit.InputError, match="tau: holds one delay"):
            prepare(data.isel(tau=3))
        data.g2.values[1, 2] = np.nan
        with pytest.raises(bayesfit.InputError, match="valid: bin 1: a point is marked valid that is not finite"):
            prepare(data)
    one = by_bin(data.isel(q_bin=2))
    assert one.q.values.tolist() == [0.03]
    assert one.g2.dims == ("q_bin", "tau")


def test_arrays_of_the_caller_are_left_alone():
    tau, g2, g2_err = good()
    kept = [array[..., ::-1].copy() for array in (tau, g2, g2_err)]
    data = bayesfit.curves(tau[::-1], g2[:, ::-1], g2_err[:, ::-1])
    data.g2.values[:] = 0
    for array, before in zip((tau, g2, g2_err), kept, strict=True):
        np.testing.assert_array_equal(array[..., ::-1], before)


def test_ten_thousand_bins():
    g2 = np.broadcast_to(good(1)[1], (10_000, 12))
    assert dict(bayesfit.curves(TAU, g2, np.full(g2.shape, 0.01)).sizes) == {"q_bin": 10_000, "tau": 12}


@pytest.mark.parametrize("wrong", [0.1, 1.0, 30.0])
def test_error_ratio_finds_how_wrong_the_stated_errors_are(wrong):
    """Also under a decay whose steps from delay to delay are larger than the noise."""
    tau = np.geomspace(1e-4, 1, 400)
    noise = np.random.default_rng(5).normal(0, 0.001, (4, 400)) + 0.4 * np.exp(-2 * (20 * tau) ** 0.6)
    data = bayesfit.curves(tau, 1 + noise, np.full(noise.shape, 0.001 / wrong))
    ratio, _ = error_ratio(data)
    np.testing.assert_allclose(ratio / wrong, 1, atol=0.2)
    assert error_audit(data)["errors_wrong"][1].tolist() == [wrong != 1.0] * 4


def test_error_ratio_states_its_own_error():
    noise = np.random.default_rng(6).normal(0, 0.01, (2000, 60))
    ratio, sd = error_ratio(bayesfit.curves(np.geomspace(1e-4, 1, 60), 1 + noise, np.full(noise.shape, 0.01)))
    assert np.std(np.log(ratio)) == pytest.approx(sd[0], rel=0.1)
    assert (
        error_audit(bayesfit.curves(np.arange(1.0, 61), 1 + noise, np.full(noise.shape, 0.01)))["errors_wrong"][
            1
        ].mean()
        < 0.005
    )


def test_error_ratio_is_unknown_below_five_points_and_without_errors():
    tau, g2, g2_err = good()
    g2[0, 4:], g2[1, 5:] = np.nan, np.nan
    assert np.isnan(error_ratio(bayesfit.curves(tau, g2, g2_err))[0]).tolist() == [True, False, False]
    assert np.isnan(error_ratio(bayesfit.curves(tau, g2))[0]).all()
