"""A fit that was stopped goes on where it was, and ends with the bits of one that was not."""

import itertools
import signal

import numpy as np
import pytest

import bayesfit
from bayesfit.compute import journal
from bayesfit.result.files import content_hash

OPTIONS = {"noise": "stated", "draws": 100, "target_ess": 100}


class Crash(Exception):
    """What stops a fit here."""


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Keep everything at once."""
    monkeypatch.setattr(journal, "EVERY", 0.0)


@pytest.fixture(scope="module")
def data():
    """Bins of which some have to run longer or to begin again, with a dead one among them."""
    return bayesfit.simulate(bins=20, noise=0.02, dead_bin=3, seed=1)[0]


def hash_of(result):
    for name in ("posterior", "sample_stats"):
        result[name].attrs = {}
    return content_hash(result)


def stopped_and_resumed(folder, fit, after, raised=Crash):
    """The result of a fit that is stopped by every so many reports of progress; and how often it was."""
    for times in itertools.count():
        reports = itertools.count()

        def report(progress, reports=reports):
            if next(reports) == after:
                raise raised

        try:
            with bayesfit.checkpoint(folder):
                return fit(report), times
        except raised:
            assert list(folder.glob("*.npz"))


@pytest.mark.parametrize("choice", [{}, {"across": {"rate": "diffusion"}, "draws": 300}], ids=["alone", "together"])
def test_a_fit_that_crashes_again_and_again_ends_as_one_that_does_not(data, tmp_path, choice):
    options = {**OPTIONS, **choice}
    whole = bayesfit.fit(data, **options)
    after = 5 if choice else 6  # reports
    result, times = stopped_and_resumed(tmp_path, lambda report: bayesfit.fit(data, progress=report, **options), after)
    assert times > 2
    assert choice or (whole["diagnostics"].escalation == "readapted").any()
    assert hash_of(result) == hash_of(whole)
    assert not tmp_path.exists()


def test_an_interrupt_ends_a_fit_whose_progress_is_kept(data, tmp_path):
    def interrupt(progress):
        if progress.stage == "sample":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), bayesfit.checkpoint(tmp_path):
        bayesfit.fit(data, progress=interrupt, on_interrupt="return", **OPTIONS)
    assert (tmp_path / journal.STATE).exists()


def test_other_data_settings_or_seeds_are_refused(data, tmp_path):
    def crash(progress):
        raise Crash

    def again(curves=data, **options):
        with bayesfit.checkpoint(tmp_path):
            bayesfit.fit(curves, progress=crash, **{**OPTIONS, **options})

    with pytest.raises(Crash):
        again()
    with pytest.raises(bayesfit.SettingsError, match=r"made with other seed\. Go on with what it had"):
        again(seed=1)
    with pytest.raises(bayesfit.SettingsError, match="made with other data and priors or fixed values"):
        again(data.isel(q_bin=slice(5)), fixed={"baseline": 1.0})
    with pytest.raises(Crash):
        again()
    with bayesfit.checkpoint(tmp_path, fresh=True):
        bayesfit.fit(data, seed=1, **OPTIONS)


def test_what_was_damaged_is_made_again(tmp_path):
    record = journal.Journal(tmp_path).begin()
    for number in range(3):
        record.add({"x": np.array(number)})
        record.write({"number": np.array(number)})
    assert [int(part["x"]) for part in journal.Journal(tmp_path).begin().parts] == [0, 1, 2]
    assert int(journal.Journal(tmp_path).begin().state()["number"]) == 2
    for name in ("000001.npz", journal.STATE):
        content = bytearray((tmp_path / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / name).write_bytes(content)
    record = journal.Journal(tmp_path).begin()
    assert [int(part["x"]) for part in record.parts] == [0]
    assert record.state() == {}


def test_two_runs_in_one_folder_never_meet(tmp_path):
    folder = tmp_path / "progress"
    with bayesfit.checkpoint(folder):
        for _ in range(2):
            with (
                pytest.raises(bayesfit.SettingsError, match="another run is at work here"),
                bayesfit.checkpoint(folder),
            ):
                pass
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_said_to_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(bayesfit.SettingsError, match="progress cannot be kept"), bayesfit.checkpoint(tmp_path / "file"):
        pass
