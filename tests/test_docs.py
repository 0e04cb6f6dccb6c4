"""README and docs/ hold what they say: code runs, commands and settings are accepted, links lead somewhere.

Python blocks of a page run in order, in one namespace, in a folder of their own with a link to `data/`, so that what
they write leaves no trace. A block whose first line names a file (`# my_law.py`) is that file, for all pages.
"""

import doctest
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
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


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_runs(page, project):
    """Of the tutorial also the commands, as they come."""
    namespace = {"__name__": "page"}
    for block in blocks(page, "python", *(["bash"] if page.name == "tutorial.md" else [])):
        if block.language == "bash":
            call_each(block)
        elif not block.file:
            run(block, page, namespace)


def call_each(block):
    """Call every `bayesfit` command of a block."""
    for line in block.text.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "bayesfit", line
        said = call(*arguments)
        assert said.code == 0, (line, said)


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
