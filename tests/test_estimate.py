"""The point estimate against SciPy, the preconditioner against a grid, and starts where the posterior is hard."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats
from scipy.optimize import curve_fit

import bayesfit
from bayesfit.compute.devices import gather, place, take
from bayesfit.compute.keys import bin_keys
from bayesfit.compute.work import Stop
from bayesfit.posterior.prepare import prepare
from bayesfit.sample import least_squares as _point
from bayesfit.sample.independence import draw, log_density
from bayesfit.sample.least_squares import point_estimates
from bayesfit.sample.mixture import KERNELS, Components, fit_components, mixture
from bayesfit.sample.starts import estimate_bins, readapt
from bayesfit.sample.target import BinTargets

DELAYS = 61


def estimates_of(data, model, noise, chains=4, **options):
    with jax.enable_x64(True):
        problem = prepare(data, model, noise, **options)
        keys = bin_keys(0, problem.identity)
        quiet, stop = (lambda _: None), Stop()
        points = point_estimates(problem.posterior, problem.bins, keys, quiet, stop)
        bins = BinTargets(problem.posterior, problem.bins, keys)
        return problem, points, estimate_bins(bins, points, chains, quiet, stop)


def stretched(tau, rate, beta, contrast, baseline):
    return baseline + contrast * np.exp(-2 * (rate * tau) ** beta)


def single(tau, rate, contrast, baseline):
    return baseline + contrast * np.exp(-2 * rate * tau)


@pytest.fixture(scope="module")
def easy():
    data, truth = bayesfit.simulate(bins=20, delays=DELAYS, seed=8, zero_pairs=0.05)
    return data, truth, *estimates_of(data, "stretched_exponential", "stated")


def scipy_fit(data, i, function, start):
    valid = data.valid.values[i]
    x, y, error = data.tau.values[valid], data.g2.values[i][valid], data.g2_err.values[i][valid]
    value, covariance = curve_fit(
        function, x, y, start, sigma=error, absolute_sigma=True, jac=None, xtol=1e-14, ftol=1e-14, gtol=1e-14
    )
    return value, np.sqrt(np.diag(covariance)), np.sum(((y - function(x, *value)) / error) ** 2)


def test_point_estimate_is_scipys(easy):
    """Values to a thousandth of their error, standard errors as far as SciPy's finite differences go, chi-square."""
    data, truth, _, points, _ = easy
    found = points.solution
    names = ("rate", "beta", "contrast", "baseline")
    for i in range(20):
        value, sd, chi2 = scipy_fit(data, i, stretched, [truth[name].values[i] for name in names])
        assert found.converged[i]
        assert found.chi2[i] == pytest.approx(chi2, rel=1e-8)
        for k, name in enumerate(names):
            assert abs(found.values[name][i] - value[k]) < 1e-3 * sd[k]
            assert found.sd[name][i] == pytest.approx(sd[k], rel=1e-3)


def test_standard_errors_in_the_result_are_scaled_by_the_residuals():
    """Noise "scaled": as `curve_fit` without `absolute_sigma`; the amplitudes' priors play no part."""
    data, _ = bayesfit.simulate(bins=2, delays=DELAYS, seed=8, wrong_errors=True)
    result = bayesfit.fit(data, draws=50)
    point = result["point_estimate"]
    for i in range(2):
        start = [point[name].values[i] for name in ("rate", "beta", "contrast", "baseline")]
        value, sd, chi2 = scipy_fit(data, i, stretched, start)
        sd = sd * np.sqrt(chi2 / (data.valid.values[i].sum() - 4))
        for k, name in enumerate(("rate", "beta", "contrast", "baseline")):
            assert abs(point[name].values[i] - value[k]) < 1e-3 * sd[k]
            assert point[f"{name}_sd"].values[i] == pytest.approx(sd[k], rel=1e-3)


def test_fixed_parameters_take_no_part():
    data, truth = bayesfit.simulate(bins=3, delays=DELAYS, seed=9)
    _, points, _ = estimates_of(data, "single_exponential", "stated", fixed={"baseline": 1.0})
    found = points.solution
    assert set(found.sd) == {"rate", "contrast"}
    for i in range(3):
        start = [truth["rate"].values[i], 0.2]
        value, sd, _ = scipy_fit(data, i, lambda tau, rate, contrast: single(tau, rate, contrast, 1.0), start)
        for k, name in enumerate(("rate", "contrast")):
            assert abs(found.values[name][i] - value[k]) < 1e-3 * sd[k]
            assert found.sd[name][i] == pytest.approx(sd[k], rel=1e-3)


