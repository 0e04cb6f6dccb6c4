"""The unit of q that an HDF5 file states."""

import re

from bayesfit.compute.errors import InputError

PER_ANGSTROM = {  # factor to 1/angstrom, by the length in the unit of q
    r"pm|picomet(er|re)s?": 1e2,
    r"nm|nanomet(er|re)s?": 1e-1,
    r"[uµμ]m|micromet(er|re)s?|microns?": 1e-4,
    r"mm|millimet(er|re)s?": 1e-7,
    r"m|met(er|re)s?": 1e-10,
}


def per_angstrom(units: str) -> tuple[float, str]:
    """Factor from a unit of q to 1/angstrom (0.1 for the inverse nanometre), and the unit in words. If the unit is not
    stated or not understood, the factor is 1 and the words say so."""
    if (found := understood(units)) is not None:
        return found
    return 1.0, f"1/angstrom, assumed: the file says {units!r}" if units.strip() else "1/angstrom, assumed: not stated"


def per_angstrom_in(units: str, file: object, field: str) -> float:
    """Factor from the unit of q that a field of a file states to 1/angstrom; 1 if it states none.

    Raises:
        InputError: the unit is stated, but not understood.
    """
    if units.strip() and understood(units) is None:
        problem = f"the unit of q, {units!r}, is not known"
        raise InputError(problem, file=file, field=field, remedy="Expected 1/angstrom or 1/nm")
    return per_angstrom(units)[0]


def understood(units: str) -> tuple[float, str] | None:
    """What `per_angstrom` says of a unit of q that is understood, else None."""
    for word in re.findall(r"[^\W\d_]+", units.lower()):
        for length, factor in PER_ANGSTROM.items():
            if re.fullmatch(length, word):
                return factor, f"1/{word}"
    if re.search(r"angstrom|å|\ba\b", units.lower()):
        return 1.0, "1/angstrom"
    return None
