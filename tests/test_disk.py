"""Disks that are full, read-only or limited: one clear line, and what stood there before is untouched."""

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import bayesfit
from bayesfit.compute.whole_files import clear_parts, write_whole

LITTLE = 64 * 1024  # bytes that a limited process may write to a file, far less than a result
PROGRAM = Path(sys.executable).with_name("bayesfit")
IS_ROOT = os.geteuid() == 0
QUICK = ["--set", "draws=1000", "--model", "single_exponential", "--noise", "stated"]


@pytest.fixture(scope="module")
def result():
    return bayesfit.fit(bayesfit.simulate(bins=12, seed=1)[0], "single_exponential", noise="stated", draws=1000)


def mounted(folder, size):
    """A disk of so many bytes at this folder; skips where none can be mounted."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.decode().strip()}")
    return folder


@pytest.fixture
def small_disk(tmp_path):
    folder = mounted(tmp_path / "disk", "512k")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"first")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_writer_leaves_is_cleared(tmp_path):
    (tmp_path / ".file.abc.part").touch()
    (tmp_path / ".other.abc.part").touch()
    clear_parts(tmp_path / "file")
    assert [each.name for each in tmp_path.iterdir()] == [".other.abc.part"]


def test_a_full_disk_is_one_line_and_the_old_result_stays(small_disk, result):
    path = small_disk / "result.nc"
    few = bayesfit.fit(bayesfit.simulate(bins=1, seed=1)[0], "single_exponential", noise="stated", draws=100)
    bayesfit.save(few, path)
    before = path.read_bytes()
    with pytest.raises(bayesfit.ResultError, match="No space left on device") as caught:
        bayesfit.save(result, path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert [each.name for each in small_disk.iterdir()] == ["result.nc"]


def test_a_run_on_a_full_disk_ends_in_one_line(small_disk):
    data = Path(__file__).parents[1] / "data" / "aps_8idi_sim.hdf"
    command = [PROGRAM, "run", data, "-o", small_disk / "out", *QUICK]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "No space left on device" in line
    assert "Traceback" not in done.stderr


def test_a_limit_on_files_is_one_line(tmp_path):
    """As a quota is: the write fails in the middle. In a process of its own, which alone has the limit."""
    code = f"""
        import resource, signal, bayesfit
        data, _ = bayesfit.simulate(bins=12, seed=1)
        result = bayesfit.fit(data, "single_exponential", noise="stated", draws=1000)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({LITTLE}, {LITTLE}))
        try:
            bayesfit.save(result, {str(tmp_path / "result.nc")!r})
        except bayesfit.ResultError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert "File too large" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != LITTLE


@pytest.mark.skipif(IS_ROOT, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_one_line(tmp_path, result):
    tmp_path.chmod(0o500)
    with pytest.raises(bayesfit.ResultError, match="Permission denied"):
        bayesfit.save(result, tmp_path / "result.nc")
    tmp_path.chmod(0o700)


def test_a_read_only_disk_is_one_line(tmp_path, result):
    folder = mounted(tmp_path / "disk", "1m")
    try:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(bayesfit.ResultError, match="Read-only file system"):
            bayesfit.save(result, folder / "result.nc")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