def test_preconditioner_has_the_posteriors_covariance(easy):
    """The covariance of the importance draws equals a grid's, within their own Monte Carlo error."""
    _, _, problem, _, estimates = easy
    posterior = problem.posterior
    density = jax.jit(jax.vmap(posterior.log_density, (0, None)))
    for i in (0, 7, 19):
        assert estimates.importance_ess[i] > 100
        location, factor = estimates.location[i], estimates.factor[i]
        ends = np.linspace(-9, 9, 301)
        mesh = np.stack(np.meshgrid(ends, ends, indexing="ij"), axis=-1).reshape(-1, 2)
        with jax.enable_x64(True):
            bin = jax.tree.map(lambda array, i=i: jnp.asarray(array[i]), problem.bins)
            log = np.array(density(jnp.asarray(location + mesh @ factor.T), bin))
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        mean = weight @ mesh
        covariance = (mesh - mean).T @ ((mesh - mean) * weight[:, None])
        size = estimates.importance_ess[i]
        # In preconditioned coordinates the mean is 0 and the covariance 1.
        np.testing.assert_allclose(mean, 0.0, atol=4 / np.sqrt(size))
        np.testing.assert_allclose(covariance, np.eye(2), atol=4 * np.sqrt(2 / size))


def test_lowest_potential_is_the_modes(easy):
    """No point of a fine grid in preconditioned coordinates lies lower than the lowest potential seen by more than
    1e-6."""
    _, _, problem, _, estimates = easy
    ends = np.linspace(-3, 3, 121)
    mesh = np.stack(np.meshgrid(ends, ends, indexing="ij"), axis=-1).reshape(-1, 2)
    potential = jax.jit(jax.vmap(problem.posterior.potential, (0, None)))
    for i in range(20):
        with jax.enable_x64(True):
            bin = jax.tree.map(lambda array, i=i: jnp.asarray(array[i]), problem.bins)
            values = np.array(potential(jnp.asarray(estimates.location[i] + mesh @ estimates.factor[i].T), bin))
        assert estimates.mode_potential[i] <= values.min() + 1e-6


@pytest.fixture(scope="module")
def hard():
    """Bins whose posterior has two modes or none: flat, arrested, gone before the window, empty of signal, one point
    far off, stated errors of 1e-9, noise only, hardly any points, exact curves."""
    rng = np.random.default_rng(12)
    tau = np.geomspace(1e-3, 1e2, DELAYS)
    error = np.full(DELAYS, 2e-3)
    noise = lambda: error * rng.standard_normal(DELAYS)  # noqa: E731
    g2 = np.stack(
        [
            1.0 + noise(),
            stretched(tau, 1e-4, 1.0, 0.15, 1.0) + noise(),
            stretched(tau, 1e5, 1.0, 0.15, 1.0) + noise(),
            1.1 + noise(),
            stretched(tau, 1.0, 0.9, 0.15, 1.0) + noise() + 50 * (np.arange(DELAYS) == 17),
            stretched(tau, 1.0, 0.9, 0.15, 1.0) + noise(),
            1.0 + 30 * noise(),
            np.where(np.arange(DELAYS) % 10 == 0, stretched(tau, 1.0, 0.9, 0.15, 1.0), np.nan),
            stretched(tau, 1.0, 0.9, 0.15, 1.0),
            np.full(DELAYS, 1.0),
            stretched(tau, 1.0, 0.9, -0.15, 1.0) + noise(),
            stretched(tau, 0.05, 0.7, 0.08, 1.0) + stretched(tau, 50.0, 1.5, 0.08, 0.0) + noise(),
        ]
    )
    g2_err = np.tile(error, (len(g2), 1))
    g2_err[5] = 1e-9
    return bayesfit.curves(tau, g2, g2_err, contrast_prior="TruncatedNormal(0.15, 0.2, low=0)")


@pytest.mark.parametrize("noise", ["scaled", "stated"])
def test_hard_bins_still_have_finite_starts(hard, noise):
    problem, points, estimates = estimates_of(hard, "stretched_exponential", noise)
    posterior = problem.posterior
    for name in ("mode_potential", "location", "factor", "starts", "importance_ess"):
        assert np.all(np.isfinite(getattr(estimates, name))), name
    assert np.all(np.isfinite(points.solution.chi2))
    for values in points.solution.values.values():
        assert np.all(np.isfinite(values))
    diagonal = np.diagonal(estimates.factor, axis1=1, axis2=2)
    assert np.all(diagonal > 0)
    with jax.enable_x64(True):
        at = jax.jit(jax.vmap(posterior.potential))
        for chain in range(4):
            z = estimates.location + np.einsum("bij,bj->bi", estimates.factor, estimates.starts[:, chain])
            potential = np.array(at(jnp.asarray(z), problem.bins))
            # A start lies where the posterior has mass: within a chi-square of the lowest potential.
            assert np.all(np.isfinite(potential))
            assert np.all(potential - estimates.mode_potential < 40)


