"""Temporary files: those of processes that are gone are removed, others never."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pskem import files
from pskem.files import Scratch, atomic_write, own_mark, replacing, sweep

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


#: A program that is killed in the middle of its writing.
WRITING = """
import os, signal, sys
from pskem import files

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "model":
    files.os.fsync = killed
    files.atomic_write(sys.argv[2], b"half")
else:
    from pskem import open_table
    table = open_table(sys.argv[2], "kind")
    killed()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
@pytest.mark.parametrize("what", ["model", "table"])
def test_what_a_sigkill_really_leaves_is_removed_by_the_next_run(tmp_path, monkeypatch, what):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    there = tmp_path / "tmp"
    there.mkdir()
    monkeypatch.setenv("TMPDIR", str(there))
    monkeypatch.setattr("tempfile.tempdir", str(there))
    table, model = tmp_path / "table.csv", there / "model.pskem"
    table.write_text("a,kind\n" + "1.5,x\n2.5,y\n" * 40)
    given = str(model if what == "model" else table)
    done = subprocess.run([sys.executable, "-c", WRITING, what, given], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    (left,) = there.iterdir()
    assert (left if what == "model" else left / "table.arrow").stat().st_size
    if what == "model":
        atomic_write(model, b"whole")
        assert list(there.iterdir()) == [model]
        return
    from pskem import open_table

    now = open_table(table, "kind")
    assert list(there.iterdir()) == [now.scratch.folder] != [left]


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


@pytest.fixture
def of_others(tmp_path):
    """As containers of one name leave files in a folder: three that were made an hour ago."""
    fcntl = pytest.importorskip("fcntl", reason="needs locks of files")
    here = f".model.pskem.{socket.gethostname()}"
    held, left, new = (
        tmp_path / f"{here}.{process}.{i:08x}"
        for i, process in enumerate((2**22 + 1, os.getppid(), os.getppid()))
    )
    for path in (held, left, new):
        path.write_text("half")
    for path in (held, left):
        os.utime(path, (time.time() - 3600.0,) * 2)
    with held.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield held, left, new


def test_what_another_container_writes_stays_though_its_process_is_not_here(of_others, tmp_path):
    """A process of such a number may be here all the same: then age and lock decide."""
    held, _, new = of_others
    sweep(tmp_path, ".model.pskem.")
    assert set(tmp_path.iterdir()) == {held, new}


def test_without_locks_the_number_of_the_process_decides(of_others, tmp_path, monkeypatch):
    _, left, new = of_others

    def refused(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", refused)
    sweep(tmp_path, ".model.pskem.")
    assert set(tmp_path.iterdir()) == {left, new}
    atomic_write(tmp_path / "model.pskem", b"whole")
    assert (tmp_path / "model.pskem").read_bytes() == b"whole"


def test_what_is_being_written_is_held(tmp_path, monkeypatch):
    pytest.importorskip("fcntl", reason="needs locks of files")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    scratch = Scratch()
    assert files._is_held(scratch.folder)
    with replacing(tmp_path / "model.pskem") as stream:
        stream.write(b"half")
        (temporary,) = tmp_path.glob(".*")
        assert files._is_held(temporary)
    assert files._is_held(tmp_path / "model.pskem") is False


def test_a_folder_that_takes_no_files_is_named_and_not_the_temporary_file(tmp_path, monkeypatch):
    """Such as /proc, which says that it is writable."""
    place, real = tmp_path / "model.pskem", os.open

    def refusing(path, *arguments, **options):
        if str(path).startswith(str(tmp_path)):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(files.os, "open", refusing)
    with pytest.raises(OSError, match=r"model\.pskem cannot be written: Read-only file system\.$"):
        atomic_write(place, b"whole")


def test_a_file_that_others_have_removed_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl", reason="needs locks of files")
    locked, lock = [], fcntl.flock

    def late(file, operation):
        if operation == fcntl.LOCK_EX and not locked:
            (temporary,) = tmp_path.glob(".*")
            temporary.unlink()
            locked.append(temporary)
        return lock(file, operation)

    monkeypatch.setattr(files.fcntl, "flock", late)
    atomic_write(tmp_path / "model.pskem", b"whole")
    assert locked
    assert (tmp_path / "model.pskem").read_bytes() == b"whole"


def test_a_file_is_held_until_it_has_its_name(tmp_path, monkeypatch):
    pytest.importorskip("fcntl", reason="needs locks of files")
    held, replace = [], Path.replace

    def asking(self, target):
        held.append(files._is_held(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", asking)
    atomic_write(tmp_path / "model.pskem", b"whole")
    assert held == [True]
