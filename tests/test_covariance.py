"""Curves with an estimated covariance: checks, the Student-t against SciPy, compression, and the test of theory."""

from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import bayesfit
from bayesfit.correlation.frames import frames_of
from bayesfit.correlation.multitau import Masks, Settings, multitau
from bayesfit.diagnose.covariance_check import _disputed
from bayesfit.geometry.qmap_files import read_partition
from bayesfit.modelling.compression import compression
from bayesfit.modelling.estimated_covariance import CompressedScatter
from bayesfit.posterior.prepare import prepare

FRAMES, QMAP = Path("data/frames_sim.h5"), Path("data/frames_qmap.hdf")
TAU = np.geomspace(1e-3, 1.0, 24)
SAMPLES, STATISTICS = 32, 8


def truth_covariance():
    """Errors that correlate over delays, growing with the delay."""
    sd = 0.01 * (1 + np.arange(TAU.size) / TAU.size)
    near = np.exp(-np.abs(np.subtract.outer(np.log(TAU), np.log(TAU))))
    return sd[:, None] * (0.5 * near + 0.5 * np.eye(TAU.size)) * sd


def simulated(bins, seed=1):
    """Curves of rate 20/s, each with a covariance estimated from the samples whose mean it is."""
    rng = np.random.default_rng(seed)
    mean = 1 + 0.2 * np.exp(-2 * 20 * TAU)
    samples = mean + rng.standard_normal((bins, SAMPLES, TAU.size)) @ np.linalg.cholesky(SAMPLES * truth_covariance()).T
    off = samples - samples.mean(axis=1, keepdims=True)
    cov = np.einsum("bst,bsu->btu", off, off) / SAMPLES / (SAMPLES - 1)
    return bayesfit.curves(TAU, samples.mean(axis=1), g2_cov=cov, cov_samples=SAMPLES)


def test_errors_and_order_follow_the_covariance():
    data = simulated(3)
    order = np.random.default_rng(2).permutation(TAU.size)
    cov = data.g2_cov.values[:, order[:, None], order]
    turned = bayesfit.curves(TAU[order], data.g2.values[:, order], g2_cov=cov, cov_samples=SAMPLES)
    np.testing.assert_array_equal(turned.g2_cov, data.g2_cov)
    np.testing.assert_allclose(data.g2_err**2, np.diagonal(data.g2_cov, axis1=1, axis2=2), rtol=1e-12)
    np.testing.assert_array_equal(data.cov_samples, SAMPLES)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda cov: cov + np.triu(np.full(cov.shape[1:], 1e-3)), "not symmetric"),
        (lambda cov: cov - 1e-5 * np.eye(TAU.size), "eigenvalue"),
        (lambda cov: np.where(np.eye(TAU.size), 0.0, cov), "variance that is not above 0"),
        (lambda cov: np.where(np.arange(TAU.size) == 3, np.inf, cov), "not finite"),
        (lambda cov: cov[:, :5], "expected shape"),
    ],
)
def test_what_is_no_covariance_is_refused(spoil, words):
    data = simulated(2)
    cov = data.g2_cov.values.copy()
    wrong = spoil(cov)
    if len(wrong[0]) == TAU.size:
        wrong = np.stack([cov[0], wrong[1]])
    with pytest.raises(bayesfit.InputError, match=words) as error:
        bayesfit.curves(TAU, data.g2.values, data.g2_err.values, g2_cov=wrong, cov_samples=SAMPLES)
    assert "bin 1" in str(error.value) or "shape" in words


def test_masked_points_may_have_no_covariance_and_samples_are_needed():
    data = simulated(1)
    g2, cov = data.g2.values.copy(), data.g2_cov.values.copy()
    g2[0, 4], cov[0, 4], cov[0, :, 4] = np.nan, np.nan, np.nan
    assert not bayesfit.curves(TAU, g2, g2_cov=cov, cov_samples=SAMPLES).valid[0, 4]
    with pytest.raises(bayesfit.InputError, match="cov_samples"):
        bayesfit.curves(TAU, g2, g2_cov=cov)
    with pytest.raises(bayesfit.InputError, match="g2_cov: is missing"):
        bayesfit.fit(bayesfit.curves(TAU, g2, np.full(g2.shape, 0.01)), noise="covariance")


def bin_of(data):
    problem = prepare(data, "single_exponential", "covariance")
    return problem.posterior, jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)


