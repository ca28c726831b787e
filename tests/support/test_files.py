"""Files are written as a whole, directories by one process at a time."""

import errno
import os
import signal
import subprocess
import sys

import pytest

import nvgd
from nvgd._support import files
from nvgd._support.files import LOCK, locked, write_atomically

HOLDS = """
import sys
from pathlib import Path
from nvgd._support.files import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


def test_a_directory_in_use_is_refused_until_its_process_ends(holder, tmp_path):
    why = rf"out is in use by another run \(process {holder.pid} on .*choose another directory"
    with pytest.raises(nvgd.InputError, match=why), locked(tmp_path):
        pass
    holder.communicate("")
    with locked(tmp_path):
        assert (tmp_path / LOCK).exists()
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_killed_process_blocks_nobody(holder, tmp_path):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / LOCK).exists()
    (tmp_path / ".nvgd-half.npz").write_bytes(b"half")
    with locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_two_runs_of_one_process_exclude_each_other(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(nvgd.InputError, match="checkpoint is in use"),
        locked(tmp_path, "checkpoint"),
    ):
        pass


def test_directories_made_for_nothing_are_removed(tmp_path):
    with locked(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not list(tmp_path.iterdir())
    with locked(tmp_path / "a" / "b"):
        (tmp_path / "a" / "file").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_used_without(tmp_path, monkeypatch, number):
    def refuse(handle, operation):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with locked(tmp_path), locked(tmp_path):
        (tmp_path / "file").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_fcntl_there_is_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    with locked(tmp_path), locked(tmp_path):
        assert not list(tmp_path.iterdir())


def test_an_error_while_writing_names_the_file_and_leaves_the_old_one(tmp_path):
    path = tmp_path / "results.txt"
    path.write_text("old")

    def write(temporary):
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*results\.txt'"):
        write_atomically(path, write)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
