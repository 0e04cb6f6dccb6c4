"""Units on display."""

import numpy as np
import pytest
import xarray as xr

import bayesfit
from bayesfit.result.units import conversion, in_units


@pytest.mark.parametrize(
    ("of", "to", "factor"),
    [
        ("angstrom^2/s", "um^2/s", 1e-8),
        ("angstrom^2/s", "nm^2/us", 1e-8),
        ("angstrom^2/s", "m^2/s", 1e-20),
        ("angstrom^2/s", "cm^2/s", 1e-16),
        ("angstrom^1/s", "um/min", 60e-4),
        ("angstrom^1.5/s", "nm^1.5/s", 10**-1.5),
        ("1/s", "1/ms", 1e-3),
        ("1/s", "1/min", 60.0),
        ("s", "us", 1e6),
        ("s", "h", 1 / 3600),
        ("nm", "Å", 10.0),
        ("nm", "µm", 1e-3),
        ("Pa s", "mPa s", 1e3),
        ("Pa s", "cP", 1e3),
        ("K", "K", 1.0),
        ("1", "", 1.0),
    ],
)
def test_factors(of, to, factor):
    assert conversion(of, to) == pytest.approx(factor, rel=1e-12)
    assert conversion(to, of) == pytest.approx(1 / factor, rel=1e-12)


def result():
    """A posterior of three parameters, all 2, with their units."""
    units = {"rate": "1/s", "beta": "1", "D": "angstrom^2/s"}
    arrays = {
        name: (("chain", "draw", "q_bin"), np.full((2, 3, 4), 2.0), {"units": unit}) for name, unit in units.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(arrays)})


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ({"D": "um^2/sek"}, "units.D: unknown unit 'sek'. Did you mean 's'?"),
        ({"D": "um/s"}, "units.D: cannot be shown in um/s. Its unit is angstrom^2/s"),
        ({"D": "um^x/s"}, "units.D: cannot read the power in 'um^x'. Write it as um^2/s"),
        ({"rte": "1/ms"}, "units: unknown parameter 'rte'. Did you mean 'rate'?"),
        ({"beta": "nm"}, "units.beta: cannot be shown in nm. Its unit is 1"),
    ],
)
def test_units_that_cannot_be_are_refused_in_one_line(units, message):
    with pytest.raises(bayesfit.SettingsError) as caught:
        in_units(result(), units)
    assert str(caught.value) == message


def test_a_unit_that_depends_on_an_inferred_exponent_stays():
    with pytest.raises(bayesfit.SettingsError, match="depends on n, which is inferred"):
        conversion("angstrom^n/s", "um^2/s")


def test_parameters_are_shown_in_other_units_and_the_result_stays():
    plain = result()
    shown = in_units(plain, {"D": "um^2/s"})["posterior"]
    np.testing.assert_allclose(shown.D, 2e-8)
    np.testing.assert_array_equal(shown.rate, 2.0)
    assert (shown.D.attrs["units"], plain["posterior"].D.attrs["units"]) == ("um^2/s", "angstrom^2/s")
    np.testing.assert_array_equal(plain["posterior"].D, 2.0)
