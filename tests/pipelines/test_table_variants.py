"""One small dataset, written as people write tables: each is read back to the same numbers, or refused with a setting
that then reads it."""

import io
import sys
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from typer.testing import CliRunner

import bayesfit
from bayesfit.cli.main import app

TAU = np.array([0.002, 0.01, 0.05, 0.4])  # s
Q = np.array([0.01, 0.02])  # 1/angstrom
G2 = np.array([[1.25, 1.2, 1.1, 1.01], [1.3, 1.15, 1.05, 1.02]])
ERR = np.array([[0.01, 0.02, 0.03, 0.04], [0.05, 0.06, 0.07, 0.08]])


def text(rows, separator=","):
    """Rows of cells as lines; numbers to their last digit."""
    return "\n".join(separator.join(str(cell) for cell in row) for row in rows) + "\n"


def scaled(values, factor):
    """Values in another unit, rounded as a person would."""
    return [float(f"{value * factor:.15g}") for value in values]


def long_rows(tau=1.0, q=1.0, g2=0.0, errors=True):
    """Rows of q, tau, g2 and errors, in other units."""
    return [
        [scaled([Q[b]], q)[0], scaled([TAU[t]], tau)[0], round(G2[b, t] + g2, 6), *([ERR[b, t]] if errors else [])]
        for b in range(2)
        for t in range(4)
    ]


def columns(*parts, tau=1.0):
    """Rows of tau and of the columns given."""
    return [list(row) for row in zip(scaled(TAU, tau), *parts, strict=True)]


BESIDE = columns(G2[0], ERR[0], G2[1], ERR[1])
BLOCK = columns(*G2, *ERR)
WIDE = columns(*G2)
ACROSS = [[q, *row] for q, row in zip(Q, G2, strict=True)]
LONG = [["q", "tau", "g2", "g2_err"], *long_rows()]
COMMAS = text(LONG, ";").replace(".", ",")
DOUBLED = text([["q", 0.01, 0.01, 0.02, 0.02], ["tau", "g2", "err", "g2", "err"], *BESIDE])


def long(*names, **units):
    """A long table with these headings."""
    return text([names, *long_rows(**units)])


