"""README and docs/ hold what they say: code runs, commands and settings are accepted, links lead somewhere.

Python and shell blocks of a page run in order, the Python blocks in one namespace, in a folder of their own, so that
what they write leaves no trace. In it are a link to `data/`, the results of the shipped files, and files that a reader
has (repeats, scans). A block whose first line names a file (`# my_law.py`) is that file, for all pages. README's
shell block is what `.ci/run` runs.
"""

import doctest
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import healthy_files
import numpy as np
import pytest
import typer
from dask_cluster import running_cluster
from in_process import bayesfit as call

import bayesfit
from bayesfit.api.automatic_noise import AUTO
from bayesfit.cli.law import LAW_SETTINGS
from bayesfit.cli.main import app
from bayesfit.cli.show_result import units_of as _units
from bayesfit.modelling.laws import get_law
from bayesfit.modelling.noise import get_noise
from bayesfit.modelling.settings import assigned, load_settings
from bayesfit.posterior.pooling import parse_across
from bayesfit.result.specimen import parse_quantity

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w./]+\.(?:py|toml))\n")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SCRIPT = re.compile(r"uv\s+run\s+(?:--group\s+\w+\s+)?python\s+([\w/]+\.py)([^`#;,]*)")
OPTION = re.compile(r"(?<!\S)\[?(--[a-z][a-z-]*)")
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
LONGEST_README = 120  # lines
COMMANDS = typer.main.get_command(app).commands
NO_BIN_IS_OK = 3  # an exit code: of a variational fit, or where a reader's own files are few and small
SCHEDULER = "tcp://127.0.0.1:8786"  # of the pages; the tests have one of their own


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line of the page before it."""

    language: str
    text: str
    line: int

    @property
    def file(self):
        """The name of the file that the block is, or None."""
        named = NAMED.match(self.text)
        return named and named[1]


def blocks(page, *languages):
    text = page.read_text()
    found = (Block(m[1], m[2], text.count("\n", 0, m.start(2))) for m in FENCED.finditer(text))
    return [block for block in found if block.language in languages]


def prose(page):
    return FENCED.sub("", page.read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with the results of the shipped files, as the pages take them for granted after the quickstart."""
    folder = tmp_path_factory.mktemp("fitted") / "results"
    said = call("run", ROOT / "data" / "aps_8idi_sim.hdf", ROOT / "data" / "table_sim.csv", "-o", folder)
    assert said.code == 0, said
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The current folder is one with the shipped data, and the files that the pages name."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    for page in PAGES:
        for block in blocks(page, "python", "toml"):
            if block.file:
                (tmp_path / block.file).write_text(block.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def own_files(project, monkeypatch):
    """Files that a reader has: repeats, a series, scans, light scattering at five angles; and the number of a job."""
    for number, name in enumerate(["repeat_1", "repeat_2", "repeat_3", "a", "b", "c", "scans/1", "scans/2"]):
        path = project / f"{name}.npz"
        path.parent.mkdir(exist_ok=True)
        curves, _ = bayesfit.simulate(bins=3, delays=48, seed=number)
        given = {key: curves[key].values for key in ("tau", "q", "g2", "g2_err")}
        np.savez(path, **given)
    for angle in (45, 65, 90, 115, 140):
        for repeat in (1, 2):
            (project / f"silica_{angle}_{repeat}.ASC").write_bytes(light_scattering(angle, repeat))
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    monkeypatch.setenv("PBS_ARRAY_INDEX", "2")


def light_scattering(angle, repeat):
    """A file of an ALV correlator: 20 nm spheres in water, with noise."""
    tau = np.geomspace(1e-4, 1e2, 80)  # ms
    rate = 1.07e-14 * (4 * np.pi * 1.332 / 632.8e-9 * np.sin(np.radians(angle / 2))) ** 2  # 1/ms
    rng = np.random.default_rng([angle, repeat])
    g2 = 0.8 * np.exp(-2 * rate * tau) + rng.normal(0, 0.004, tau.size)
    header = {"Angle [°]       :": f"{angle:14.5f}", "Time :": f'"14:{angle // 3}:{repeat:02d}"'}
    return healthy_files.alv(tau=tau, columns=g2[None], errors=0.004 + 0 * tau[None], **header).encode("cp1252")


def run(block, page, namespace):
    """Run a block as doctest does where it has prompts, else as a script."""
    if ">>> " not in block.text:
        exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(block.text, namespace, page.name, str(page), block.line)
    said = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, clear_globs=False)
    assert not failed, "".join(said)
    namespace.update(test.globs)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python", "bash")], ids=lambda page: page.name)
def test_code_runs(page, project, results, own_files):
    shutil.copytree(results, "results")
    namespace = {"__name__": "page"}
    for block in blocks(page, "python", *(["bash"] if page.name != "README.md" else [])):
        if block.language == "bash":
            for line in block.text.splitlines():
                call_line(line, project)
        elif not block.file:
            run(block, page, namespace)


def call_line(line, folder):
    """Call the `bayesfit` command of a line, as a shell would."""
    words = shlex.split(os.path.expandvars(line), comments=True)
    if not words:
        return
    program, *arguments = [
        found for word in words for found in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]
    assert program == "bayesfit", line
    if SCHEDULER in arguments:
        with running_cluster(folder) as client:
            arguments[arguments.index(SCHEDULER)] = client.scheduler.address
            said = call(*arguments)
    else:
        said = call(*arguments)
    assert said.code in (0, NO_BIN_IS_OK), (line, said)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=lambda page: page.name)
def test_settings_files_are_accepted(page, project):
    curves = bayesfit.read("data/table_sim.csv")
    for block in blocks(page, "toml"):
        settings = load_settings(project / block.file)
        assert parse_across(settings.across, curves) or not settings.across
        for name, given in settings.specimen.items():
            check_quantity(name, given)


def check_quantity(name, given):
    if given != "water":
        parse_quantity(given, name)


def commands():
    """Every `bayesfit` command of the pages' shell blocks, as pytest takes it."""
    for page in PAGES:
        for block in blocks(page, "bash", ""):
            for line in block.text.splitlines():
                words = shlex.split(line, comments=True)
                if "bayesfit" in words:
                    arguments = words[words.index("bayesfit") + 1 :]
                    yield pytest.param(arguments, id=f"{page.stem}: {' '.join(arguments)}")


@pytest.mark.parametrize("arguments", list(commands()))
def test_commands_are_accepted(arguments, project):
    name, *rest = arguments
    given = COMMANDS[name].make_context(name, rest).params
    _units(given.get("units") or [])
    if name == "run":
        check_run(given)
    if name == "law":
        options = assigned(given["set_"] or ())
        get_law({**{key: value for key, value in options.items() if key not in LAW_SETTINGS}, "name": given["name"]})
    if name == "stokes-einstein":
        for key, value in assigned(given["set_"] or ()).items():
            check_quantity(key, value)


def check_run(given):
    names = ("model", "noise", "pipeline", "together")
    settings = load_settings(given["config"], given["set_"] or (), **{name: given[name] for name in names})
    assert settings.noise == AUTO or get_noise(settings.noise)
    if isinstance(settings.model, str):
        bayesfit.get_model(settings.model)
    parse_across(settings.across, bayesfit.read("data/table_sim.csv"))


def synopses():
    """Every line of a command's synopsis, with the lines that go on with it."""
    for page in PAGES:
        for block in blocks(page, "text"):
            yield from re.findall(r"^bayesfit [a-z].*(?:\n +.*)*", block.text, re.MULTILINE)


@pytest.mark.parametrize("synopsis", [words for words in synopses() if "--" in words or "[-o" in words])
def test_options_of_a_synopsis_exist(synopsis):
    command = COMMANDS[synopsis.split()[1]]
    options = {option for given in command.params for option in (*given.opts, *given.secondary_opts)}
    assert set(OPTION.findall(synopsis)) <= options


def test_scripts_exist_and_know_their_options():
    found = [match for page in PAGES for match in SCRIPT.finditer(page.read_text())]
    assert len(found) > 10
    for match in found:
        script = ROOT / match[1]
        assert script.is_file(), match[0]
        for option in OPTION.findall(match[2]):
            assert f'"{option}"' in script.read_text(), match[0]


def anchors(page):
    """What links may name of a page, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.is_file(), link
        assert not anchor or anchors(target).count(anchor) == 1, link


def test_readme_is_short_and_leads_to_every_page():
    readme = ROOT / "README.md"
    assert len(readme.read_text().splitlines()) <= LONGEST_README
    assert {f"docs/{page.name}" for page in PAGES[1:]} <= set(LINK.findall(readme.read_text()))


def test_every_term_has_a_reference():
    _, *terms = re.split(r"^### ", (ROOT / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)
    assert len(terms) > 30
    for term in terms:
        assert re.search(r"\*[^*]+\b(1[89]|20)\d\d\b[^*]*\*", term), term
