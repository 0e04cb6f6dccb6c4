"""The text of ALV files (.ASC, Windows-1252): lines, header, blocks of numbers."""

import re
from pathlib import Path

import numpy as np
from jaxtyping import Float

from bayesfit import InputError

BOM = b"\xef\xbb\xbf"
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d*)?(?:[eE][-+]?\d+)?")
NOT_A_NUMBER = re.compile(r"[-+]?(?:nan|inf|\d[.,]#(?:qnan|snan|ind|inf)\S*)", re.IGNORECASE)
Header = list[tuple[str, str]]


def lines_of(path: Path) -> list[str]:
    """The file's lines.

    Raises:
        InputError: the file was cut: its last line has no line ending, and is no complete row of numbers.
    """
    text = path.read_bytes().removeprefix(BOM).decode("cp1252", errors="replace")
    lines = text.splitlines()
    complete = text.endswith("\n") or (len(lines) > 1 and lines[-1][:1].isspace() and len(lines[-1]) == len(lines[-2]))
    if not complete:
        raise InputError(
            f"line {len(lines)}: the file ends within this line", file=path, remedy="The copy was cut short"
        )
    return lines


def header_of(lines: list[str]) -> Header:
    """Key and value of each line before the first block; keys are in lower case, with single spaces."""
    pairs = []
    for line in lines:
        if line.lstrip().startswith('"'):
            break
        key, colon, value = line.partition(":")
        if colon:
            pairs.append((" ".join(key.lower().split()), value.strip().strip('"')))
    return pairs


def block_of(lines: list[str], name: str, path: Path) -> Float[np.ndarray, "lag column"]:
    """The numbers of a block (lag, column). If the block has column titles, only the columns of averages are taken.

    Raises:
        InputError: a row is damaged, or the file ends before the empty line that ends the correlation.
    """
    start = next((number for number, line in enumerate(lines, 1) if line.strip().startswith(f'"{name}')), None)
    if start is None:
        raise InputError("there is no such block", file=path, field=name)
    titles = re.findall(r'"([^"]*)"', lines[start]) if lines[start : start + 1] and '"Lag' in lines[start] else []
    first = start + bool(titles)
    rows: list[list[float]] = []
    for number, line in enumerate(lines[first:], first + 1):
        words = line.split()
        if not words or words[0][0].isalpha() or words[0].startswith('"'):
            break
        try:
            rows.append([as_number(word) for word in words])
        except ValueError as error:
            raise InputError(f"line {number}: {error}", file=path, field=name) from error
        expected = max(2, len(titles), len(rows[0]))
        if len(words) != expected:
            problem = f"line {number}: expected {expected} columns, got {len(words)}"
            raise InputError(problem, file=path, field=name, remedy="Is it cut?")
    else:
        if name == "Correlation":
            remedy = "If nothing is cut, add an empty line"
            raise InputError("the file ends within this block", file=path, field=name, remedy=remedy)
    if not rows:
        raise InputError("the block is empty", file=path, field=name)
    averages = [column for column, title in enumerate(titles) if title.strip().lower().startswith("average")]
    return np.array(rows)[:, [0, *averages]] if averages else np.array(rows)


def as_number(word: str) -> float:
    """A number with a decimal point or comma; NaN if the word marks a missing value.

    Raises:
        ValueError: the word is no number.
    """
    if NOT_A_NUMBER.fullmatch(word):
        return np.nan
    if not NUMBER.fullmatch(word):
        raise ValueError(f"{word!r} is not a number")
    return float(word.replace(",", "."))
