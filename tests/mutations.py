"""Random damage to files and settings: to bytes, to words of a text, to datasets of HDF5, to arrays, to cells."""

import os
import re
from pathlib import Path

import h5py
import numpy as np

WORDS = [
    *(
        "",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-1e-999",
        "-1",
        "0",
        "-0",
        "1e300",
        "9" * 400,
        "0x1F",
        "1_000",
        "1,5",
        "1.2.3",
    ),
    *(
        "٣",
        "１",
        "½",
        "True",
        "None",
        "null",
        "#N/A",
        "-9999",
        "1d5",
        "1+2j",
        "tau",
        "g2",
        "q",
        "err",
        "q=0.1",
        "[1/nm]",
    ),
    *(
        "(",
        "]",
        '"',
        "'",
        ";",
        ",",
        "\t",
        "#",
        "%",
        "=",
        "=1+1",
        "{}",
        "%s",
        "../x",
        "\x00",
        "\ufeff",
        "\u202e",
        "é" * 50,
    ),
    *("angle", "wavelength = 633 nm", "tau [hours]", "q [1/furlong]", "g2 - 1", "ALV", "<html>", "\u2028", "\x85"),
]
WHOLE = [0, 1, 0x7F, 0xFF, 0x7FFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF]
VALUES = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e-320, 1e300, -9999.0]
KINDS = ["i1", "u8", "f2", "f4", ">f8", "c8", "?", "S4", "f8"]


def a_slice(size, rng, longest=64):
    """A random part of so many items, of one or more."""
    start = int(rng.integers(0, max(size, 1)))
    return slice(start, start + int(rng.integers(1, longest + 1)))


def pick(options, rng):
    """One of some options."""
    return options[int(rng.integers(len(options)))]


def damaged_bytes(raw, rng):
    """Bytes with one to three random faults."""
    for _ in range(pick([1, 1, 1, 2, 3], rng)):
        raw = pick(BYTES, rng)(bytearray(raw), rng)
    return bytes(raw)


def _flipped(raw, rng):
    for place in rng.integers(0, max(len(raw), 1), int(rng.integers(1, 5))) if raw else ():
        raw[place] ^= 1 << int(rng.integers(8))
    return raw


def _overwritten(raw, rng):
    part = a_slice(len(raw), rng)
    count = len(raw[part])
    raw[part] = pick([bytes(count), b"\xff" * count, rng.bytes(count), b" " * count], rng)
    return raw


def _removed(raw, rng):
    del raw[a_slice(len(raw), rng, 256)]
    return raw


def _inserted(raw, rng):
    place = int(rng.integers(0, len(raw) + 1))
    return raw[:place] + bytearray(rng.bytes(int(rng.integers(1, 64)))) + raw[place:]


def _doubled(raw, rng):
    part = a_slice(len(raw), rng, 256)
    return raw[: part.stop] + raw[part] + raw[part.stop :]


def _cut(raw, rng):
    return raw[: int(rng.integers(0, len(raw) + 1))]


def _counted_wrong(raw, rng):
    """A number in binary, such as a length or an address, is another one."""
    size = pick([1, 2, 4, 8], rng)
    place = int(rng.integers(0, max(len(raw) - size, 1)))
    raw[place : place + size] = (pick(WHOLE, rng) % 256**size).to_bytes(size, pick(["little", "big"], rng))
    return raw


BYTES = [_flipped, _flipped, _overwritten, _removed, _inserted, _doubled, _cut, _counted_wrong]


def damaged_text(raw, rng):
    """A text with one to three words, lines or separators changed."""
    text = raw.decode("latin-1")
    for _ in range(pick([1, 1, 1, 2, 3], rng)):
        text = pick([_word, _word, _word, _line, _separators, _letters], rng)(text, rng)
    return text.encode("utf-8" if rng.random() < 0.5 else "latin-1", errors="replace")


def _word(text, rng):
    words = list(re.finditer(r"[^\s,;\"]+", text))
    if not words:
        return pick(WORDS, rng)
    found = pick(words[:20] if rng.random() < 0.3 else words, rng)
    return text[: found.start()] + pick(WORDS, rng) + text[found.end() :]


def _line(text, rng):
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    part = a_slice(len(lines), rng, 4)
    other = int(rng.integers(0, len(lines)))
    change = int(rng.integers(5))
    if change == 0:
        del lines[part]
    elif change == 1:
        lines[part] = lines[part] * 2
    elif change == 2:
        lines[part] = lines[part][::-1]
    elif change == 3:
        lines[other], lines[part.start] = lines[part.start], lines[other]
    else:
        lines.insert(other, pick(WORDS, rng) * int(rng.integers(1, 300)) + "\n")
    return "".join(lines)


