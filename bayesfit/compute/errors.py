"""The errors that a user can meet: one line that says where, what was found, what was expected, and what to do."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable
from pathlib import Path

LONGEST = 600  # characters of a problem; what is longer repeats something that a user gave
PACKAGE = str(Path(__file__).parents[1])


class BayesfitError(Exception):
    """Base of all errors that bayesfit raises on purpose; its text is one line.

    Attributes:
        problem: what was found.
        file, field, bin: where the fault is; each None if it does not apply.
        remedy: what to do about it; None if there is nothing to say.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: object = None,
        field: str | None = None,
        bin: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.file, self.field, self.bin, self.remedy = problem, file, field, bin, remedy
        place = [str(file)] if file is not None else []
        place += [field] if field is not None else []
        place += [f"bin {bin}"] if bin is not None else []
        if len(problem) > LONGEST:
            problem = f"{problem[: LONGEST // 2]} ... {problem[-LONGEST // 4 :]}"
        text = ": ".join([*place, problem])
        super().__init__(" ".join(f"{text}. {remedy}".split()) if remedy else " ".join(text.split()))


class BayesfitWarning(UserWarning):
    """Something that a user should look at although the work goes on, in one line. The command line prints no other
    warnings."""


def warn(words: str) -> None:
    """Warn the user, at the line of the user's own code that has called bayesfit."""
    warnings.warn(words, BayesfitWarning, skip_file_prefixes=(PACKAGE,))


class InputError(BayesfitError, ValueError):
    """The data or the file that holds them cannot be used."""


class SettingsError(BayesfitError, ValueError):
    """A setting is unknown, or its value is impossible."""


class ModelError(BayesfitError, ValueError):
    """A model file breaks the contract; `field` names the model."""


class ResultError(BayesfitError, ValueError):
    """A saved result cannot be read back, or cannot be written."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy that names the known name nearest to this one, or lists all known names."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    return "Known: " + ", ".join(known) if known else "None are known"