def test_integrated_over_its_scale_the_likelihood_is_a_student_t():
    """By quadrature over error_scale, against SciPy's multivariate t of Sellentin & Heavens."""
    data = simulated(1)
    data["g2"][0, [0, 7]] = np.nan
    data = data.assign(valid=data.valid & np.isfinite(data.g2))
    valid = data.valid.values[0]
    with jax.enable_x64(True):
        _, bin = bin_of(data)
        scatter = CompressedScatter(1.0, bin.layout)
        mean = 1 + 0.19 * np.exp(-2 * 22 * TAU)
        residual = jnp.zeros(bin.tau.size).at[: TAU.size].set(np.where(valid, data.g2.values[0] - mean, 0.0))
        (white,) = scatter.whiten(bin, residual * bin.inverse_error)

        def density(scale):
            prior = stats.gamma.pdf(scale**-2, (SAMPLES - STATISTICS) / 2, scale=2 / (SAMPLES - 1)) * 2 * scale**-3
            return prior * np.exp(float(CompressedScatter(scale, bin.layout).log_likelihood(white, bin)))

        found = integrate.quad(density, 0.3, 4.0, epsabs=0, epsrel=1e-9)[0]
    own = np.diagonal(data.g2_cov.values[0])[valid]
    rows = compression(TAU[valid], own, STATISTICS)
    covariance = rows @ data.g2_cov.values[0][np.ix_(valid, valid)] @ rows.T
    s = rows @ np.asarray(residual)[: TAU.size][valid]
    freedom = SAMPLES - STATISTICS
    shape = covariance * (SAMPLES - 1) / freedom
    expected = stats.multivariate_t.logpdf(s, shape=shape, df=freedom) + 0.5 * np.linalg.slogdet(covariance)[1]
    assert np.log(found) == pytest.approx(expected, abs=1e-6)
    distance = s @ np.linalg.solve(covariance, s)
    constant = stats.multivariate_t.logpdf(0 * s, shape=shape, df=freedom)
    formula = constant - SAMPLES / 2 * np.log1p(distance / (SAMPLES - 1))
    assert stats.multivariate_t.logpdf(s, shape=shape, df=freedom) == pytest.approx(formula, rel=1e-10)


def test_prior_of_the_scale_is_that_of_an_estimated_covariance():
    with jax.enable_x64(True):
        posterior, bin = bin_of(simulated(1))
        keys = jax.random.split(jax.random.key(1), 4000)
        draws = jax.vmap(lambda key: posterior.draw_prior(key, bin)[1]["error_scale"])(keys)
    gamma = stats.gamma((SAMPLES - STATISTICS) / 2, scale=2 / (SAMPLES - 1))
    assert stats.kstest(np.asarray(draws) ** -2.0, gamma.cdf).pvalue > 0.01


def test_statistics_keep_what_curves_say():
    """Of rate, beta, contrast and baseline, a compressed curve says nearly all: no sd grows by more than a tenth."""
    covariance = truth_covariance()
    tau = np.geomspace(1e-3, 1.0, TAU.size)
    rows = compression(tau, np.diagonal(covariance), STATISTICS)
    for rate in (5.0, 20.0, 80.0):
        x = (rate * tau) ** 0.9
        decay = np.exp(-2 * x)
        columns = [-2 * x * decay * 0.9, -2 * x * np.log(rate * tau) * decay, decay, np.ones(tau.size)]
        jacobian = np.stack(columns, axis=1)
        few = rows @ jacobian
        whole = np.linalg.inv(jacobian.T @ np.linalg.solve(covariance, jacobian))
        compressed = np.linalg.inv(few.T @ np.linalg.solve(rows @ covariance @ rows.T, few))
        assert np.sqrt(np.diagonal(compressed) / np.diagonal(whole)).max() < 1.1


def test_intervals_cover_the_truth():
    data = simulated(60)
    result = bayesfit.fit(data, "single_exponential", noise="covariance", seed=1, draws=200)
    rate = result.posterior.rate.transpose("q_bin", "chain", "draw").values.reshape(60, -1)
    place = np.mean(rate < 20.0, axis=1)
    assert stats.kstest(place, "uniform").pvalue > 0.01
    assert (result["diagnostics"].verdict == "ok").mean() > 0.9


def test_products_of_every_pixel_give_the_same_covariance(tmp_path):
    """A file as boost_corr writes it with -G: products, early and late means of each pixel."""
    rng = np.random.default_rng(3)
    bins = read_partition(QMAP)
    frames = rng.poisson(0.3, (400, *bins.mask.shape))
    own = multitau(frames_of(frames, bins.mask.shape), bins, Settings(delays_per_level=4), Masks())
    lags, by_pixel = own.lags[own.summed == 1], []
    for lag in lags:
        early, late = frames[:-lag].astype(float), frames[lag:].astype(float)
        by_pixel.append([np.mean(early * late, axis=0), early.mean(axis=0), late.mean(axis=0)])
    path = tmp_path / "results.hdf"
    bayesfit_file(path, own, lags, np.array(by_pixel))
    moved_beside(path)
    for read in (path, tmp_path / "linked.hdf"):
        data = bayesfit.read(read)
        np.testing.assert_allclose(data.g2_cov, own.cov[:, : lags.size, : lags.size], rtol=1e-4, atol=1e-9)
        np.testing.assert_array_equal(data.cov_samples, own.cov_samples)
    (tmp_path / "linked_G2.hdf").rename(tmp_path / "gone.hdf")
    data = bayesfit.read(tmp_path / "linked.hdf")
    assert "g2_cov" not in data
    assert "unnormalized_g2 is in linked_G2.hdf, which is not there" in data.notes


