"""Noise "photons": a table of theory's errors, and draws that are chosen by it."""

import jax
import numpy as np
import pytest
from calibration import Setting, simulate

from bayesfit.modelling.photon_layout import LOG_WEIGHTS, VARIANCE, WEIGHTS
from bayesfit.posterior.photon_noise import with_theory
from bayesfit.posterior.prepare import prepare
from bayesfit.sample import theory_draws
from bayesfit.sample.draws import Draws
from bayesfit.sample.redrawn import delayed, redrawn
from bayesfit.sample.theory_clouds import Weighted
from bayesfit.sample.theory_tables import OwnErrors, Table, apart, whole

SETTING = Setting("stretched_exponential", "photons")
SPREAD = {"rate": 0.2, "beta": 0.05, "contrast": 0.1, "baseline": 0.01, "dispersion": 0.2}
CHAINS, DRAWS, SLOW = 4, 100, 362
LARGE = 1e9  # effective sample size that no choice among draws reaches


def with_own_errors(problem, draws, rng, least=400.0):
    """By a mixture that is aimed at these draws."""
    points = OwnErrors(problem, {name: value.reshape(-1) for name, value in draws.values.items()})
    posterior, names = problem.posterior, whole(problem.posterior).names
    z = points.z[:, [names.index(name) for name in posterior.names]]
    return theory_draws.with_own_errors(problem, draws, Weighted.equally(z).aimed(), rng, least)


def draws_of(values):
    """A record of one bin with these draws."""
    draws = Draws.none_of(1)
    draws.put(0, values, {"potential": np.zeros((CHAINS, DRAWS))}, DRAWS)
    draws.thin[:], draws.convergence[:] = 1, (1.0, DRAWS, DRAWS)
    return draws


@pytest.fixture(scope="module")
def sampled():
    """A slow decay, with errors kept as they are at the truth, and draws about it."""
    slow = simulate(SETTING, 400, [1])
    data = slow.data.isel(q_bin=[SLOW])
    truth = {name: value[[SLOW]] for name, value in slow.truth.items()}
    rng = np.random.default_rng(0)
    values = {name: truth[name] * np.exp(size * rng.standard_normal((CHAINS, DRAWS))) for name, size in SPREAD.items()}
    values["beta"] = np.clip(values["beta"], 0.21, 1.99)
    with jax.enable_x64(True):
        yield with_theory(prepare(data, **SETTING.options), truth), draws_of(values)


@pytest.fixture(scope="module")
def points(sampled):
    problem, draws = sampled
    return OwnErrors(problem, {name: value.reshape(-1) for name, value in draws.values.items()})


def layouts_of(numbers):
    """Layouts (point, tau, column) that consist of smooth numbers (point, tau); the second delay is not valid."""
    layouts = np.zeros((len(numbers), 3, WEIGHTS + 3))
    layouts[..., VARIANCE], layouts[..., LOG_WEIGHTS] = np.exp(numbers), numbers[:, ::-1]
    layouts[..., WEIGHTS] = np.exp(numbers[:, ::-1])
    layouts[..., WEIGHTS + 1 :] = layouts[..., [WEIGHTS]] * numbers[:, :2][:, None]
    layouts[:, 1, WEIGHTS:] = layouts[:, 1, LOG_WEIGHTS, None] = 0.0
    return layouts


def told(table, points, like):
    with jax.enable_x64(True):
        return np.array([table.layout(point, jax.numpy.asarray(like)) for point in points])


