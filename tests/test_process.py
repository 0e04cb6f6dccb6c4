"""The process of a command, which ends without taking its modules apart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("bayesfit")
COMMAND = """
import atexit, os, threading
from bayesfit.cli import main, process

class Kept:
    def __del__(self, write=os.write):
        write(1, b"taken apart")

kept = Kept()

def command():
    atexit.register(print, "registered")
    threading.Timer(0.2, print, ["waited for"]).start()
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


full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@full
@pytest.mark.parametrize(("does", "code"), [("return", 1), ("raise SystemExit(3)", 3)])
def test_not_all_is_well_where_output_is_lost(does, code):
    command = [sys.executable, "-c", COMMAND.format(does=does)]
    with Path("/dev/full").open("w") as stdout:
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=BUFFERED, check=False)
    assert done.returncode == code


@full
@pytest.mark.parametrize("environment", [BUFFERED, {**BUFFERED, "PYTHONUNBUFFERED": "1"}])
def test_a_full_disk_is_said_in_one_line(environment):
    with Path("/dev/full").open("w") as stdout:
        command = [PROGRAM, "models"]
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 28] No space left on device\n"


def test_nothing_need_listen():
    done = subprocess.run(f"{PROGRAM} models >&-", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