def _separators(text, rng):
    old, new = (
        pick([",", "\n", " ", ".", "\t", "e"], rng),
        pick([",", ";", "\t", " ", "|", "\r", ",,", "", "\n\n"], rng),
    )
    return text.replace(old, new, int(rng.integers(1, 200)))


def _letters(text, rng):
    place = int(rng.integers(0, len(text) + 1))
    return text[:place] + chr(int(rng.integers(1, 0x2FF))) + text[place + int(rng.integers(0, 2)) :]


def damage_hdf5(path, rng):
    """Change one dataset, link or attribute of an HDF5 file in its place."""
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        name = pick(names, rng)
        array, new = file[name][()], None
        change = int(rng.integers(9))
        if change == 0:
            file[name].attrs[pick(["units", "storage_mode", "baseline_reference"], rng)] = pick(_attributes(), rng)
            return
        del file[name]
        if change == 1:
            file.create_group(name)
        elif change == 2:
            file[name] = pick(
                [h5py.SoftLink("/nowhere"), h5py.SoftLink("/" + name), h5py.ExternalLink("x.h5", "/a")], rng
            )
        elif change == 3:
            _declare(file, name, rng)
        elif change in (4, 5):
            new = _reshaped(np.asarray(array), rng)
        elif change == 6:
            new = _retyped(np.asarray(array), rng)
        elif change == 7:
            new = _revalued(np.asarray(array), rng)
        if new is not None:
            file[name] = new


def _attributes():
    return [b"\xff\xfe", "", "hours", np.nan, np.arange(3), h5py.Empty("f4"), "one_array_q_first", "x" * 1000, -1, 0]


def _declare(file, name, rng):
    """A dataset of a shape that is declared and not filled."""
    shape = pick([(8, 10**11), (10**12,), (0,), (8, 0), (3, 3, 3), (2**40, 2**20)], rng)
    chunks = tuple(min(64, max(side, 1)) for side in shape)
    file.create_dataset(name, shape, pick(["f4", "f8", "S100", "i8"], rng), chunks=chunks if 0 not in shape else None)


def _reshaped(array, rng):
    changes = [
        array.T,
        array[None],
        array.ravel(),
        array.ravel()[:1].reshape(()) if array.size else array,
        np.ravel(array)[:-1],
        np.concatenate([np.ravel(array)] * 2),
        array[..., None],
        array[:0] if array.ndim else np.zeros(0),
    ]
    return pick(changes, rng)


def _retyped(array, rng):
    kind = pick(KINDS, rng)
    try:
        with np.errstate(all="ignore"):
            return array.astype(kind)
    except (ValueError, TypeError):
        return np.zeros(array.shape, kind)


def _revalued(array, rng):
    if array.dtype.kind not in "fiu" or not array.size:
        return array
    new = np.array(array, float)
    new.flat[a_slice(new.size, rng, new.size)] = pick(VALUES, rng)
    return new


def damage_arrays(path, rng):
    """Change one array of an .npz file, or the header of an .npy file."""
    if path.suffix == ".npy":
        raw = path.read_bytes()
        header = pick([b"'fortran_order': True ", b"'fortran_order': 7    ", b"'fortran_order': False"], rng)
        shape = pick([b"(99999999999, 17)", b"(0, 4)", b"(17,)", b"(-1, 4)", b"(1e9,)", b"__import__('os')"], rng)
        raw = raw.replace(b"'fortran_order': False", header)
        path.write_bytes(re.sub(rb"\(17, 4\)", lambda _: shape, raw))
        return
    with np.load(path) as loaded:
        arrays = dict(loaded)
    name = pick([*arrays], rng)
    array = arrays.pop(name)
    change = int(rng.integers(6))
    if change == 1:
        arrays[pick(["x", "tau_us", "g2 - 1", "a/../b", "error", ""], rng)] = array
    elif change > 1:
        arrays[name] = pick([_reshaped, _retyped, _revalued], rng)(array, rng)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def damage_cells(path, rng):
    """Change cells of a workbook."""
    import openpyxl

    book = openpyxl.load_workbook(path)
    sheet = book.active
    for _ in range(int(rng.integers(1, 4))):
        row, column = int(rng.integers(1, sheet.max_row + 2)), int(rng.integers(1, sheet.max_column + 2))
        word = pick([*(w for w in WORDS if w.isprintable()), True, None, 1e300, -1, 0], rng)
        sheet.cell(row, column).value = word
    if rng.random() < 0.1:
        sheet.cell(1_048_576, 16_384).value = 1.0
    elif rng.random() < 0.2:
        pick([sheet.delete_rows, sheet.delete_cols, sheet.insert_rows], rng)(int(rng.integers(1, 4)))
    if rng.random() < 0.2:
        book.create_sheet(pick(["err", "data", "x" * 31], rng)).append([1.0, 2.0])
    book.save(path)


