"""A run over a folder of files: what failed, what was finished, whose share it is, and what is said of it."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bayesfit
from bayesfit.cli.jobs import Job, Shard, found_files
from bayesfit.cli.main import app

QUICK = ["--set", "draws=300", "--noise", "stated"]
COUNT = 5


def run(*arguments, code=0):
    done = CliRunner().invoke(app, ["run", *map(str, arguments), *QUICK])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of curves, with a bad one, a picture, and a hidden one among them."""
    folder = tmp_path_factory.mktemp("scans")
    for number in range(COUNT):
        data, _ = bayesfit.simulate(bins=2, delays=30, seed=number)
        q, tau = np.repeat(data.q.values, data.tau.size), np.tile(data.tau.values, data.q.size)
        columns = np.column_stack([q, tau, data.g2.values.ravel(), data.g2_err.values.ravel()])
        np.savetxt(folder / f"scan{number}.csv", columns, delimiter=",", header="q,tau,g2,g2_err", comments="")
    (folder / "bad.csv").write_text("hello,world\n1,2\n")
    (folder / "picture.png").touch()
    (folder / ".hidden.csv").touch()
    return folder


def test_a_folder_is_fitted_file_by_file_and_a_bad_one_stops_no_other(folder, tmp_path):
    said = run(folder, "-o", tmp_path, code=1)
    assert "bad.csv: no pipeline recognises it" in said
    names = [f"scan{number}" for number in range(COUNT)]
    assert sorted(path.stem for path in tmp_path.glob("*.nc")) == names
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["files"], status["finished"], status["failed"], status["waiting"]) == (COUNT + 1, COUNT, 1, 0)
    assert "no pipeline" in status["jobs"][str(folder / "bad.csv")]["error"]
    rows = list(csv.DictReader((tmp_path / "summary.csv").read_text().splitlines()))
    assert [row["state"] for row in rows] == ["failed"] + ["finished"] * COUNT
    assert {row["bins"] for row in rows[1:]} == {"2"}
    again = run(folder, "-o", tmp_path, code=1)
    assert again.count("(finished before)") == COUNT


def test_shards_share_the_files_and_the_results_are_the_same(folder, tmp_path):
    pattern = folder / "scan*.csv"
    run(pattern, "-o", tmp_path / "whole")
    for number in (1, 2):
        run(pattern, "-o", tmp_path / "shared", "--shard", f"{number}/2")
        status = json.loads((tmp_path / "shared" / f"status_{number}_of_2.json").read_text())
        assert status["finished"] == status["files"] == (COUNT + 2 - number) // 2
    for path in (tmp_path / "whole").glob("*.nc"):
        both = [bayesfit.load(each).attrs["content_sha256"] for each in (path, tmp_path / "shared" / path.name)]
        assert both[0] == both[1]


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "1", "a/b", "1/2/3"])
def test_a_share_that_cannot_be_is_refused(wrong):
    with pytest.raises(bayesfit.SettingsError, match="--shard"):
        Shard.parse(wrong)


def test_every_job_is_in_one_share(tmp_path):
    jobs = [Job([tmp_path / str(number)], tmp_path / f"{number}.nc") for number in range(7)]
    shares = [Shard(number, 3).of(jobs) for number in (1, 2, 3)]
    assert sorted(job for share in shares for job in share) == sorted(jobs)


def test_a_pattern_that_nothing_matches_is_said_to_be(tmp_path):
    with pytest.raises(bayesfit.InputError, match="no file matches"):
        found_files([tmp_path / "*.hdf"])


PROGRAM = Path(sys.executable).with_name("bayesfit")
LONG = ["--set", "draws=20000", "--set", "target_ess=39999", "--noise", "stated"]


def started(files, output):
    process = subprocess.Popen([PROGRAM, "run", *files, "-o", output, *LONG], stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if list(output.glob(".group-*.progress/state.npz")) or process.poll() is not None:
            return process
        time.sleep(0.05)
    raise AssertionError("no progress was kept")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_files_side_by_side_go_on_after_a_signal(folder, tmp_path, number):
    files = [str(folder / f"scan{each}.csv") for each in range(COUNT)]
    output = tmp_path / "out"
    process = started(files, output)
    process.send_signal(number)
    _, said = process.communicate(timeout=10)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), said
    assert not list(output.glob("*.nc"))
    (journal,) = output.glob(".group-*.progress")
    parts = len(list(journal.glob("*.npz")))
    assert parts > 0
    refused = CliRunner().invoke(app, ["run", *files, "-o", str(output), *LONG, "--set", "seed=5"])
    assert refused.exit_code == 2
    assert "made with other seed" in refused.output
    for place in (output, tmp_path / "whole"):
        assert CliRunner().invoke(app, ["run", *files, "-o", str(place), *LONG]).exit_code == 0
    assert sorted(path.name for path in output.iterdir()) == sorted(
        path.name for path in (tmp_path / "whole").iterdir()
    )
    for path in output.glob("*.nc"):
        both = [bayesfit.load(each).attrs["content_sha256"] for each in (path, tmp_path / "whole" / path.name)]
        assert both[0] == both[1]
