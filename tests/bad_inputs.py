"""Every bad input that the design lists, one row each: how it is made, and what it must get.

`MASKED`: dropped, counted and said in its bin, and no other bin changes. `REFUSED_...`: one line before any sampling.
`FLAGGED_...`: the fit runs, and the verdict and what is printed say what is wrong (two equal rates are flagged in
`test_importance_sampling`, where a fit of them is at hand). `FINE`: it must just work.
"""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from healthy_files import DELAYS, ERR, G2, current, curves_of, long_table, write_hdf5

TAU = np.geomspace(1e-4, 1e-1, 12)  # s
Q = np.array([0.01, 0.02, 0.03])  # 1/angstrom


def arrays(**changes: Any) -> dict[str, Any]:
    """tau, g2, g2_err and q of three plain decays; a function changes an array, anything else replaces it."""
    g2 = 1 + 0.2 * np.exp(-100.0 * np.outer([1, 2, 3], TAU))
    good = {"tau": TAU.copy(), "g2": g2, "g2_err": np.full(g2.shape, 0.01), "q": Q.copy()}
    return {**good, **{name: change(good[name]) if callable(change) else change for name, change in changes.items()}}


MASKED = {  # a value, its error, and the cause for which the point is masked
    "g2 NaN": (np.nan, 0.01, "masked_value"),
    "g2 infinite": (np.inf, 0.01, "masked_value"),
    "g2 -infinite": (-np.inf, 0.01, "masked_value"),
    "sentinel -9999": (-9999.0, 0.01, "masked_value"),
    "sentinel -999": (-999.0, 0.01, "masked_value"),
    "fill value 1e20": (1e20, 0.01, "masked_value"),
    "overflow": (1e300, 0.01, "masked_value"),
    "error zero": (1.1, 0.0, "masked_error"),
    "error negative": (1.1, -0.01, "masked_error"),
    "error NaN": (1.1, np.nan, "masked_error"),
    "error infinite": (1.1, np.inf, "masked_error"),
    "error overflown": (1.1, 1e300, "masked_error"),
    "error denormal": (1.1, 1e-310, "masked_error"),
    "error denormal in single precision": (1.1, 1e-40, "masked_error"),
    "g2 and error 0": (0.0, 0.0, "masked_zero_pairs"),
    "g2 and error NaN": (np.nan, np.nan, "masked_value"),
}


class Refused(NamedTuple):
    """Arrays, the field that the one line names, and a part of it. `file`: whether a file can hold them so."""

    arrays: dict[str, Any]
    field: str
    part: str
    file: bool = True