KEYS = (
    *("noise", "chains", "draws", "warmup", "target_ess", "seed", "target_accept", "include", "method", "model"),
    *("pipeline", "skip_first", "tau_min", "tau_max", "columns.tau", "units.tau", "units.q", "units.g2", "layout"),
    *("sheet", "optics.wavelength", "optics.angle", "priors.rate", "priors.beta", "priors.baseline", "fixed.beta"),
    *("fixed.rate", "across.rate", "across.beta", "specimen.temperature", "specimen.viscosity", "specimen.radius"),
    *(
        "together",
        "names",
        "sequential_prior",
        "level",
        "sample",
        "carry",
        "model.name",
        "model.table",
        "",
        ".",
        "a.b.c",
    ),
)
GIVEN = (
    *(
        "0",
        "1",
        "-1",
        "3",
        "1e400",
        "nan",
        "inf",
        "true",
        "''",
        "'x'",
        "[]",
        "[1, 2, 3]",
        "[0.1, nan]",
        "{}",
        "{a = 1}",
    ),
    *("scaled", "auto", "photons", "nuts", "svi", "series", "average", "ms", "1/nm", "'0.005 s'", "long", "diffusion"),
    *(
        "Normal(0, 1)",
        "Normal(1)",
        "LogNormal(0, -1)",
        "Uniform(2, 1)",
        "Normal(nan, 1)",
        "Normal(1, 1, 1)",
        "Normal(((",
    ),
    *(
        "{family = 'Normal', loc = 1, scale = [1, 2]}",
        "{family = 3}",
        "shared",
        "pooled",
        "{kind = 'shared', by = 'x'}",
    ),
    *("cumulant", "master_curve", "water", "9" * 500, "1979-05-27", "[[1], [2]]", "__import__('os').system('true')"),
    *(
        "-" * 5000 + "1",
        "(" * 500,
        "[" * 5000,
        "Normal(" + "-" * 5000 + "1, 1)",
        "../../x.py",
        "/dev/null",
        "~/x.py",
        "\x00",
    ),
)


PRIORS = ("Normal(1, 0.1)", "LogNormal(0, 2)", "Uniform(0.1, 1.9)", "{family = 'Normal', loc = 1, scale = 0.1}")
SUITED = {  # values that settings may have
    "priors.rate": PRIORS,
    "priors.beta": PRIORS,
    "priors.baseline": PRIORS,
    "fixed.beta": ("1", "0.9", "[1, 1, 0.9]"),
    "fixed.rate": ("1", "[1, 2, 3]"),
    "across.rate": ("shared", "diffusion", "pooled", "smooth", "{kind = 'shared', by = 'q_bin'}", "power_law"),
    "across.beta": ("shared", "pooled"),
    "specimen.temperature": ("298.15", "Normal(298, 0.1)"),
    "specimen.viscosity": ("water", "8.9e-4", "LogNormal(-7, 0.1)"),
    "model": ("stretched_exponential", "cumulant", "double_exponential", "master_curve", "{name = 'cumulant'}"),
    "noise": ("scaled", "stated", "smooth", "robust", "correlated", "speckle", "inferred"),
    "draws": ("100", "4"),
    "seed": ("7",),
    "skip_first": ("1", "15", "16"),
    "tau_min": ("0.01", "[0.01, 0.02, 0]"),
    "tau_max": ("1", "0", "1e-9"),
    "units.tau": ("ms", "0.005 s", "min"),
    "units.g2": ("g2 - 1", "g2"),
    "include": ("[log_likelihood]", "prior"),
}


def random_assignments(rng):
    """Some `key=value` of a command line, of which parts may be damaged."""
    made = []
    for _ in range(int(rng.integers(1, 4))):
        key, value = pick(KEYS, rng), pick(GIVEN, rng)
        if rng.random() < 0.75:
            key = pick([*SUITED], rng)
            made.append(f"{key}={pick(SUITED[key] if rng.random() < 0.85 else GIVEN, rng)}")
            continue
        if rng.random() < 0.2:
            key = _letters(key, rng)
        if rng.random() < 0.2:
            value = _word(value, rng)
        made.append(f"{key}{'=' if rng.random() < 0.97 else ''}{value}")
    return made


def as_toml(assignments, rng):
    """Assignments as a settings file, some of them damaged."""
    text = "\n".join(assignment.replace("=", " = ", 1) for assignment in assignments)
    return damaged_text(text.encode(), rng) if rng.random() < 0.3 else text.encode(errors="replace")


def copied(sources, folder):
    """A folder of its own for one case, with the files that belong together."""
    for old in folder.iterdir():
        if old.is_file() or old.is_symlink():
            os.unlink(old)
    for source in sources:
        (folder / source.name).write_bytes(source.read_bytes())
    return Path(folder) / sources[0].name
