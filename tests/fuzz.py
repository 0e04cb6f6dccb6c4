"""Reads damaged files and settings: `uv run python tests/fuzz.py --cases 10000 --seed 0`.

Each case is one healthy file of a format that a reader knows, with random damage, or random settings. Files are read
from Python and by `bayesfit inspect`, saved results by `load` and `bayesfit show`; settings are taken up to where a fit
would begin. What is counted:

refused     one line, of bayesfit's own words
read        the healthy values, all of them
other       other values: damage to a text or to plain HDF5, which hold nothing by which it could be found, or a change
            that makes another valid file
silent      other values without a word, from a format that could have told: damaged bytes of .npz and .xlsx (CRC-32)
            or of a saved result (SHA-256), where what was understood is described as for the healthy file
unclear     refused, but in a library's words, or in more than one line or 1000 characters
traceback   any other exception
hang        longer than 30 s, or killed: the process has a time limit and an address space of 16 GiB

The exit code is 1 if there is any of the last four. `--case N` repeats one case and says all about it.
"""

import argparse
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import jax
import mutations
import numpy as np
import xarray as xr
from healthy_files import FORMATS
from in_process import bayesfit as cli

import bayesfit
from bayesfit.api.automatic_noise import AUTO, first_noise
from bayesfit.api.stages import Choices, prepared_together
from bayesfit.cli.options import check_names
from bayesfit.cli.steps import read_all
from bayesfit.modelling.settings import FitSettings, load_settings

LIMIT = 30  # s
SPACE = 16 * 2**30  # bytes
WRONG = ("silent", "unclear", "traceback", "hang")
OUTCOMES = ("refused", "read", "other", *WRONG)
RAW = re.compile(r"cannot read it: \w+|\b(?!pipeline)\w+(Error|Exception|Warning):")
TEXT, REDUNDANT = (".csv", ".dat", ".ASC"), (".npz", ".xlsx", ".nc")
REAL = Path(__file__).parents[2] / "shared" / "data"
SHARES = {"bytes": 0.4, "text": 0.2, "structure": 0.2, "settings": 0.2}


@dataclass(frozen=True)
class Healthy:
    """A healthy file with the files beside it, what is read of it, and how that is described."""

    files: tuple[Path, ...]
    content: xr.Dataset | xr.DataTree
    understood: str

    @property
    def path(self):
        return self.files[0]


def write_healthy(folder, result=None):
    """One file of every format, in a folder; the saved result is this one, or that of a small fit."""
    for name, write in FORMATS.items():
        write(folder / name)
    if result is None:
        result = bayesfit.fit(bayesfit.read(folder / "wide.csv"), "single_exponential", noise="scaled", draws=20)
    bayesfit.save(result, folder / "result.nc")


def read_healthy(folder):
    """What is read of all healthy files, and of some real ones where they are at hand."""
    real = [*sorted((REAL / "dls_alv_cgs3").glob("*0027_000?.ASC"))]
    found = []
    for path in [*(folder / name for name in FORMATS), *real, folder / "result.nc"]:
        twins = [path.with_stem(path.stem + "_err")] if path.stem == "wide" else []
        content = read(path)
        found.append(Healthy((path, *twins), content, content.attrs.get("understood", "")))
    return found


def read(path):
    return bayesfit.load(path) if path.suffix == ".nc" else bayesfit.read(path)


def values_of(content):
    """All numbers that were read, by name."""
    if isinstance(content, xr.DataTree):
        return {
            f"{node.path}/{name}": array.values for node in content.subtree for name, array in node.variables.items()
        }
    return {name: content[name].values for name in ("tau", "q", "g2", "g2_err", "valid")}


def same(one, other):
    """Whether the same numbers were read."""
    one, other = values_of(one), values_of(other)
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape
        and np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")
        for name in one
    )


def run_case(number, seed, healthy, folder):
    """The kind of a case, its outcome, and words on it."""
    rng = np.random.default_rng((seed, number))
    damage = str(rng.choice([*SHARES], p=[*SHARES.values()]))
    one = mutations.pick(healthy, rng)
    if damage == "text" and one.path.suffix not in TEXT:
        damage = "bytes"
    if damage == "structure" and one.path.suffix in (*TEXT, ".nc"):
        damage = "settings"
    kind = f"{damage} {one.path.suffix if damage != 'settings' else ''}".strip()
    try:
        outcome, words = _judged(damage, one, rng, folder)
    except bayesfit.BayesfitError as error:
        words = str(error)
        clear = "\n" not in words and len(words) < 1000 and not RAW.search(words)
        outcome = "refused" if clear else "unclear"
    except Exception:  # which is what is looked for
        outcome, words = "traceback", traceback.format_exc()
    return kind, outcome, words