REFUSED_ARRAYS = {
    "everything NaN": Refused(arrays(g2=lambda a: a * np.nan), "g2", "NaN"),
    "all errors zero": Refused(arrays(g2_err=lambda a: a * 0), "g2_err", "above zero"),
    "all errors NaN": Refused(arrays(g2_err=lambda a: a * np.nan), "g2_err", "above zero"),
    "no bins": Refused(arrays(g2=np.zeros((0, 12)), g2_err=np.zeros((0, 12)), q=[]), "g2", "no bins"),
    "no delays": Refused(arrays(tau=[], g2=np.zeros((3, 0)), g2_err=np.zeros((3, 0))), "tau", "(0,)"),
    "NaN delay": Refused(arrays(tau=lambda a: np.where(a == a[2], np.nan, a)), "tau", "index 2"),
    "infinite delay": Refused(arrays(tau=lambda a: np.where(a == a[2], np.inf, a)), "tau", "index 2"),
    "negative delay": Refused(arrays(tau=lambda a: np.where(a == a[2], -1, a)), "tau", "index 2"),
    "masked delay": Refused(arrays(tau=lambda a: np.ma.masked_equal(a, a[2])), "tau", "index 2", file=False),
    "delays in two axes": Refused(arrays(tau=lambda a: a[None]), "tau", "(1, 12)"),
    "negative q": Refused(arrays(q=[0.01, -0.02, 0.03]), "q", "bin 1"),
    "infinite q": Refused(arrays(q=[0.01, 0.02, np.inf]), "q", "bin 2"),
    "infinite phi": Refused(arrays(phi=[np.inf, 0.0, 0.0]), "phi", "bin 0"),
    "too few q": Refused(arrays(q=[0.01, 0.02]), "q", "(3,)"),
    "too many phi": Refused(arrays(phi=[0.0] * 4), "phi", "(3,)"),
    "transposed g2": Refused(arrays(g2=lambda a: a.T, g2_err=lambda a: a.T), "g2", "transposed: pass g2.T", file=False),
    "transposed errors": Refused(arrays(g2_err=lambda a: a.T), "g2_err", "(12, 3)"),
    "three-dimensional g2": Refused(arrays(g2=lambda a: a[None]), "g2", "axes (q_bin, tau)"),
    "g2 that is one number": Refused(arrays(g2=1.1), "g2", "axes (q_bin, tau)"),
    "too few delays": Refused(arrays(tau=lambda a: a[:-1]), "g2", "11 delays"),
    "one error for all": Refused(arrays(g2_err=0.01), "g2_err", "shape ()"),
    "complex g2": Refused(arrays(g2=lambda a: a + 1j), "g2", "complex128"),
    "complex tau": Refused(arrays(tau=lambda a: a + 1j), "tau", "complex128"),
    "strings": Refused(arrays(g2=lambda a: a.astype(str)), "g2", "real numbers"),
    "string errors": Refused(arrays(g2_err=lambda a: a.astype(str)), "g2_err", "real numbers"),
    "string q": Refused(arrays(q=["a", "b", "c"]), "q", "real numbers"),
    "objects": Refused(arrays(g2=lambda a: a.astype(object)), "g2", "object"),
    "truth values": Refused(arrays(g2=lambda a: a > 1), "g2", "bool"),
    "dates": Refused(arrays(tau=np.arange(12).astype("M8[s]")), "tau", "datetime64"),
    "rows of different lengths": Refused(arrays(g2=[[1.0, 2.0], [1.0]]), "g2", "Pad short rows", file=False),
    "nothing": Refused(arrays(g2=None), "g2", "object"),
}


def content(raw: bytes) -> Callable[[Path], Path]:
    """A file of these bytes."""

    def write(folder: Path) -> Path:
        (folder / "data").write_bytes(raw)
        return folder / "data"

    return write


def link(to: str, name: str = "link", fifo: bool = False) -> Callable[[Path], Path]:
    """A symbolic link, also to a pipe beside it."""

    def make(folder: Path) -> Path:
        if fifo:
            os.mkfifo(folder / to)
        (folder / name).symlink_to(to)
        return folder / name

    return make


def hdf5(contents: dict[str, Any]) -> Callable[[Path], Path]:
    """An HDF5 file of these datasets."""
    return lambda folder: write_hdf5(folder / "data.hdf", contents)


def absent(name: str) -> Callable[[Path], Path]:
    """A path where nothing is."""
    return lambda folder: folder / name


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def inside_a_file(folder: Path) -> Path:
    (folder / "plain").write_text("x")
    return folder / "plain" / "inside"