FULL = {  # q, tau, g2 and errors
    "long": text(LONG),
    "q in 1/nm": long("q_nm-1", "tau", "g2", "g2_err", q=10.0),
    **{f"errors called {name}": long("q", "tau", "g2", name) for name in ("error", "err", "sigma", "std", "stderr")},
    **{f"errors as {name}": long("q", "tau", "g2", name) for name in ("g2 error", "dg2", "Δg2", "σ", "uncertainty")},
    **{f"errors {name}": long("q", "tau", "g2", name) for name in ("std_g2", "g2_std", "sigma(g2)", "err_g2", "σ [-]")},
    **{
        f"q as {name}": long(name, "tau", "g2", "err")
        for name in ("Q (1/A)", "q [1/angstrom]", "q (Å⁻¹)", "q [Å^-1]", "Q(A-1)", "q_invA", "scattering vector (1/Å)")
    },
    **{
        f"q in 1/nm as {name}": long(name, "tau", "g2", "err", q=10.0)
        for name in (
            "q (nm^-1)",
            "q [1/nm]",
            "q/nm-1",
            '"q, 1/nm"',
            "wavevector (inverse nm)",
            "q [nm$^{-1}$]",
            "q_1_nm",
        )
    },
    "q in 1/um": long("q (1/µm)", "tau", "g2", "err", q=1e4),
    "q in 1/cm": long("q [cm-1]", "tau", "g2", "err", q=1e8),
    "q in 1/m": long("q [m^-1]", "tau", "g2", "err", q=1e10),
    **{f"delays as {name}": long("q", name, "g2", "err") for name in ("t", "time", "dt", "lag time", "delay/s", "τ")},
    **{f"delays in ms as {name}": long("q", name, "g2", "err", tau=1e3) for name in ("tau [ms]", "t/ms", '"lag, ms"')},
    **{
        f"delays in us as {name}": long("q", name, "g2", "err", tau=1e6)
        for name in ("tau_us", "lag time (us)", "Delay [µs]", "lagtime_us", "t in us", "Δt (μs)", "$\\tau$ [$\\mu$s]")
    },
    "delays in ns": long("q", "tau_ns", "g2", "err", tau=1e9),
    "delays in minutes": long("q", "tau (min)", "g2", "err", tau=1 / 60),
    **{
        f"g2 as {name}": long("q", "tau", name, "err")
        for name in ("g(2)", "g²", "G2", "g2(q,tau)", "correlation", "g_2")
    },
    **{
        f"g2 - 1 as {name}": long("q", "tau", name, "err", g2=-1.0)
        for name in ("g2-1", "g2 - 1", "g²−1", "g(2)-1", "g2(tau)-1", "g2m1", "Correlation Function (g2-1)")
    },
    "two names of time": text([["t", *LONG[0]], *([7.0, *row] for row in LONG[1:])]),
    "unused columns": text([[*LONG[0], "temp", "comment"], *([*row, 298.1, "good"] for row in LONG[1:])]),
    "numbered rows": text([["", *LONG[0]], *([n, *row] for n, row in enumerate(LONG[1:]))]),
    "semicolon": text(LONG, ";"),
    "decimal commas": COMMAS,
    "decimal commas, tabs": COMMAS.replace(";", "\t"),
    "decimal commas, spaces": COMMAS.replace(";", "  "),
    "decimal commas in quotes": text([LONG[0], *([f'"{cell}"'.replace(".", ",") for cell in row] for row in LONG[1:])]),
    "tab": text(LONG, "\t"),
    "spaces": text(LONG, "   "),
    "bars": "| q | tau | g2 | err |\n|---|---|---|---|\n"
    + "".join("| " + " | ".join(map(str, row)) + " |\n" for row in LONG[1:]),
    "sep=": "sep=;\n" + text(LONG, ";"),
    "quotes": text([[f'"{cell}"' for cell in row] for row in LONG]),
    "byte order mark": b"\xef\xbb\xbf" + text(LONG).encode(),
    "UTF-16": text(LONG).encode("utf-16"),
    "UTF-16 without a mark": text(LONG).encode("utf-16-le"),
    "Fortran": text(LONG).replace("0.002", "2.0D-3"),
    "Windows-1252": long("q (Å^-1)", "tau [µs]", "g2", "err", tau=1e6).encode("cp1252"),
    "comments of many kinds": "# sample 1\n% made by hand\n// yes\n" + text(LONG),
    "header in a comment": "# made by hand\n# q tau g2 g2_err\n" + text(LONG[1:], " "),
    "a preamble": "Instrument XY\nDate: 2024-01-02 10:11:12\nOperator;Someone\nRun: 3\n\n" + text(LONG, "\t"),
    "units in a row": text([["q", "tau", "g2", "err"], ["1/nm", "ms", "-", "-"], *long_rows(tau=1e3, q=10.0)], "\t"),
    "units above": "# tau in ms, q in 1/nm\n" + long("q", "tau", "g2", "err", tau=1e3, q=10.0),
    "words in the header, spaces": "q (1/nm)  lag time (us)  g2-1  error\n" + text(long_rows(1e6, 10.0, -1.0), "  "),
    "errors beside": text([["tau", "q=0.01", "err", "q=0.02", "err"], *BESIDE]),
    "errors beside, as pandas doubles": text([["tau", "0.01", "err", "0.02", "err.1"], *BESIDE]),
    "errors beside, named by q": text([["tau", "0.01", "0.01_err", "0.02", "0.02_err"], *BESIDE]),
    "errors beside, in words": text([["tau", "g2(q=0.01)", "sigma(q=0.01)", "g2(q=0.02)", "sigma(q=0.02)"], *BESIDE]),
    "errors beside, numbered": text([["tau", "0.01", "err_1", "0.02", "err_2"], *BESIDE]),
    "errors in a block": text([["tau", "0.01", "0.02", "err 0.01", "err 0.02"], *BLOCK]),
    "errors in a block, in another order": text(
        [["tau", "q=0.01", "q=0.02", "err q=0.02", "err q=0.01"], *columns(*G2, *ERR[::-1])]
    ),
    "each bin with its delays": text(
        [["tau", "q=0.01", "err", "tau", "q=0.02", "err"], *columns(G2[0], ERR[0], TAU, G2[1], ERR[1])]
    ),
    "q in a row above": DOUBLED,
    "q in a list above": "# q [1/nm] = 0.1, 0.2\n" + text([["tau", "g2_1", "err_1", "g2_2", "err_2"], *BESIDE]),
    "headings with units": text(
        [["tau [ms]", "q=0.0100 1/A", "err", "q=0.0200 1/A", "err"], *columns(G2[0], ERR[0], G2[1], ERR[1], tau=1e3)]
    ),
    "rows for columns": text(
        [["tau", *TAU], ["q=0.01", *G2[0]], ["q=0.01 err", *ERR[0]], ["q=0.02", *G2[1]], ["q=0.02 err", *ERR[1]]]
    ),
}
BARE = {  # q, tau and g2
    "wide": text([["tau", *Q], *WIDE]),
    "wide, headings with units": text([["tau", "q=0.010 1/A", "q=0.020 1/A"], *WIDE]),
    "wide, q in 1/nm": text([["tau", "0.1 nm-1", "0.2 nm-1"], *WIDE]),
    "wide, q in brackets": text([["tau", "q (1/nm) = 0.1", "q (1/nm) = 0.2"], *WIDE]),
    "wide, q behind names": text([["tau", "q1 = 0.01 1/A", "q2 = 0.02 1/A"], *WIDE]),
    "wide, g2 at q": text([["tau", "g2 @ q=0.01", "g2 @ q=0.02"], *WIDE]),
    "wide, delays in us": text([["lag time (us)", "q0.01", "q0.02"], *columns(*G2, tau=1e6)]),
    "wide, numbered rows": text([["", "tau", *Q], *([n, *row] for n, row in enumerate(WIDE))]),
    "wide, a column of words": text([["tau", *Q, "remark"], *([*row, "fine"] for row in WIDE)]),
    "edge": text([["", *Q], *WIDE]),
    "edge, 0": text([[0, *Q], *WIDE]),
    "edge, both names": text([["q/tau", *Q], *WIDE]),
    "edge, both names with units": text([["tau [ms] \\ q [1/nm]", 0.1, 0.2], *columns(*G2, tau=1e3)]),
    "transposed": text([["q", *TAU], *ACROSS]),
    "transposed, both names": text([["q\\tau", *TAU], *ACROSS]),
    "transposed, units": text([["q (1/A)", "2 ms", "10 ms", "50 ms", "400 ms"], *ACROSS]),
    "transposed, tau = value": text([["Q [1/Å]", *(f"tau={value}" for value in TAU)], *ACROSS]),
    "weights are no errors": text([["q", "tau", "g2", "weights"], *long_rows()]),
}


