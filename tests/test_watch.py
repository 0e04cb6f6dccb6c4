"""`bayesfit watch`: files are fitted as they arrive, complete ones only, and none again after a restart."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import in_process
import numpy as np
import pytest

import bayesfit
from bayesfit.cli.arrivals import Arrivals

PROGRAM = Path(sys.executable).with_name("bayesfit")
QUICK = ["--set", "draws=200", "--noise", "stated", "--model", "single_exponential", "--every", "0.2"]


def table(seed):
    """The text of a table of curves."""
    data, _ = bayesfit.simulate(bins=2, delays=30, seed=seed)
    q, tau = np.repeat(data.q.values, data.tau.size), np.tile(data.tau.values, data.q.size)
    columns = zip(q, tau, data.g2.values.ravel(), data.g2_err.values.ravel(), strict=True)
    return "q,tau,g2,g2_err\n" + "".join(",".join(map(repr, map(float, row))) + "\n" for row in columns)


def watched(folder, output, *more):
    return in_process.bayesfit("watch", folder, "-o", output, *QUICK, "--idle", "0.5", *more)


def test_a_file_is_given_out_once_it_has_not_changed_for_a_while(tmp_path):
    arrivals = Arrivals(tmp_path, settle=0.2)
    file = tmp_path / "scan.csv"
    file.write_text("half")
    for name in ("picture.png", ".hidden.csv", "empty.csv"):
        (tmp_path / name).touch()
    assert arrivals.look() == []
    time.sleep(0.15)
    file.write_text("whole")
    assert arrivals.look() == []
    time.sleep(0.1)
    assert arrivals.look() == []
    time.sleep(0.15)
    assert arrivals.look() == [file]
    assert arrivals.look() == []
    file.write_text("another one")
    arrivals.look()
    time.sleep(0.25)
    assert arrivals.look() == [file]


def test_files_are_estimated_and_fitted_and_not_again(tmp_path):
    folder, output = tmp_path / "scans", tmp_path / "out"
    folder.mkdir()
    (folder / "scan1.csv").write_text(table(1))
    (folder / "bad.csv").write_text("hello,world\n1,2\n")
    done = watched(folder, output)
    assert done.code == 0
    assert "bad.csv: no pipeline recognises it" in done.err
    assert done.out.index("estimated, 2 of 2 bins") < done.out.index("scan1.nc: ")
    rows = list(csv.DictReader((output / "scan1_estimate.csv").read_text().splitlines()))
    assert len(rows) == 2
    assert float(rows[0]["rate"]) > 0
    status = json.loads((output / "status.json").read_text())
    assert (status["finished"], status["failed"]) == (1, 1)
    (folder / "scan2.csv").write_text(table(2))
    again = watched(folder, output)
    assert "scan1.nc (finished before)" in again.out
    assert "scan2.nc: " in again.out
    assert again.out.count(": estimated") == 1


def test_a_file_that_arrives_meanwhile_is_fitted_and_a_signal_ends_it(tmp_path):
    folder, output = tmp_path / "scans", tmp_path / "out"
    folder.mkdir()
    command = [PROGRAM, "watch", folder, "-o", output, *QUICK]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(300):
            if (output / "status.json").exists():
                break
            time.sleep(0.1)
        (folder / "scan.csv").write_text(table(1))
        for _ in range(600):
            if (output / "scan.nc").exists():
                break
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert bayesfit.load(output / "scan.nc").posterior.sizes["q_bin"] == 2


def test_two_files_of_one_name_do_not_replace_each_other(tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    for name in ("scan.csv", "scan.txt"):
        (folder / name).write_text(table(1))
    done = watched(folder, tmp_path / "out")
    assert done.code == 0
    assert "scan.csv is saved as" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["nowhere", "-o", "out"], "nowhere: is no folder"), ([".", "-o", "out", "--set", "together=stack"], "together")],
)
def test_wrong_use_is_one_line(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    said = in_process.bayesfit("watch", *arguments)
    assert said.code in (1, 2)
    assert words in said.err
