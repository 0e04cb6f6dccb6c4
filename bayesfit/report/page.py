"""What the report of a result shows, as lists and numbers: bins, parameters, laws, and where it all comes from."""

from __future__ import annotations

import json
import shlex
from typing import Any

import numpy as np
import xarray as xr

from bayesfit.modelling.settings import HARDWARE, RunSettings
from bayesfit.report.colours import LOOKS, limits, look_of
from bayesfit.result.datasets import is_series
from bayesfit.result.summary import advice, common_rows, interval_of_bins, of_bins, tally, wrong_errors

DRAWS = 160  # of each parameter of a bin, evenly thinned
DIGITS = 6
DRAWS_DIGITS = 6
MASSES = (0.68, 0.95)
FOLLOWED = ("D", "rate")  # from file to file: the first that all have
NOISE_CHECKS = ("p_chi2", "p_correlation", "p_tails", "p_trend")
CHECKS = ("r_hat", "ess_bulk", "ess_tail", "divergences", *NOISE_CHECKS)

Json = dict[str, Any]


def page_of(result: xr.DataTree) -> Json:
    """Everything that the page of one fit shows."""
    names = of_bins(result)
    tau = result["observed_data"].tau.values
    return {
        "title": result.attrs.get("input_file") or "curves",
        "tau": rounded(tau),
        "log_tau": bool(np.all(tau > 0)) or bool(result.attrs.get("data_delays", 1)),
        "labels": ["τ [s]", "g₂"] if result.attrs.get("data_delays", 1) else ["x", "y"],
        "looks": {name: {"colour": look.colour, "sign": look.sign} for name, look in LOOKS.items()},
        "headline": headline(tally(result)) + _together(result),
        "verdicts": tally(result),
        "sentences": sentences(result),
        "parameters": [_parameter(result, name) for name in names],
        "bins": _bins(result, names),
        "common": _common(result),
        "laws": _laws(result),
        "about": about(result),
        "command": command(result),
    }


def headline(counts: dict[str, int]) -> str:
    """The number of bins with each verdict, in one sentence."""
    total, fine = sum(counts.values()), counts.get("ok", 0)
    others = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if name != "ok")
    return f"{fine} of {total} {'bin' if total == 1 else 'bins'} ok" + (f", {others}" if others else "")


def _together(result: xr.DataTree) -> str:
    """The verdict on what the bins have in common, if they have."""
    return f"; together {result['across'].joint_verdict.item()}" if "across" in result else ""


def sentences(result: xr.DataTree) -> list[str]:
    """What is to be said of all bins together: why bins are not ok, the noise, the errors, what to try, the law."""
    said = [f"{count} × {reason}" for reason, count in reasons(result)[:4]]
    _, _, data = str(result.attrs.get("understood", "")).partition("\n")
    said += [words for words in (result.attrs.get("noise_chosen"), wrong_errors(result), advice(result), data) if words]
    if "across" in result:
        across = result["across"].dataset
        said.append(f"all bins together: {across.joint_verdict.item()}: {across.joint_reason.item()}")
    return said


