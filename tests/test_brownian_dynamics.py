"""The simulator of interacting particles: forces, averages, and the two limits that theory knows."""

import numpy as np
import pytest

from bayesfit.models import BrownianDynamics
from bayesfit.models import _brownian_dynamics as bd

SPACING, D = 2000.0, 5e6  # angstrom, angstrom^2/s


def simulator(qd, tau=(1e-3,), **more):
    return BrownianDynamics(q=qd / SPACING, tau=np.array(tau), spacing=SPACING, **{"particles": 27, **more})


def test_forces_are_slopes_of_the_potential():
    rng = np.random.default_rng(0)
    side, strength, screening = 3.0, 2.0, 3.0
    x = rng.uniform(0.0, side, (3, 8))

    def energy(x):
        apart = x[:, :, None] - x[:, None, :]
        apart -= side * np.round(apart / side)
        r = np.sqrt(np.sum(apart**2, axis=0))[np.triu_indices(8, 1)]
        r = r[r < side / 2]
        return np.sum(strength * np.exp(-screening * (r - 1.0)) / r)

    found = bd.forces(x, side, strength, screening)
    for axis, particle in ((0, 0), (1, 3), (2, 7)):
        step = np.zeros_like(x)
        step[axis, particle] = 1e-6
        assert found[axis, particle] == pytest.approx((energy(x - step) - energy(x + step)) / 2e-6, rel=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-10)


def test_correlation_is_that_of_its_definition():
    rng = np.random.default_rng(1)
    rho = np.cumsum(rng.standard_normal((40, 3)) + 1j * rng.standard_normal((40, 3)), axis=0)
    found = bd.correlation(rho)
    for lag in (0, 1, 7, 19):
        first, last = rho[: 40 - lag], rho[lag:]
        expected = np.sum((last * first.conj()).real) / (0.5 * np.sum(np.abs(first) ** 2 + np.abs(last) ** 2))
        assert found[lag] == pytest.approx(expected, rel=1e-10)
    assert np.abs(found).max() <= 1.0 + 1e-12


@pytest.mark.parametrize(("qd", "particles"), [(2.0, 64), (6.5, 27), (9.0, 125)])
def test_waves_fit_into_the_box(qd, particles):
    box = bd.box_of(qd, particles)
    np.testing.assert_allclose(np.linalg.norm(box.waves, axis=1), qd, rtol=1e-12)
    whole = box.waves * box.side / (2 * np.pi)
    np.testing.assert_allclose(whole, np.round(whole), atol=1e-9)
    assert abs(box.particles / particles - 1.0) < 0.5
    assert abs(box.particles - box.side**3) <= 0.5
    assert len({tuple(np.abs(row).round(6)) + tuple(np.sign(row)) for row in box.waves}) == len(box.waves)


def averaged(made):
    """The mean of some arrays, and its standard error."""
    return np.mean(made, axis=0), np.std(made, axis=0, ddof=1) / np.sqrt(len(made))


def test_without_forces_it_is_free_diffusion():
    """g1 = exp(-D q^2 tau), within 4 standard errors at each delay, and these are small."""
    tau = np.array([0.05, 0.2, 0.5, 1.0, 2.0]) / (D * (6.5 / SPACING) ** 2)
    made = [simulator(6.5, tau, relaxations=200.0, seed=s).simulated({"D": D, "strength": 0.0}) for s in range(20)]
    mean, error = averaged([np.interp(tau * D / SPACING**2, each.lag, each.g1) for each in made])
    assert error.max() < 0.02
    assert np.all(np.abs(mean - np.exp(-D * (6.5 / SPACING) ** 2 * tau)) < 4.0 * error + 1e-3)  # straight between lags
    structure, error = averaged([each.structure for each in made])
    assert abs(structure - 1.0) < 4.0 * error


@pytest.mark.parametrize(("qd", "relaxations", "low", "high"), [(3.5, 12.0, 0.05, 0.2), (6.5, 20.0, 1.1, 2.0)])
def test_it_begins_with_the_rate_of_the_structure_factor(qd, relaxations, low, high, monkeypatch):
    """-d log g1 / d tau = D q^2 / S(q) at once, which is reached as lags and steps become small: from two lags on a
    line, of simulations with two steps."""
    rates, structures = {}, []
    for step in (0.04, 0.02):
        monkeypatch.setattr(bd, "STEP", step)
        made = [
            simulator(qd, particles=40, relaxations=relaxations, seed=s).simulated({"D": D, "strength": 1.5})
            for s in range(5)
        ]
        ratios = np.array([-np.log(each.g1[1:3]) / each.lag[1:3] * each.structure / qd**2 for each in made])
        rates[step] = 2.0 * ratios[:, 0] - ratios[:, 1]
        structures += [each.structure for each in made]
    at_once, error = averaged(2.0 * rates[0.02] - rates[0.04])
    assert error < 0.02
    assert abs(at_once - 1.0) < 4.0 * error
    assert low < np.mean(structures) < high


def test_units_and_seeds():
    tau = np.geomspace(1e-4, 1e-1, 12)
    one = simulator(6.5, tau, seed=3)({"D": D, "strength": 0.5})
    np.testing.assert_allclose(simulator(6.5, 2 * tau, seed=3)({"D": D / 2, "strength": 0.5}), one, rtol=1e-12)
    larger = BrownianDynamics(q=6.5 / SPACING / 3, tau=tau, spacing=3 * SPACING, particles=27, seed=3)
    np.testing.assert_allclose(larger({"D": 9 * D, "strength": 0.5}), one, rtol=1e-9)
    given = simulator(5.0, tau, seed=3, screening=2.0)({"D": D, "strength": 0.5, "q": 6.5 / SPACING, "screening": 4.0})
    np.testing.assert_allclose(given, one, rtol=1e-9)
    assert one.min() >= 0.0
    assert one.max() <= 1.0
    random = simulator(6.5, tau)
    assert np.abs(random({"D": D, "strength": 0.5}) - random({"D": D, "strength": 0.5})).max() > 1e-4


def test_a_run_that_is_too_short_says_so():
    with pytest.raises(ValueError, match="at the longest delay simulated: more relaxations"):
        simulator(6.5, [10.0], relaxations=1.0, seed=0)({"D": D, "strength": 0.0})
