"""Joint fits: their density from that of single bins, what sharing gains, every kind of pooling, what is refused."""

import json
import signal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from photons import simulate
from scipy.special import gamma

import bayesfit
from bayesfit.api import joint_fit
from bayesfit.api.sequential_prior import priors_in_common
from bayesfit.compute.devices import Spread
from bayesfit.compute.errors import BayesfitWarning
from bayesfit.compute.keys import bin_keys
from bayesfit.compute.work import Stop
from bayesfit.diagnose.joint_verdict import Common, _cut_off
from bayesfit.posterior.joint import joint_posterior, priors_of
from bayesfit.posterior.pooling import parse_across
from bayesfit.posterior.prepare import prepare
from bayesfit.sample.least_squares import point_estimates, with_scaled_errors

D, BETA, BINS = 2.0e4, 0.9, 6
TAU = np.geomspace(1e-4, 10.0, 48)
Q = np.geomspace(2e-3, 2e-2, BINS)
VECTOR = dist.Uniform(0.0, 1.0).expand([2]).to_event(1)
AMPLITUDES = {"contrast_prior": "TruncatedNormal(0.2, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}


def data(error=0.004, seed=2, rate=D * Q**2):
    rng = np.random.default_rng(seed)
    g2 = 1.0 + 0.2 * np.exp(-2.0 * (rate[:, None] * TAU) ** BETA)
    g2 += error * rng.standard_normal(g2.shape)
    curves = bayesfit.curves(TAU, g2, np.full_like(g2, error), q=Q, **AMPLITUDES)
    return curves.assign_coords(sector=("q_bin", np.arange(BINS) % 2))


def joint_of(curves, across, noise="stated"):
    poolings = (pooling.of_bins(np.arange(BINS)) for pooling in parse_across(across, curves))
    problem = prepare(curves, "stretched_exponential", noise)
    return problem, joint_posterior(problem, problem.bins, tuple(poolings), {}, {})


def test_density_is_that_of_the_bins_at_the_linked_values():
    """Sum of the bins' own densities, of which the priors of pooled parameters count not at all, or once if shared."""
    with jax.enable_x64(True):
        problem, joint = joint_of(data(), {"rate": "diffusion", "beta": "shared"})
        values, handler = joint.run(key=jax.random.key(3))
        point = {**handler.z, "_own": jnp.zeros((BINS, 0))}
        np.testing.assert_allclose(values["rate"], handler.values["D"] * Q**2)
        np.testing.assert_allclose(values["beta"], handler.values["beta"])
        expected = 0.0
        for place in range(BINS):
            bin = jax.tree.map(lambda array, place=place: jnp.asarray(array[place]), problem.bins)
            each = {name: value[place] for name, value in values.items()}
            z = problem.posterior.unconstrain_curve(each, bin)
            expected += problem.posterior.log_density(z, bin) - problem.posterior.curve(z, bin)[2]
        priors = joint.run(handler.z)[1].log_density
        np.testing.assert_allclose(-joint.potential(point), expected + priors, rtol=1e-10)


@pytest.mark.parametrize(
    ("noise", "across"),
    [
        ("stated", {"rate": "diffusion", "beta": "pooled"}),
        ("photons", {"rate": "diffusion"}),
    ],
)
def test_programs_are_compiled_beside_the_least_squares_fits(noise, across, monkeypatch):
    """Those that take the compiler longest are begun before the fits, in the shapes in which they are needed."""
    begun, begin, start = [], Spread._begin, joint_fit._start_compiling

    def noted(program, *given):
        begun.append(program.identity.split(": ")[0])
        return begin(program, *given)

    def started(*given):
        start(*given)
        begun.append("started")

    monkeypatch.setattr(Spread, "_begin", noted)
    monkeypatch.setattr(joint_fit, "_start_compiling", started)
    curves, _ = simulate(5, counts=(1.0, 1.0), pixels=16, frames=1000)  # of a shape that no other test here has
    bayesfit.fit(curves, noise=noise, across=across, draws=60, chains=2)
    before, after = begun[: begun.index("started")], begun[begun.index("started") + 1 :]
    names = ["Joint.slope", "_with_own", "_advance", "_constrain_all", "tails_and_ranges", "joint_prior prior_draws"]
    names += ["_parameters", "decay"] if noise == "photons" else []
    for name in names:
        assert any(name in each for each in before), (name, before)
        assert not any(name in each for each in after), (name, after)


@pytest.fixture(scope="module")
def diffusion():
    return bayesfit.fit(data(), noise="stated", across={"rate": "diffusion", "beta": "shared"}, draws=300)


def test_a_diffusion_fit_samples_what_the_bins_have_in_common(diffusion):
    posterior = diffusion["posterior"]
    assert posterior.D.dims == posterior.beta.dims == ("chain", "draw")
    assert posterior.D.attrs["units"] == "angstrom^2/s"
    assert posterior.rate.dims == posterior.contrast.dims == ("chain", "draw", "q_bin")
    np.testing.assert_allclose(posterior.rate, posterior.D * xr.DataArray(Q**2, dims="q_bin"), rtol=1e-12)
    for name, truth in (("D", D), ("beta", BETA)):
        assert abs(posterior[name].mean() - truth) < 4.0 * posterior[name].std()
    assert list(diffusion["diagnostics"].verdict.values) == ["ok"] * BINS
    assert float(diffusion["across"].r_hat.max()) < 1.01
    assert float(diffusion["across"].ess_bulk.min()) > 400


def test_what_follows_from_a_diffusion_fit(diffusion, tmp_path):
    """Each bin keeps its mean relaxation time; the one D gives one radius, whose relative variance has two parts."""
    posterior = diffusion["posterior"]
    mean_time = gamma(1.0 / posterior.beta) / (posterior.beta * posterior.rate)
    assert posterior.mean_relaxation_time.dims == ("chain", "draw", "q_bin")
    np.testing.assert_allclose(posterior.mean_relaxation_time, mean_time, rtol=1e-12)
    known = {"temperature": 298.15, "viscosity": "Normal(8.9e-4, 1.8e-5)"}
    derived = bayesfit.stokes_einstein(diffusion, **known)
    radius = bayesfit.load(bayesfit.save(derived, tmp_path / "radius.nc"))["posterior"].hydrodynamic_radius
    assert radius.dims == ("chain", "draw")
    truth = 1.380649e-23 * 298.15 / (6 * np.pi * 8.9e-4 * D * 1e-20) * 1e9
    assert abs(radius.mean() - truth) < 4.0 * radius.std()
    np.testing.assert_allclose(np.log(radius).std(), np.hypot(np.log(posterior.D).std(), 0.02), rtol=0.1)


def test_sharing_narrows_as_information_adds_up(diffusion):
    """With beta and the amplitudes known, the bins' information on log D adds up; here it is taken at the truth."""
    fixed = {"beta": BETA, "contrast": 0.2, "baseline": 1.0}
    result = bayesfit.fit(data(), noise="stated", fixed=fixed, across={"rate": "diffusion"}, draws=300)
    x = (D * Q[:, None] ** 2 * TAU) ** BETA
    slope = 0.2 * np.exp(-2.0 * x) * -2.0 * BETA * x  # of g2 over log D
    expected = 0.004 / np.sqrt(np.sum(slope**2))
    log_D = np.log(result["posterior"].D)
    np.testing.assert_allclose(log_D.std(), expected, rtol=0.15)
    assert abs(log_D.mean() - np.log(D)) < 4.0 * expected
    assert log_D.std() < np.log(diffusion["posterior"].D).std()


def test_two_stages_agree_with_the_joint_fit():
    """Where the law has no scatter and nothing else is shared, the bins' own posteriors hold all that there is."""
    curves = data()
    joint = np.log(bayesfit.fit(curves, noise="stated", across={"rate": "diffusion"}, draws=500)["posterior"].D)
    alone = bayesfit.fit(curves, noise="stated", draws=500)
    staged = np.log(bayesfit.law(alone, "diffusion", scatter=False)["posterior"].D)
    assert abs(joint.mean() - staged.mean()) < 0.2 * joint.std()
    np.testing.assert_allclose(joint.std(), staged.std(), rtol=0.15)


def test_the_full_program_has_the_same_posterior(diffusion):
    """Every amplitude sampled, by NumPyro's NUTS from the truth."""
    from numpyro.infer import MCMC, NUTS, init_to_value

    curves = data()
    with jax.enable_x64(True):
        problem, joint = joint_of(curves, {"rate": "diffusion", "beta": "shared"})
        bins, prior = (
            jax.tree.map(jnp.asarray, problem.bins),
            priors_of(problem.posterior, jax.tree.map(lambda array: array[0], problem.bins))["beta"],
        )
        y, inverse_error = bins.y, bins.inverse_error

        def program():
            values = {"rate": joint.poolings[0].values(None), "beta": numpyro.sample("beta", prior)}
            with numpyro.plate("bins", BINS):
                contrast = numpyro.sample("contrast", dist.TruncatedNormal(0.2, 0.2, low=0.0))
                baseline = numpyro.sample("baseline", dist.Normal(1.0, 0.1))
            shape = jnp.exp(-2.0 * (values["rate"][:, None] * bins.tau) ** values["beta"])
            mean = (baseline[:, None] + contrast[:, None] * shape) * inverse_error
            numpyro.factor("g2", -0.5 * jnp.sum((y - mean) ** 2))

        start = {"D": D, "beta": BETA, "contrast": np.full(BINS, 0.2), "baseline": np.ones(BINS)}
        kernel = NUTS(program, init_strategy=init_to_value(values=start), dense_mass=True)
        run = MCMC(
            kernel, num_warmup=500, num_samples=1000, num_chains=2, chain_method="vectorized", progress_bar=False
        )
        run.run(jax.random.key(0))
        found = {name: np.asarray(value) for name, value in run.get_samples().items()}
    for name in ("D", "beta"):
        ours = diffusion["posterior"][name].values
        assert abs(ours.mean() - found[name].mean()) < 0.15 * found[name].std()
        np.testing.assert_allclose(ours.std(), found[name].std(), rtol=0.12)
    ours = diffusion["posterior"].contrast.values.reshape(-1, BINS)
    np.testing.assert_allclose(ours.mean(0), found["contrast"].mean(0), atol=0.2 * found["contrast"].std(0).max())


def test_a_law_that_takes_uncertain_q_as_exact_says_so():
    curves = data()
    known = curves.assign_coords(q_err=0.02 * curves.q)
    options = {"across": {"rate": "diffusion"}, "noise": "stated", "method": "svi", "seed": 1}
    with pytest.warns(BayesfitWarning, match="rate: a joint fit takes q as exact, .* up to 2 %"):
        bayesfit.fit(known, "single_exponential", **options)


def test_groups_have_a_value_each():
    result = bayesfit.fit(
        data(), noise="stated", across={"beta": {"kind": "shared", "by": "sector"}}, draws=100, fixed={"baseline": 1.0}
    )
    beta = result["posterior"].beta
    assert beta.dims == ("chain", "draw", "beta_group")
    assert list(beta.beta_group.values) == [0, 1]
    assert np.all(abs(beta.mean(("chain", "draw")) - BETA) < 4.0 * beta.std(("chain", "draw")))


def test_one_bad_bin_does_not_bend_a_law_with_scatter():
    """A bin ten times too fast: with scatter it is seen as such, and D stays."""
    rate = D * Q**2
    rate[2] *= 10.0
    across = {"rate": {"name": "diffusion", "scatter": True}}
    result = bayesfit.fit(data(rate=rate), noise="stated", across=across, draws=200, fixed={"beta": BETA})
    posterior = result["posterior"]
    assert posterior.rate_scatter.mean() > 0.3
    np.testing.assert_allclose(posterior.rate.mean(("chain", "draw")), rate, rtol=0.1)


@pytest.mark.parametrize("kind", ["pooled", "smooth"])
def test_bins_that_resemble_each_other(kind):
    across = {"beta": kind}
    result = bayesfit.fit(data(), noise="stated", across=across, draws=100, fixed={"baseline": 1.0})
    posterior = result["posterior"]
    assert posterior.beta.dims == ("chain", "draw", "q_bin")
    assert posterior.beta_spread.dims == posterior.beta_mean.dims == ("chain", "draw")
    alone = bayesfit.fit(data(), noise="stated", draws=100, fixed={"baseline": 1.0})["posterior"].beta
    assert posterior.beta.std(("chain", "draw")).mean() < alone.std(("chain", "draw")).mean()


def test_priors_and_fixed_values_of_what_is_shared():
    """They have their effect, and the result says so; what is fixed gets no sequential prior."""
    across, curves = {"rate": "power_law"}, data()
    priors, fixed = {"rate_middle": "LogNormal(2, 0.001)"}, {"beta": BETA, "n": 2.0}
    result = bayesfit.fit(curves, noise="stated", across=across, priors=priors, fixed=fixed, draws=100)
    posterior = result["posterior"]
    assert abs(np.log(posterior.rate_middle).mean() - 2.0) < 0.01
    np.testing.assert_allclose(posterior.rate[..., 0] / posterior.rate[..., 5], (Q[0] / Q[5]) ** 2, rtol=1e-12)
    assert json.loads(result.attrs["priors_in_common"]) == {
        "rate_middle": {"family": "LogNormal", "loc": 2.0, "scale": 0.001}
    }
    assert json.loads(result.attrs["fixed_in_common"]) == {"n": 2.0}
    converged = result["across"].to_dataset().assign(r_hat=("parameter", np.ones(result["across"].sizes["parameter"])))
    result["across"] = converged.assign(dict.fromkeys(("ess_bulk", "ess_tail"), 1000.0 * converged.r_hat))
    with jax.enable_x64(True):
        problem = prepare(curves, "stretched_exponential", "stated", {}, {"beta": BETA})
        sequential = priors_in_common(result, problem, parse_across(across, curves), {}, 1.0)
    assert set(sequential) == {"rate_middle"}


def test_a_result_is_saved_and_summarised(diffusion, tmp_path):
    again = bayesfit.load(bayesfit.save(diffusion, tmp_path / "joint.nc"))
    np.testing.assert_allclose(again["posterior"].D, diffusion["posterior"].D, rtol=1e-6)
    table = bayesfit.summary(again)
    assert "rate" in table
    assert len(table) == BINS


@pytest.mark.parametrize(
    ("across", "message"),
    [
        ({"rat": "shared"}, "across: no inferred parameter 'rat'. Did you mean 'rate'"),
        ({"rate": "difusion"}, "across.rate: unknown kind or law 'difusion'. Did you mean 'diffusion'"),
        (
            {"beta": {"kind": "shared", "by": "sectors"}},
            "across.beta.by: bins have no 'sectors'. Did you mean 'sector'",
        ),
        ({"beta": {"kind": "shared", "by": [1, 2]}}, "across.beta.by: 2 labels for 6 bins"),
        ({"beta": {"kind": "pooled", "by": "sector"}}, "'pooled' has no such option"),
        ({"rate": {"name": "diffusion", "scatter": 1}}, "across.rate.scatter: got 1"),
        ({"rate": {"name": "de_gennes", "S": ([0.01, 0.012, 0.015, 0.03], [1, 1, 1, 1])}}, "outside the law's table"),
        ({"rate": "diffusion", "beta": "diffusion"}, "parameter 'D' is taken"),
        ({"rate": {"name": "mine"}}, "across.rate: unknown kind or law 'mine'"),
        ({"rate": {"name": lambda q, tau: q, "n": 1}}, "across.rate: a law of your own has no option 'n'"),
        ({"rate": lambda q, tau: numpyro.sample("w", VECTOR).sum() * q}, "parameter 'w' is no continuous scalar"),
        ({"rate": lambda q, tau: numpyro.sample("w", dist.Bernoulli(0.5)) * q}, "parameter 'w' is no continuous"),
        ({"rate": lambda q, tau: q[:2]}, "must return a finite value for each of 6 q"),
        ({"beta": {"kind": "shared", "by": [1.0, np.nan, 1.0, 1.0, 2.0, 2.0]}}, "by: bin 1: the bin is in no group"),
    ],
)
def test_what_cannot_be_linked_is_refused_in_one_line(across, message):
    with pytest.raises(bayesfit.BayesfitError) as caught:
        bayesfit.fit(data(), across=across)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_program_of_ones_own_is_a_law():
    """Its parameter is in the result; a law of the result is refused, as are groups of single bins' priors."""

    def program(q, tau):
        return numpyro.sample("speed", dist.LogNormal(10.0, 1.0)) * q**2

    options = {"noise": "stated", "across": {"rate": program}}
    result = bayesfit.fit(data(), fixed={"beta": BETA, "contrast": 0.2, "baseline": 1.0}, draws=100, **options)
    assert abs(result["posterior"].speed.mean() - D) < 4.0 * result["posterior"].speed.std()
    with pytest.raises(bayesfit.SettingsError, match="fitted jointly"):
        bayesfit.law(result, "diffusion")
    with pytest.raises(bayesfit.SettingsError, match="include: 'log_prior' is of the prior of a single bin"):
        bayesfit.fit(data(), include=("log_prior",), **options)
    with pytest.raises(bayesfit.SettingsError, match=r"fixed.speed: expected one number"):
        bayesfit.fit(data(), fixed={"speed": [1.0, 2.0]}, **options)
    with pytest.raises(bayesfit.SettingsError, match="nothing is left to sample"):
        bayesfit.fit(data(), fixed={"speed": D, "beta": BETA}, **options)
    with pytest.raises(bayesfit.SettingsError, match=r"across.rate: in the law, the program raises ZeroDivisionError"):
        bayesfit.fit(data(), across={"rate": lambda q, tau: 1 / 0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixed": {"D": D}}, "fixed.D: 'D' follows from what the law samples. Give "),
        ({"priors": {"D": "LogNormal(10, 1)"}}, "priors.D: 'D' follows from what the law samples. Give "),
        ({"priors": {"rate": "LogNormal(1, 1)"}}, "priors.rate: 'rate' follows from its law. Give "),
        ({"across": {"rate": "per_bin"}, "method": "svi"}, "method: 'svi' is for joint fits"),
    ],
)
def test_choices_without_effect_are_refused_in_one_line(options, message):
    with pytest.raises(bayesfit.SettingsError) as caught:
        bayesfit.fit(data(), **{"across": {"rate": "power_law"}, **options})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_law_needs_q_of_the_bins_in_use():
    with pytest.raises(bayesfit.InputError, match=r"across.rate: no bin has a q"):
        bayesfit.fit(data().drop_vars("q"), across={"rate": "diffusion"})
    q = np.where(np.arange(BINS) < 4, Q, [0.0, 0.0, 0.0, 0.0, np.nan, 0.0])
    (pooling,) = parse_across({"rate": "diffusion"}, data().assign_coords(q=("q_bin", q)))
    np.testing.assert_array_equal(pooling.of_bins(np.array([0, 3])).q, Q[[0, 3]])
    with pytest.raises(bayesfit.InputError, match=r"across.rate: bin 4: the bin has no q"):
        pooling.of_bins(np.array([0, 4]))
    with pytest.raises(bayesfit.InputError, match=r"across.rate: bin 5: q is 0, not above 0"):
        pooling.of_bins(np.array([0, 5]))
    table = {"name": "de_gennes", "S": (np.geomspace(0.003, 0.03, 9), np.ones(9))}
    (pooling,) = parse_across({"rate": table}, data())
    assert pooling.of_bins(np.arange(2, BINS)).q.size == 4
    with pytest.raises(bayesfit.InputError, match=r"across.rate: bin 0: q = 0.002 1/angstrom is outside"):
        pooling.of_bins(np.arange(BINS))


def test_groups_and_walks_are_those_of_the_bins_in_use():
    (pooling,) = parse_across({"beta": {"kind": "shared", "by": list("ccaabb")}}, data())
    some = pooling.of_bins(np.array([0, 1, 4]))
    assert (some.groups, some.group.tolist()) == (("b", "c"), [1, 1, 0])
    (pooling,) = parse_across({"beta": "smooth"}, data())
    assert pooling.of_bins(np.array([4, 1])).steps.order.tolist() == [1, 0]
    with pytest.raises(bayesfit.InputError, match=r"across.beta: 'smooth' needs two usable bins"):
        pooling.of_bins(np.array([3]))


def program(q, tau):
    """A law of one's own, whose values may be of any size."""
    return numpyro.sample("level", dist.Normal(1.0, 0.1)) * jnp.ones_like(q)


@pytest.mark.parametrize(("parameter", "additive"), [("baseline", True), ("contrast", False)])
def test_bins_scatter_about_a_law_of_ones_own(parameter, additive):
    """By factors, or by amounts where the parameter may be negative."""
    with jax.enable_x64(True):
        _, joint = joint_of(data(), {parameter: {"name": program, "scatter": True}})
        values, handler = joint.run(key=jax.random.key(1))
    (pooling,), found = joint.poolings, jax.tree.map(np.asarray, dict(handler.values))
    assert pooling.additive == additive
    off = found[f"{parameter}_scatter"] * found[f"{parameter}_standardised"]
    expected = found["level"] + off if additive else found["level"] * np.exp(off)
    np.testing.assert_allclose(values[parameter], expected)
    assert pooling.parameters[-1].description == f"sd of {'' if additive else 'log '}{parameter} about the law"
    assert (f"{parameter}_scatter" in pooling.in_own_unit) == additive


@pytest.mark.parametrize("noise", ["inferred", "scaled"])
def test_bins_own_fits_know_the_size_of_the_noise(noise):
    """Where it is inferred, the standard errors that a joint fit begins with are those of errors stated right."""
    curves, wrong = data(), data()
    wrong["g2_err"] *= 100.0
    with jax.enable_x64(True):
        right, again = (
            with_scaled_errors(
                point_estimates(problem.posterior, problem.bins, bin_keys(0, problem.identity), print, stop),
                problem.posterior,
                problem.points,
            )
            for problem, stop in (
                (prepare(curves, "stretched_exponential", "stated"), Stop()),
                (prepare(wrong, "stretched_exponential", noise), Stop()),
            )
        )
    np.testing.assert_allclose(again.solution.sd["rate"], right.solution.sd["rate"], rtol=0.35)


def test_one_bin_of_a_dataset_and_nothing_to_infer_in_common():
    """It keeps its q; as few draws as these are made without a target."""
    options = {"noise": "stated", "fixed": {"D": D, "baseline": 1.0}, "across": {"rate": "diffusion"}}
    result = bayesfit.fit(data().isel(q_bin=3), draws=20, chains=2, **options)
    assert result["posterior"].beta.sizes == {"chain": 2, "draw": 20, "q_bin": 1}
    assert result["diagnostics"].q.values == Q[3]
    assert result["across"]["thin"].item() == 1
    table = bayesfit.summary(result, common=True)
    assert len(table) == 0
    assert "median" in table


def test_a_model_that_returns_nan_is_refused():
    def shape(tau):
        return numpyro.sample("rate", dist.LogNormal(0.0, 1.0)) * tau * jnp.nan

    broken = bayesfit.Model("broken", shape)
    with pytest.raises(bayesfit.ModelError, match="returns NaN or infinity at every prior draw"):
        bayesfit.fit(data(), broken, noise="stated", across={"rate": "shared"})


def test_a_prior_that_depends_on_the_bin_or_on_other_parameters_cannot_be_shared():
    with pytest.raises(
        bayesfit.SettingsError, match=r"across.rate: its prior is not the same in all bins.*priors.rate"
    ):
        bayesfit.fit(data(), "double_exponential", across={"rate": "shared"})
    for loc in (np.arange(BINS), [0, 1, 1, 1, 1, 0]):
        means = {"family": "LogNormal", "loc": loc, "scale": 1.0}
        with pytest.raises(bayesfit.SettingsError, match=r"across.rate: its prior is not the same in all bins"):
            bayesfit.fit(data(), across={"rate": "pooled"}, priors={"rate": means})


def test_bins_that_cannot_be_used_have_no_draws():
    curves = data()
    curves["valid"][:] = False
    result = bayesfit.fit(curves, across={"rate": "diffusion"})
    assert list(result["diagnostics"].verdict.values) == ["unusable_data"] * BINS


def test_a_diffusion_fit_has_three_coordinates_however_many_bins():
    q = np.geomspace(2e-3, 2e-2, 64)
    curves = bayesfit.curves(TAU, np.tile(data().g2.values[0], (64, 1)), np.full((64, TAU.size), 0.004), q=q)
    with jax.enable_x64(True):
        _, joint = joint_of(curves, {"rate": "diffusion", "beta": "shared", "error_scale": "shared"}, "scaled")
    assert joint.dimensions == 3


def test_the_same_seed_gives_the_same_bits(diffusion):
    again = bayesfit.fit(data(), noise="stated", across={"rate": "diffusion", "beta": "shared"}, draws=300)
    xr.testing.assert_identical(again["posterior"].to_dataset(), diffusion["posterior"].to_dataset())


def test_a_quick_look_is_called_so(diffusion):
    across = {"rate": "diffusion", "beta": "shared"}
    look = bayesfit.fit(data(), noise="stated", across=across, draws=300, method="svi")
    assert list(look["diagnostics"].verdict.values) == ["approximate"] * BINS
    assert look["across"].joint_verdict.item() == "approximate"
    assert np.isnan(look["across"].r_hat).all()
    assert 0.0 < look["across"].pareto_k.item() < 0.7
    for name in ("D", "beta"):
        exact = diffusion["posterior"][name]
        assert abs(look["posterior"][name].mean() - exact.mean()) < 0.3 * exact.std()
        np.testing.assert_allclose(look["posterior"][name].std(), exact.std(), rtol=0.25)
    with pytest.raises(bayesfit.SettingsError, match=r"method: 'svi' is for joint fits"):
        bayesfit.fit(data(), method="svi")


def interrupted_after(draws):
    """The joint fit of `diffusion`, told to stop once it has so many draws: it says so everywhere."""
    asked = []

    def interrupt(progress):
        if progress.stage == "sample" and progress.draws_done >= draws and not asked:
            asked.append(progress)
            signal.raise_signal(signal.SIGINT)

    across = {"rate": "diffusion", "beta": "shared"}
    result = bayesfit.fit(data(), noise="stated", across=across, draws=300, progress=interrupt, on_interrupt="return")
    assert list(result["diagnostics"].verdict.values) == ["interrupted"] * BINS
    assert result["across"].joint_verdict.item() == "interrupted"
    return result["posterior"].D.values


def test_a_fit_interrupted_in_its_warm_up_has_no_draws():
    assert np.isnan(interrupted_after(0)).all()


def test_two_chains_are_looked_at_for_convergence():
    """They stop where they have converged, and do not go on to the longest there are."""
    across = {"rate": "diffusion", "beta": "shared"}
    result = bayesfit.fit(data(), noise="stated", across=across, draws=1000, chains=2)
    assert float(result["across"].r_hat.max()) < 1.01
    assert result["across"]["thin"].item() < 8


def test_an_interrupted_fit_keeps_its_draws(diffusion):
    """The first draws are those of the whole fit, of which every second is kept if it goes on to longer chains."""
    D, made = interrupted_after(100), diffusion["posterior"].D.values
    count = int(np.isfinite(D[0]).sum())
    assert 100 <= count < 300
    thin = diffusion["across"]["thin"].item()
    np.testing.assert_array_equal(D[:, thin - 1 : count : thin], made[:, : count // thin])
    assert np.isnan(D[:, count:]).all()


def slow_and_fast(rates):
    """Curves at three q, of which the rates follow free diffusion, and baselines are not known."""
    tau = np.geomspace(1e-3, 1e2, 48)
    g2 = 1 + 0.2 * np.exp(-2 * rates[:, None] * tau) + 1e-3 * np.random.default_rng(3).standard_normal((3, 48))
    priors = {"contrast_prior": "TruncatedNormal(0.15, 0.2, low=0)", "baseline_prior": "Normal(1, 0.1)"}
    return bayesfit.curves(tau, g2, np.full((3, 48), 1e-3), q=np.sqrt(rates / 20), **priors)


def test_a_law_of_decays_slower_than_the_range_of_its_coefficient():
    """What is seen of them is taken for the whole of small decays on high baselines, with a coefficient at the lower
    end of its prior's range, three times too high."""
    curves = slow_and_fast(20 * np.array([2e-3, 3e-3, 4e-3]) ** 2)
    across = {"rate": "diffusion", "baseline": "shared"}
    result = bayesfit.fit(curves, "single_exponential", noise="stated", across=across, seed=1)
    group, bins = result["across"], result["diagnostics"]
    assert np.quantile(result.posterior.D, 0.025) > 2 * 20
    assert result.posterior.baseline.mean() > 1.05
    assert dict(zip(group.parameter.values, group.verdict.values, strict=True)) == dict.fromkeys(
        ["D", "baseline"], "not_identified"
    )
    for reason in (*group.reason.values, group.joint_reason.item()):
        assert "the range of the prior cuts off the posterior: D below" in reason
    assert "and with it baseline" in group.joint_reason.item()
    assert not bins.identified.sel(parameter=["rate", "contrast", "baseline"]).values.any()
    assert all("cuts off the posterior: D, and with it rate, contrast" in reason for reason in bins.reason.values)


def test_rates_of_a_law_may_lie_outside_the_range_of_a_single_bin():
    """The slowest rate is a fifth of the least that the prior of a single bin allows; the law determines it."""
    result = bayesfit.fit(
        slow_and_fast(np.array([2e-4, 0.1, 1.0])), "single_exponential", noise="stated", across={"rate": "diffusion"}
    )
    assert result["across"].verdict.values.tolist() == ["ok"]
    assert result["diagnostics"].identified.sel(parameter="rate").values.all()
    assert "cuts off" not in " ".join(result["diagnostics"].reason.values)


@pytest.mark.parametrize("kind", ["pooled", {"kind": "shared", "by": [0, 1, 1]}])
def test_values_of_bins_about_what_they_have_in_common_have_the_range_of_single_bins(kind):
    """One decay is slower than the prior of a single bin's rate allows, alone in its group where there are groups."""
    curves = slow_and_fast(np.array([1e-4, 0.1, 0.1]))
    result = bayesfit.fit(curves, "single_exponential", noise="stated", across={"rate": kind}, draws=300)
    checks = result["diagnostics"]
    assert checks.identified.sel(parameter="rate").values.tolist() == [False, True, True]
    assert "the range of the prior cuts off the posterior: rate" in checks.reason.values[0]


def test_what_changes_with_a_parameter_of_a_group_is_looked_for_in_that_group():
    rng = np.random.default_rng(1)
    rate = 0.1 * np.exp(np.stack([4 + 0.01 * rng.standard_normal((4, 300)), rng.exponential(size=(4, 300))], axis=-1))
    baseline = 1 - rate + 0.01 * rng.standard_normal(rate.shape)
    baseline[..., 0] = rng.standard_normal((4, 300))
    dims = ("chain", "draw", "group")
    draws = xr.Dataset({"rate": (dims, rate), "baseline": (dims, baseline), "beta": (dims[:2], baseline[..., 0])})
    common = Common(draws, {}, {}, {}, {"rate": np.array([0.1, 1e4])}, [], xr.Dataset(), xr.Dataset(), None)
    cut, limits, near = _cut_off(common)
    assert cut == {"rate": ("baseline",)}
    assert limits == {"rate": f"below {np.quantile(rate[..., 1], 0.95):.2g} (95%)"}
    assert near["rate"] > 0.1
    assert np.isnan([near["baseline"], near["beta"]]).all()
