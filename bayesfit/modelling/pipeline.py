"""The contract that a pipeline file fulfils: recognise a file, read it, and add what its users compute next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from bayesfit.compute.shown import as_html, one_line

READING = ("columns", "units", "layout", "sheet", "optics", "tau_min", "tau_max")


@dataclass(frozen=True, eq=False)
class Pipeline:
    """One kind of dataset.

    Args:
        name: how users call it.
        recognise: `path -> None` where the file's content is of this kind, else what is missing, in a few words.
            Looks at the content, never at the name, and does not raise.
        read: `path -> Dataset` as `bayesfit.curves` returns it. Its attributes `layout`, `tau_unit`, `q_unit`,
            `errors_from` and `left_out` say in words how the file was understood, where there is something to say.
        derive: `(posterior, curves) -> Dataset` of derived quantities with units in attrs; `posterior` holds every
            parameter with dims (chain, draw, q_bin), fixed ones as (q_bin,). None where there are none.
        model: the model to fit where the user names none.
        general: whether more special pipelines may know such files better, so that it is asked after them.
        options: names of the settings of reading, among `READING`, that `read` takes as keyword arguments.
        of_others: `[path, ...] -> {path: words}`: among files that are run together, those that are no measurements of
            their own and are left out, with what they do instead, as in "hold the errors of others". None where there
            are none.
    """

    name: str
    recognise: Callable[[Path], str | None]
    read: Callable[..., xr.Dataset]
    derive: Callable[[xr.Dataset, xr.Dataset], xr.Dataset] | None = None
    model: str = "stretched_exponential"
    description: str = ""
    options: tuple[str, ...] = ()
    general: bool = False
    of_others: Callable[[Sequence[Path]], dict[Path, str]] | None = None

    def __repr__(self) -> str:
        return one_line("Pipeline", self.name, self.description)

    def _repr_html_(self) -> str:
        settings = {"fits by default": self.model, "settings of reading": ", ".join(self.options)}
        return as_html(f"Pipeline {self.name}", [self.description], ("", ""), [*settings.items()])