def check(data, errors):
    """That a dataset is the one above."""
    np.testing.assert_allclose(data.tau, TAU, rtol=1e-12)
    np.testing.assert_allclose(data.q, Q, rtol=1e-12)
    shift = 1.0 if "Normal(0" in data.attrs["baseline_prior"] else 0.0
    np.testing.assert_allclose(data.g2 + shift, G2, rtol=1e-9)
    assert data.attrs["errors_stated"] == int(errors)
    assert (data.attrs["errors_from"] == "none stated") == (not errors)
    if errors:
        np.testing.assert_array_equal(data.g2_err, ERR)
    assert data.attrs["layout"]
    assert data.attrs["tau_unit"]
    assert data.attrs["q_unit"]


@pytest.fixture
def write(tmp_path):
    def written(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


@pytest.mark.parametrize("name", FULL)
def test_a_table_with_errors_is_read_as_it_is_meant(write, name):
    check(bayesfit.read(write(FULL[name])), errors=True)


@pytest.mark.parametrize("name", BARE)
def test_a_table_without_errors_is_read_as_it_is_meant(write, name):
    check(bayesfit.read(write(BARE[name])), errors=False)


@pytest.mark.parametrize("name", ["t.txt", "t.dat", "t.tsv", "t"])
def test_the_ending_of_the_name_does_not_matter(write, name):
    check(bayesfit.read(write(FULL["tab"], name)), errors=True)


NUMBERS = {"q": 1, "tau": 2, "g2": 3, "g2_err": 4}
REFUSED = {  # content, part of the message, the setting that reads it, whether there are errors
    "no headings": (text(LONG[1:]), "no headings", {"columns": NUMBERS}, True),
    "foreign names": (
        long("k", "x", "y", "dy"),
        "found the headings 'k', 'x', 'y', 'dy'. Accepted are tau",
        {"columns": {"q": "k", "tau": "x", "g2": "y", "g2_err": "dy"}},
        True,
    ),
    "two columns of delays": (
        text([["tau_s", "tau_ms", *LONG[0][::2], "err"], *([r[1], 1e3 * r[1], r[0], *r[2:]] for r in LONG[1:])]),
        "columns 'tau_s' and 'tau_ms' could both be it",
        {"columns": {"tau": "tau_s"}},
        True,
    ),
    "two columns of errors": (
        text([[*LONG[0][:3], "std", "sem"], *([*row, 1.0] for row in LONG[1:])]),
        "g2_err: columns 'std' and 'sem' could both be it",
        {"columns": {"g2_err": "std"}},
        True,
    ),
    "frames": (
        long("q", "tau (frames)", "g2", "err", tau=500.0),
        "unknown unit 'frames'; accepted: s, ms, us, ns, min",
        {"units": {"tau": "0.002 s"}},
        True,
    ),
    "a length for q": (long("q (nm)", "tau", "g2", "err", q=10.0), "unknown unit 'nm'", {"units": {"q": "1/nm"}}, True),
    "edges, delays along the top": (
        text([["", *TAU], *ACROSS]),
        "--set layout=transposed where the delays do",
        {"layout": "transposed"},
        False,
    ),
    "q over the delays": (text([["q", *Q], *columns(*G2)]), "--set layout=edge", {"layout": "edge"}, False),
    "tau over q": (text([["tau", *TAU], *ACROSS]), "--set layout=transposed", {"layout": "transposed"}, False),
    "no name for the bins": (
        long("where", "tau", "g2", "err"),
        "column 'where' seems to tell them apart",
        {"columns": {"q": "where"}},
        True,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_clear_is_refused_with_the_setting_that_reads_it(write, name):
    content, part, settings, errors = REFUSED[name]
    path = write(content)
    with pytest.raises(bayesfit.InputError) as refused:
        bayesfit.read(path)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "--set" in str(refused.value)
    check(bayesfit.read(path, **settings), errors)


ISSUE = {  # rows of issue 17: content, settings, what is said
    "q_nm-1": (FULL["q in 1/nm"], [], "long table (pipeline table): 2 bins of 4 delays; q 0.01 to 0.02"),
    "interleaved": (text([["tau", "g2_1", "err_1", "g2_2", "err_2"], *BESIDE]), [], "2 bins of 4 delays; q unknown"),
    "headings with units": (
        BARE["wide, headings with units"],
        [],
        "q 0.01 to 0.02 1/angstrom (read in 1/angstrom, from",
    ),
    "errors called error": (FULL["errors called error"], [], "errors: column 'error'"),
    "transposed": (text([["", *TAU], *ACROSS]), ["layout=transposed"], "q 0.01 to 0.02 1/angstrom"),
    "Q (1/A)": (FULL["q as Q (1/A)"], [], "2 bins of 4 delays; q 0.01 to 0.02"),
    "tau_us": (FULL["delays in us as tau_us"], [], "tau 0.002 to 0.4 s (read in us, from the heading)"),
    "no header": (text(LONG[1:]), [f"columns.{word}={n}" for word, n in NUMBERS.items()], "2 bins of 4 delays"),
    "units in the settings": (
        long("q", "tau", "g2", "err", tau=1e6, q=10.0),
        ["units.tau=us", "units.q=1/nm"],
        "q 0.01 to 0.02 1/angstrom (read in 1/nm, from the settings), tau 0.002 to 0.4 s (read in us, from the",
    ),
    "units in neither": (
        long("q", "tau", "g2", "err", tau=1e6, q=1e3),
        [],
        "--set units.tau=us (s, ms, us, ns, min); q up to 20 1/angstrom is not usual: for another unit --set units.q=",
    ),
    "assumed units": (
        text(LONG),
        [],
        "(read in 1/angstrom, assumed: not stated), tau 0.002 to 0.4 s (read in s, assumed",
    ),
    "g2 - 1 for g2": (
        long("q", "tau", "g2", "err", g2=-1.0),
        [],
        "values end near 0, not 1: where they are g2 - 1, --set units.g2=g2-1",
    ),
    "unused columns": (FULL["unused columns"], [], "left out: columns 'temp', 'comment'"),
}


@pytest.mark.parametrize("name", ISSUE)
def test_the_command_line_says_what_a_table_was_taken_for(write, name):
    content, settings, said = ISSUE[name]
    options = [option for setting in settings for option in ("--set", setting)]
    done = CliRunner().invoke(app, ["inspect", str(write(content)), *options])
    assert done.exit_code == 0, done.output
    assert said in done.output


def test_the_command_line_fits_a_table_with_settings(write, tmp_path):
    random = np.random.default_rng(3)
    tau = np.geomspace(1.0, 1e5, 40)
    rows = [[x, *(0.3 * np.exp(-2e-3 * x * k) + random.normal(0, 0.005, 2))] for x in tau for k in (1,)]
    path = write(text([["x", "a", "b"], *rows]))
    options = ["columns.tau=x", "units.tau=us", "units.g2=g2-1", "draws=100", "target_ess=0"]
    arguments = [word for option in options for word in ("--set", option)]
    done = CliRunner().invoke(app, ["run", str(path), "-o", str(tmp_path / "out"), *arguments])
    assert done.exit_code in (0, 2, 3), done.output
    assert "wide table (pipeline table): 2 bins of 40 delays; q unknown, tau 1e-06 to 0.1 s (read in us" in done.output
    result = bayesfit.load(tmp_path / "out" / "table.nc")
    np.testing.assert_allclose(result["posterior"].rate.mean(("chain", "draw")), 1e3, rtol=0.3)
    assert result["constant_data"].label.values.tolist() == ["a", "b"]


@pytest.mark.parametrize("content", [text(LONG).replace("1.15", "bad"), text(LONG, ";").replace("1.15", "1.1.5")])
def test_a_value_that_is_no_number_is_refused_with_its_place(write, content):
    path = write(content)
    with pytest.raises(bayesfit.InputError, match=r"line 7, column 3: '.*' is not a number"):
        bayesfit.read(path)
    done = CliRunner().invoke(app, ["inspect", str(path)])
    assert done.exit_code == 1
    assert "line 7, column 3" in done.output


MALFORMED = {
    "mixed decimals": (
        text(LONG, ";").replace("1.15", "1,15"),
        "'1,15' has a decimal comma, other numbers have decimal",
    ),
    "decimal commas between commas": (text(LONG).replace("1.15", "1,15"), "line 7: expected 4 columns, got 5"),
    "words at the end": (text(LONG) + "end of data\n", "line 10: expected 4 columns, got 1"),
    "a second table": (text(LONG) + text(LONG), "line 10, column 2: 'tau' is not a number"),
    "errors for one of two": (text([["tau", "g2_1", "g2_2", "err_1"], [0.1, 1, 1, 1], [0.2, 1, 1, 1]]), "do not fit 2"),
    "repeats": (
        text([["tau", "g2", "repeat"], *([x, 1.1, r] for r in (1, 2, 3) for x in TAU)]),
        "column 'repeat' seems to tell them apart; found the headings 'tau', 'g2', 'repeat'. --set columns.bin=",
    ),
    "curves one below another": (
        "tau g2\n" + text([[x, 1.1] for shift in (0.0, 0.001) for x in np.arange(1, 9) / 10 + shift], " "),
        "the delays of a bin begin anew, as of several curves",
    ),
    "single points": (text([["q", "tau", "g2"], *([q, 0.1 * q, 1.0] for q in range(1, 9))]), "has a single point"),
    "one q among labels": (text([["tau", "0.01", "rest"], *WIDE]), "column 'rest' states no q, others do"),
    "g2 and g2 - 1": (
        text([["tau", "g2", "g2-1"], [0.1, 1, 0], [0.2, 1, 0]]),
        "columns 'g2' and 'g2-1' could both be it",
    ),
    "field": (
        text([["tau", "g1"], [0.1, 1], [0.2, 1]]),
        "no column is known as that of g2; found the headings 'tau', 'g1'",
    ),
    "a first delay of 0": ("0,1.25,0.1\n0.001,1.2,0.1\n0.01,1.1,0.1\n", "the table has no headings"),
    "delays of a matrix": (text([["log10(tau)", "g2"], [-1, 1], [-2, 1]]), "no column is known as that of"),
    "capital T": (text([["T", "g2"], [290, 1], [300, 1]]), "no column is known as that of"),
}


@pytest.mark.parametrize(("content", "part"), MALFORMED.values(), ids=MALFORMED)
def test_what_cannot_be_meant_is_refused(write, content, part):
    with pytest.raises(bayesfit.InputError) as refused:
        bayesfit.read(write(content))
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"layout": "wyde"}, "layout: unknown layout 'wyde'. Did you mean 'wide'?"),
        ({"units": {"tau": "parsec"}}, "units.tau: unknown unit 'parsec'. Accepted: s, ms, us, ns, min, h"),
        ({"units": {"tua": "s"}}, "units: unknown word 'tua'. Did you mean 'tau'?"),
        ({"units": {"g2": "g3"}}, "units.g2: got 'g3'"),
        ({"columns": {"taw": "tau"}}, "columns: unknown word 'taw'. Did you mean 'tau'?"),
        (
            {"columns": {"tau": "taw"}},
            "there is no column 'taw'; found the headings 'q', 'tau', 'g2', 'g2_err'. Did you",
        ),
        ({"columns": {"tau": 9}}, "columns.tau: there is no column 9"),
        ({"optics": {"lambda": 3}}, "optics.lambda: unknown setting"),
        ({"optics": {"wavelength": -3}}, "optics.wavelength: got -3, expected a number above 0"),
        ({"sheet": "one"}, "sheet: only a workbook has sheets"),
    ],
)
def test_settings_that_do_not_fit_are_refused(write, settings, part):
    with pytest.raises(bayesfit.SettingsError) as refused:
        bayesfit.read(write(text(LONG)), **settings)
    assert part in str(refused.value)


