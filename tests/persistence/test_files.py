"""Temporary files: those of processes that are gone are removed, others never."""

import os
import socket
import subprocess
import sys

import pytest

from pskem import files
from pskem.files import Scratch, atomic_write, own_mark, sweep

pytestmark = pytest.mark.plumbing


@pytest.fixture
def gone():
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_the_next_writing_removes_what_a_killed_process_left(tmp_path, gone):
    here = socket.gethostname()
    left = tmp_path / f".model.pskem.{here}.{gone}.0123abcd"
    others = [
        f".model.pskem.{own_mark()}",  # of this process, which is writing
        f".model.pskem.{here}.{os.getppid()}.0123abcd",
        f".model.pskem.elsewhere.{gone}.0123abcd",  # a folder that several machines share
        f".other.pskem.{here}.{gone}.0123abcd",
        f".model.pskem.{here}.{gone}.backup",
        ".model.pskem.swp",
    ]
    for name in [left.name, *others]:
        (tmp_path / name).write_text("half")
    atomic_write(tmp_path / "model.pskem", b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {"model.pskem", *others}
    assert (tmp_path / "model.pskem").read_bytes() == b"whole"


def test_the_next_copy_removes_folders_that_a_killed_process_left(tmp_path, gone, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"pskem.{socket.gethostname()}.{gone}.0123abcd"
    left.mkdir()
    (left / "table.arrow").write_text("half")
    scratch = Scratch()
    assert list(tmp_path.iterdir()) == [scratch.folder]
    del scratch
    assert not list(tmp_path.iterdir())


def test_on_windows_no_process_is_asked(tmp_path, gone, monkeypatch):
    """os.kill(process, 0) asks whether there is a process; on Windows it would send Ctrl-C."""
    left = tmp_path / f".model.pskem.{socket.gethostname()}.{gone}.0123abcd"
    left.write_text("half")

    def sent(*_):
        raise AssertionError("a signal was sent")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "kill", sent)
        patched.setattr(files.os, "name", "nt")
        assert files.is_alive(gone)
    sweep(tmp_path, ".model.pskem.")
    assert not left.exists()


@pytest.mark.skipif(not os.access("/proc", os.W_OK), reason="/proc is not said to be writable")
def test_a_folder_that_takes_no_files_is_named_and_not_the_temporary_file():
    with pytest.raises(OSError, match=r"^/proc/model\.pskem cannot be written: [\w ]+\.$"):
        atomic_write("/proc/model.pskem", b"whole")