def reasons(result: xr.DataTree) -> list[tuple[str, int]]:
    """The reasons why bins are not "ok", without their numbers, and how many bins each holds for, most frequent
    first."""
    checks, counts = result["diagnostics"].dataset, dict[str, int]()
    for verdict, reason in zip(checks.verdict.values, checks.reason.values, strict=True):
        if verdict != "ok":
            kind = f"{verdict}: {str(reason).split(';')[0].split('(')[0].strip()}"
            counts[kind] = counts.get(kind, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def rounded(values: Any, digits: int = DIGITS) -> Any:
    """Nested lists of numbers, or one number, with so many digits, None where they are not finite."""
    array = np.asarray(values, float)
    known = np.isfinite(array)
    size = np.abs(np.where(known & (array != 0.0), array, 1.0))
    places = digits - 1 - np.floor(np.log10(size))  # after the point
    up, down = 10.0 ** np.clip(places, 0, 300), 10.0 ** np.clip(-places, 0, 300)
    near = np.round(np.where(known, array, 0.0) * up / down) * down / up
    nested = np.asarray(near, object)
    nested[~known] = None
    return nested.tolist()


def _parameter(result: xr.DataTree, name: str) -> Json:
    array = result["posterior"].dataset[name]
    units = array.attrs.get("units", "1")
    return {
        "name": name,
        "unit": "" if units in ("1", "") else units,
        "about": array.attrs.get("long_name", ""),
        "interval": {str(mass): rounded(interval_of_bins(array, mass).T) for mass in MASSES},
    }


def _bins(result: xr.DataTree, names: tuple[str, ...]) -> list[Json]:
    """Every bin: who it is, its verdict, its curves, its checks and some of its draws."""
    checks = result["diagnostics"].dataset
    numbers = [name for name in (*CHECKS, "error_ratio", "points") if name in checks]
    draws = {name: rounded(_thinned(result["posterior"].dataset[name]), DRAWS_DIGITS) for name in names}
    columns = {
        "bin": checks.q_bin.values.tolist(),
        "q": rounded(checks.q),
        "phi": rounded(checks.phi),
        "angle": rounded(checks.angle) if "angle" in checks.coords else [None] * checks.sizes["q_bin"],
        "verdict": checks.verdict.values.astype(str).tolist(),
        "reason": checks.reason.values.astype(str).tolist(),
        **_curves(result),
        "known": _identified(checks),
        "checks": _rows({name: rounded(checks[name]) for name in numbers}),
        "draws": _rows(draws) if draws else [{}] * checks.sizes["q_bin"],
    }
    return _rows(columns)


def _rows(columns: dict[str, list[Any]]) -> list[Json]:
    """What each bin has in these columns."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _curves(result: xr.DataTree) -> dict[str, list[Any]]:
    """The data of every bin, its mean curve with the band, and the limits of its axis."""
    data, g2 = result["constant_data"].dataset, result["observed_data"].g2.values
    band = result["fit_curve"].dataset
    curve = {name: band[name].values for name in ("mean", "lower", "upper", "sigma")}
    valid, stated = data.valid.values.astype(bool), data.g2_err.values
    error = np.where(np.isfinite(curve["sigma"]), curve["sigma"], stated)
    each = zip(valid, curve["lower"], curve["upper"], g2, error, strict=True)
    return {
        "g2": rounded(g2),
        "valid": valid.astype(int).tolist(),
        "stated": rounded(stated),
        **{name: rounded(values) for name, values in curve.items()},
        "limits": [
            list(limits(np.concatenate([low[own], high[own]]), points[own], sd[own]))
            for own, low, high, points, sd in each
        ],
    }


def _identified(checks: xr.Dataset) -> list[Json]:
    """Whether the data determine each parameter of each bin."""
    if "identified" not in checks:  # in a result of an older version
        return [{}] * checks.sizes["q_bin"]
    names = checks.parameter.values.astype(str).tolist()
    return [dict(zip(names, known, strict=True)) for known in checks.identified.values.astype(bool).tolist()]


def _thinned(array: xr.DataArray) -> np.ndarray:
    """Some draws (bin, chain, draw), evenly thinned."""
    values = array.transpose("q_bin", "chain", "draw").values
    each = max(DRAWS // values.shape[1], 2)
    return values[:, :, np.unique(np.linspace(0, values.shape[2] - 1, each).astype(int))]


def _common(result: xr.DataTree) -> list[Json]:
    """The parameters that bins have in common."""
    if "across" not in result:
        return []
    keep = ("parameter", "median", "low", "high", "units", "verdict", "reason")
    rows = common_rows(result)
    return [{name: row[name] if isinstance(row[name], str) else rounded(row[name]) for name in keep} for row in rows]


def _laws(result: xr.DataTree) -> Json:
    """The law's band over q, by parameter."""
    if "law_curve" not in result:
        return {}
    curve = result["law_curve"].dataset
    names = [str(name) for name in curve.data_vars if f"{name}_lower" in curve]
    return {
        name: {"q": rounded(curve.q), "mean": _of_groups(curve, name), "lower": _of_groups(curve, f"{name}_lower")}
        | {"upper": _of_groups(curve, f"{name}_upper")}
        for name in names
    }


def _of_groups(curve: xr.Dataset, name: str) -> list[Any]:
    """The curve of each group of bins."""
    return rounded(curve[name].transpose(..., "point").values.reshape(-1, curve.sizes["point"]))


def about(result: xr.DataTree) -> list[tuple[str, str]]:
    """Where the result comes from: data, model, settings, versions, hashes."""
    attrs = result.attrs
    said = [("data", attrs.get("understood", "")), ("notes", attrs.get("data_notes", ""))]
    said += [("model", f"{attrs.get('model', '')}: {attrs.get('model_formula', '')}")]
    said += [("convention", attrs.get("convention", "")), ("settings", _short(attrs.get("settings", "")))]
    said += [(name, _short(attrs.get(name, ""))) for name in ("priors", "fixed", "across")]
    ends = [str(name) for name in attrs if str(name).endswith("_version")]
    versions = {name.removesuffix("_version"): attrs[name] for name in ends}
    said.append(("versions", ", ".join(f"{name} {value}" for name, value in versions.items())))
    hashes = {"input": "input_sha256", "model": "model_sha256", "result": "content_sha256"}
    said += [(f"SHA-256 of the {word}", attrs.get(name, "")) for word, name in hashes.items()]
    return [(name, str(text)) for name, text in said if text]


def _short(text: str) -> str:
    return "" if text in ("", "{}", "[]") else text


def command(result: xr.DataTree) -> str:
    """The command that makes this result again; "" where it was not made by one."""
    if "run_settings" not in result.attrs:
        return ""
    asked, usual = json.loads(result.attrs["run_settings"]), RunSettings().model_dump(mode="json")
    words = ["bayesfit", "run", result.attrs.get("input_file", "FILE"), "-o", "results"]
    for name, value in asked.items():
        if value != usual.get(name) and value is not None and name not in HARDWARE:
            inner = value if isinstance(value, dict) else {"": value}
            for key, one in inner.items():
                text = one if isinstance(one, str) else json.dumps(one)
                words += ["--set", f"{name}.{key}={text}" if key else f"{name}={text}"]
    return " ".join(shlex.quote(word) for word in words)


def row_of(result: xr.DataTree) -> Json:
    """What the page of a folder says of a result: how many bins have each verdict, quartiles over the bins that are ok
    of the medians of the parameters that are followed from file to file, their units, and words."""
    if "law" in result.attrs or is_series(result):
        law = f"{result.attrs['law']} of {result.attrs['parameter']}" if "law" in result.attrs else ""
        return {"verdicts": {}, "quartiles": {}, "units": {}, "words": law or "series"}
    names, posterior = [name for name in FOLLOWED if name in of_bins(result)], result["posterior"].dataset
    return {
        "verdicts": tally(result),
        "quartiles": {name: rounded(_quartiles(result, name)) for name in names},
        "units": {name: posterior[name].attrs.get("units", "1") for name in names},
        "words": headline(tally(result)) + _together(result),
    }


def _quartiles(result: xr.DataTree, name: str) -> np.ndarray:
    """Quartiles, over the bins that are ok, of the medians of a parameter; NaN if there are none."""
    fine = result["diagnostics"].verdict.values == "ok"
    medians = result["posterior"].dataset[name].median(("chain", "draw")).values[fine]
    return np.quantile(medians, [0.25, 0.5, 0.75]) if medians.size else np.full(3, np.nan)


def look_and_count(counts: dict[str, int]) -> list[Json]:
    """Each verdict with its colour, sign and number."""
    return [
        {"name": name, "count": count, "colour": look_of(name).colour, "sign": look_of(name).sign}
        for name, count in counts.items()
    ]