def test_bins_by_a_column_that_the_settings_name(write):
    rows = [["tau", "g2", "repeat"], *([x, r, r] for r in (1, 2, 3) for x in TAU)]
    data = bayesfit.read(write(text(rows)), columns={"bin": "repeat"})
    assert data.label.values.tolist() == ["1", "2", "3"]
    np.testing.assert_array_equal(data.g2[:, 0], [1, 2, 3])


def test_headings_that_count_are_no_q(write):
    data = bayesfit.read(write(text([["tau", 1, 2], *WIDE])))
    assert np.isnan(data.q).all()
    assert "count the bins, q is unknown" in data.attrs["notes"]
    data = bayesfit.read(write(text([["tau", 1, 2], *WIDE])), units={"q": "1/um"})
    np.testing.assert_allclose(data.q, [1e-4, 2e-4])


ANGLES = np.array([30.0, 90.0])
WATER = {"wavelength": 633.0, "refractive_index": 1.33}
OF_ANGLES = 4 * np.pi * 1.33 / 6330.0 * np.sin(np.radians(ANGLES) / 2)


def by_angle(name, *more):
    return text([[name, "tau", "g2", *more], *([a, x, 1.1, *([633, 1.33][: len(more)])] for a in ANGLES for x in TAU)])


@pytest.mark.parametrize(
    ("content", "optics"),
    [
        (by_angle("angle (deg)"), WATER),
        (by_angle("theta"), WATER),
        (by_angle("2θ [°]"), WATER),
        (by_angle("Scattering angle [deg]", "wavelength [nm]", "refractive index"), {}),
        ("# wavelength = 633 nm\n# n = 1.33\n" + by_angle("angle"), {}),
        ("# Wavelength [nm]: 633, refractive index: 1.33\n" + by_angle("angle"), {}),
        ("Laser wavelength (nm),633\nRefractive index,1.33\n" + by_angle("angle"), {}),
        (by_angle("angle (rad)").replace("\n30.0", f"\n{np.pi / 6}").replace("\n90.0", f"\n{np.pi / 2}"), WATER),
        (text([["tau", "30 deg", "90°"], *WIDE]), WATER),
        (text([["tau", "angle=30", "angle=90"], *WIDE]), WATER),
        (text([["angle", *TAU], *([a, *row] for a, row in zip(ANGLES, G2, strict=True))]), WATER),
    ],
)
def test_q_follows_from_angles_and_optics(write, content, optics):
    data = bayesfit.read(write(content), optics=optics)
    np.testing.assert_allclose(data.q, OF_ANGLES, rtol=1e-9)
    np.testing.assert_allclose(data.angle, ANGLES)


