"""Plain tables: wide, long, or q and tau along the edges."""

import numpy as np
import pytest
import xarray as xr

import bayesfit

TAU = np.array([0.001, 0.01, 0.1])
G2 = np.array([[1.2, 1.1, 1.0], [1.3, 1.15, 1.01]])
WIDE = "tau,0.01,0.02\n0.001,1.2,1.3\n0.01,1.1,1.15\n0.1,1.0,1.01\n"
ERRORS = "tau,0.01,0.02\n0.001,0.1,0.4\n0.01,0.2,0.5\n0.1,0.3,0.6\n"
LONG = """q,tau,g2,g2_err
0.01,0.001,1.2,0.1
0.01,0.01,1.1,0.2
0.01,0.1,1.0,0.3
0.02,0.001,1.3,0.4
0.02,0.01,1.15,0.5
0.02,0.1,1.01,0.6
"""
G2_ERR = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])


@pytest.fixture
def read(tmp_path):
    """Write a table, and its twin of errors if there is one, and read it."""

    def write_and_read(text, twin=None, ending="_err"):
        path = tmp_path / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        if twin is not None:
            (tmp_path / f"table{ending}.csv").write_text(twin)
        return bayesfit.read(path)

    return write_and_read


@pytest.fixture
def refusal(read):
    """The one line with which such a table is refused."""

    def refused(text, twin=None):
        with pytest.raises(bayesfit.InputError) as caught:
            read(text, twin)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refused


def check(data, q=(0.01, 0.02), errors=False):
    """The values of the tables above."""
    assert data.attrs["pipeline"] == "table"
    np.testing.assert_array_equal(data.tau, TAU)
    np.testing.assert_array_equal(data.g2, G2)
    np.testing.assert_array_equal(data.q, q)
    assert data.attrs["errors_stated"] == int(errors)
    if errors:
        np.testing.assert_array_equal(data.g2_err, G2_ERR)


def test_wide_with_q_for_labels(read):
    data = read(WIDE)
    check(data)
    assert data.attrs["notes"] == "no errors are stated: g2_err is 1 everywhere"


@pytest.mark.parametrize(
    ("header", "q"),
    [
        ("tau,q1,q2", (np.nan, np.nan)),
        ("tau,q=0.01,q = 0.02", (0.01, 0.02)),
        ("tau,Q=0.01,Q=0.02", (0.01, 0.02)),
        ('"tau","0.01","0.02"', (0.01, 0.02)),
        ("Tau, 1e-2, 2e-2", (0.01, 0.02)),
        ("tau [s],0.01,0.02", (0.01, 0.02)),
    ],
)
def test_labels_of_a_wide_table(read, header, q):
    check(read(WIDE.replace("tau,0.01,0.02", header)), q)


@pytest.mark.parametrize("ending", ["_err", "_g2err", "_g2_err"])
def test_errors_in_a_twin_file(read, ending):
    check(read(WIDE, ERRORS, ending), errors=True)


def test_long_form(read):
    check(read(LONG), errors=True)


def test_long_form_without_errors(read):
    check(read("\n".join(line.rsplit(",", 1)[0] for line in LONG.splitlines())))


def test_long_form_in_any_order_of_rows_and_columns_with_more_of_them(read):
    header, *rows = LONG.splitlines()
    random = np.random.default_rng(2)
    rows = [rows[0], *random.permutation(rows[1:])]
    text = "\n".join(",".join(["note", *reversed(row.split(","))]) for row in [header, *rows]).replace(
        "g2,tau", "G2,Tau"
    )
    check(read(text), errors=True)


def test_long_form_tells_bins_apart_by_phi(read):
    rows = [(0.01, phi, tau, 1 + k) for k, phi in enumerate(("-1", "", "0", "90")) for tau in TAU]
    data = read("q,phi,tau,g2\n" + "\n".join(",".join(map(str, row)) for row in rows))
    np.testing.assert_array_equal(data.phi, [-1.0, np.nan, 0.0, 90.0])
    np.testing.assert_array_equal(data.g2[:, 0], [1.0, 2.0, 3.0, 4.0])


def test_long_form_without_q_is_one_bin(read):
    data = read("tau,g2,g2_err\n0.001,1.2,0.1\n0.01,1.1,0.2\n0.1,1.0,0.3\n")
    np.testing.assert_array_equal(data.g2, G2[:1])
    np.testing.assert_array_equal(data.g2_err, G2_ERR[:1])
    assert np.isnan(data.q).all()


