"""A Dask cluster on this machine, for tests that send work to one."""

import subprocess
import sys
import time
from contextlib import contextmanager

import pytest


@contextmanager
def running_cluster(folder):
    """A client of a scheduler with two workers on loopback, each a process of its own."""
    distributed = pytest.importorskip("distributed")
    file, processes = folder / "scheduler.json", []

    def start(*arguments):
        command = [sys.executable, "-m", "dask", *arguments]
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    address = ["--host", "127.0.0.1", "--no-dashboard"]
    start("scheduler", *address, "--port", "0", "--scheduler-file", str(file))
    for number in range(2):
        place = ["--local-directory", str(folder / f"worker{number}"), "--nthreads", "1", "--nworkers", "1"]
        start("worker", "--scheduler-file", str(file), *address, *place, "--name", f"worker{number}")
    try:
        while not file.exists():
            time.sleep(0.1)
        with distributed.Client(scheduler_file=str(file), timeout=30) as client:
            client.wait_for_workers(2, timeout=60)
            yield client
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)
