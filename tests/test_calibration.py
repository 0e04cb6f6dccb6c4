"""The calibration itself: its p-values against enumeration, its likelihoods against the engine's, and whether it finds
errors that are planted in the engine, most of them with exact draws on a grid and a few in whole fits."""

import itertools
import json
from functools import lru_cache

import calibration
import jax
import jax.numpy as jnp
import numpy as np
import planted
import pytest
import xarray as xr
from calibration import ALPHA, LARGEST, Setting, simulate
from numpyro import handlers
from scipy import stats
from shipped import spec
from uniformity import band, counts_below, holm, p_value

import bayesfit
from bayesfit.modelling.noise import NOISES
from bayesfit.pipelines._quantities import relaxation

SEED = [7]


def test_p_values_are_those_of_all_possible_ranks():
    """Three ranks of 0 to 3: the share of the 64 outcomes that stray as far."""
    outcomes = list(itertools.product(range(4), repeat=3))

    def statistic(ranks):
        below = counts_below(np.array(ranks), 3)
        share = np.arange(1, 4) / 4
        return np.min(np.minimum(stats.binom.cdf(below, 3, share), stats.binom.sf(below - 1, 3, share)))

    strays = np.array([statistic(ranks) for ranks in outcomes])
    for ranks, stray in zip(outcomes, strays, strict=True):
        assert p_value(np.array(ranks), 3) == pytest.approx(np.mean(strays <= stray * (1 + 1e-9)), abs=1e-9)


@pytest.mark.parametrize("count", [60, 1000])
def test_uniform_ranks_have_uniform_p_values(count):
    rng = np.random.default_rng(3)
    p = np.array([p_value(rng.integers(0, LARGEST + 1, count), LARGEST) for _ in range(400)])
    assert stats.kstest(p, "uniform").pvalue > 0.01
    for level in (0.01, 0.05, 0.5):
        assert stats.binomtest(int(np.sum(p <= level)), p.size, level, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("count", [60, 1000])
def test_band_holds_its_share_of_uniform_ranks(count):
    rng = np.random.default_rng(4)
    low, high = band(count, LARGEST, 0.1)
    inside = 0
    for _ in range(400):
        ranks = rng.integers(0, LARGEST + 1, count)
        below = counts_below(ranks, LARGEST)
        within = bool(np.all((low <= below) & (below <= high)))
        assert within == (p_value(ranks, LARGEST) > 0.1)
        inside += within
    assert stats.binomtest(inside, 400, 0.9).pvalue > 1e-3


@pytest.mark.parametrize(
    "level",
    [
        lambda u: u**1.3,  # draws too high
        lambda u: stats.norm.cdf(1.4 * stats.norm.ppf(u)),  # draws too narrow
        lambda u: stats.norm.cdf(stats.norm.ppf(u) / 1.4),  # draws too wide
        lambda u: np.maximum(u, 0.03),  # a tail that is never reached
    ],
)
def test_ranks_that_are_not_uniform_are_found(level):
    u = np.random.default_rng(5).random(400)
    assert p_value((level(u) * (LARGEST + 1)).astype(int), LARGEST) < 1e-3


def test_holm():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == {"a": 0.03, "c": 0.06, "b": 0.06}


@pytest.mark.parametrize("model", calibration.shipped_models())
def test_curve_is_the_engines(model):
    assert model in calibration.SHAPES
    setting = Setting(model, "stated", delays=12)
    values = calibration.prior_draws(setting, 20, 1)
    with jax.enable_x64(True):
        problem = setting.problem()
        bin = jax.tree.map(lambda array: jnp.asarray(array[0]), problem.bins)
        curves = jax.jit(jax.vmap(lambda values: problem.posterior.mean(values, bin)))(values)
    np.testing.assert_allclose(calibration.mean_curve(setting, values, setting.tau), curves[:, :12], rtol=1e-9)


@pytest.mark.parametrize("model", calibration.shipped_models())
def test_derived_quantities_are_those_of_results(model):
    setting = Setting(model)
    values = calibration.prior_draws(setting, 20, 1)
    posterior = xr.Dataset({name: (("chain", "draw", "q_bin"), value[None, :, None]) for name, value in values.items()})
    curves, derive = bayesfit.curves(setting.tau, np.ones(40), np.ones(40)), bayesfit.get_model(spec(model)).derive
    theirs = relaxation(posterior, curves)
    if derive is not None:
        own = derive(posterior, curves)
        theirs = theirs.assign({name: own[name] for name in calibration.derived(model, values) if name in own})
    ours = calibration.derived(model, values)
    assert set(ours) == set(theirs.data_vars)
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name].transpose("chain", "draw", "q_bin").values[0, :, 0], value, rtol=1e-12)