def _judged(damage, one, rng, folder):
    """Outcome and words where nothing was refused."""
    path = mutations.copied(one.files, folder)
    if damage == "settings":
        return _settings(path, rng)
    victim = folder / mutations.pick(one.files, rng).name
    if damage == "structure":
        change = {".npz": mutations.damage_arrays, ".npy": mutations.damage_arrays, ".xlsx": mutations.damage_cells}
        change.get(path.suffix, mutations.damage_hdf5)(victim, rng)
    else:
        change = mutations.damaged_text if damage == "text" else mutations.damaged_bytes
        victim.write_bytes(change(victim.read_bytes(), rng))
    if rng.random() < 0.2:
        _told(cli("show" if path.suffix == ".nc" else "inspect", path))
    content = read(path)
    if same(content, one.content):
        return "read", ""
    said = content.attrs.get("understood", "") != one.understood
    silent = damage == "bytes" and path.suffix in REDUNDANT and not said
    return "silent" if silent else "other", content.attrs.get("understood", "")


def _told(said):
    """Check that the command line has said something: a result, or one line."""
    if said.code not in (0, 1, 2) or (said.code and (not said.err.strip() or said.err.strip().count("\n"))):
        raise AssertionError(f"exit code {said.code}: {said.err}")


def _settings(path, rng):
    """Random settings, taken up to where the fit would begin."""
    assignments = mutations.random_assignments(rng)
    config = None
    if rng.random() < 0.3:
        config = path.with_name("run.toml")
        config.write_bytes(mutations.as_toml(assignments, rng))
        assignments = []
    settings = load_settings(config, assignments)
    if path.suffix == ".nc":
        return "read", ""
    check_names(settings)
    (data,) = read_all([path], settings)
    choices = Choices(settings.model or "single_exponential", settings.priors, settings.fixed, settings.across)
    fit = FitSettings(**{name: value for name, value in settings.for_fit.items() if name in FitSettings.model_fields})
    if fit.noise == AUTO:
        fit = fit.model_copy(update={"noise": first_noise(data, choices.model, choices.named).noise})
    with jax.enable_x64(True):
        prepared_together(data, choices, fit)
    return "read", ""


def work(first, arguments, folder):
    """Run every so many cases from the `first` on, and print what comes of each; the parent sees where it ends."""
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda found: None  # of h5netcdf, which cannot end what it could not begin
    healthy, own = read_healthy(Path(folder)), Path(tempfile.mkdtemp(dir=folder))
    for number in range(first, arguments.cases, arguments.workers):
        print(json.dumps({"case": number}), flush=True)
        signal.setitimer(signal.ITIMER_REAL, LIMIT)  # ends the process, wherever it is
        kind, outcome, words = run_case(number, arguments.seed, healthy, own)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps({"case": number, "kind": kind, "outcome": outcome, "words": words[-3000:]}), flush=True)


def followed(arguments, folder):
    """What comes of each case, from worker processes; one that dies is started anew after the case that killed it."""
    started = time.monotonic()
    process, at, running = {}, {}, set(range(arguments.workers))
    for worker in running:
        process[worker], at[worker] = _started(worker, arguments, folder), worker
    while running:
        for worker in sorted(running):
            line = process[worker].stdout.readline()
            if time.monotonic() - started > arguments.seconds:
                process[worker].kill()
                running.discard(worker)
            elif line:
                told = json.loads(line)
                at[worker] = told["case"]
                if "outcome" in told:
                    yield told
            elif process[worker].wait() == 0:
                running.discard(worker)
            else:
                words = f"ended by signal {-process[worker].returncode}"
                yield {"case": at[worker], "kind": "any", "outcome": "hang", "words": words}
                process[worker] = _started(at[worker] + arguments.workers, arguments, folder)


def _started(first, arguments, folder):
    words = [
        sys.executable,
        __file__,
        *(f"--{name}={value}" for name, value in vars(arguments).items() if value is not None),
    ]
    return subprocess.Popen([*words, f"--work={first}", f"--folder={folder}"], stdout=subprocess.PIPE, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after this time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    first, given = arguments.work, arguments.folder
    arguments.work = arguments.folder = None
    if first is not None:
        return work(first, arguments, given)
    with tempfile.TemporaryDirectory() as folder:
        write_healthy(Path(folder))
        if arguments.case is not None:
            (Path(folder) / "case").mkdir()
            print(
                *run_case(arguments.case, arguments.seed, read_healthy(Path(folder)), Path(folder) / "case"), sep="\n"
            )
            return 0
        return report(followed(arguments, folder), arguments)


def report(told, arguments):
    """Print the table of outcomes, and all that must not be; the exit code."""
    counts, wrong = defaultdict(Counter), []
    for each in told:
        counts[each["kind"]][each["outcome"]] += 1
        if each["outcome"] in WRONG:
            wrong.append(each)
            print(f"case {each['case']}, {each['kind']}: {each['outcome']}: {each['words']}", flush=True)
    print(f"{'seed ' + str(arguments.seed):20}" + "".join(f"{name:>10}" for name in OUTCOMES))
    for kind in sorted(counts):
        print(f"{kind:20}" + "".join(f"{counts[kind][name]:10}" for name in OUTCOMES))
    whole = sum(counts.values(), Counter())
    print(f"{'all ' + str(whole.total()):20}" + "".join(f"{whole[name]:10}" for name in OUTCOMES))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