def test_bare_numbers_are_angles_where_the_settings_say_so(write):
    data = bayesfit.read(write(text([["tau", 30, 90], *WIDE])), units={"angle": "deg"}, optics=WATER)
    np.testing.assert_allclose(data.q, OF_ANGLES, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "optics", "part"),
    [
        ("angle", {}, "--set optics.wavelength=633 --set optics.refractive_index=1.33"),
        ("angle", {"wavelength": 633}, "--set optics.refractive_index=1.33"),
        ("theta", {"wavelength": 0.154}, '--set columns.angle="theta" where it is the whole angle'),
    ],
)
def test_an_angle_without_optics_is_refused(write, name, optics, part):
    with pytest.raises(bayesfit.InputError) as refused:
        bayesfit.read(write(by_angle(name)), optics=optics)
    assert part in str(refused.value)


def test_a_single_curve_takes_q_and_temperature_from_the_lines_above(write):
    data = bayesfit.read(write("# q (1/nm) = 0.123\n# T: 3\n# temperature = 25 °C\ntau g2\n0.1 1.2\n0.2 1.1\n"))
    np.testing.assert_allclose(data.q, [0.0123])
    assert data.attrs["temperature"] == 298.15


def workbook(**sheets):
    """The bytes of a workbook."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append([float(cell) if isinstance(cell, np.floating) else cell for cell in row])
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


MERGED = [["q", 0.01, None, 0.02, None], ["tau", "g2", "err", "g2", "err"], *BESIDE]
BOOKS = {
    "one sheet": ({"data": LONG}, {}),
    "below other rows": ({"data": [["Sample 3"], [], ["Laser", 633], [], *LONG]}, {}),
    "to the right": ({"data": [[None, None, *row] for row in LONG]}, {}),
    "an empty sheet beside": ({"data": LONG, "Sheet2": []}, {}),
    "words beside": ({"notes": [["all", "is"], ["well", "!"]], "data": LONG}, {}),
    "the second of two": ({"old": WIDE, "data": LONG}, {"sheet": "data"}),
    "by number": ({"old": WIDE, "data": LONG}, {"sheet": 2}),
    "errors in a sheet": ({"g2": [["tau", *Q], *WIDE], "g2_err": [["tau", *Q], *columns(*ERR)]}, {}),
    "merged q": ({"data": MERGED}, {}),
    "units in a row": ({"data": [LONG[0], ["1/nm", "ms", None, None], *long_rows(1e3, 10.0)]}, {}),
}


@pytest.mark.parametrize(("sheets", "settings"), BOOKS.values(), ids=BOOKS)
def test_a_workbook_is_read_as_it_is_meant(write, sheets, settings):
    check(bayesfit.read(write(workbook(**sheets), "t.xlsx"), **settings), errors=True)


@pytest.mark.parametrize(
    ("cell", "part"),
    [
        ("bad", "sheet 'data', cell C3: 'bad' is not a number"),
        (True, "sheet 'data', cell C3: True is not a number"),
        ("=C2*2", "sheet 'data', cell C3: a formula without a value. Open the file in a spreadsheet"),
    ],
)
def test_a_cell_of_a_workbook_that_is_no_number_is_refused(write, cell, part):
    rows = [list(row) for row in LONG]
    rows[2][2] = cell
    with pytest.raises(bayesfit.InputError) as refused:
        bayesfit.read(write(workbook(data=rows), "t.xlsx"))
    assert part in str(refused.value)


def test_sheets_that_could_all_be_meant_are_listed(write):
    with pytest.raises(bayesfit.InputError, match=r"sheets 'a', 'b' hold tables\. Choose one, --set sheet="):
        bayesfit.read(write(workbook(a=LONG, b=LONG), "t.xlsx"))
    with pytest.raises(bayesfit.SettingsError, match="there is no sheet 'c'"):
        bayesfit.read(write(workbook(a=LONG, b=LONG), "t.xlsx"), sheet="c")


def test_without_openpyxl_a_workbook_is_refused_with_what_to_install(write, monkeypatch):
    path = write(workbook(data=LONG), "t.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(bayesfit.InputError, match=r"needs openpyxl. Install it with pip install \"bayesfit\[excel\]\""):
        bayesfit.read(path)


def test_a_workbook_of_the_old_form_is_named(write):
    with pytest.raises(bayesfit.InputError, match=r"old form; save it as .xlsx or CSV"):
        bayesfit.read(write(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(range(200)), "t.xls"))


def saved(save, *arrays, **named):
    content = io.BytesIO()
    save(content, *arrays, **named)
    return content.getvalue()


ARRAYS = {
    "bins first": saved(np.savez, tau=TAU, q=Q, g2=G2, g2_err=ERR),
    "delays first": saved(np.savez_compressed, tau=TAU, q=Q, g2=G2.T, g2_err=ERR.T),
    "other names and units": saved(np.savez, lag_us=TAU * 1e6, **{"q_nm-1": Q * 10}, g2=G2, sigma=ERR),
    "columns": saved(np.savez, **dict(zip(LONG[0], np.array(LONG[1:]).T, strict=True))),
    "a structured array": saved(
        np.save, np.array([tuple(row) for row in LONG[1:]], dtype=[(name, float) for name in LONG[0]])
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_read_by_the_names_of_columns(write, name):
    check(bayesfit.read(write(ARRAYS[name], "t.npz")), errors=True)


def test_a_matrix_with_q_and_delays_on_its_edges(write):
    matrix = np.block([[np.zeros((1, 1)), Q[None]], [TAU[:, None], G2.T]])
    check(bayesfit.read(write(saved(np.save, matrix), "t.npy")), errors=False)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (saved(np.savez, tau=TAU, g2=np.array([{}, {}], object)), "holds objects; pickles are never loaded"),
        (saved(np.savez, tau=TAU[:2], g2=np.ones((2, 2))), "as many bins as delays. --set layout=wide"),
        (saved(np.savez, a=TAU, b=G2), "found the arrays a (4,), b (2, 4); expected tau (tau,), g2 (q_bin, tau)"),
        (saved(np.savez, tau=TAU, g2=G2, q=[1.0, 2.0, 3.0]), "q: has shape (3,), expected (2,)"),
        (saved(np.save, G2.T), "the table has no headings"),
        (saved(np.save, np.ones((2, 2, 2))), "an array of shape (2, 2, 2) is no table"),
        (saved(np.savez, tau=TAU, g2=G2 + 1j), "expected real numbers, got complex128"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(write, content, part):
    with pytest.raises(bayesfit.InputError) as refused:
        bayesfit.read(write(content, "t.npz"))
    assert part in str(refused.value)


def test_a_real_matrix_that_is_no_table_of_g2_is_refused(shared_data):
    with pytest.raises(bayesfit.InputError, match="the table has no headings"):
        bayesfit.read(shared_data / "xpcs_twotime" / "test_g2.npy")


@pytest.mark.parametrize("name", ["Misra1a.dat", "ENSO.dat"])
def test_a_text_with_other_numbers_is_refused(shared_data, name):
    with pytest.raises(bayesfit.InputError, match="the table has no headings"):
        bayesfit.read(Path(shared_data) / "nist" / name)
