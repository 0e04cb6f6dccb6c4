"""Exports of a Zetasizer: real ones where they are at hand, and small ones of the same form."""

import numpy as np
import pytest
from healthy_files import ZETASIZER_HEADINGS as HEADINGS
from healthy_files import ZETASIZER_ROWS as ROWS
from healthy_files import ZETASIZER_TAU as TAU
from healthy_files import write_workbook

import bayesfit


def check(data):
    assert data.attrs["pipeline"] == "zetasizer"
    np.testing.assert_allclose(data.tau, np.array(TAU) * 1e-6)
    np.testing.assert_array_equal(data.valid, [[True, True, True, False], [True, True, False, False]])
    np.testing.assert_array_equal(data.g2.values[data.valid.values], [0.9, 0.5, 0.1, 0.8, 0.4])
    assert data.attrs["contrast_prior"] == "TruncatedNormal(0.5, 0.5, low=0)"
    assert data.attrs["baseline_prior"] == "Normal(0, 0.05)"
    assert "3 values of 0 to the end of the columns are masked" in data.attrs["notes"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_an_export_as_text(tmp_path, separator):
    path = tmp_path / "export.csv"
    lines = [separator.join(HEADINGS), *(separator.join(map(str, row)) for row in ROWS)]
    text = "\n".join(lines)
    path.write_text(
        text if separator == "," else "\n".join([lines[0], *(line.replace(".", ",") for line in lines[1:])])
    )
    data = bayesfit.read(path)
    check(data)
    assert data.label.values.tolist() == ["sample 1 [Steady state]", "sample 2 [Steady state]"]


def test_one_column_of_delays(tmp_path):
    path = tmp_path / "export.csv"
    rows = ["Correlation Delay Times (µs),Record 1,Record 2", *(f"{row[0]},{row[1]},{row[3]}" for row in ROWS)]
    path.write_text("\n".join(rows))
    check(bayesfit.read(path))


def test_an_export_as_a_workbook_with_the_angle_of_the_instrument(tmp_path):
    path = write_workbook(tmp_path / "export.xlsx", [HEADINGS, *ROWS])
    data = bayesfit.read(path, optics={"wavelength": 633, "refractive_index": 1.33, "angle": 173})
    check(data)
    np.testing.assert_allclose(data.q, 4 * np.pi * 1.33 / 6330 * np.sin(np.radians(173) / 2))


def test_the_real_export(shared_data):
    path = shared_data / "dls_zetasizer" / "DLS_Correlograms_from_Zetasizer_Input.xlsx"
    with pytest.raises(bayesfit.InputError, match=r"sheets 'A1H1_H2O_All_no_correlogram', .* hold tables. Choose one"):
        bayesfit.read(path)
    data = bayesfit.read(path, sheet="A1H1_H2O_All_no_correlogram")
    assert dict(data.sizes) == {"q_bin": 18, "tau": 490}
    np.testing.assert_allclose(data.tau[[0, -1]], [0.0875e-6, 214.7])
    np.testing.assert_array_equal(data.g2[:2, 0], [1.005, 1.069])
    assert data.label.values[3] == "A1H1_H2O_0_125_no [Steady state]"
    assert data.attrs["tau_unit"] == "us, from the heading"