@pytest.mark.parametrize("noise", list(NOISES))
def test_likelihood_is_the_engines(noise):
    """The likelihood that is written here against that of the full program, over draws from the prior."""
    setting = Setting("single_exponential", noise, delays=12)
    simulated = simulate(setting, 5, SEED)
    with jax.enable_x64(True):
        problem = setting.problem(simulated.data)

        def engine(bin, values):
            program = handlers.substitute(problem.posterior.full_program, values)
            site = handlers.trace(program).get_trace(bin)["g2"]
            return site["fn"].log_prob(site["value"])

        expected = jax.jit(jax.vmap(engine))(problem.bins, simulated.truth)
    for i in range(5):
        values = {name: value[i] for name, value in simulated.truth.items()}
        errors = "g2_cov" if noise == "covariance" else "g2_err"
        row = (simulated.data[name].values[i] for name in ("g2", errors, "valid"))
        ours = calibration.log_likelihood(setting, values, setting.tau, *row)
        assert ours == pytest.approx(float(expected[i]), rel=1e-6, abs=1e-6)


def test_masks_are_part_of_the_simulations():
    data = simulate(Setting(), 20, SEED).data
    np.testing.assert_array_equal(data.masked_zero_pairs, 1)
    assert 20 < data.masked_value.sum() < 140


@lru_cache(maxsize=8)
def curves_of(place, count):
    """One set of simulated curves for every error that is planted in a place."""
    return simulate(planted.PLACES[place].setting, count, SEED)


@lru_cache(maxsize=8)
def exact_sampler(place):
    return planted.exact_sampler(place)


def smallest_of_exact_draws(place, error=None):
    setting, count = planted.PLACES[place].setting, planted.PLACES[place].simulations
    return min(planted.adjusted_p(setting, curves_of(place, count), exact_sampler(place), error).values())


def smallest_of_whole_fits(error=None):
    setting, count = planted.PLACES["whole"].setting, planted.PLACES["whole"].simulations
    return min(planted.adjusted_p(setting, curves_of("whole", count), calibration.fitted, error).values())


@pytest.mark.parametrize("place", [name for name in planted.PLACES if name != "whole"])
def test_nothing_is_found_where_nothing_is_planted(place):
    assert smallest_of_exact_draws(place) > ALPHA


@pytest.mark.parametrize("error", [e for e in planted.ERRORS if e.level != "draws"], ids=lambda error: error.words)
def test_planted_error_is_found_in_exact_draws(error):
    assert smallest_of_exact_draws(error.place, error) < ALPHA


def test_nothing_is_found_in_whole_fits():
    assert smallest_of_whole_fits() > ALPHA


@pytest.mark.parametrize("error", [e for e in planted.ERRORS if e.level == "draws"], ids=lambda error: error.words)
def test_planted_error_is_found_in_whole_fits(error):
    assert smallest_of_whole_fits(error) < ALPHA


def test_command(tmp_path, monkeypatch, capsys):
    """One file and one picture a pair; a failure is repeated with fresh seeds; what has a file is not run again."""
    asked = []

    def prior_for_posterior(setting, simulated):
        """Draws of the prior, the first time shifted."""
        asked.append(count := simulated.data.sizes["q_bin"])
        drawn = calibration.prior_draws(setting, LARGEST * count, len(asked))
        draws = {name: drawn[name].reshape(count, LARGEST) for name in ("rate", "beta")}
        return calibration.Sampled({**draws, "beta": draws["beta"] - 0.8 * (len(asked) < 2)}, np.ones(count, bool))

    monkeypatch.setattr(calibration, "fitted", prior_for_posterior)
    monkeypatch.setattr(calibration, "log_likelihood", lambda setting, values, *data: values["rate"])
    command = ["--model", "stretched_exponential", "--noise", "stated", "--simulations", "50", "--repeat", "60"]
    for _ in range(2):
        assert calibration.main([*command, "--output", str(tmp_path)]) == 0
    assert asked == [50, 60]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".json", ".png"]
    runs = json.loads((tmp_path / "stretched_exponential-stated.json").read_text())
    assert [run["simulations"] for run in runs] == [50, 60]
    assert runs[0]["adjusted"]["beta"] < ALPHA < runs[1]["adjusted"]["beta"]
    assert capsys.readouterr().out.count("passed") == 2