def test_long_form_with_ragged_bins_and_repeated_delays(read):
    data = read("q,tau,g2,g2_err\n0.02,0.1,1,1\n0.01,0.1,2,1\n0.01,0.1,3,1\n0.01,0.2,4,1\n")
    np.testing.assert_array_equal(data.q, [0.02, 0.01])
    np.testing.assert_array_equal(data.tau, [0.1, 0.1, 0.2])
    np.testing.assert_array_equal(data.g2, [[1, np.nan, np.nan], [2, 3, 4]])
    assert data.valid.sum("tau").values.tolist() == [1, 3]


@pytest.mark.parametrize("corner", ["0", "0.0", "0.000000000000000000e+00", "", "nan", "tau", "q/tau", "tau\\q"])
def test_corner_form(read, corner):
    data = read(WIDE.replace("tau", corner, 1), ERRORS.replace("tau", corner, 1), "_g2err")
    check(data, errors=True)
    assert ("line 1 is taken as the row of q" in data.attrs["notes"]) == (corner != "tau")


SEPARATED = {
    "semicolon": WIDE.replace(",", ";"),
    "semicolon and decimal comma": WIDE.replace(",", ";").replace(".", ","),
    "tab": WIDE.replace(",", "\t"),
    "tab and decimal comma": WIDE.replace(",", "\t").replace(".", ","),
    "space": WIDE.replace(",", "   "),
    "comma and space": WIDE.replace(",", ", "),
    "comma at the end": WIDE.replace("\n", ",\n"),
    "several commas at the end": WIDE.replace("\n", ",,,\n"),
    "quotes": "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in WIDE.splitlines()),
    "byte order mark": b"\xef\xbb\xbf" + WIDE.encode(),
    "Windows lines": WIDE.replace("\n", "\r\n"),
    "old Mac lines": WIDE.replace("\n", "\r"),
    "blank lines": "\n" + WIDE.replace("\n", "\n\n"),
    "no line ending at the end": WIDE.rstrip(),
    "comments": "# sample 3, at 20 degree\n  # two lines\n" + WIDE.replace("0.01,1.1", "# here\n0.01,1.1"),
    "comment in another encoding": b"# 20 \xb0C, q in 1/\xc5\n" + WIDE.encode(),
    "header in a comment": "# made by hand\n# " + WIDE,
    "header in a comment with spaces": WIDE.replace(",", " ").replace("tau", "# tau"),
}


@pytest.mark.parametrize("text", SEPARATED.values(), ids=SEPARATED)
def test_separators_comments_and_line_endings(read, text):
    check(read(text))


@pytest.mark.parametrize("text", [LONG.replace(",", ";"), LONG.replace(",", "\t"), "# " + LONG, LONG.replace(",", " ")])
def test_separators_of_the_long_form(read, text):
    check(read(text), errors=True)


@pytest.mark.parametrize("word", ["", "nan", "NaN", "NA", "n/a", "inf", "-9999"])
def test_missing_values_are_masked(read, word):
    data = read(WIDE.replace("1.15", word))
    assert data["masked_value"].values.tolist() == [0, 1]
    assert data.valid.values.tolist() == [[True] * 3, [True, False, True]]


def test_an_empty_column_in_the_middle_is_an_empty_bin(read):
    data = read("tau,a,b\n0.1,,1\n0.2,,1\n")
    assert data.valid.sum("tau").values.tolist() == [0, 2]


def test_a_thousand_bins_with_long_header_and_comments(read):
    q = np.linspace(0.001, 0.1, 1000)
    header = ",".join(["tau", *(f"{value:.17g}" for value in q)])
    rows = [",".join([f"{tau}", *["1.0"] * 1000]) for tau in TAU]
    data = read("\n".join(["# " + "x" * 5000, header, *rows]))
    assert dict(data.sizes) == {"q_bin": 1000, "tau": 3}
    np.testing.assert_array_equal(data.q, q)


def test_the_table_that_numpy_writes(read, tmp_path):
    path = tmp_path / "numpy.csv"
    np.savetxt(path, np.column_stack([TAU, G2.T]), header="tau 0.01 0.02")
    check(bayesfit.read(path))