def test_errors_are_interpolated():
    """Through the points but for the nugget, and smoothly between."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((44, 2))
    numbers = 0.1 * np.stack([np.sin(x[:, 0]) * x[:, 1] + k * np.tanh(x[:, 0]) for k in range(3)], axis=1)
    layouts = layouts_of(numbers)
    table = Table.of(x[:32], layouts[:32])
    np.testing.assert_allclose(told(table, x[:32], layouts[0]), layouts[:32], atol=5e-4)
    inside = np.flatnonzero(np.abs(x[32:]).max(axis=1) < 1.5) + 32
    assert inside.size > 6
    np.testing.assert_allclose(told(table, x[inside], layouts[0]), layouts[inside], atol=0.02)


def test_far_from_all_points_errors_are_like_theirs():
    """A polynomial would be off by powers of ten."""
    x = np.random.default_rng(1).standard_normal((32, 2))
    layouts = layouts_of(0.1 * np.stack([x[:, 0], x[:, 1], x[:, 0] * x[:, 1]], axis=1))
    found = told(Table.of(x, layouts), np.array([[40.0, -40.0], [1e6, 1e6]]), layouts[0])
    low, high = layouts[..., VARIANCE].min(), layouts[..., VARIANCE].max()
    assert np.all((0.5 * low < found[..., VARIANCE]) & (found[..., VARIANCE] < 2.0 * high))


def test_a_table_holds_points_of_every_mode():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1000, 2))
    x[::100] += 20.0
    chosen = apart(x, 32, np.arange(1, 17))
    assert len(set(chosen)) == 32
    assert (x[chosen, 0] > 10.0).sum() >= 3


def test_the_likelihood_is_that_with_theory_at_each_draw(points):
    """The change by the table, beside that with theory computed at draws that have no part in the table."""
    known, others = (points.of_draws(np.arange(first, CHAINS * DRAWS, 7)) for first in (0, 3))
    table = Table.of(known.coordinates, known.theory())
    exact = others.log_likelihood(others.theory()) - others.log_likelihood()
    assert np.std(exact) > 0.3
    by_table = others.log_likelihood_by(table) - others.log_likelihood()
    assert np.std(by_table - exact) < 0.1 * np.std(exact)


@pytest.mark.parametrize("together", [1, 2, 3, 5, 8])
def test_theory_at_a_point_does_not_depend_on_how_many_there_are(points, together):
    some = points.of_draws(np.arange(together))
    np.testing.assert_array_equal(some.theory(), points.of_draws(np.arange(21)).theory()[:together])


def test_the_ratio_is_that_of_densities_of_g2(points):
    """With data standardised by theory at the draws, and by errors kept: the same density per unit of g2."""
    some = points.of_draws(np.arange(16))
    own = with_theory(some.problem.of_bins(np.zeros(16, int)), some.values)
    density = jax.jit(jax.vmap(some.problem.posterior.log_likelihood))
    np.testing.assert_allclose(some.log_likelihood(some.theory()), density(some.values, own.bins), rtol=1e-9)


def test_the_whole_posterior_is_likelihood_times_prior(points):
    """Walkers move in the posterior that nothing is integrated out of: its density, beside the full program's."""
    posterior, some = points.problem.posterior, points.of_draws(np.arange(8))
    sites = whole(posterior)

    def by_parts(values):
        prior = posterior.log_prior(values, points.bin)
        return sum(prior.values()) + posterior.log_likelihood(values, points.bin)

    def jacobian(z):
        values = sites.constrain(z, points.bin, jax.random.key(0))
        return jax.numpy.stack([values[name] for name in sites.names])

    volume = np.linalg.slogdet(jax.vmap(jax.jacobian(jacobian))(some.z))[1]
    density = jax.vmap(lambda z: sites.log_density(z, points.bin))(some.z)
    difference = density - volume - jax.vmap(by_parts)(some.values)
    np.testing.assert_allclose(difference, difference[0], atol=1e-6)  # log_constant


def test_walkers_find_the_posterior_wherever_they_start(sampled):
    problem, draws = sampled
    narrow = draws_of(
        {name: np.exp(0.7 * np.log(v[0]) + 0.3 * np.log(v[0]).mean()) for name, v in draws.values.items()}
    )
    each = [with_own_errors(problem, d, np.random.default_rng(0), LARGE) for d in (draws, narrow)]
    for made in each:
        assert made.off < 0.5
        assert made.draws.convergence[0, 0] < 1.03
    for name in SPREAD:
        one, other = (made.draws.values[name][0] for made in each)
        assert one.shape == (CHAINS, DRAWS)
        assert abs(one.mean() - other.mean()) < 0.3 * one.std(), name
        assert 0.75 < one.std() / other.std() < 1.33, name