REFUSED_FILES = {  # what makes the file, and a part of the one line
    "empty": (content(b""), "is empty"),
    "zeros": (content(bytes(10_000)), "zeros"),
    "web page": (content(b"\n<!DOCTYPE html>\n<html><body>Log in</body></html>"), "web page"),
    "web page with a byte order mark": (content(b"\xef\xbb\xbf<!doctype html><p>"), "web page"),
    "web page that begins with a comment": (content(b"<!-- x --><html>"), "web page"),
    "page without doctype": (content(b"<HTML><head>"), "web page"),
    "xml": (content(b'<?xml version="1.0"?><a/>'), "web page"),
    "Git-LFS pointer": (
        content(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        "Git-LFS pointer",
    ),
    "pickle": (content(pickle.dumps({"g2": [1.0]})), "pickles are never loaded"),
    "noise": (content(np.random.default_rng(1).bytes(5000)), "no pipeline recognises it"),
    "prose": (content(b"Dear all,\nplease find attached the data.\n"), "no pipeline recognises it"),
    "one number": (content(b"1"), "no pipeline recognises it"),
    "blank lines": (content(b"\n\n\n"), "no pipeline recognises it"),
    "HDF5 signature alone": (content(b"\x89HDF\r\n\x1a\n"), "cannot be opened"),
    "HDF5 signature and zeros": (content(b"\x89HDF\r\n\x1a\n" + bytes(4000)), "cannot be opened"),
    "ALV without data": (content(b"ALV-7004/USB\r\nRuns : 1\r\n"), 'dls_alv: no block "Correlation"'),
    "unknown layout": (hdf5({G2: np.ones((3, 2))}), f"aps_8idi: no {ERR}, and no exchange/norm-0-g2"),
    "missing dataset": (hdf5(current(**{DELAYS: None})), f"aps_8idi: no {DELAYS}"),
    "dataset of strings": (hdf5(current(**{G2: np.full((8, 4), b"1.0")})), f"{G2}: expected real numbers"),
    "dataset that is a group": (hdf5(current(**{G2: None, f"{G2}/x": 1})), f"{G2}: is a group"),
    "transposed dataset": (hdf5(current(**{G2: curves_of(4).T, ERR: np.ones((4, 8))})), "it is transposed"),
    "a word for a number": (content(long_table().replace(",0.01\n", ",oops\n", 1).encode()), "is not a number"),
    "folder": (lambda folder: folder, "is a folder"),
    "pipe": (fifo, "is not a regular file"),
    "link to a pipe": (link("pipe", fifo=True), "is not a regular file"),
    "device": (lambda folder: Path("/dev/null"), "is not a regular file"),
    "dangling link": (link("nowhere"), "the link points nowhere"),
    "looping link": (link("loop", "loop"), "symbolic links"),
    "no such file": (absent("none"), "no such file"),
    "path through a file": (inside_a_file, "not a directory"),
    "name too long": (absent("x" * 300), "name too long"),
    "null byte": (absent("a\0b"), "null"),
}


class Setting(NamedTuple):
    """A wrong setting: arguments of `bayesfit.fit`, None where Python itself refuses them; options of `bayesfit run`;
    parts of the one line."""

    python: dict[str, Any] | None
    options: tuple[str, ...]
    parts: tuple[str, ...]


def assigned(*assignments: str) -> tuple[str, ...]:
    return tuple(word for assignment in assignments for word in ("--set", assignment))


SETTINGS = {
    "unknown key": Setting(None, assigned("drows=3"), ("drows: unknown setting", "Did you mean 'draws'?")),
    "unknown key of a table": Setting(None, assigned("fixd.beta=1"), ("fixd", "Did you mean 'fixed'?")),
    "key set twice": Setting(None, assigned("draws=100", "draws=200"), ("draws: set twice",)),
    "key without a value": Setting(None, assigned("draws"), ("Write --set key=value",)),
    "negative count": Setting({"draws": -3}, assigned("draws=-3"), ("draws: ", "-3")),
    "no chains": Setting({"chains": 0}, assigned("chains=0"), ("chains: ", "0")),
    "count that is NaN": Setting({"draws": float("nan")}, assigned("draws=nan"), ("draws: ", "nan")),
    "boolean count": Setting({"draws": True}, assigned("draws=true"), ("draws: ", "True")),
    "fraction of a count": Setting({"warmup": 20.5}, assigned("warmup=20.5"), ("warmup: ", "20.5")),
    "count as text": Setting({"chains": "4"}, assigned("chains='4'"), ("chains: ", "'4'")),
    "huge count": Setting({"draws": 10**12}, assigned("draws=1000000000000"), ("draws: ", "1000000")),
    "negative seed": Setting({"seed": -1}, assigned("seed=-1"), ("seed: ", "-1")),
    "NaN target": Setting({"target_ess": float("nan")}, assigned("target_ess=nan"), ("target_ess: ",)),
    "infinite target": Setting({"target_ess": float("inf")}, assigned("target_ess=inf"), ("target_ess: ",)),
    "values for other bins": Setting(
        {"fixed": {"beta": [1.0, 1.0]}}, assigned("fixed.beta=[1.0, 1.0]"), ("2 values for 3 bins",)
    ),
    "prior that lacks a value": Setting(
        {"priors": {"rate": "Normal(0)"}}, assigned("priors.rate=Normal(0)"), ("needs 'scale'",)
    ),
    "name that Python uses": Setting(None, assigned("self=1"), ("self: unknown setting",)),
    "setting of averages": Setting(None, assigned("level=0.1"), ("level: is of averages",)),
    "no settings file": Setting(None, ("--config", "absent.toml"), ("absent.toml: no such file",)),
    "output in the place of a file": Setting(None, ("-o", "fit.nc"), ("is the folder in which each file has its",)),
    "impossible prior": Setting(
        {"priors": {"rate": "Normal(1, -1)"}}, assigned("priors.rate=Normal(1, -1)"), ("priors.rate: impossible prior",)
    ),
    "unknown prior family": Setting(
        {"priors": {"rate": "Norml(1, 1)"}}, assigned("priors.rate=Norml(1, 1)"), ("Did you mean 'Normal'?",)
    ),
    "prior that is no prior": Setting(
        {"priors": {"rate": "__import__('os')"}}, assigned("priors.rate=__import__('os')"), ("priors.rate: ",)
    ),
    "prior of NaN": Setting(
        {"priors": {"rate": {"family": "Normal", "loc": float("nan"), "scale": 1.0}}},
        assigned("priors.rate={family='Normal', loc=nan, scale=1.0}"),
        ("priors.rate.loc: expected a finite number",),
    ),
    "unknown parameter": Setting({"fixed": {"rats": 1.0}}, assigned("fixed.rats=1"), ("Did you mean 'rate'?",)),
    "unknown parameter of a prior": Setting(
        {"priors": {"xyz": "Normal(1, 1)"}},
        assigned("priors.xyz=Normal(1, 1)"),
        ("Known: baseline, beta, contrast, error_scale, rate",),
    ),
    "fixed outside its support": Setting({"fixed": {"beta": 9.0}}, assigned("fixed.beta=9"), ("outside what the",)),
    "fixed at NaN": Setting({"fixed": {"beta": float("nan")}}, assigned("fixed.beta=nan"), ("fixed.beta: ", "finite")),
    "unknown model": Setting({"model": "xyz"}, ("--model", "xyz"), ("unknown model 'xyz'. Known: cumulant, double_",)),
    "nearly a model": Setting({"model": "kumulant"}, ("--model", "kumulant"), ("Did you mean 'cumulant'?",)),
    "unknown noise": Setting({"noise": "scale"}, ("--noise", "scale"), ("Did you mean 'scaled'?",)),
    "unknown pipeline": Setting(None, ("--pipeline", "aps"), ("unknown pipeline 'aps'",)),
    "negative delay": Setting(None, assigned("tau_min=-1"), ("tau_min: ", "-1")),
    "delay that is NaN": Setting(None, assigned("tau_max=nan"), ("tau_max: ", "nan")),
}
TOML = {  # text of a settings file, and a part of the one line
    "key doubled": ("chains = 2\nchains = 3", "not valid TOML"),
    "unknown key": ("drows = 3", "drows: unknown setting. Did you mean 'draws'"),
    "no table": ("fixed = 3", "fixed"),
    "not text": ("\x00\x01", "not valid TOML"),
    "brackets without end": ("a = " + "[" * 100_000, "not valid TOML"),
}

MODEL = """
import jax.numpy as jnp, numpyro, numpyro.distributions as dist
from bayesfit import Model
def program({arguments}):
    rate = numpyro.sample("rate", dist.LogUniform(0.1, 10.0))
    {more}
    return {value}
model = Model("mine", program)
"""
DECAY = "jnp.exp(-2.0 * rate * tau)"


def site(name: str, prior: str = "dist.Normal(0.0, 1.0)") -> dict[str, str]:
    """A program with one more site."""
    return {"more": f'x = numpyro.sample("{name}", {prior})', "value": f"{DECAY} * (1 + 0 * jnp.sum(x))"}


MODELS = {  # lines of a user's model, and a part of the one line, which names the model
    "raises": ({"more": "raise RuntimeError('two\\nlines')"}, "RuntimeError: two lines"),
    "raises while traced": ({"value": "jnp.exp(-tau) if rate > 1 else jnp.exp(-2 * tau)"}, "`if`"),
    "discrete site": (site("n", "dist.Poisson(3.0)"), "'n' is discrete"),
    "improper site": (site("x", "dist.ImproperUniform(dist.constraints.real, (), ())"), "improper"),
    "site sampled twice": (site("rate"), "rate"),
    "vector": (site("x", "dist.Normal(jnp.zeros(3), 1.0)"), "'x' has shape"),
    "event": (site("x", "dist.Dirichlet(jnp.ones(3))"), "'x' has shape"),
    "plate": (
        {"more": 'with numpyro.plate("layers", 3): x = numpyro.sample("x", dist.Normal(0, 1))'},
        "'x' has shape",
    ),
    "another argument": ({"arguments": "tau, more"}, "the program raises TypeError"),
    "observed site": ({"more": 'numpyro.sample("extra", dist.Normal(0, 1), obs=0.3)'}, "observes 'extra'"),
    **{
        f"reserved name {name}": (site(name), f"'{name}' is reserved")
        for name in ("chain", "draw", "q_bin", "tau", "contrast")
    },
    "name of the noise model's": (site("error_scale", "dist.HalfNormal(1)"), "'error_scale'"),
    "name with a slash": (site("a/b"), "'a/b'"),
    "name with a blank": (site("a b"), "'a b'"),
    "no parameter": ({"more": "", "value": "jnp.exp(-tau)", "rate": ""}, "samples no parameter"),
    "NaN": ({"value": f"{DECAY} * jnp.nan"}, "returns NaN or infinity at every prior draw"),
    "one number": ({"value": "rate"}, "returns shape ()"),
    "too long": ({"value": "jnp.exp(-rate * jnp.concatenate([tau, tau]))"}, "returns shape (96,)"),
    "a column": ({"value": f"({DECAY})[:, None]"}, "returns shape (48, 1)"),
    "nothing": ({"value": "None"}, "returns nothing"),
    "a pair": ({"value": f"({DECAY}, 1)"}, "returns a tuple"),
}


def model_text(lines: dict[str, str]) -> str:
    """The text of a user's model file."""
    text = MODEL.format(**{"more": "pass", "value": DECAY, "arguments": "tau", **lines})
    return "\n".join(line for line in text.splitlines() if "rate" not in lines or '"rate"' not in line)


DELAYS_61, ERROR = np.geomspace(1e-3, 1e2, 61), 2e-3
FEW = np.arange(61) < 3


def decay(rate: float = 1.0, contrast: float = 0.15, beta: float = 0.9) -> np.ndarray:
    return 1.0 + contrast * np.exp(-2 * (rate * DELAYS_61) ** beta)


class Flagged(NamedTuple):
    """A curve without noise, its stated errors over the true ones, the verdict, and a part of its reason."""

    curve: np.ndarray
    verdict: str
    part: str = ""
    stated: float = 1.0
    noise: float = 1.0


FLAGGED = {
    "good": Flagged(decay(), "ok"),
    "good, too": Flagged(decay(0.5), "ok"),
    "q = 0": Flagged(decay(2.0), "ok"),
    "g2 - 1 given for g2": Flagged(decay() - 1, "prior_conflict", "g2 - 1 given for g2?"),
    "errors too large": Flagged(decay(), "ok", stated=1e3),
    "errors too small": Flagged(decay(), "ok", stated=1e-3),
    "one huge outlier": Flagged(decay() + 0.5 * (np.arange(61) == 45), "misfit", f"tau = {DELAYS_61[45]:.3g} s"),
    "flat": Flagged(decay(contrast=0.0), "not_identified", "contrast"),
    "decay after the window": Flagged(decay(1e-5), "not_identified", "the data hardly narrow the prior"),
    "decay before the window": Flagged(decay(1e6), "not_identified", "the data hardly narrow the prior"),
    "negative contrast": Flagged(decay(contrast=-0.1), "misfit", "the curve rises"),
    "two far decays": Flagged(decay(0.02, beta=1.5) + decay(200.0, beta=1.5) - 1, "misfit", "neighbouring residuals"),
    "heterodyne beat": Flagged(1 + (decay() - 1) * np.cos(5 * DELAYS_61), "misfit", "neighbouring residuals correlate"),
    "oscillation": Flagged(
        1 + (decay() - 1) * (1 + 0.3 * np.cos(2 * np.log(DELAYS_61))), "misfit", "neighbouring residuals correlate"
    ),
    "strongly correlated noise": Flagged(decay(), "misfit", "try noise 'correlated'", noise=0.0),
    "errors of 1e-9 on exact data": Flagged(decay(), "misfit", "these data hold none", stated=5e-7, noise=0.0),
    "overflow": Flagged(1e300 * decay(), "unusable_data", "no valid points", noise=0.0),
    "no point": Flagged(np.full(61, np.nan), "unusable_data", "no valid points"),
    "one point": Flagged(np.where(np.arange(61) == 7, decay(), np.nan), "unusable_data", "1 valid points"),
    "fewer points than parameters": Flagged(np.where(FEW, decay(), np.nan), "unusable_data", "3 valid points for 4"),
    "masked points beside good ones": Flagged(np.where(np.arange(61) % 9 == 4, np.inf, decay()), "ok"),
}


def flagged_curves() -> dict[str, np.ndarray]:
    """tau, g2, g2_err and q of the bins of `FLAGGED`."""
    rng = np.random.default_rng(6)
    correlated = np.zeros(61)
    for place, step in enumerate(rng.standard_normal(61)):
        correlated[place] = 0.9 * correlated[place - 1] + np.sqrt(1 - 0.9**2) * step
    noise = {name: row.noise * rng.standard_normal(61) for name, row in FLAGGED.items()}
    noise["strongly correlated noise"] = correlated
    g2 = np.array([row.curve + ERROR * noise[name] for name, row in FLAGGED.items()])
    g2_err = np.array([np.full(61, ERROR * row.stated) for row in FLAGGED.values()])
    q = np.linspace(0.01, 0.05, len(g2))
    return {"tau": DELAYS_61, "g2": g2, "g2_err": g2_err, "q": np.where(np.array([*FLAGGED]) == "q = 0", 0.0, q)}


FLAGGED_UNITS = {  # factors of tau and q, what is subtracted from g2, and what is said of the table
    "tau in microseconds": (1e6, 1.0, 0.0, "s are not usual: for another unit --set units.tau=us"),
    "q in 1/nm": (1.0, 300.0, 0.0, "1/angstrom is not usual: for another unit --set units.q=1/nm"),
    "units not stated": (1.0, 1.0, 0.0, "(read in s, assumed: not stated)"),
    "g2 - 1 given for g2": (1.0, 1.0, 1.0, "values end near 0, not 1: where they are g2 - 1, --set units.g2=g2-1"),
}

ORDER = np.random.default_rng(3).permutation(TAU.size)
FINE = {  # arrays that must give the same record as the good ones
    "unsorted delays": arrays(tau=lambda a: a[ORDER], g2=lambda a: a[:, ORDER], g2_err=lambda a: a[:, ORDER]),
    "big-endian": arrays(**dict.fromkeys(("tau", "g2", "g2_err", "q"), lambda a: a.astype(">f8"))),
    "masked array with nothing masked": arrays(g2=lambda a: np.ma.array(a, mask=False)),
}