WRONG = {
    "a row too short": (WIDE.replace("1.1,1.15", "1.1"), "line 3: expected 3 columns, got 2"),
    "a row too long": (WIDE.replace("1.15", "1.15,7"), "line 3: expected 3 columns, got 4"),
    "header too short": (WIDE.replace(",0.02", "", 1), "line 2: expected 2 columns, got 3"),
    "header too long": (WIDE.replace("tau", "tau,0.005"), "line 2: expected 4 columns, got 3"),
    "a word": (WIDE.replace("1.15", "oops"), "line 3, column 3: 'oops' is not a number"),
    "a word after comments": ("# a\n\n# b\n" + WIDE.replace("1.15", "oops"), "line 6, column 3: 'oops'"),
    "two points": (WIDE.replace("1.15", "1.1.5"), "line 3, column 3: '1.1.5' is not a number"),
    "an underscore": (WIDE.replace("1.15", "1_15"), "'1_15' is not a number"),
    "complex": (WIDE.replace("1.15", "1+2j"), "'1+2j' is not a number"),
    "NaN delay": (WIDE.replace("\n0.01,", "\nnan,"), "tau: line 3, column 1: got nan, expected a delay"),
    "negative delay": (WIDE.replace("\n0.01,", "\n-0.01,"), "tau: line 3, column 1: got -0.01"),
    "negative q": (WIDE.replace("0.02", "-0.02", 1), "q: bin 1: got -0.02"),
    "everything NaN": ("tau,a\n0.1,nan\n0.2,nan\n", "g2: every value is NaN"),
    "no header at all": (WIDE.split("\n", 1)[1], "the table has no headings, its first line is 0.001, 1.2, 1.3"),
    "header alone": ("tau,0.01,0.02\n", "holds no table of two rows"),
    "one column": ("tau\n0.1\n0.2\n", "two columns"),
    "doubled column": ("q,tau,g2,g2\n0.1,0.1,1,1\n0.1,0.2,1,1\n", "g2: columns 'g2' and 'g2' could both be it"),
    "long, q missing": (LONG.replace("0.02,0.01,", ",0.01,"), "q: line 6: q is missing"),
    "long, a word": (LONG.replace("1.15", "oops"), "line 6, column 3: 'oops' is not a number"),
    "long, a row cut": (LONG.rsplit(",", 1)[0], "line 7: expected 4 columns, got 3"),
    "long, negative delay": (LONG.replace("0.1,1.0,", "-0.1,1.0,"), "tau: line 4, column 2: got -0.1"),
}


@pytest.mark.parametrize(("text", "part"), WRONG.values(), ids=WRONG)
def test_a_malformed_table_gets_one_clear_line(refusal, text, part):
    assert part in refusal(text)


@pytest.mark.parametrize(
    ("twin", "part"),
    [
        (ERRORS.replace("0.01,0.2", "0.02,0.2"), "table_err.csv: tau: its delays differ from those of table.csv"),
        (ERRORS.rsplit("0.1,", 1)[0], "table_err.csv: g2_err: holds (bin, tau) of shape (2, 2), expected (2, 3)"),
        ("tau,0.02,0.01\n" + ERRORS.split("\n", 1)[1], "table_err.csv: q: its columns are named otherwise"),
        (ERRORS.replace("0.5", "oops"), "table_err.csv: line 3, column 3: 'oops' is not a number"),
        ("", "table_err.csv: holds no table of two rows"),
        ("tau,0.01,0.02\n0.001,0,0\n0.01,0,0\n0.1,0,0\n", "g2_err: no error is above zero"),
    ],
)
def test_a_twin_that_does_not_fit_is_named(refusal, twin, part):
    assert part in refusal(WIDE, twin)


def test_delays_of_the_twin_are_compared_however_short_they_are(refusal):
    short = [table.replace("\n0.", "\n0.00000000") for table in (WIDE, ERRORS)]
    assert "its delays differ" in refusal(short[0], short[1].replace("0.0000000001,", "0.0000000002,"))


def test_the_twin_is_no_data(read, tmp_path):
    read(WIDE, ERRORS)
    with pytest.raises(bayesfit.InputError, match=r"table_err.csv: holds the errors of table.csv.*Leave it out"):
        bayesfit.read(tmp_path / "table_err.csv")


def test_bad_errors_in_the_twin_are_masked(read):
    data = read(WIDE, ERRORS.replace("0.5", "0").replace("0.1,0.4", "0.1,"))
    assert data["masked_error"].values.tolist() == [0, 2]


def test_the_simulated_table_of_the_project(request, tmp_path):
    path = request.config.rootpath / "data" / "table_sim.csv"
    if not path.is_file():
        pytest.skip(f"no simulated data at {path}")
    data = bayesfit.read(path)
    assert data.attrs["errors_stated"] == 1
    assert (np.diff(data.q) > 0).all()
    rows = [
        (q, t, g, e)
        for q, gs, es in zip(data.q.values, data.g2.values, data.g2_err.values, strict=True)
        for t, g, e in zip(data.tau.values, gs, es, strict=True)
    ]
    path = tmp_path / "long.csv"
    np.savetxt(path, rows, header="q,tau,g2,g2_err", delimiter=",", comments="", fmt="%.17g")
    again = bayesfit.read(path)
    xr.testing.assert_equal(again, data)
