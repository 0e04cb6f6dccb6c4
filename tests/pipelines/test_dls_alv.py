"""Files of ALV correlators: real ones, and the forms that other instruments of the maker write."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from healthy_files import ALV_DECAY as DECAY
from healthy_files import ALV_LAGS as LAGS
from healthy_files import alv

import bayesfit
from bayesfit import get_pipeline
from bayesfit.data.counting import Counting

QUANTITIES = {
    "temperature": (298.15, "K"),
    "viscosity": (8.9e-4, "Pa s"),
    "refractive_index": (1.332, "1"),
    "wavelength": (6328.0, "angstrom"),
}

MODE_OF_TWO_DETECTORS = {"Mode            :": '"SINGLE CROSS CH0"'}


def several_angles(angles):
    return {
        "Angle [°]       :": None,
        **{f"Angle({i}) [°]    :": f"  {angle:.5f}" for i, angle in enumerate(angles, 1)},
    }


def q_of(angle):
    """1/angstrom, in water at 632.8 nm."""
    return 4 * np.pi * 1.332 / 6328.0 * np.sin(np.radians(np.asarray(angle)) / 2)


@pytest.fixture
def read(tmp_path):
    """Write a file and read it."""

    def write_and_read(text, encoding="cp1252"):
        path = tmp_path / "run.ASC"
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return bayesfit.read(path)

    return write_and_read


@pytest.fixture
def refusal(read):
    """The one line with which such a file is refused."""

    def refused(text):
        with pytest.raises(bayesfit.InputError) as caught:
            read(text)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refused


@pytest.fixture(scope="module")
def real(shared_data):
    """The real files of one instrument, 13 angles with 3 repeats."""
    paths = sorted((shared_data / "dls_alv_cgs3").glob("*.ASC"))
    if not paths:
        pytest.skip("no real ALV files in shared data")
    return paths


def test_real_files(real):
    angles = []
    for path in real:
        data = bayesfit.read(path)
        assert dict(data.sizes) == {"q_bin": 1, "tau": 199}
        assert data.attrs["pipeline"] == "dls_alv"
        assert data.valid.values.all()
        assert data.correlation.values.tolist() == ["cross 0/1 and cross 1/0"]
        np.testing.assert_allclose(data.q, q_of(data.angle), rtol=1e-12)
        assert 297 < data.attrs["temperature"] < 299
        angles.append(float(data.angle[0]))
    assert angles == [angle for angle in range(30, 151, 10) for _ in range(3)]


def test_the_numbers_of_one_real_file(real):
    data = bayesfit.read(real[0])
    np.testing.assert_allclose(data.tau[[0, -1]], [2.5e-8, 3.14573], rtol=1e-12)
    np.testing.assert_allclose(data.g2[0, [0, -1]] - 1, [(0.893007 + 0.895137) / 2, -(1.40133e-2 + 1.41288e-2) / 2])
    np.testing.assert_allclose(data.g2_err[0, [0, -1]], [4.42973e-2, 7.36033e-3], rtol=1e-12)
    expected = {"temperature": 297.91353, "viscosity": 0.89489e-3, "refractive_index": 1.332, "wavelength": 6328.0}
    assert {name: data.attrs[name] for name in expected} == pytest.approx(expected)
    assert {name: data.attrs[f"{name}_units"] for name in expected} == {k: u for k, (_, u) in QUANTITIES.items()}
    assert (data.attrs["date"], data.attrs["time"]) == ("08.06.2022", "14:18:52")
    assert data.attrs["baseline_prior"] == "Normal(1, 0.05)"


def test_a_real_file_cut_anywhere_is_refused_or_says_that_errors_are_missing(real, tmp_path):
    whole = real[0].read_bytes()
    full = bayesfit.read(real[0])
    path = tmp_path / "cut.ASC"
    refused = 0
    lengths = [*range(1, len(whole), 997), whole.index(b'"Count'), whole.index(b'"Stand') + 3]
    for length in lengths:
        path.write_bytes(whole[:length])
        try:
            data = bayesfit.read(path)
        except bayesfit.InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
        else:
            np.testing.assert_array_equal(data.g2, full.g2)
            assert data.attrs["errors_stated"] == 0
            assert "no errors are stated" in data.attrs["notes"]
    assert refused >= len(lengths) - 3


def test_one_channel_in_use(read):
    data = read(alv(columns=np.stack([0 * DECAY, DECAY, 0 * DECAY, 0 * DECAY]), errors=0.01 + 0 * DECAY[None]))
    assert dict(data.sizes) == {"q_bin": 1, "tau": 6}
    assert data.channel.values.tolist() == [1]
    np.testing.assert_allclose(data.g2[0] - 1, DECAY, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(data.tau, LAGS * 1e-3)
    np.testing.assert_allclose(data.q, q_of(90.0))
    assert {name: (pytest.approx(data.attrs[name]), data.attrs[f"{name}_units"]) for name in QUANTITIES} == QUANTITIES
    assert data.attrs["samplename"] == "silica: 3 %"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([[0.01]], [[0.01], [0.01]]),
        ([[0.01], [0.02]], [[0.01], [0.02]]),
        ([[0.0], [0.01], [0.0], [0.02]], [[0.01], [0.02]]),
    ],
)
def test_errors_stand_in_one_column_for_all_or_one_for_each(read, columns, expected):
    data = read(
        alv(columns=np.stack([0 * DECAY, DECAY, 0 * DECAY, DECAY / 2]), errors=np.array(columns) * np.ones(LAGS.size))
    )
    np.testing.assert_allclose(data.g2_err, np.array(expected) * np.ones(LAGS.size))


def test_without_standard_deviations_no_errors_are_stated(read):
    data = read(alv())
    assert data.attrs["errors_stated"] == 0
    assert (data.g2_err == 1).all()


@pytest.mark.parametrize("dead", [[], [2], [0, 7]])
def test_eight_angles(read, dead):
    angles = np.arange(26.0, 139.0, 16.0)
    columns = np.stack([DECAY * (i + 1) / 8 for i in range(8)])
    columns[dead] = 0
    data = read(alv(columns=columns, first="ALV-7004 CGS-8F Data, Single Run Data", **several_angles(angles)))
    alive = np.delete(np.arange(8), dead)
    np.testing.assert_array_equal(data.angle, angles[alive])
    np.testing.assert_allclose(data.q, q_of(angles[alive]))
    np.testing.assert_array_equal(data.channel, alive)
    np.testing.assert_allclose(data.g2[:, 0] - 1, columns[alive, 0], rtol=1e-5)


def test_angles_in_one_line(read):
    data = read(alv(columns=np.stack([DECAY, DECAY]), **{"Angle [°]       :": " 30.0  150.0"}))
    np.testing.assert_array_equal(data.angle, [30.0, 150.0])


@pytest.mark.parametrize(
    "first",
    [
        "ALV-5000/E-WIN Data",
        "ALV-5000/EPP-WIN Data",
        "ALV-6000/E-WIN Data",
        "ALV-6010/160",
        "ALV-7004/USB-FAST",
        "ALV-7002",
    ],
)
def test_first_lines_of_other_correlators(read, first):
    assert read(alv(first=first)).attrs["pipeline"] == "dls_alv"


MODES = {  # columns in use, of 4: bins with their columns, and what is correlated
    "A-CH0": ([0], {"auto 0": [0]}),
    "A-(CH0+1)": ([0], {"auto 0+1": [0]}),
    "A-CH0+1": ([0, 1], {"auto 0": [0], "auto 1": [1]}),
    "A-CH2+3": ([2, 3], {"auto 2": [2], "auto 3": [3]}),
    "C-CH0/1": ([0], {"cross 0/1": [0]}),
    "C-CH0/1+1/0": ([0, 1], {"cross 0/1 and cross 1/0": [0, 1]}),
    "c-ch0/1a1/0": ([0, 1], {"cross 0/1 and cross 1/0": [0, 1]}),
    "A-CH0+1  C-CH0/1+1/0": ([0, 1, 2, 3], {"auto 0": [0], "auto 1": [1], "cross 0/1 and cross 1/0": [2, 3]}),
    "A-CH0+1 A-CH2+3": ([0, 1, 2, 3], {"auto 0": [0], "auto 1": [1], "auto 2": [2], "auto 3": [3]}),
    "SINGLE AUTO CH1": ([0], {"auto 1": [0]}),
    "DUAL AUTO CH0 + CH1": ([0, 1], {"auto 0": [0], "auto 1": [1]}),
    "SINGLE CROSS CH0": ([0], {"cross 0/1": [0]}),
    "DUAL CROSS": ([0, 1], {"cross 0/1 and cross 1/0": [0, 1]}),
    "QUAD": ([0, 1, 2, 3], {"auto 0": [0], "auto 1": [1], "cross 0/1 and cross 1/0": [2, 3]}),
}


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_says_which_columns_are_of_one_light(read, mode):
    """Both orders of a cross-correlation are one bin; autocorrelations begin at 2 us, cross-correlations at once."""
    used, bins = MODES[mode]
    columns, errors = np.zeros((4, 6)), np.zeros((4, 6))
    columns[used] = [DECAY * (1 - place / 8) for place in used]
    errors[used] = [[0.01 * (1 + place)] * 6 for place in used]
    data = read(alv(columns=columns, errors=errors, **{"Mode            :": f'"{mode}"'}))
    assert data.correlation.values.tolist() == list(bins)
    assert data.channel.values.tolist() == [own[0] for own in bins.values()]
    for place, own in enumerate(bins.values()):
        np.testing.assert_allclose(data.g2[place] - 1, columns[own].mean(axis=0), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(data.g2_err[place], np.sqrt((errors[own] ** 2).mean(axis=0)), rtol=1e-5)
    late = [2e-6 if words.startswith("auto") else 0.0 for words in bins]
    np.testing.assert_array_equal(data.valid, np.array(late)[:, None] <= LAGS * 1e-3)
    assert ("dead time and afterpulses" in data.attrs["notes"]) == any(late)
    understood = " ".join(bayesfit.describe(data))
    assert all(words in understood for words in bins)
    assert ("averaged, since they are of the same light" in understood) == (len(bins) < len(used))


@pytest.mark.parametrize("mode", ["HOMODYNE X", "", None])
def test_a_mode_that_says_nothing_makes_a_bin_of_each_column(read, mode):
    data = read(alv(columns=np.stack([DECAY, DECAY / 2]), **{"Mode            :": mode and f'"{mode}"'}))
    assert data.sizes["q_bin"] == 2
    said = f"the mode {mode!r} does not say what the columns are" if mode else "no line says the mode"
    assert f"{said}: each is a bin, taken to be of a single detector" in data.attrs["notes"]


def test_columns_of_one_light_with_a_missing_value_are_averaged_over_the_other(read):
    columns = np.stack([DECAY, DECAY / 2])
    text = alv(columns=columns, **{"Mode            :": '"C-CH0/1+1/0"'}).replace(f"{DECAY[2]:.5E}", "1.#INF00E+000")
    data = read(text)
    expected = columns.mean(axis=0)
    expected[2] = columns[1, 2]
    np.testing.assert_allclose(data.g2[0] - 1, expected, rtol=1e-5, atol=1e-9)
    assert data.valid.values.all()


def test_the_range_of_autocorrelations_can_be_set(tmp_path):
    path = tmp_path / "run.ASC"
    path.write_text(alv(), encoding="cp1252")
    assert bayesfit.read(path).masked_range.values.tolist() == [4]
    assert bayesfit.read(path, tau_min=0).valid.values.all()
    assert bayesfit.read(path, tau_min=2e-5).masked_range.values.tolist() == [5]
    said = call("inspect", path, "--set", "tau_min=6e-8").stdout
    assert "4 of 6 points used; 2 masked in 1 bins (tau is outside tau_min to tau_max)" in said
    assert "afterpulses" not in said
    assert "2 of 6 points used" in call("inspect", path).stdout


def averages_beside_runs(folder, name="silica_averaged.ASC"):
    """Two runs and their average, as the instrument writes it."""
    columns = [DECAY * (1 + noise)[None] for noise in 0.01 * np.random.default_rng(0).standard_normal((2, LAGS.size))]
    for number, column in enumerate(columns, 1):
        (folder / f"silica_{number:04}.ASC").write_text(alv(columns=column), encoding="cp1252")
    text = alv(columns=sum(columns) / 2)
    start, end = text.index('"Count'), text.index("Monitor")
    (folder / name).write_text(text[:start] + text[end:], encoding="cp1252")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("name", ["silica_averaged.ASC", "silica_9999.ASC"])
def test_the_instruments_average_is_left_out_beside_its_runs(tmp_path, name):
    """By its name, or, whatever that is, since it has no count rates; alone it is read, and said to be one."""
    files = averages_beside_runs(tmp_path, name)
    said = call("inspect", tmp_path).stdout
    assert f"1 of 3 files hold the instrument's average of others, which are fitted instead: {name}" in said
    assert said.count("ALV, g2 - 1") == 2
    left_out = get_pipeline("dls_alv").of_others
    assert set(left_out(files)) == {tmp_path / name}
    assert left_out([tmp_path / name, tmp_path / "elsewhere_0001.ASC"]) == {}
    assert "the instrument's average of its runs" in call("inspect", tmp_path / name).stdout


@pytest.mark.parametrize("titles", [["Average", " 1,   0.000", " 2,   0.000"], ["Run 1", "Average", "Run 2"]])
def test_of_several_runs_the_average_is_read(read, titles):
    columns = np.stack([DECAY * (1.0 if "Average" in title else 0.9) for title in titles])
    data = read(alv(first="ALV-5000/E-WIN Data", columns=columns, title="Correlation (Multi, Averaged)", titles=titles))
    assert data.sizes["q_bin"] == 1
    np.testing.assert_allclose(data.g2[0] - 1, DECAY, rtol=1e-5, atol=1e-9)


def test_of_several_runs_of_two_channels_both_averages_are_read(read):
    titles = ["Average(0)", "Run  1", "Run  2", "Average(1)", " 1,   0.000", " 2,   0.000"]
    columns = np.stack([DECAY * k for k in (1.0, 0.9, 1.1, 0.5, 0.4, 0.6)])
    data = read(alv(columns=columns, title="Correlation (Multi, Averaged)", titles=titles))
    np.testing.assert_allclose(data.g2[:, 0] - 1, DECAY[0] * np.array([1.0, 0.5]), rtol=1e-5)


def _decimal_commas(text):
    return text.replace(".", ",").replace("01,02,2023", "01.02.2023")


VARIANTS = {
    "decimal commas": lambda text: _decimal_commas(text).encode("cp1252"),
    "Unix line endings": lambda text: text.replace("\r\n", "\n").encode("cp1252"),
    "UTF-8": lambda text: text.encode("utf-8"),
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "spaces for tabs": lambda text: text.replace("\t", "   ").encode("cp1252"),
    "keys in other cases": lambda text: text.replace("[cp]", "[cP]").replace("Angle [", "ANGLE [").encode("cp1252"),
    "no line ending at the end": lambda text: text.rstrip().encode("cp1252"),
    "Mac degree sign": lambda text: text.replace("°", "\xa1").encode("cp1252"),
}


@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_the_same_file_written_otherwise(read, change):
    text = alv(columns=np.stack([DECAY, 0 * DECAY]), errors=0.01 + 0 * DECAY[None])
    expected, data = read(text), read(change(text))
    for name in ("tau", "g2", "g2_err", "q", "angle"):
        np.testing.assert_array_equal(data[name], expected[name])
    assert all(data.attrs[name] == expected.attrs[name] for name in QUANTITIES)


@pytest.mark.parametrize("word", ["NaN", "1.#QNAN0E+000", "-1.#IND00E+000", "1.#INF00E+000", "-1,#IND"])
def test_numbers_that_the_instrument_could_not_write_are_masked(read, word):
    text = alv(**MODE_OF_TWO_DETECTORS)
    data = read(text.replace(f"{DECAY[2]:.5E}", word))
    assert data.valid.values.tolist() == [[True, True, False, True, True, True]]
    assert data["masked_value"].values.tolist() == [1]


def _without(key):
    return alv(**{key: None})


WRONG = {
    "no angle": (_without("Angle [°]       :"), "Angle: 0 angles for 1 channels"),
    "angle zero": (alv(**{"Angle [°]       :": "0.0"}), "Angle: expected 0 to 180 degrees"),
    "angle too large": (alv(**{"Angle [°]       :": "300"}), "Angle: expected 0 to 180 degrees"),
    "too many angles": (alv(**several_angles([30, 60, 90])), "Angle: 3 angles for 1 channels"),
    "no temperature": (
        _without("Temperature [K] :"),
        "Temperature [K]: expected a number above 0 in the header, got no",
    ),
    "viscosity zero": (alv(**{"Viscosity [cp]  :": "0.0"}), "expected a number above 0 in the header, got '0.0'"),
    "wavelength a word": (alv(**{"Wavelength [nm] :": "red"}), "expected a number above 0 in the header, got 'red'"),
    "all channels zero": (alv(columns=np.zeros((4, 6))), "Correlation: every channel is zero"),
    "no rows": (alv()[: alv().index('"Correlation"')] + '"Correlation"\r\n\r\n', "Correlation: the block is empty"),
    "a word among the numbers": (alv().replace(f"{DECAY[2]:.5E}", "oops"), "line 16: 'oops' is not a number"),
    "a row too short": (alv().replace(f"\t  {DECAY[2]:.5E}", ""), "line 16: expected 2 columns, got 1"),
    "errors too few": (
        alv(errors=0.01 + 0 * DECAY[None]).rsplit("\r\n", 2)[0] + "\r\n",
        "StandardDeviation: has 5 lags, the correlation 6. Is it cut?",
    ),
    "errors in too many columns": (alv(errors=np.ones((3, 6))), "StandardDeviation: 3 columns for 1 channels"),
    "errors at other lags": (
        "5.00000E-04".join(alv(errors=0.01 + 0 * DECAY[None]).rsplit("1.00000E-03", 1)),
        "StandardDeviation: its lags differ",
    ),
    "cut within a row": (alv().split(f"{DECAY[3]:.5E}")[0] + "7.5", "the file ends within this line"),
    "cut after a row": (alv().split('\r\n\r\n"Count')[0] + "\r\n", "Correlation: the file ends within this block"),
    "cut after the block": (alv().split("55.5")[0][:-2] + "5.5", "the file ends within this line"),
}


@pytest.mark.parametrize(("text", "part"), WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_used_says_where(refusal, text, part):
    assert part in refusal(text)


def call(*arguments):
    program = Path(sys.executable).parent / "bayesfit"
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done


# ---- photons

COUNTED = {"MeanCR0 [kHz]   :": "  100.0", "MeanCR1 [kHz]   :": "  400.0", "FloatDur [ms]   :": "  9961"}
BOTH = {"Mode            :": '"C-CH0/1+1/0"'}


@pytest.mark.parametrize(
    ("mode", "rate", "detectors"),
    [("C-CH0/1+1/0", 2 * 200e3, 2), ("SINGLE AUTO CH1", 400e3, 1), ("A-(CH0+1)", 500e3, 1)],
)
def test_photons_are_those_of_what_is_correlated(read, mode, rate, detectors):
    columns = DECAY[None] if detectors == 1 else np.stack([DECAY, DECAY])
    data = read(alv(columns=columns, **COUNTED, **{"Mode            :": f'"{mode}"'}))
    assert data.counts.values == pytest.approx([rate * 2.5e-8])
    assert (data.attrs["frames"], data.attrs["frame_time"]) == pytest.approx((9.961 / 2.5e-8, 2.5e-8))
    assert (data.pixels.values.tolist(), data.attrs["detectors"]) == ([1.0], detectors)
    assert data.frames_summed.values.tolist() == [1, 1, 2, 32, 256, 2048]
    pairs = Counting.of(data).pairs[0, 0]
    by_hand = 9.961 * 2.5e-8 * (rate**2 if detectors == 1 else 2 * 100e3 * 400e3)
    assert pairs == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (BOTH | {**COUNTED, "MeanCR1 [kHz]   :": "0.0"}, "count rates"),
        (BOTH | {**COUNTED, "MeanCR0 [kHz]   :": "1.#QNAN"}, "count rates"),
        ({**COUNTED, "Mode            :": '"C-CH0/1"'}, "count rates"),
        (BOTH | {**COUNTED, "FloatDur [ms]   :": None}, "how long"),
        (BOTH | {**COUNTED, "Runs :": "3"}, "average of several runs"),
        ({**COUNTED, "Mode            :": '"A-CH0+1  C-CH0/1+1/0"'}, "autocorrelations and cross-correlations"),
    ],
)
def test_what_is_missing_for_counting_is_said(read, header, why):
    columns = {"C-CH0/1": 1, "C-CH0/1+1/0": 2}.get(header["Mode            :"].strip('"'), 4)
    data = read(alv(columns=np.stack([DECAY] * columns), **header))
    assert "counts" not in data
    assert f"photon pairs cannot be counted: the {'curve' if 'average' in why else 'file'}" in data.attrs["notes"]
    assert why in data.attrs["notes"]


def test_repeats_scatter_by_what_theory_says(real):
    """Rates at three angles, three repeats each: their scatter is that of their posteriors, within the 99 % limits of
    chi-square with 6 degrees of freedom, and their residuals are of the size that theory says."""
    total = 0.0
    for first in (12, 18, 24):
        files = real[first : first + 3]
        found = [bayesfit.fit(bayesfit.read(path), "cumulant", noise="photons", seed=1) for path in files]
        assert all(0.7 < float(result["diagnostics"].reduced_chi2[0]) < 1.5 for result in found)
        rates = [result.posterior.rate for result in found]
        total += np.var([float(rate.mean()) for rate in rates], ddof=1) / np.mean([float(rate.var()) for rate in rates])
    assert 0.68 < 2 * total < 18.5
