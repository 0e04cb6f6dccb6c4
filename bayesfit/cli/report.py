"""`bayesfit report`: saved results as pages for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesfit.cli.app import app


@app.command()
def report(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT|FOLDER...", help="Saved results, or folders that hold them.")
    ],
) -> None:
    """Write NAME.html beside each saved result: which bins to believe and why, every curve and every parameter. In a
    folder also index.html, which links them."""
    from bayesfit.report.folder_page import write_folder_report
    from bayesfit.report.html import write_report
    from bayesfit.result.files import load

    for path in results:
        if path.is_dir():
            typer.echo(str(write_folder_report(path, again=True)))
        else:
            typer.echo(str(write_report(load(path), path.with_suffix(".html"))))
