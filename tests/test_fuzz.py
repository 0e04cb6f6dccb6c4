"""A few cases of `fuzz.py`, which runs as many as one likes: damaged files and random settings."""

import fuzz
import pytest

from bayesfit import InputError


@pytest.fixture(scope="module")
def healthy(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("healthy")
    fuzz.write_healthy(folder, fitted.isel(q_bin=[0, 1]))
    return fuzz.read_healthy(folder)


@pytest.mark.filterwarnings("ignore")  # of libraries, which the command line does not show
def test_damaged_files_and_random_settings_get_one_line(healthy, tmp_path):
    found = [fuzz.run_case(number, 42, healthy, tmp_path) for number in range(100)]
    assert [each for each in found if each[1] in fuzz.WRONG] == []
    assert {"refused", "read", "other"} <= {outcome for _, outcome, _ in found}
    assert len({kind for kind, _, _ in found}) > 10


def test_the_judge_sees_what_is_looked_for(healthy, tmp_path, monkeypatch):
    """A reader that lets errors through, one that hides a change, and one that quotes its library."""
    one = [each for each in healthy if each.path.name == "packed.npz"]
    changed = one[0].content.copy(deep=True)
    changed.g2.values[0, 0] += 1e-9

    def quote(path):
        raise InputError("cannot read it: KeyError: 3")

    plants = {"traceback": lambda path: 1 / 0, "silent": lambda path: changed, "unclear": quote}
    for outcome, read in plants.items():
        monkeypatch.setattr(fuzz, "read", read)
        found = [fuzz.run_case(number, 1, one, tmp_path) for number in range(10)]
        assert outcome in {each[1] for each in found}, found
