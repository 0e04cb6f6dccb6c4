"""Pictures as files: their formats, and how they are written."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from bayesfit.compute.errors import ResultError, SettingsError
from bayesfit.compute.kinds import expect_path
from bayesfit.compute.whole_files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESOLUTION = 130  # dots per inch


def check_picture(path: str | Path | None, field: str = "path") -> None:
    """Refuse, before anything is drawn, a path whose ending is no format of matplotlib's. None stands for no picture.

    Raises:
        SettingsError: lists the endings that can be written.
    """
    if path is None:
        return
    from matplotlib.backend_bases import FigureCanvasBase

    expect_path(path, field)
    endings = FigureCanvasBase.get_supported_filetypes()
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in endings:
        problem = f"pictures have no ending .{ending}" if ending else "the picture's name has no ending"
        remedy = "Known: " + ", ".join(f".{ending}" for ending in sorted(endings))
        raise SettingsError(problem, file=path, field=field, remedy=remedy)


def written(figure: Figure, path: str | Path | None) -> Figure:
    """The figure, saved at this path unless that is None.

    Raises:
        ResultError: it cannot be written.
    """
    if path is not None:
        path = Path(path).expanduser()
        content = io.BytesIO()
        figure.savefig(content, dpi=RESOLUTION, format=path.suffix.lower().removeprefix("."))
        try:
            write_whole(path, content.getvalue())
        except OSError as error:
            raise ResultError(f"cannot be drawn: {error.strerror or error}", file=path) from error
    return figure
