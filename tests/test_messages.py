"""What a user is told: one line with the remedy, from Python and from the command line."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayesfit
from bayesfit import Model, ModelError, ResultError, SettingsError
from bayesfit.api import stages as _stages
from bayesfit.cli.screen import own_warnings_as_lines
from bayesfit.posterior.prepare import prepare
from bayesfit.posterior.trial import check_model
from bayesfit.report.plots import plot_law

ROOT = Path(__file__).parent.parent
FILE = "data/table_sim.csv"
EACH = """
import json, sys
from bayesfit.cli.main import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["bayesfit", *arguments]
    try:
        main()
    except SystemExit as end:
        print(end.code, file=sys.stderr, flush=True)
"""


def each(*commands, **environment):
    """What `bayesfit` says on standard error to each command, and its exit code; in one process, since it is imported
    for a second."""
    arguments = [sys.executable, "-c", EACH, json.dumps([[str(word) for word in command] for command in commands])]
    done = subprocess.run(
        arguments, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    lines = done.stderr.splitlines()
    ends = [number for number, line in enumerate(lines) if line.isdigit()]
    assert len(ends) == len(commands), done.stderr
    return [
        (lines[before:end], int(lines[end])) for before, end in zip([0, *(e + 1 for e in ends)], ends, strict=False)
    ]


@pytest.fixture(scope="module")
def data():
    return bayesfit.simulate(bins=3, delays=40, seed=1)[0]


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    return bayesfit.save(fitted, tmp_path_factory.mktemp("saved") / "fit.nc")


HEAD = """import math
import numpy as np
import jax.numpy as jnp, numpyro, numpyro.distributions as dist
from bayesfit import Model, Parameter
def program(tau):
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 3.0))
"""
PLAIN = "    return jnp.exp(-2.0 * rate * tau)\n"
MISTAKES = {  # the rest of the program, what else the model is given, and words of the message
    "numpy": ("    return np.exp(-2.0 * rate * tau)\n", "", "(line 7). Use jax.numpy (jnp.exp for np.exp)"),
    "math": ("    return jnp.exp(-math.sqrt(rate) * tau)\n", "", "(line 7). Leave float()"),
    "if": ("    return jnp.exp(-tau if rate > 1 else -rate * tau)\n", "", "(line 7). Write jnp.where("),
    "max": ("    return jnp.exp(-max(rate, 1.0) * tau)\n", "", "jnp.maximum"),
    "mask": ("    return jnp.exp(-rate * tau)[tau > 1]\n", "", "Write jnp.where(mask, a, b)"),
    "range": ("    return jnp.exp(-rate * tau) * len(range(jnp.argmax(tau)))\n", "", "range()"),
    "assigns": ("    tau[0] = 1.0\n" + PLAIN, "", "Write x = x.at[i].set(y)"),
    "forgets": (
        "    beta = dist.Uniform(0.2, 2.0)\n    return jnp.exp(-2.0 * (rate * tau)**beta)\n",
        "",
        'beta is a distribution, and is used as a number (line 8). Write beta = numpyro.sample("beta", ...)',
    ),
    "forgets, inline": ("    return jnp.exp(-dist.Gamma(2, 1) * tau)\n", "", 'numpyro.sample("rate", dist.Gamma(...))'),
    "forgets, in a prior": (
        '    mean = dist.Normal(0, 1)\n    x = numpyro.sample("x", dist.Normal(mean, 1.0))\n' + PLAIN,
        "",
        "mean is a distribution",
    ),
    "draws by itself": ("    rate = dist.Gamma(2, 1).sample()\n" + PLAIN, "", "Write rate = numpyro.sample("),
    "no name": ("    x = numpyro.sample(dist.Gamma(2, 1))\n" + PLAIN, "", "a site has no name"),
    "a number as prior": ('    x = numpyro.sample("x", 0.5)\n' + PLAIN, "", "is no distribution"),
    "returns a distribution": (
        "    return dist.Normal(jnp.exp(-rate * tau), 0.1)\n",
        "",
        "returns a Normal, expected the",
    ),
    "no return": ("    jnp.exp(-rate * tau)\n", "", "End the program with `return ...`"),
    "misspelt variable": ("    return jnp.exp(-rat * tau)\n", "", "Did you mean 'rate'?"),
    "misspelt function": ("    return jnp.expp(-rate * tau)\n", "", "Did you mean 'exp'?"),
    "misspelt parameter": (
        PLAIN,
        ", (Parameter('rat'),)",
        "list 'rat', which the program does not sample. Did you mean",
    ),
    "misspelt start": (PLAIN, ", start={'rat': 1.0}", "names 'rat', which the program does not sample. Did you mean"),
    "one left out": (
        '    x = numpyro.sample("x", dist.Normal(0, 1))\n' + PLAIN,
        ", (Parameter('rate'),)",
        "parameters list no 'x', which the program samples",
    ),
}


def model_file(folder, name):
    body, more, _ = MISTAKES[name]
    path = folder / f"{name.replace(' ', '_').replace(',', '')}.py"
    path.write_text(f"{HEAD}{body}model = Model('mine', program{more})\n")
    return path


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_model_is_named_with_its_remedy(name, data, tmp_path):
    with pytest.raises(ModelError) as caught:
        bayesfit.point_estimate(data, model_file(tmp_path, name))
    line = str(caught.value)
    assert line.startswith("model 'mine': ")
    assert MISTAKES[name][2] in line
    assert "\n" not in line


def test_mistakes_in_models_are_one_line_of_the_command_line(tmp_path):
    told = each(*(["run", FILE, "-o", tmp_path / "o", "--model", model_file(tmp_path, name)] for name in MISTAKES))
    for (lines, code), (_, _, words) in zip(told, MISTAKES.values(), strict=True):
        assert (len(lines), code) == (1, 1), lines
        assert lines[0].startswith(f"error: {FILE}: model 'mine': ")
        assert words in lines[0]


def test_a_model_that_samples_nothing_is_told_how(data):
    with pytest.raises(ModelError, match=r'samples no parameter. Write rate = numpyro.sample\("rate"'):
        bayesfit.point_estimate(data, Model("mine", lambda tau: jnp.exp(-tau)))


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"priors": {"rats": "Normal(0, 1)"}}, "priors: unknown parameter 'rats'. Did you mean 'rate'?"),
        ({"fixed": {"bta": 1.0}}, "fixed: unknown parameter 'bta'. Did you mean 'beta'?"),
        ({"priors": "Normal(0, 1)"}, "priors: got 'Normal(0, 1)', expected a table by name"),
        ({"fixed": ["rate"]}, "fixed: got a list of 1, expected a table by name"),
    ],
)
def test_choices_of_parameters_that_there_are_not(choice, words, data):
    with jax.enable_x64(True), pytest.raises(SettingsError) as caught:
        prepare(data, **choice)
    assert words in str(caught.value)


def rate():
    return numpyro.sample("rate", dist.LogNormal(0.0, 3.0))


def nan(tau):
    return jnp.log(-rate() * tau)


def without_slope(tau):
    value = rate()
    return jnp.exp(-value * tau) + jnp.where(value > 0, 0.0, jnp.sqrt(0.0 * value))


def nan_somewhere(tau):
    value = rate()
    return jnp.where(value < 0.5, jnp.nan, jnp.exp(-2.0 * value * tau))


@pytest.fixture
def nothing_expensive(monkeypatch):
    """A refusal must come before anything else is begun."""

    def begun(*arguments, **options):
        raise AssertionError("an expensive stage has begun")

    for name in ("start_compiling", "point_estimates"):
        monkeypatch.setattr(_stages.least_squares, name, begun)


@pytest.mark.parametrize(
    ("program", "options", "words"),
    [
        (nan, {}, "returns NaN or infinity at every prior draw"),
        (nan, {"across": {"rate": "shared"}}, "returns NaN or infinity at every prior draw"),
        (without_slope, {}, "its derivative is NaN"),
        (without_slope, {"noise": "robust"}, "its derivative is NaN"),
    ],
)
def test_a_model_without_numbers_is_refused_first(program, options, words, data, nothing_expensive):
    with pytest.raises(ModelError, match=f"^model 'mine': {words}"):
        bayesfit.fit(data, Model("mine", program), **options)


def test_a_point_estimate_refuses_it_too(data, nothing_expensive):
    with pytest.raises(ModelError, match="returns NaN"):
        bayesfit.point_estimate(data, Model("mine", nan, start={"rate": 1.0}))


def test_a_model_may_be_nan_at_some_prior_draws(data):
    """Bins 1 and 2 decay faster than where it is NaN."""
    estimate = bayesfit.point_estimate(data, Model("mine", nan_somewhere))
    truth = bayesfit.simulate(bins=3, delays=40, seed=1)[1].rate.values
    np.testing.assert_allclose(estimate.rate.values[1:], truth[1:], rtol=0.2)


def test_a_model_may_be_a_number_at_its_start_alone(data):
    """Which is therefore tried as well."""

    def program(tau):
        value = numpyro.sample("rate", dist.Normal(1e3, 1.0))
        return jnp.where(jnp.abs(value - 1.0) < 0.9, jnp.exp(-value * tau), jnp.nan)

    with jax.enable_x64(True):
        alone, started = (prepare(data, Model("mine", program, start=start)) for start in ((), {"rate": 1.0}))
        with pytest.raises(ModelError, match="returns NaN"):
            check_model(alone, alone.usable)
        check_model(started, started.usable)


@pytest.fixture(scope="module")
def own_law(fitted):
    """The result of a law that says nothing of itself."""

    def own(q, tau):
        return numpyro.sample("D", dist.LogUniform(1e3, 1e6)) * q**2

    return bayesfit.law(fitted, own, draws=20, chains=1, scatter=False)


def test_a_law_of_ones_own_has_its_name_in_the_legend(own_law):
    legend = plot_law(own_law).axes[0].get_legend()
    assert own_law.attrs["law"] in [text.get_text() for text in legend.get_texts()]


LAWS = {
    "numpy": (lambda q, tau: np.exp(numpyro.sample("D", dist.Normal())) * q, "Use jax.numpy"),
    "if": (lambda q, tau: q if numpyro.sample("D", dist.Normal()) > 0 else -q, "Write jnp.where("),
    "forgets": (lambda q, tau: dist.Normal(0.0, 1.0) * q, "Normal is a distribution"),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_mistake_in_a_law_is_named_with_its_remedy(name, fitted):
    program, words = LAWS[name]
    with pytest.raises(SettingsError) as caught:
        bayesfit.law(fitted, program)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


KINDS = {  # f: the result of a fit, w: of a law, c: curves
    "plot_fit(f, 'f.png')": "bins: got 'f.png', expected a list of bins. Write plot_fit(result, path='f.png')",
    "plot_fit(f, 3)": "bins: got 3, expected a list of bins. Write bins=[0, 1]",
    "plot_fit(c)": "got curves, expected the result of a fit. Fit them first: bayesfit.fit(curves)",
    "plot_fit(w)": "got the result of a law, expected the result of a fit. Draw it with `bayesfit plot`",
    "plot_fit('f.nc')": "got 'f.nc', expected the result of a fit. Load it first: bayesfit.load('f.nc')",
    "plot_fit(None)": "got None, expected the result of a fit",
    "plot_series(f)": "got the result of a fit, expected a series of datasets. Draw it with plot_fit",
    "plot_across(c)": "got curves, expected the result of a fit",
    "summary(c)": "got curves, expected the result of a fit or a series of datasets. Fit them first",
    "summary(w)": "Print it with `bayesfit show`",
    "summary([f, f])": "got a list of 2, expected the result of a fit",
    "summary(f['posterior'].to_dataset())": "Give the whole result",
    "summary(f, 'um')": "units: got 'um', expected a table by name",
    "fit(f)": "curves: got the result of a fit, expected curves",
    "fit(f, across={'rate': 'shared'})": "curves: got the result of a fit, expected curves",
    "fit('f.csv')": "Read it first: bayesfit.read('f.csv')",
    "fit([c, c])": "got a list of 2, expected curves",
    "fit(c, f)": "model: got the result of a fit, expected a model",
    "fit(c, print)": "Wrap it: bayesfit.Model(NAME, program)",
    "fit(c, across='diffusion')": "across: got 'diffusion', expected a table by name",
    "fit(c, priors='x', across={'rate': 'shared'})": "priors: got 'x', expected a table by name",
    "point_estimate(f)": "expected curves",
    "numpyro_program(f, 0)": "expected curves",
    "save(c, 'x.nc')": "got curves, expected the result of a fit. Save it by its own to_netcdf",
    "save('x.nc', f)": "Write bayesfit.save(result, path)",
    "save(f, None)": "path: got None, expected the path of a file",
    "one_bin(c, 0)": "got curves, expected the result of a fit",
    "one_bin(w, 0)": "Give the fit that the law was fitted to",
    "one_dataset(c, 0)": "got curves, expected a series of datasets",
    "law(c)": "got curves, expected the result of a fit",
    "law(w)": "Give the fit that the law was fitted to",
    "law(f, f)": "law: got the result of a fit, expected a law",
    "compare([f, f])": "results: got a list of 2, expected a table by name",
    "compare({'A': c})": "model 'A': got curves, expected the result of a fit",
    "stokes_einstein(c)": "got curves, expected the result of a fit",
    "average(c)": "datasets: got curves, expected a list of datasets",
    "stack('a.csv')": "datasets: got 'a.csv', expected a list of datasets",
    "series(f)": "datasets: got the result of a fit, expected a list of datasets",
    "read(c)": "path: got curves, expected the path of a file",
    "read(['a', 'b'])": "path: got a list of 2, expected the path of a file. Give one at a time",
    "load(f)": "path: got the result of a fit, expected the path of a file",
}


@pytest.mark.parametrize("call", KINDS)
def test_an_object_of_the_wrong_kind_is_named_in_one_line(call, fitted, own_law, data):
    with pytest.raises(bayesfit.BayesfitError) as caught:
        eval(
            call,
            vars(bayesfit) | {n: getattr(bayesfit, n) for n in bayesfit.__all__},
            {"f": fitted, "w": own_law, "c": data},
        )
    assert KINDS[call] in str(caught.value)
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["fit.csv", "fit", "fit.hdf"])
def test_a_result_is_saved_in_no_other_format(name, fitted, tmp_path):
    with pytest.raises(SettingsError, match=r"saved as netCDF, in .nc alone. Name it fit.nc"):
        bayesfit.save(fitted, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_picture_has_an_ending_that_matplotlib_writes(fitted, own_law, tmp_path):
    for draw in (lambda path: bayesfit.plot_fit(fitted, path=path), lambda path: plot_law(own_law, path)):
        with pytest.raises(SettingsError, match=r"pictures have no ending .xyz. Known: .*\.pdf, .*\.png, .*\.svg"):
            draw(tmp_path / "f.xyz")
        with pytest.raises(SettingsError, match="the picture's name has no ending"):
            draw(tmp_path / "f")
        with pytest.raises(ResultError, match="cannot be drawn: No such file or directory"):
            draw(tmp_path / "nowhere" / "f.png")
        draw(tmp_path / "F.PNG")


def test_the_command_line_refuses_endings_before_any_work(tmp_path):
    """Nothing has been looked at: there is no such file."""
    netcdf, picture = "saved as netCDF, in .nc alone. Name it f.nc", "no ending .xyz. Known: "
    absent, csv, xyz = tmp_path / "absent.nc", tmp_path / "f.csv", tmp_path / "f.xyz"
    cases = {
        ("law", absent, "diffusion", "-o", csv): f"{csv}: -o: results are {netcdf}",
        ("compare", absent, "-o", csv): netcdf,
        ("stokes-einstein", absent, "-o", csv): netcdf,
        ("law", absent, "diffusion", "--plot", xyz): f"{xyz}: --plot: pictures have {picture}",
        ("plot", absent, "-o", xyz): f"{xyz}: -o: pictures have {picture}",
        (
            "run",
            FILE,
            "-o",
            tmp_path / "f.nc",
        ): f"-o: is the folder in which each file has its NAME.nc. Write -o {tmp_path}/f",
    }
    for (lines, code), words in zip(each(*cases), cases.values(), strict=True):
        assert (len(lines), code) == (1, 2), lines
        assert words in lines[0]
    assert not list(tmp_path.iterdir())


def test_a_folder_and_a_pattern_without_files_are_refused_in_one_line(tmp_path):
    (tmp_path / "none").mkdir()
    told = each(["run", tmp_path / "none", "-o", tmp_path / "o"], ["run", "data/*.xyz", "-o", tmp_path / "o"])
    assert told[0] == ([f"error: {tmp_path / 'none'}: the folder holds no files"], 1)
    assert told[1] == (["error: data/*.xyz: no file matches"], 1)


def test_the_version_is_told():
    done = subprocess.run(
        [Path(sys.executable).parent / "bayesfit", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"bayesfit {bayesfit.__version__}\n"


def test_warnings_of_libraries_do_not_reach_the_screen(saved, tmp_path):
    model = tmp_path / "noisy.py"
    model.write_text(
        "import logging, warnings\n"
        "import jax.numpy as jnp\n"
        "from bayesfit import Model\n"
        "warnings.warn('overflow in a library', RuntimeWarning)\n"
        "warnings.warn('a legend without labels')\n"
        "logging.getLogger('library').warning('no accelerator')\n"
        "model = Model('noisy', lambda tau: jnp.exp(-tau))\n"
    )
    run = ["run", FILE, "-o", tmp_path / "o", "--model", model]
    small = ["--set", "temperature=298", "--set", "viscosity=1000000.0"]
    ((of_run, _), (of_radius, code)) = each(run, ["stokes-einstein", saved, *small])
    assert of_run == [
        f"error: {FILE}: model 'noisy': samples no parameter. " + of_run[0].split("samples no parameter. ")[1]
    ]
    assert code == 0
    assert len(of_radius) == 1
    assert of_radius[0].startswith("warning: a hydrodynamic radius of ")
    ((asked, _),) = each(run, PYTHONWARNINGS="default")
    assert any("overflow in a library" in line for line in asked)


def test_every_warning_of_bayesfit_is_one_that_the_command_line_prints():
    found = 0
    for path in [
        *(ROOT / "bayesfit").glob("*/*.py"),  # the links to pipelines and models among them
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
                found += 1
                assert "BayesfitWarning" in map(ast.unparse, node.args), f"{path.name}, line {node.lineno}"
    assert found


def test_errors_that_python_ignores_do_not_reach_the_screen(capsys):
    """h5netcdf raises one when it discards a file that it could not open."""

    class Broken:
        def __del__(self):
            raise AttributeError("never begun")

    with own_warnings_as_lines():
        Broken()
    assert capsys.readouterr().err == ""