def test_starts_lie_in_both_modes_in_the_right_proportion():
    """Curves without a decay in their window, level above the baseline: decayed before it, or yet to. The share of
    each is a grid's; baselines are known ever better, so that it shifts from the one to the other."""
    tau = np.geomspace(1e-3, 1e2, DELAYS)
    g2 = 1.1 + 2e-3 * np.random.default_rng(3).standard_normal((16, DELAYS))
    data = bayesfit.curves(tau, g2, np.full_like(g2, 2e-3), contrast_prior="TruncatedNormal(0.15, 0.2, low=0)")
    priors = {"baseline": {"family": "Normal", "loc": 1.0, "scale": np.geomspace(0.1, 0.02, 16)}}
    problem, _, estimates = estimates_of(data, "stretched_exponential", "stated", priors=priors)
    posterior = problem.posterior
    ends = np.linspace(-10, 10, 301)
    mesh = np.stack(np.meshgrid(ends, ends, indexing="ij"), axis=-1).reshape(-1, 2)

    def over(z, bins):
        at = lambda z, bin: (posterior.log_density(z, bin), posterior.curve(z, bin)[1]["rate"])  # noqa: E731
        return jax.vmap(jax.vmap(at, (0, None)), (0 if z.ndim == 3 else None, 0))(z, bins)

    z = estimates.location[:, None] + np.einsum("bij,bcj->bci", estimates.factor, estimates.starts)
    with jax.enable_x64(True):
        log, rate = map(np.array, jax.jit(over)(jnp.asarray(mesh), problem.bins))
        _, started = map(np.array, jax.jit(over)(jnp.asarray(z), problem.bins))
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    slow = (weight * (rate < 1.0)).sum(axis=1) / weight.sum(axis=1)
    assert slow.min() < 0.3
    assert slow.max() > 0.7
    chains = started.shape[1]
    error = np.sqrt(chains * np.sum(slow * (1 - slow)))
    assert abs(np.sum(started < 1.0) - chains * slow.sum()) < 3 * error
    assert np.any(started < 1.0)
    assert np.any(started > 1.0)


@pytest.mark.parametrize("model", ["stretched_exponential", "double_exponential"])
def test_estimates_of_one_bin_do_not_depend_on_the_others(easy, model):
    """Nor do those of importance sampling that goes on until enough points count."""
    data, *_ = easy
    _, *estimates = estimates_of(data, model, "stated")
    _, *part = estimates_of(data.isel(q_bin=[11, 2]), model, "stated")
    for row, bin in enumerate((11, 2)):
        for got, whole in zip(jax.tree.leaves(part), jax.tree.leaves(estimates), strict=True):
            np.testing.assert_array_equal(got[row], whole[bin])


def test_readapting_whitens_the_draws_and_moves_nothing(easy):
    """New coordinates have the draws' mean at 0 and unit covariance, and chains go on where they stood."""
    *_, estimates = easy
    old = jax.tree.map(lambda array: array[4], estimates)
    rng = np.random.default_rng(1)
    size = old.location.size
    u = 3.0 + rng.standard_normal((4, 150, size)) @ np.linalg.cholesky(np.eye(size) + 2.0).T
    with jax.enable_x64(True):
        new = jax.tree.map(np.asarray, readapt(old, u, u[0, :0]))
        z = old.location + u @ old.factor.T
        np.testing.assert_allclose(new.location + new.starts @ new.factor.T, z[:, -1], rtol=1e-9)
        white = np.linalg.solve(new.factor, (z.reshape(-1, size) - new.location).T)
        np.testing.assert_allclose(white.mean(axis=1), 0.0, atol=1e-9)
        np.testing.assert_allclose(np.cov(white), np.eye(size), atol=1e-9)
        assert new.mixture.cumulative[-1] == pytest.approx(1.0)


def test_constant_draws_readapt_nothing(easy):
    *_, estimates = easy
    old = jax.tree.map(lambda array: array[4], estimates)
    u = np.ones((4, 50, old.location.size))
    assert readapt(old, u, u[0, :0]) is old


