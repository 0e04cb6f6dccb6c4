"""The process of a command, which ends without taking its modules apart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
import atexit, sys, threading, time
from bayesfit.cli import main, process

class Ending:
    def __del__(self):
        print("taken apart")

def command():
    atexit.register(print, "registered")
    threading.Timer(0.2, print, ["waited for"]).start()
    sys.kept_until_the_end = Ending()
    {does}

main.main = command
process.main()
"""


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [
        ("return", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('words')", 1, "words"),
        ("raise ValueError('a bug')", 1, "ValueError: a bug"),
    ],
)
def test_its_code_is_that_of_the_command_and_what_is_to_be_done_at_exit_is_done(does, code, said):
    command = [sys.executable, "-c", COMMAND.format(does=does)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout.split("\n") == ["waited for", "registered", ""]
    assert done.stderr.strip().split("\n")[-1] == said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(("does", "code"), [("return", 120), ("raise SystemExit(3)", 3)])
def test_output_that_is_lost_is_said(does, code):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", COMMAND.format(does=does)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == code
    assert "error: output was lost: [Errno 28] No space left on device" in done.stderr
