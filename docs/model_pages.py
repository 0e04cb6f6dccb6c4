"""Pages of the documentation site that are made when it is built: one for each shipped model, from its file; and the
picture of all calibrations, from their table."""

import ast
import csv
import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from matplotlib.figure import Figure
from numpyro.handlers import seed, substitute, trace

import bayesfit

ROOT = Path(__file__).parent.parent
GENERATED = ROOT / "docs" / "generated"  # not in the repository
SECTION = re.compile(r"^([A-Z][a-z]+) {2,}(.*(?:\n {4,}.*)*)", re.MULTILINE)
QUANTILES = (0.1, 0.5, 0.9)


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", lambda app: write())
    return {"parallel_read_safe": True}


def write():
    """Write every page and picture."""
    GENERATED.mkdir(exist_ok=True)
    files = sorted((ROOT / "models").glob("[a-z]*.py"))
    for file in files:
        (GENERATED / f"{file.stem}.md").write_text(page(file))
    draw_calibration(GENERATED / "calibration.svg")


def page(file):
    """The page of one model: what its file says, its parameters, its curves, and the file itself."""
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    title, summary = docstring.splitlines()[0].split(":", 1) if ":" in docstring.splitlines()[0] else (docstring, "")
    parts = [f"# {file.stem}", (title + ":" + summary if summary else title.splitlines()[0]), *sections(docstring)]
    model = shipped(file.stem)
    if model is not None:
        parts.append(table(model))
        draw(model, GENERATED / f"{file.stem}.svg")
        parts.append(f"![|g1|^2 against the delay]({file.stem}.svg)\n\n{caption(model)}")
    parts.append(f"## The file\n\n`models/{file.name}` in full:\n\n```python\n{file.read_text()}```")
    return "\n\n".join(parts) + "\n"


def sections(docstring):
    """Formula, symbols, validity, reference and prior, each with its heading."""
    for name, text in SECTION.findall(docstring):
        lines = inspect.cleandoc(" " * 12 + text).splitlines() if name == "Formula" else text.split("\n")
        body = "\n".join(line.strip() for line in lines)
        yield f"## {name}\n\n" + (f"```text\n{body}\n```" if name == "Formula" else body)


def shipped(name):
    """The model of this name, None where it needs options."""
    try:
        return bayesfit.get_model(name)
    except bayesfit.BayesfitError:
        return None


def table(model):
    """The parameters of a model."""
    rows = [f"| `{p.name}` | {p.unit or '1'} | {p.description} |" for p in model.parameters]
    return "\n".join(["## Parameters", "", "| name | unit | meaning |", "|---|---|---|", *rows])


def priors(model, tau):
    """The prior of every sampled parameter, by name."""
    sites = trace(seed(model.program, 0)).get_trace(tau)
    return {name: site["fn"] for name, site in sites.items() if site["type"] == "sample"}


def caption(model):
    """What the picture shows."""
    others = [f"`{name}`" for name in varied(model)]
    if not others:
        return "The decay at three rates."
    return (
        f"The decay at 10, 50 and 90 % of the prior of {' and '.join(others)}, one at a time, all else at its median."
    )


def varied(model):
    """The names of the parameters that change the form of the decay."""
    found = priors(model, jnp.geomspace(1e-3, 1e3, 9))
    free = [name for name, prior in found.items() if not isinstance(prior, numpyro.distributions.Delta)]
    return [name for name in free if name != "rate" or "rate_fast" in free]


def quantile(prior, share):
    """A quantile of a prior, from its draws."""
    return float(np.quantile(np.asarray(prior.sample(jax.random.key(0), (4096,))), share))


def draw(model, path):
    """Draw |g1|^2 over the delay: one curve for each quantile of each parameter of its form."""
    tau = np.geomspace(1e-3, 1e3, 300)
    found = priors(model, jnp.asarray(tau))
    medians = {name: quantile(prior, 0.5) for name, prior in found.items()} | {"rate": 1.0}
    figure = Figure(figsize=(6.0, 3.4), layout="constrained")
    axes = figure.subplots()
    choices = varied(model) or ["rate"]
    for style, name in zip(("-", "--", ":"), choices, strict=False):
        values = [0.1, 1.0, 10.0] if name == "rate" else [quantile(found[name], share) for share in QUANTILES]
        for shade, value in zip(("#56B4E9", "#0072B2", "#1b2a49"), values, strict=True):
            given = {key: jnp.asarray(each) for key, each in {**medians, name: value}.items()}
            curve = seed(substitute(model.program, given), 0)(jnp.asarray(tau))
            axes.semilogx(tau, curve, style, color=shade, label=f"{name} = {value:.3g}")
    axes.set(xlabel="delay [s]", ylabel="|g1|²")
    axes.legend(fontsize=8)
    figure.savefig(path)


def draw_calibration(path):
    """Draw the p-values of all quantities of `benchmarks/calibration.csv`, sorted, against what chance gives."""
    with (ROOT / "benchmarks" / "calibration.csv").open() as file:
        p = np.sort([float(row["p"]) for row in csv.DictReader(file)])
    expected = (np.arange(p.size) + 0.5) / p.size
    figure = Figure(figsize=(4.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", label="by chance")
    axes.plot(expected, p, ".", color="#0072B2", label=f"{p.size} quantities")
    axes.set(xlabel="share of quantities", ylabel="p-value of the ranks")
    axes.legend()
    figure.savefig(path)