def test_readapting_remembers_what_was_seen(easy):
    """A mode that earlier draws were in, and the last ones are not, is still proposed in proportion."""
    *_, estimates = easy
    old = jax.tree.map(lambda array: array[4], estimates)
    rng = np.random.default_rng(1)
    u = rng.standard_normal((4, 200, old.location.size))
    far = 8.0 + 0.1 * rng.standard_normal((200, old.location.size))
    new = readapt(old, u, far)
    keys = jax.random.split(jax.random.key(0), 2000)
    proposed = np.asarray(jax.vmap(draw, (0, None))(keys, jax.tree.map(jnp.asarray, new.mixture)))
    z = new.location + proposed @ new.factor.T
    again = np.linalg.solve(old.factor, (z - old.location).T).T
    assert np.mean(np.abs(again - 8.0).max(axis=1) < 1.0) == pytest.approx(0.2, abs=0.06)


def test_what_is_no_mode_but_has_a_share_is_found():
    """One decay, well measured, fitted with two: some of the posterior has the second so fast that it is hardly seen.
    Its share among the importance draws is that of likelihood weights of many prior draws."""
    tau = np.geomspace(1e-3, 10.0, 40)
    rng = np.random.default_rng(4)
    g2 = single(tau, 1.5, 0.3, 1.0) + 0.005 * rng.standard_normal((16, tau.size))
    priors = {"contrast_prior": "TruncatedNormal(0.15, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}
    data = bayesfit.curves(tau, g2, np.full_like(g2, 0.005), **priors)
    problem, _, estimates = estimates_of(data, "double_exponential", "stated")
    posterior = problem.posterior

    def drawn(key, bin):
        return posterior.draw_prior(key, bin)[0]

    def weighed(z, bin):
        _, values, log_prior = posterior.curve(z, bin)
        return posterior.log_density(z, bin) - log_prior, values["rate_fast"]

    with jax.enable_x64(True):
        first = jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)
        z = jax.jit(jax.vmap(drawn, (0, None)))(jax.random.split(jax.random.key(0), 200_000), first)
        both = jax.jit(lambda bin: jax.lax.map(lambda z: weighed(z, bin), z, batch_size=1000))
        share, proposed = [], []
        for i in range(len(g2)):
            bin = jax.tree.map(lambda array, i=i: jnp.asarray(array[i]), problem.bins)
            log, fast = map(np.array, both(bin))
            weight = np.exp(log - log.max())
            share.append(np.sum(weight * (fast > 100.0)) / np.sum(weight))
            one = jax.tree.map(lambda array, i=i: array[i], estimates)
            kernels = jnp.asarray(one.location + one.mixture.kernels.T @ one.factor.T)
            proposed.append(np.mean(np.array(jax.vmap(lambda z, bin=bin: weighed(z, bin)[1])(kernels)) > 100.0))
    assert np.mean(share) > 0.05
    np.testing.assert_allclose(proposed, share, atol=0.07)


def test_components_find_the_arms_of_a_posterior():
    """Draws of four thin normals, two of them crossed: the components' likelihood is that of the truth."""
    rng = np.random.default_rng(2)
    means = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 1.0], [-2.0, 2.0]])
    widths = np.array([[1.0, 0.01], [0.01, 1.0], [0.02, 0.5], [0.5, 0.02]])
    which = rng.integers(4, size=4000)
    u = means[which] + widths[which] * rng.standard_normal((4000, 2))
    found = fit_components(u[:2000])
    by_component = [stats.multivariate_normal(m, f @ f.T).logpdf(u[2000:]) for m, f in zip(*found[:2], strict=True)]
    true = [stats.norm.logpdf(u[2000:], m, w).sum(axis=1) for m, w in zip(means, widths, strict=True)]
    masses = found.log_masses - special.logsumexp(found.log_masses)
    got = special.logsumexp(np.array(by_component) + masses[:, None], axis=0).mean()
    assert got > special.logsumexp(true, axis=0).mean() - np.log(4.0) - 0.1


def test_responsibilities_use_only_the_first_coordinates():
    """Components are those of these coordinates alone, each with the mean and the covariance of its draws in the
    others."""
    rng = np.random.default_rng(3)
    arms = np.stack([np.repeat([-3.0, 3.0], 500), rng.standard_normal(1000)], axis=1)
    arms[:, 0] += 0.1 * rng.standard_normal(1000)
    others = np.stack([0.5 * arms[:, 0], rng.choice([-5.0, 5.0], 1000)], axis=1) + rng.standard_normal((1000, 2))
    found, alone = fit_components(np.concatenate([arms, others], axis=1), first=2), fit_components(arms)
    assert len(found.locations) == len(alone.locations) == 16
    np.testing.assert_allclose(found.locations[:, :2], alone.locations, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.factors[:, :2, :2], alone.factors, rtol=1e-6, atol=1e-6)
    masses = special.softmax(found.log_masses)
    covariances = found.factors @ found.factors.swapaxes(1, 2)
    mean = masses @ found.locations
    spread = np.einsum("k,kij->ij", masses, covariances + _squares(found.locations - mean))
    np.testing.assert_allclose(spread, np.cov(np.concatenate([arms, others], axis=1).T, bias=True), atol=0.02)


