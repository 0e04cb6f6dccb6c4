"""What is shown while a fit runs: a live display on a terminal, lines in a file; and what stays on the screen."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import bayesfit
from bayesfit.compute.progress_bar import Lines, clock, words
from bayesfit.compute.work import Progress
from bayesfit.sample.draws import Assessment, Schedule
from bayesfit.sample.escalation import STEPS
from bayesfit.sample.loop import Run

ROOT = Path(__file__).parent.parent
ESCALATED = ("bin 5 (q = 0.007): chains 2 times as long (R-hat 1.020)",)
HALF = Progress("sample", 29, 12, 120, 500, 1.012, 0, 75.0, share=0.4, dataset="a.hdf", escalated=ESCALATED)
SHOW = f"""
import sys, time, typer
from bayesfit.compute.progress_bar import progress_bar
from bayesfit.compute.work import Progress
with progress_bar(True) as report:
    report({HALF!r})
    time.sleep(0.4)
    typer.echo("printed")
    print("error", file=sys.stderr)
    time.sleep(0.4)
"""


def on_terminal(code, stdout=None):
    """What a process writes to a terminal of 80 columns, with its codes."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "30"}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, env=environment, stdin=slave, stdout=stdout or slave, stderr=slave, cwd=ROOT)
    os.close(slave)
    found = io.BytesIO()

    def read():
        try:
            while chunk := os.read(master, 4096):
                found.write(chunk)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(60) == 0
    reader.join(10)
    os.close(master)
    return found.getvalue().decode()


def test_a_terminal_shows_how_far_the_work_is_below_what_is_printed():
    shown = on_terminal(SHOW)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "a.hdf: sampling" in plain
    assert "12/29 bins done, draw 120/500, worst R-hat 1.012, 1:15 min left" in plain
    assert ESCALATED[0] in plain
    assert plain.count("printed") == plain.count("error") == 1
    assert re.search(r"\x1b\[2K[^\n]*\r?\n?printed", shown) or "\rprinted" in plain  # on a line of its own
    last = shown.rindex(ESCALATED[0])
    assert shown[last:].count("\x1b[2K") >= 3  # the display is gone at the end


def test_standard_output_goes_where_it_is_sent(tmp_path):
    """With the live display on a terminal, results that are sent to a file arrive there, and nothing else does."""
    with (tmp_path / "out.txt").open("w") as file:
        shown = on_terminal(SHOW, stdout=file)
    assert (tmp_path / "out.txt").read_text() == "printed\n"
    assert "printed" not in shown
    assert "error" in shown


def test_a_file_gets_lines(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("bayesfit.compute.progress_bar.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    lines = Lines(stream)
    for seconds, progress in ((0, HALF), (3, HALF), (12, HALF), (13.5, Progress("check", 29, dataset="a.hdf"))):
        now[0] = 100.0 + seconds
        lines(progress)
    told = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in stream.getvalue().splitlines()]
    half = f"a.hdf: sampling: {words(HALF)}"
    assert told == [half, f"escalated: {ESCALATED[0]}", half, "a.hdf: checks and verdicts: 29 bins"]


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (59.4, "59 s"), (185, "3:05 min"), (7800, "2:10 h")])
def test_times_in_words(seconds, said):
    assert clock(seconds) == said


def test_escalation_in_words():
    schedule = Schedule(chains=2, draws=100, warmup=10, target_accept=0.6, target_ess=400.0)
    run = Run(0, counts=np.array([110, 120]))
    assert run.escalated(STEPS) == ""
    assert run.share(schedule) == 1.0
    run.why = Assessment(False, False, 90.0, (1.03, 90.0, 95.0)).why_not(schedule.reachable)
    run.thin = 2
    assert run.share(schedule) == 0.5
    why = "R-hat 1.030, effective sample size 90 of 100, trajectories diverge or are cut short"
    assert run.escalated(STEPS) == f"chains 2 times as long ({why})"
    run.step, run.thin = 1, 1
    assert run.escalated(STEPS) == f"begun again, {STEPS[1].name} ({why})"
    assert Assessment(True, True, 500.0, (1.001, 500.0, 600.0)).why_not(400.0) == ""


def test_escalated_bins_are_reported():
    """A fit that asks for more than a few draws can give says which bins go on, by their numbers."""
    data, _ = bayesfit.simulate(bins=3, delays=30, seed=2)
    seen = []
    bayesfit.fit(data.isel(q_bin=[1, 2]), draws=120, target_ess=235, progress=seen.append)
    told = {words for progress in seen for words in progress.escalated}
    assert told
    assert all(re.match(r"bin [12] \(q = 0\.\d+\): (chains|begun)", words) for words in told)
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["point estimate", "estimate", "sample", "check"]
    assert all(0.0 <= progress.share <= 1.0 for progress in seen)


def test_what_was_done_to_the_data_stands_at_the_end(tmp_path):
    program = Path(sys.executable).parent / "bayesfit"
    command = [program, "run", "data/aps_8idi_sim.hdf", "-o", tmp_path, "--set", "draws=100", "--no-report"]
    done = subprocess.run(command, env={**os.environ, "COLUMNS": "80"}, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr  # so few draws need not be enough
    table = done.stdout.index("unusable_data")
    end = " ".join(done.stdout[table:].split())
    assert "229 masked in 16 bins (no photon pair was seen: g2 and g2_err are both 0)" in end
    assert "unusable_data: too few valid points" in end
    whole = f"bayesfit show {tmp_path / 'aps_8idi_sim.nc'} --wide".replace(" ", "")  # a path may be broken over lines
    assert whole in end.replace(" ", "")
    assert max(map(len, done.stdout.splitlines())) <= 80 + len(str(tmp_path))
    assert re.search(r"^\d\d:\d\d:\d\d sampling: \d+/29 bins done", done.stderr, re.MULTILINE)
