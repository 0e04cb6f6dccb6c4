"""Settings from TOML and the command line."""

import pytest

from bayesfit import SettingsError
from bayesfit.modelling.settings import load_settings

TOML = """
model = "cumulant"
draws = 250
seed = 7
[priors]
rate = "LogNormal(3, 1)"
mu2 = { family = "HalfNormal", scale = 0.1 }
[fixed]
baseline = 1
contrast = [0.1, 0.2]
"""


def write(folder, text):
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_toml_assignments_and_arguments_in_rising_order(tmp_path):
    path = write(tmp_path, TOML)
    settings = load_settings(path, ["draws=300", "fixed.baseline=1.01", "priors.rate=LogNormal(2, 1)"], model="other")
    assert (settings.model, settings.draws, settings.seed) == ("other", 300, 7)
    assert settings.fixed == {"baseline": 1.01, "contrast": [0.1, 0.2]}
    assert settings.priors["rate"] == "LogNormal(2, 1)"
    assert settings.priors["mu2"] == {"family": "HalfNormal", "scale": 0.1}


@pytest.mark.parametrize("text", ["[log_likelihood, prior]", '["log_likelihood", "prior"]'])
def test_lists_of_words_need_no_quotation_marks(text):
    assert load_settings(None, [f"include={text}"]).include == ("log_likelihood", "prior")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drows = 3", "drows: unknown setting. Did you mean 'draws'"),
        ("draws = -3", "draws"),
        ("draws = true", "draws"),
        ("draws = nan", "draws"),
        ("draws = 3.5", "draws"),
        ("chains = 2\nchains = 3", "not valid TOML"),
        ("fixed = 3", "fixed"),
        ("seed = '1'", "seed"),
        ("sequential_prior = 1.5", "sequential_prior: is of a series. Set together"),
        ("names = [1, 2]", "names: are of several files as one"),
        ("together = 'both'", "together: input should be 'average', 'stack'"),
        ("together = 'series'\nsequential_prior = 0.5", "sequential_prior"),
    ],
)
def test_bad_toml_is_one_line_that_names_file_and_key(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(SettingsError, match=message) as raised:
        load_settings(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [(["draws"], "key=value"), (["draws=1", "draws=2"], "set twice"), (["seed=1", "seed.x=2"], "not a table")],
)
def test_bad_assignments(assignment, message):
    with pytest.raises(SettingsError, match=message):
        load_settings(None, assignment)


def test_former_names_of_settings_still_load(tmp_path):
    path = write(tmp_path, "together = 'series'\ncarry = 1.5\n[sample]\ntemperature = 298\n")
    settings = load_settings(path, ["sample.radius=50"])
    assert (settings.sequential_prior, settings.specimen) == (1.5, {"temperature": 298, "radius": 50})
    assert load_settings(None, ["together=series", "carry=2"]).sequential_prior == 2
    with pytest.raises(SettingsError, match="carry: unknown setting"):
        load_settings(path, ["sequential_prior=3"])


def test_absent_file(tmp_path):
    with pytest.raises(SettingsError, match="no such file"):
        load_settings(tmp_path / "absent.toml")
