"""The documentation site is built without a warning, its links lead somewhere, and it describes every public name."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import bayesfit

ROOT = Path(__file__).parent.parent


class Page(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self.links |= {given[name] for name in ("href", "src") if given.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-d", folder / "trees", "docs", folder / "html"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [file for file in (folder / "html").rglob("*.html") if "_static" not in file.parts]
    return {file: Page(file.read_text()) for file in pages}


def test_links_of_the_site_lead_somewhere(site):
    for file, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert target.is_file(), f"{file.name}: {link}"
            if parts.fragment and target.suffix == ".html" and target in site:
                assert unquote(parts.fragment) in site[target].anchors, f"{file.name}: {link}"


def test_every_public_name_is_described(site):
    (reference,) = (page for file, page in site.items() if file.name == "api.html")
    names = {f"bayesfit.{name}" for name in bayesfit.__all__ if name not in bayesfit._ROOMS}
    names |= {f"bayesfit.{room}.{name}" for room in bayesfit._ROOMS for name in public(getattr(bayesfit, room))}
    assert {
        name for name in names if not any(name.split(".")[-1] == a.split(".")[-1] for a in reference.anchors)
    } == set()


def public(room):
    own = {name for name, value in vars(room).items() if getattr(value, "__module__", "").startswith("bayesfit.")}
    return {name for name in own if not name.startswith("_")}


def test_every_model_has_its_page(site):
    pages = {file.stem for file in site if file.parent.name == "generated"}
    assert {file.stem for file in (ROOT / "models").glob("[a-z]*.py")} == pages


def test_notebooks_show_progress_pictures_and_what_to_believe(site):
    shown = {file.stem: file.read_text() for file in site if file.parent.name == "notebooks"}
    assert set(shown) == {file.stem for file in (ROOT / "docs" / "notebooks").glob("*.md")}
    assert '<progress value="1.000"' in shown["embedding"]
    assert "done in" in shown["embedding"]
    for name, text in shown.items():
        assert "bins ok" in text or "1 of 1 bin ok" in text, name
        assert "<img" in text, name
        assert "ipywidgets" not in text, name


def test_every_page_can_be_reached(site):
    start = next(file for file in site if file.name == "index.html" and file.parent.name == "html")
    reached, todo = {start}, [start]
    while todo:
        file = todo.pop()
        linked = {(file.parent / unquote(urlsplit(link).path)).resolve() for link in site[file].links}
        new = (linked & set(site)) - reached
        reached |= new
        todo += new
    left = {file.name for file in set(site) - reached}
    assert left <= {"search.html", "genindex.html", "py-modindex.html"}