def _squares(rows):
    return rows[:, :, None] * rows[:, None, :]


@pytest.mark.parametrize("count", [1, 7, 200])
def test_components_of_few_draws_are_finite(count):
    found = fit_components(np.random.default_rng(0).standard_normal((count, 3)))
    assert len(found.locations) == max(1, min(16, count // 30))
    assert all(np.isfinite(part).all() for part in found)
    assert np.all(np.diagonal(found.factors, axis1=1, axis2=2) > 0.0)


def test_a_mode_that_is_nowhere_takes_nothing_from_the_mixture():
    """A component without a factor is left out; the density of the others is a number."""
    rng = np.random.default_rng(0)
    locations, factors = np.zeros((3, 2)), np.repeat(np.eye(2)[None], 3, axis=0)
    locations[1] = factors[1] = np.nan
    made = mixture(rng.standard_normal((KERNELS, 2)), Components(locations, factors, np.array([0.0, np.nan, 1.0])), 0.5)
    assert np.isfinite(log_density(jnp.zeros(2), jax.tree.map(jnp.asarray, made)))
    assert made.cumulative[KERNELS] == made.cumulative[KERNELS + 1]


def test_proposals_come_from_the_density_that_is_stated(easy):
    """Importance weights of one normal against the mixture's draws have the mean that the normal's integral says, up to
    the constant that the density leaves out: the same for two normals."""
    *_, estimates = easy
    proposals = jax.tree.map(lambda array: jnp.asarray(array[4]), estimates.mixture)
    with jax.enable_x64(True):
        u = jax.vmap(lambda key: draw(key, proposals))(jax.random.split(jax.random.key(0), 40_000))
        log_q = jax.vmap(lambda u: log_density(u, proposals))(u)
        means = []
        for shift, width in ((0.0, 1.0), (0.7, 0.5)):
            weight = np.exp(-0.5 * np.sum(((u - shift) / width) ** 2, axis=1) - log_q) / width ** u.shape[1]
            means.append((weight.mean(), weight.std() / np.sqrt(len(u))))
    (a, da), (b, db) = means
    assert abs(a - b) < 4.5 * np.hypot(da, db)
    assert da < 0.05 * a
    assert db < 0.05 * b


def test_what_gauss_newton_leaves_is_solved_with_care(hard):
    """Hard bins converge by Levenberg-Marquardt, at no point higher than Gauss-Newton's end, or say that they did not;
    and easy bins keep the bits that they have without them."""
    with jax.enable_x64(True):
        problem = prepare(hard, "stretched_exponential", "stated")
        keys = bin_keys(0, problem.identity)
        program = _point._quick(problem.posterior)
        index = np.resize(np.arange(len(keys)), 64)
        first = jax.tree.map(
            lambda a: a[: len(keys)], gather(program(place(take(problem.bins, index), 1), place(keys[index], 1)))
        )
        whole = point_estimates(problem.posterior, problem.bins, keys, lambda _: None, Stop())
    solved = first.solution.converged
    assert 0 < solved.sum() < len(keys), "the bins do not tell the two ways apart"
    assert whole.solution.converged.sum() > solved.sum()
    assert np.all(whole.solution.chi2 <= first.solution.chi2 * (1 + 1e-9))
    for got, expected in zip(jax.tree.leaves(whole), jax.tree.leaves(first), strict=True):
        np.testing.assert_array_equal(got[solved], expected[solved])


def test_a_start_that_names_no_amplitude_serves_noise_that_samples_them():
    """Under `robust` contrast and baseline are sampled, and a model's start gives those of its shape alone."""

    def program(tau):
        rate = numpyro.sample("rate", dist.LogUniform(0.1 / jnp.max(tau), 10.0 / jnp.min(tau)))
        return jnp.exp(-2.0 * rate * tau)

    model = bayesfit.Model(name="started", program=program, start={"rate": 3.0})
    data, _ = bayesfit.simulate(bins=2, delays=24, seed=1)
    robust, plain = (bayesfit.point_estimate(data, model, noise=noise) for noise in ("robust", "scaled"))
    assert bool(robust.converged.all())
    np.testing.assert_allclose(robust.rate, plain.rate, rtol=1e-5)
