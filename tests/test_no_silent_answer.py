"""Files that used to be misread without a word: each is read as its author meant it, or refused with the remedy that
fits, from the command line as from Python; and what was assumed is said."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bayesfit

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).parent / "bayesfit"
TAU = np.geomspace(1e-3, 10.0, 25)  # s
Q = np.array([0.002, 0.004])  # 1/angstrom
G2 = 1.0 + 0.2 * np.exp(-2.0 * np.outer([1.0, 4.0], TAU))
ERR = np.outer([0.01, 0.02], 1.0 + np.arange(TAU.size) / 10.0)


def lines(header, *columns):
    """A table with one row per delay."""
    return "\n".join([header, *(",".join(f"{float(x):.12g}" for x in row) for row in zip(*columns, strict=True))])


def long(header, q=1.0, tau=1.0, errors=True):
    """A table with one row per point, q and tau times these factors."""
    columns = [np.repeat(Q, TAU.size) * q, np.tile(TAU, 2) * tau, G2.ravel()]
    return lines(header, *columns, *([ERR.ravel()] if errors else []))


def turned(corner):
    """q down the rows, delays along the top."""
    rows = [",".join([f"{q:.12g}", *(f"{x:.12g}" for x in row)]) for q, row in zip(Q, G2, strict=True)]
    return "\n".join([",".join([corner, *(f"{t:.12g}" for t in TAU)]), *rows])


WORDS = long("q,tau,g2,g2_err").splitlines()
MEANT = {  # file: text, what inspect says of it, whether it states errors
    "q_in_nm.csv": (long("q_nm-1,tau,g2,g2_err", q=10), "(read in 1/nm", True),
    "interleaved.csv": (lines("tau,g2_1,err_1,g2_2,err_2", TAU, G2[0], ERR[0], G2[1], ERR[1]), "interleaved", True),
    "q_equals.csv": (lines("tau,q=0.0020 1/A,q=0.0040 1/A", TAU, *G2), "q 0.002 to 0.004 1/angstrom", False),
    "error.csv": (long("q,tau,g2,error"), "errors: column 'error'", True),
    "err.csv": (long("q,tau,g2,err"), "errors: column 'err'", True),
    "sigma.csv": (long("q,tau,g2,sigma"), "errors: column 'sigma'", True),
    "std.csv": (long("q,tau,g2,std"), "errors: column 'std'", True),
    "turned.csv": (turned("q\\tau"), "transposed", False),
    "headings.csv": (long("Q (1/A),tau [ms],g2,g2_err", tau=1e3), "(read in ms", True),
    "angstrom.csv": (long("q [1/angstrom],tau_us,g2,g2_err", tau=1e6), "(read in us", True),
    "t.csv": (long("q,t,g2,g2_err"), "tau 0.001 to 10 s", True),
}
REFUSED = {  # file: text, parts of the one line, settings with which it is read
    "strings.csv": ("\n".join([*WORDS[:7], WORDS[7].replace(WORDS[7].split(",")[2], "overflow"), *WORDS[8:]]),
                    ("line 8", "column 3", "'overflow' is not a number"), {}),
    "no_header.csv": ("\n".join(WORDS[1:]), ("columns",), {"columns": {"q": 1, "tau": 2, "g2": 3, "g2_err": 4}}),
    "furlongs.csv": (long("q [1/furlong],tau,g2,g2_err"), ("furlong", "1/nm"), {"units": {"q": "1/angstrom"}}),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All these files, an Excel and a NumPy file among them."""
    import openpyxl

    folder = tmp_path_factory.mktemp("tables")
    for name, (text, *_) in {**MEANT, **REFUSED}.items():
        (folder / name).write_text(text)
    book = openpyxl.Workbook()
    for row in WORDS:
        book.active.append([float(word) if word[0].isdigit() else word for word in row.split(",")])
    book.save(folder / "book.xlsx")
    np.savez(folder / "arrays.npz", q=Q, tau=TAU, g2=G2, g2_err=ERR)
    (folder / "unsaid.csv").write_text(lines("tau,0.02,0.04", TAU * 1e6, *G2))
    return folder


@pytest.fixture(scope="module")
def inspected(folder):
    """What the command line says of each file, in one call."""
    done = subprocess.run([PROGRAM, "inspect", folder], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    said = {}
    for line in done.stdout.splitlines():
        if not line.startswith("  "):
            name = Path(line.removeprefix("not read: ").split(": ")[0]).name
        said[name] = said.get(name, "") + line
    return said


def check(data, errors, q=Q):
    order = np.argsort(data.q.values, kind="stable")
    np.testing.assert_allclose(data.q.values[order], q, rtol=1e-9)
    np.testing.assert_allclose(data.tau, TAU, rtol=1e-9)
    np.testing.assert_allclose(data.g2.values[order], G2, rtol=1e-9)
    np.testing.assert_allclose(data.g2_err.values[order], ERR if errors else np.ones_like(ERR), rtol=1e-9)


@pytest.mark.parametrize("name", MEANT)
def test_a_table_is_read_as_it_was_meant(folder, inspected, name):
    _, words, errors = MEANT[name]
    check(bayesfit.read(folder / name), errors, q=[np.nan] * 2 if name == "interleaved.csv" else Q)
    assert words in inspected[name]
    assert not inspected[name].startswith("not read")


@pytest.mark.parametrize("name", ["book.xlsx", "arrays.npz"])
def test_other_formats_are_read(folder, inspected, name):
    check(bayesfit.read(folder / name), errors=True)
    assert "2 bins of 25 delays" in inspected[name]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_known_is_refused_with_the_remedy(folder, inspected, name):
    _, parts, settings = REFUSED[name]
    with pytest.raises(bayesfit.BayesfitError) as caught:
        bayesfit.read(folder / name)
    for part in parts:
        assert part in str(caught.value)
        assert part in inspected[name]
    assert inspected[name].startswith("not read: ")
    if settings:
        check(bayesfit.read(folder / name, **settings), errors=True)


def test_units_that_a_table_does_not_say_are_said_to_be_assumed(folder, inspected):
    said = inspected["unsaid.csv"]
    assert "q 0.02 to 0.04 1/angstrom (read in 1/angstrom, assumed: not stated)" in said
    assert "tau 1000 to 1e+07 s (read in s, assumed: not stated)" in said
    assert "units.tau" in said
    data = bayesfit.read(folder / "unsaid.csv", units={"tau": "us", "q": "1/nm"})
    check(data, errors=False)
