"""Verdicts on constructed findings, one for each rule, and on planted bins through the whole fit."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import bayesfit
from bayesfit.diagnose.contraction import contraction
from bayesfit.diagnose.findings import Findings
from bayesfit.diagnose.modes import two_modes, valleys
from bayesfit.diagnose.prior_range import NEAR, cut_off, limit_at, near_ends
from bayesfit.diagnose.rules import RULES, VERDICTS, Case, weigh
from bayesfit.diagnose.verdict import NUMBERS, judge, unusable
from bayesfit.sample.convergence import worst
from bayesfit.sample.draws import FEWEST_DRAWS

RNG = np.random.default_rng(0)
LEVELS = (np.arange(65) + 0.5) / 65
DRAWS = 1000
DELAYS = 61
CONTRAST, BASELINE = "TruncatedNormal(0.15, 0.2, low=0)", "Normal(1, 0.1)"


def scores_of(residual):
    """Scores at 200 draws about the residuals (point,) from the mean curve."""
    return residual + 0.1 * np.random.default_rng(4).standard_normal((200, len(residual)))


def findings(**changes):
    """A bin with nothing to find fault with."""
    good = Findings(
        draws={"rate": 5.0 + 0.1 * RNG.standard_normal((4, DRAWS)), "beta": 1 + 0.01 * RNG.standard_normal((4, DRAWS))},
        convergence=(np.nan, np.nan, np.nan),
        potential=-100.0 + RNG.gamma(1.0, 1.0, (4, DRAWS)),
        n_steps=np.full((4, DRAWS), 3),
        diverging=np.zeros((4, DRAWS), bool),
        independence_accepted=np.arange(4 * DRAWS).reshape(4, DRAWS) % 2 == 0,
        mode_potential=-100.0,
        sampled=2,
        prior_quantiles={"rate": 20 * LEVELS, "beta": 2 * LEVELS},
        prior_tails={"rate": 0.7, "beta": 0.9},
        noise="scaled",
        scores=scores_of(np.random.default_rng(1).standard_normal(60)),
        speckle_log_ratio=1.0,
        chi2=60.0,
        tau=np.geomspace(1e-3, 1.0, 60),
        delays=True,
        tau_min=0.0,
        free=4,
        contrast=0.2,
        contrast_sd=0.01,
        max_tree_depth=10,
        wanted=DRAWS,
    )
    changed = replace(good, **changes)
    series = np.stack(list(changed.draws.values()))
    return replace(changed, convergence=worst(series)) if series.shape[-1] >= FEWEST_DRAWS else changed


def draws_of(rate):
    return {"rate": rate, "beta": 1 + 0.01 * RNG.standard_normal((4, DRAWS))}


def with_entries(array, count, value):
    changed = array.copy()
    changed[0, :count] = value
    return changed


def cut(count):
    good = findings()
    return {
        "draws": {name: x[:, :count] for name, x in good.draws.items()},
        "potential": good.potential[:, :count],
        "n_steps": good.n_steps[:, :count],
        "diverging": good.diverging[:, :count],
    }


APART = 5.0 + 0.1 * RNG.standard_normal((4, DRAWS)) + np.array([0, 0, 3, 3])[:, None]
SHIFTED = 5.0 + 0.1 * RNG.standard_normal((4, DRAWS)) + 0.05 * np.arange(4)[:, None]
SLOW = 5.0 + np.cumsum(0.01 * RNG.standard_normal((4, DRAWS)), axis=1)
NOISE = np.random.default_rng(2).standard_normal(60)
FALSE, THREES = np.zeros((4, DRAWS), bool), np.full((4, DRAWS), 3)

CASES = {
    "good": ({}, "ok", "R-hat 1.00"),
    "few draws": (cut(700), "interrupted", "700 of 1000 draws were made"),
    "no draws": (cut(0), "interrupted", "0 of 1000 draws were made"),
    "chains in two modes": ({"draws": draws_of(APART)}, "multimodal", "R-hat"),
    "one chain elsewhere": (
        {"draws": draws_of(np.where(np.arange(4)[:, None] == 2, 9.0, 5.0) + 0.1 * RNG.standard_normal((4, DRAWS)))},
        "multimodal",
        "R-hat",
    ),
    "chains a little apart": ({"draws": draws_of(SHIFTED)}, "poor_mixing", "R-hat"),
    "slow chains": ({"draws": draws_of(SLOW)}, "poor_mixing", "R-hat"),
    "stuck chains": ({"draws": draws_of(np.full((4, DRAWS), 5.0))}, "poor_mixing", "R-hat nan"),
    "NaN draws": ({"draws": draws_of(np.full((4, DRAWS), np.nan))}, "poor_mixing", "R-hat nan"),
    "divergences": ({"diverging": with_entries(FALSE, 30, True)}, "poor_mixing", "30 of 4000 transitions diverged"),
    "few divergences": ({"diverging": with_entries(FALSE, 10, True)}, "ok", "R-hat"),
    "deep trees": (
        {"n_steps": with_entries(THREES, 60, 1023), "independence_accepted": FALSE},
        "poor_mixing",
        "60 of 4000 trees",
    ),
    "deep trees, independence proposals accepted": ({"n_steps": with_entries(THREES, 60, 1023)}, "ok", "R-hat"),
    "a chain far above the mode": (
        {"potential": findings().potential + np.array([0, 0, 0, 40])[:, None]},
        "poor_mixing",
        "a chain lies",
    ),
    "infinite potential": ({"potential": with_entries(findings().potential, 1, np.inf)}, "poor_mixing", "a chain lies"),
    "errors too small": (
        {"scores": scores_of(5 * NOISE), "chi2": 25 * 60.0, "noise": "stated"},
        "misfit",
        "reduced chi-square 26.8 ± 5: wrong errors or wrong curve",
    ),
    "errors too large": ({"scores": scores_of(0.2 * NOISE), "noise": "stated"}, "misfit", "reduced chi-square"),
    "waves": (
        {"scores": scores_of(0.5 * NOISE + 1.2 * np.sin(np.arange(60) / 4))},
        "misfit",
        "neighbouring residuals correlate (0.7",
    ),
    "waves in correlated noise": (
        {"scores": scores_of(0.5 * NOISE + 1.2 * np.sin(np.arange(60) / 4)), "noise": "correlated"},
        "misfit",
        "neighbouring residuals",
    ),
    "outlier": (
        {"scores": scores_of(np.where(np.arange(60) == 13, 7, 0.8 * NOISE))},
        "misfit",
        f"the point at tau = {np.geomspace(1e-3, 1.0, 60)[13]:.3g} s is 7.0 sd off",
    ),
    "heavy tails": (
        {"scores": scores_of(np.where(np.arange(60) % 14 == 4, 3.3, 0.5) * (-1.0) ** (np.arange(60) // 2))},
        "misfit",
        "sd off; try noise 'robust'",
    ),
    "noise that grows": (
        {"scores": scores_of(np.linspace(0.1, 2.2, 60) * (-1.0) ** (np.arange(60) // 2) * np.abs(NOISE) ** 0.2)},
        "misfit",
        "size changes with the delay; try noise 'smooth'",
    ),
    "two modes, well mixed": (
        {
            "draws": draws_of(
                np.where(RNG.uniform(size=(4, DRAWS)) < 0.12, 9.0, 5.0) + 0.1 * RNG.standard_normal((4, DRAWS))
            )
        },
        "multimodal",
        "two modes: 1",
    ),
    "rising": ({"contrast": -0.1}, "misfit", "the curve rises: least-squares contrast -0.1"),
    "rising by its noise": ({"contrast": -0.02}, "ok", "R-hat"),
    "in the tail of its prior": (
        {"prior_tails": {"rate": 1e-5, "beta": 0.9}},
        "prior_conflict",
        "rate 5 lies far below its prior (0.5 to 19.5): is tau in s?",
    ),
    "misfit before conflict": ({"prior_tails": {"beta": 1e-5}, "contrast": -0.1}, "misfit", "beta 1 lies far"),
    "conflict before not identified": (
        {"draws": draws_of(RNG.uniform(0, 20, (4, DRAWS))), "prior_tails": {"beta": 1e-5}},
        "prior_conflict",
        "the data hardly narrow",
    ),
    "first delays off": (
        {"scores": scores_of(np.where(np.arange(60) < 2, 7, 0.8 * NOISE)), "tau_min": 2e-3},
        "misfit",
        "the first delays alone are off: leave them out, --set tau_min=0.002",
    ),
    "no noise at all": ({"scores": scores_of(0.01 * NOISE)}, "misfit", "these data hold none; fit measured data"),
    "no contrast": ({"contrast": np.nan, "contrast_sd": np.nan}, "ok", "R-hat"),
    "as wide as the prior": (
        {"draws": draws_of(RNG.uniform(0, 20, (4, DRAWS)))},
        "not_identified",
        "the data hardly narrow the prior: rate (contraction ",
    ),
    "cut off by the range of its prior": (
        {
            "draws": draws_of(2 * np.exp(RNG.exponential(0.2, (4, DRAWS)))),
            "prior_ranges": {"rate": np.array([2.0, 1e4])},
            "units": {"rate": "1/s"},
        },
        "not_identified",
        "the range of the prior cuts off the posterior: rate below 3.6 1/s (95%)",
    ),
    "cut off at the upper end": (
        {
            "draws": draws_of(8 / np.exp(RNG.exponential(0.2, (4, DRAWS)))),
            "prior_ranges": {"rate": np.array([1e-3, 8.0])},
        },
        "not_identified",
        "the range of the prior cuts off the posterior: rate above 4.",
    ),
    "inside the range of its prior": ({"prior_ranges": {"rate": np.array([2.0, 1e4])}}, "ok", "R-hat"),
    "no range": (
        {
            "draws": draws_of(2 * np.exp(RNG.exponential(0.2, (4, DRAWS)))),
            "prior_ranges": {"rate": np.full(2, np.nan)},
        },
        "ok",
        "R-hat",
    ),
    "misfit before not identified": (
        {"draws": draws_of(RNG.uniform(0, 20, (4, DRAWS))), "contrast": -0.1},
        "misfit",
        "the data hardly narrow",
    ),
    "mixing before misfit": ({"draws": draws_of(SLOW), "contrast": -0.1}, "poor_mixing", "the curve rises"),
    "interrupted first": ({**cut(700), "contrast": -0.1}, "interrupted", "the curve rises"),
    "points as many as parameters": (
        {"scores": scores_of(NOISE[:4] * 1e-9), "tau": np.ones(4)},
        "ok",
        "R-hat",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_rule(case):
    changes, name, words = CASES[case]
    verdict = judge(findings(**changes))
    assert verdict.name == name, verdict.reason
    assert words in verdict.reason
    assert "\n" not in verdict.reason
    assert set(verdict.numbers) == set(NUMBERS)
    assert set(verdict.contractions) == {"rate", "beta"} or not verdict.contractions


def test_every_verdict_is_met():
    assert {name for _, name, _ in CASES.values()} | {"unusable_data", "approximate"} == set(VERDICTS)
    assert {rule.verdict for rule in RULES} | {"ok"} == set(VERDICTS)


def test_bins_that_depend_on_each_other():
    """They are named in any case, and are a misfit where they make intervals too narrow."""
    case = Case(dependent="bins 1, 2 (correlation 0.9)", contractions={"D": 0.1})
    assert weigh(replace(case, contractions={}))[0] == "ok"
    assert weigh(replace(case, contractions={}))[1].endswith("; bins 1, 2 (correlation 0.9)")
    assert weigh(replace(case, too_narrow=1.3)) == (
        "misfit",
        "bins 1, 2 (correlation 0.9); the data hardly narrow the prior: D (contraction 0.10)",
    )
    name, reason = weigh(replace(case, too_narrow=1.3, r_hat=1.5))
    assert name == "poor_mixing"
    assert "bins 1, 2" in reason


def test_draws_of_an_approximation_are_nothing_else():
    assert weigh(Case(approximate="a quick look", r_hat=2.0, ess_bulk=3.0))[0] == "approximate"
    assert weigh(Case(approximate="a quick look")) == ("approximate", "a quick look")


def test_unusable():
    assert unusable(0, 4) == ("unusable_data", "no valid points")
    assert unusable(3, 4) == ("unusable_data", "3 valid points for 4 parameters")


def test_contraction_is_the_same_in_every_parametrisation():
    rng = np.random.default_rng(3)
    quantiles, draws = 0.1 + 5 * LEVELS, np.clip(2 + 0.3 * rng.standard_normal((4, 500)), 0.1, 5)
    plain, log = contraction(draws, quantiles), contraction(np.log(draws), np.log(quantiles))
    assert plain == pytest.approx(log, abs=1e-3)
    assert plain == pytest.approx(1 - (0.3 / 5) ** 2 * 12, abs=5e-3)
    assert contraction(rng.uniform(0, 1, (4, 5000)), LEVELS) == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 3.0])
def test_draws_near_the_ends_of_a_range(shape):
    """Of a gamma-distributed posterior with this shape, from either end on."""
    rng, low, high = np.random.default_rng(6), 0.3, 40.0
    off = rng.gamma(shape, 0.01, (4, 50_000))
    expected = stats.gamma(shape).cdf(NEAR * shape)
    below, above = near_ends(low * np.exp(off), low, high)
    assert below == pytest.approx(expected, abs=0.005)
    assert above == 0.0
    assert near_ends(high * np.exp(-off), low, high) == pytest.approx((0.0, expected), abs=0.005)
    np.testing.assert_array_equal(near_ends(low * np.exp(off), low, np.nan), [below, np.nan])


def test_limits_are_seen_from_the_end_that_cuts_off():
    draws = np.linspace(1.0, 2.0, 101)
    assert limit_at(draws, (0.1, 0.0)) == pytest.approx((np.nan, 1.95), nan_ok=True)
    assert limit_at(draws, (0.1, np.nan)) == pytest.approx((np.nan, 1.95), nan_ok=True)
    assert limit_at(draws, (np.nan, 0.1)) == pytest.approx((1.05, np.nan), nan_ok=True)


def test_what_changes_with_a_parameter_that_is_cut_off():
    rng = np.random.default_rng(2)
    rate = rng.exponential(size=(4, 500))
    draws = {"rate": rate, "contrast": -(rate**3), "beta": rng.standard_normal((4, 500)), "fixed": np.ones((4, 500))}
    draws["baseline"] = stats.norm.ppf(stats.rankdata(rate) / 2001).reshape(4, 500) + rng.standard_normal((4, 500))
    assert cut_off(draws, {"rate": (0.1, np.nan), "beta": (0.01, 0.0)}) == {"rate": ("contrast", "baseline")}
    case = Case(contractions={"rate": 0.5, "contrast": 0.9, "beta": 0.9}, cut={"rate": ("contrast",)})
    assert case.identified == {"beta"}
    assert weigh(case) == (
        "not_identified",
        "the data hardly narrow the prior: rate (contraction 0.50); "
        "the range of the prior cuts off the posterior: rate, and with it contrast",
    )
    alone = replace(case, cut={"rate": ()})
    assert weigh(alone) == ("not_identified", "the data hardly narrow the prior: rate (contraction 0.50)")
    assert alone.identified == {"contrast", "beta"}


@pytest.mark.parametrize("draws", [60, 500])
def test_one_mode_is_not_taken_for_two(draws):
    """Normal, skewed, flat and heavy-tailed draws have no valley."""
    rng = np.random.default_rng(8)
    shapes = [rng.standard_normal, lambda size: rng.gamma(0.5, size=size), lambda size: rng.uniform(size=size)]
    shapes += [lambda size: np.exp(2 * rng.standard_normal(size)), lambda size: rng.standard_t(2, size)]
    found = [two_modes({"rate": shape((4, draws))}) for shape in shapes for _ in range(40)]
    assert sum(map(bool, found)) <= 0.01 * len(found)


@pytest.mark.parametrize("steps", [0, 1, 10, 500, 1500])
def test_draws_that_differ_in_their_last_digits_have_one_mode(steps):
    draws = 1.0 + np.spacing(1.0) * steps * np.random.default_rng(5).uniform(size=2000)
    assert np.isnan(valleys(np.sort(draws)[None]))


def test_valleys_of_a_series_are_those_of_numpy_histograms():
    """Series beside it, NaN and constant ones among them, change nothing."""
    rng = np.random.default_rng(9)
    series = np.sort(np.where(rng.uniform(size=(40, 600)) < 0.2, 4.0, 0.0) + rng.standard_normal((40, 600)) / 2)
    series[3], series[4] = np.nan, 1.0
    found = valleys(series)
    for one, at in zip(series, found, strict=True):
        np.testing.assert_array_equal(valleys(one[None]), [at])
        low, high = np.quantile(one, [0.01, 0.99])
        if high > low:
            edges = np.histogram_bin_edges(one, 100, (low, high))
            assert np.min(np.abs(edges - at)) < 1e-12
            assert 1.0 < at < 3.0
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(found)), [3, 4])


def test_wrong_model_with_stated_errors():
    """A strongly stretched decay fitted by one exponential."""
    tau = np.geomspace(1e-3, 1e2, DELAYS)
    g2 = 1 + 0.15 * np.exp(-2 * tau**0.4) + 1e-3 * np.random.default_rng(1).standard_normal(DELAYS)
    data = bayesfit.curves(
        tau,
        g2,
        np.full(DELAYS, 1e-3),
        contrast_prior=CONTRAST,
        baseline_prior=BASELINE,
    )
    result = bayesfit.fit(data, "single_exponential", noise="stated")
    assert result["diagnostics"].verdict.item() == "misfit"
    assert "reduced chi-square" in result["diagnostics"].reason.item()
    assert "neighbouring residuals correlate" in result["diagnostics"].reason.item()


def test_a_decay_slower_than_the_range_of_the_rate():
    """Its beginning alone is seen. Where the baseline is not known, it passes for the whole of a small decay, whose
    rate lies at the lower end of the prior's range, and whose contrast and baseline are wrong with it."""
    tau = np.geomspace(1e-3, 1e2, DELAYS)
    rate = np.array([[1.0], [1e-4], [2e-4], [3e-4]])
    noise = 2e-4 * np.random.default_rng(7).standard_normal((4, DELAYS))
    data = bayesfit.curves(
        tau,
        1 + 0.2 * np.exp(-2 * rate * tau) + noise,
        np.full((4, DELAYS), 2e-4),
        contrast_prior=CONTRAST,
        baseline_prior=BASELINE,
    )
    result = bayesfit.fit(data, noise="scaled", seed=1)
    checks, parameters = result["diagnostics"], ["rate", "contrast", "baseline"]
    assert checks.verdict.values.tolist() == ["ok"] + ["not_identified"] * 3
    assert checks.identified.sel(parameter=parameters).values.tolist() == [[True] * 3] + [[False] * 3] * 3
    assert "rate below" in checks.reason.values[1]
    assert "and with it contrast, baseline" in checks.reason.values[1]