def test_draws_without_a_likelihood_stay(sampled, monkeypatch):
    problem, draws = sampled
    monkeypatch.setattr(OwnErrors, "log_likelihood_by", lambda self, table: np.full(len(self.z), np.nan))
    monkeypatch.setattr(OwnErrors, "log_likelihood", lambda self, layouts=None: np.full(len(self.z), np.nan))
    found = with_own_errors(problem, draws, np.random.default_rng(0))
    assert found.off == np.inf
    np.testing.assert_array_equal(found.draws.values["rate"], draws.values["rate"])


def far_apart(values):
    """The difference of the means of chains that are farthest from each other, in units of the sd of all draws."""
    return np.ptp(values.mean(axis=1)) / values.std()


def test_walkers_leave_where_chains_are_far_apart(sampled):
    """They have no trajectories, and know how low the potential is."""
    problem, draws = sampled
    shifts = np.linspace(-1.0, 1.0, CHAINS)[:, None]
    values = {name: v[0] * np.exp(SPREAD[name] * shifts) for name, v in draws.values.items()}
    values["beta"] = np.clip(values["beta"], 0.21, 1.99)
    apart = draws_of(values)
    apart.convergence[:] = 1.5, 5.0, 5.0
    apart.stats["n_steps"] = np.full((1, CHAINS, DRAWS), 63, np.int32)
    found = with_own_errors(problem, apart, np.random.default_rng(0), least=50.0)
    assert found.draws.convergence[0, 0] < 1.03
    assert not found.draws.stats["n_steps"].any()
    assert found.lowest == found.draws.stats["potential"].min() > -np.inf
    for name in SPREAD:
        assert far_apart(found.draws.values[name][0]) < 0.6 < 1.2 < far_apart(values[name])


def test_draws_of_chains_that_are_far_apart_stay_where_walkers_do_not_mix(sampled):
    problem, draws = sampled
    apart = draws.of_bins(np.array([0]))
    apart.convergence[:] = 1.5, 5.0, 5.0
    found = with_own_errors(problem, apart, np.random.default_rng(0), LARGE)
    assert found.off > 0.3
    assert np.isnan(found.lowest)
    np.testing.assert_array_equal(found.draws.values["rate"], draws.values["rate"])


def test_draws_stay_where_theory_says_the_same_at_all(sampled):
    problem, draws = sampled
    rng = np.random.default_rng(0)
    near = {name: v.mean() * np.exp(0.002 * rng.standard_normal(v.shape[1:])) for name, v in draws.values.items()}
    given = draws_of(near)
    found = with_own_errors(problem, given, rng, least=50.0)
    assert found.off < 0.1
    np.testing.assert_array_equal(found.draws.values["rate"], given.values["rate"])


def test_draws_of_a_stopped_chain_stay(sampled):
    problem, draws = sampled
    stopped = draws.of_bins(np.array([0]))
    stopped.done[:] = DRAWS // 2
    found = with_own_errors(problem, stopped, np.random.default_rng(0))
    assert found.off == np.inf
    np.testing.assert_array_equal(found.draws.values["rate"], draws.values["rate"])


def test_chosen_draws_have_the_wanted_distribution():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((CHAINS, 5000))
    places, accepted = delayed(0.4 * x - 0.08, rng)
    assert x.ravel()[places].mean() == pytest.approx(0.4, abs=0.05)
    assert accepted == pytest.approx(0.777, abs=0.02)  # 2 Phi(-0.4 / sqrt 2)


def test_convergence_is_that_of_the_chosen_draws():
    x = np.random.default_rng(3).standard_normal((CHAINS, DRAWS))
    stuck = np.zeros((1, CHAINS, DRAWS), int) + DRAWS * np.arange(CHAINS)[:, None]
    stuck[..., ::10] += np.arange(0, DRAWS, 10)
    found = redrawn(draws_of({"rate": x}), stuck, ["rate"])
    assert found.convergence[0, 0] > 1.01
    assert len(np.unique(found.values["rate"])) <= CHAINS * 10