@pytest.mark.parametrize(("file", "place"), [("../other_G2.hdf", "/G2IPIF"), ("other_G2.hdf", "/secret")])
def test_no_other_link_is_followed(file, place, tmp_path):
    (folder := tmp_path / "folder").mkdir()
    shape = 2, 3, *read_partition(QMAP).mask.shape
    for path in (tmp_path / "other_G2.hdf", folder / "other_G2.hdf"):
        with h5py.File(path, "w") as other:
            other["G2IPIF"] = other["secret"] = np.ones(shape, np.float32)
    frames = np.random.default_rng(3).poisson(0.3, (64, *shape[2:]))
    own = multitau(frames_of(frames, shape[2:]), read_partition(QMAP), Settings(delays_per_level=4), Masks())
    bayesfit_file(folder / "results.hdf", own, own.lags[:2], np.ones(shape))
    with h5py.File(folder / "results.hdf", "a") as result:
        del result["xpcs/multitau/unnormalized_G2"]
        result["xpcs/multitau/unnormalized_g2"] = h5py.ExternalLink(file, place)
    assert "g2_cov" not in bayesfit.read(folder / "results.hdf")


def moved_beside(path):
    """The same as an earlier boost_corr writes it: products in a file of their own, and a link to them."""
    with h5py.File(path) as file, h5py.File(path.with_name("linked.hdf"), "w") as linked:
        for group in ("xpcs", "entry"):
            file.copy(group, linked)
        with h5py.File(path.with_name("linked_G2.hdf"), "w") as beside:
            file.copy("xpcs/multitau/unnormalized_G2", beside, "G2IPIF")
        del linked["xpcs/multitau/unnormalized_G2"]
        linked["xpcs/multitau/unnormalized_g2"] = h5py.ExternalLink("linked_G2.hdf", "/G2IPIF")


def bayesfit_file(path, own, lags, products):
    with h5py.File(path, "w") as file, h5py.File(QMAP) as qmap:
        qmap.copy("qmap", file.require_group("xpcs"), "qmap")
        file["entry/instrument/detector_1/frame_time"] = 1e-3
        file["xpcs/multitau/delay_list"] = lags
        file["xpcs/multitau/normalized_g2"] = own.g2[:, : lags.size].T.astype(np.float32)
        file["xpcs/multitau/normalized_g2_err"] = np.full((lags.size, len(own.g2)), 0.1, np.float32)
        file["xpcs/multitau/unnormalized_G2"] = products.astype(np.float32)


def test_measured_covariance_tests_theorys():
    data = bayesfit.correlate(FRAMES, QMAP)
    options = {"noise": "photons", "draws": 200, "seed": 1}
    right = bayesfit.fit(data, "single_exponential", **options)["diagnostics"]
    wrong = bayesfit.fit(data.assign(g2_cov=3 * data.g2_cov), "single_exponential", **options)["diagnostics"]
    assert 0.8 < float(np.sqrt((right.sd_ratio**2).mean())) < 1.2
    assert "larger errors than theory" not in " ".join(right.reason.values)
    np.testing.assert_allclose(wrong.sd_ratio, np.sqrt(3) * right.sd_ratio, rtol=1e-6)
    assert all("larger errors than theory" in reason for reason in wrong.reason.values)
    assert all(verdict == "misfit" for verdict in wrong.verdict.values)


def test_measured_covariance_tests_theorys_in_a_joint_fit():
    data = bayesfit.correlate(FRAMES, QMAP)
    wrong, pooled = data.assign(g2_cov=3 * data.g2_cov), {"rate": "diffusion"}
    found = bayesfit.fit(wrong, "single_exponential", noise="photons", across=pooled, draws=200, seed=1)["diagnostics"]
    assert 0.8 < float(np.sqrt((found.sd_ratio**2).mean() / 3)) < 1.2
    assert "larger errors than theory" in " ".join(found.reason.values)


def test_ratios_are_disputed_only_beyond_chance():
    freedom = np.full(4, 31.0)
    assert _disputed(np.array([1.2, 1.31, 1.6, 0.5]), freedom).tolist() == [False, False, True, False]
    assert _disputed(np.array([1.31] * 4), 10 * freedom).all()
    assert not _disputed(np.array([np.nan, 2.0]), np.array([0.0, 0.0])).any()
