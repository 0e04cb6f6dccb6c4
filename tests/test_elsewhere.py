"""Fits in other processes: of an executor, and of a real Dask cluster of which a worker is killed half-way."""

import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Thread

import in_process
import pytest
from dask_cluster import running_cluster

import bayesfit
from bayesfit.compute.elsewhere import Sent, unpacked, with_files
from bayesfit.result.files import content_hash

MODEL = Path(__file__).parents[1] / "bayesfit" / "models" / "single_exponential.py"
QUICK = {"draws": 200, "noise": "stated"}


@pytest.fixture(scope="module")
def datasets():
    return [bayesfit.simulate(bins=40, seed=seed)[0] for seed in (1, 2, 3)]


def hashes(results):
    return [content_hash(result) for result in results]


def test_files_travel_with_what_names_them(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("1,2")
    given = {
        "name": "master_curve",
        "table": str(file),
        "more": [file, "nowhere.csv", 3],
        "plain": "single_exponential",
    }
    sent = with_files(given)
    assert sent["table"] == Sent("table.csv", b"1,2")
    assert sent["more"][1:] == ["nowhere.csv", 3]
    with unpacked(sent) as there:
        assert Path(there["table"]).read_text() == "1,2"
        assert Path(there["table"]).parent != tmp_path
        assert there["plain"] == "single_exponential"
    assert not Path(there["table"]).exists()


def test_spawned_processes_give_the_bits_of_this_one(datasets, tmp_path):
    own = tmp_path / "own_model.py"
    own.write_text(MODEL.read_text())
    few = [data.isel(q_bin=slice(2)) for data in datasets]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        there = bayesfit.fit_many(few, own, executor=executor, **QUICK)
    assert hashes(there) == hashes(bayesfit.fit_many(few, own, **QUICK))
    assert there[0].attrs["model_source"] == "own_model.py"


def test_a_model_that_cannot_be_sent_is_one_line(datasets):
    model = bayesfit.Model("local", lambda tau: tau)
    pool, lost = ProcessPoolExecutor(1, multiprocessing.get_context("spawn")), "work elsewhere was lost"
    with pool as executor, pytest.raises(bayesfit.BayesfitError, match=lost) as caught:
        bayesfit.fit_many(datasets[:1], model, executor=executor, **QUICK)
    assert "\n" not in str(caught.value)


@pytest.fixture
def cluster(tmp_path):
    """A client of a Dask cluster of two workers."""
    with running_cluster(tmp_path) as client:
        yield client


def kill_when_busy(client):
    """Kill one worker's process, not the nanny that restarts it, once it is at work."""
    for _ in range(600):
        busy = [worker for worker, tasks in client.processing().items() if tasks]
        if len(busy) == 2:
            break
        time.sleep(0.05)
    time.sleep(0.5)
    pids = client.run(os.getpid)
    os.kill(pids[busy[0]], signal.SIGKILL)


def test_a_cluster_of_which_a_worker_is_killed_gives_the_bits_of_this_process(cluster, datasets):
    here = bayesfit.fit_many(datasets, "single_exponential", **QUICK)  # before, so that the workers need not compile
    killer = Thread(target=kill_when_busy, args=(cluster,))
    killer.start()
    there = bayesfit.fit_many(datasets, "single_exponential", executor=cluster.get_executor(), **QUICK)
    killer.join()
    assert hashes(there) == hashes(here)


def test_the_command_line_sends_files_to_a_cluster(cluster, tmp_path):
    data = Path(__file__).parents[1] / "data"
    files = [str(data / name) for name in ("table_sim.csv", "aps_8idi_sim.hdf")]
    quick = ["--set", "draws=200", "--noise", "stated", "--model", "single_exponential"]
    for place, more in (("here", []), ("there", ["--dask", cluster.scheduler.address])):
        assert in_process.bayesfit("run", *files, "-o", tmp_path / place, *quick, *more).code == 0
    for path in (tmp_path / "here").glob("*.nc"):
        both = [bayesfit.load(each).attrs["content_sha256"] for each in (path, tmp_path / "there" / path.name)]
        assert both[0] == both[1]


def test_a_scheduler_that_does_not_answer_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("bayesfit.cli.cluster.WAIT", 1)
    data = Path(__file__).parents[1] / "data" / "table_sim.csv"
    said = in_process.bayesfit("run", data, "-o", tmp_path, "--dask", "tcp://127.0.0.1:9")
    assert said.code == 2
    assert "--dask: no scheduler answers" in said.err
