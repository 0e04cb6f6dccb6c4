"""How records show themselves: one line in a terminal, a small table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def with_unit(name: str, unit: str) -> str:
    """A name with its unit, if it has one."""
    return f"{name} [{unit}]" if unit not in ("", "1") else name


def one_line(kind: str, name: str, *words: str) -> str:
    """A record of some kind in one line, as `<Model 'cumulant': ...>`; empty words are left out."""
    said = "; ".join(word for word in words if word)
    return f"<{kind} {name!r}: {said}>" if said else f"<{kind} {name!r}>"


def as_html(title: str, sentences: Iterable[str], headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A title, sentences and a table as HTML. Everything given is text, but for `Html`, which stays as it is."""
    head = "".join(f"<th>{_cell(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""
    said = "".join(f"<div>{_cell(sentence)}</div>" for sentence in sentences if sentence)
    return f"<div><b>{_cell(title)}</b>{said}{table}</div>"


class Html(str):
    """Text that is HTML already."""


def _cell(text: str) -> str:
    return text if isinstance(text, Html) else escape(text)
