"""`bayesfit plot`: a saved result as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesfit.cli.app import app
from bayesfit.cli.show_result import draw, print_paths
from bayesfit.compute.errors import SettingsError


@app.command()
def plot(
    result: Annotated[Path, typer.Argument(help="A saved result.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture; its ending says the format.")],
    bins: Annotated[list[int] | None, typer.Option("--bin", "-b", help="Draw this bin; may be repeated.")] = None,
) -> None:
    """Draw a saved result: curves with posterior bands, and the rate over q; of a joint fit also, beside it as
    NAME_across, the parameters that its bins have in common over q."""
    from bayesfit.report.pictures import check_picture
    from bayesfit.result.files import load

    check_picture(output, "-o")
    loaded = load(result)
    if bins and ("law" in loaded.attrs or "steps" in loaded.children):
        raise SettingsError("only a fit of one dataset is drawn bin by bin", field="--bin", remedy="Leave it out")
    there = [] if not bins else loaded["observed_data"].q_bin.values.tolist()
    if wrong := [bin for bin in bins or () if bin not in there]:
        remedy = f"Bins go from {min(there)} to {max(there)}"
        raise SettingsError(f"there is no bin {wrong[0]}", field="--bin", remedy=remedy)
    print_paths(draw(loaded, bins, output))
