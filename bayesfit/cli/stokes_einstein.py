"""`bayesfit stokes-einstein`: a radius or a viscosity from a saved result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesfit.cli.app import app
from bayesfit.cli.show_result import Wanted, print_law, print_result, units_of
from bayesfit.compute.errors import SettingsError, nearest

if TYPE_CHECKING:
    import xarray as xr

SAMPLE_SETTINGS = ("temperature", "viscosity", "radius", "parameter", "seed")


@app.command()
def stokes_einstein(
    result: Annotated[Path, typer.Argument(help="A saved result, of a fit or of a law.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="temperature=298.15 [K], viscosity=water, 8.9e-4 [Pa s] or a prior, radius=50 [nm]"),
    ] = None,
    units: Annotated[list[str] | None, typer.Option("--unit", help="Another unit on display, as D=um^2/s.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also save the result with these.")] = None,
) -> None:
    """Hydrodynamic radius of a saved result by Stokes and Einstein, or the viscosity where the radius is set."""
    from bayesfit.api.stokes_einstein import stokes_einstein as derive
    from bayesfit.modelling.settings import assigned
    from bayesfit.result.files import check_ending, load, save
    from bayesfit.result.units import in_units

    if output is not None:
        check_ending(output)
    given = assigned(set_ or ())
    for name in given:
        if name not in SAMPLE_SETTINGS:
            raise SettingsError("unknown setting", field=name, remedy=nearest(name, SAMPLE_SETTINGS))
    derived = derive(load(result), **given)
    shown = in_units(derived, units_of(units or []))
    if "law" in derived.attrs:
        print_law(shown)
    else:
        print_result(shown, Wanted((derived.attrs["stokes_einstein"], "D")))
    typer.echo(_what_followed(derived))
    if output is not None:
        save(derived, output)


def _what_followed(derived: xr.DataTree) -> str:
    """One line: what was derived, and from which diffusion coefficient."""
    name = derived.attrs["stokes_einstein_of"]
    words = derived["posterior"][name].attrs.get("long_name", "")
    return f"{derived.attrs['stokes_einstein']} from {name}" + (f", {words}" if words else "")
