"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import glob
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: A file that is older than so many seconds and has no lock is not being written.
NEW = 60.0
#: The file in a folder for temporary files that is locked in the folder's place: not every file
#: system locks folders.
LOCK = "lock"
#: Numbers of errors that say that no more can be written.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_place(path: Any) -> None:
    """Refuse a path at which no file can be made, before work is done for it."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {target.parent} to put {target.name} into.")
    if target.exists() and not target.is_file():
        raise IsADirectoryError(f"{target} is a folder or a device; name a file.")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"You may not write into the folder {target.parent}.")


def check_kind(path: Any, kind: str, is_kind: Callable[[Path], bool]) -> None:
    """Refuse to replace a file of another kind. One that is empty has nothing to lose."""
    target = Path(path)
    if target.exists() and target.stat().st_size and not is_kind(target):
        raise FileExistsError(
            f"{path} exists and is not {kind}. Remove it, name another file, or set overwrite=True."
        )


@contextmanager
def replacing(path: Any, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A stream whose content becomes ``path`` if the block ends well, and is dropped if not.

    It is written beside its destination, so that the last step is a rename within one file
    system, which other processes see happen at once.
    """
    target = Path(path).resolve()  # what a link leads to, not the link
    check_place(target)
    sweep(target.parent, f".{target.name}.")
    temporary = target.with_name(f".{target.name}.{own_mark()}")
    try:  # a signal may come as soon as there is something to remove
        with open(temporary, mode.replace("w", "x"), opener=_held, **options) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            temporary.chmod(target.stat().st_mode if target.exists() else 0o666 & ~_umask())
            if fcntl is not None:  # while it is locked; where nothing is, it has to be closed first
                temporary.replace(target)
        if fcntl is None:
            temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise OSError(
                f"There is no room for {path}: {error.strerror}. Make room there, or name a file"
                " elsewhere."
            ) from error
        if isinstance(error, OSError) and str(error.filename) == str(temporary):
            raise type(error)(f"{path} cannot be written: {error.strerror}.") from error
        raise


class Scratch:
    """A folder for temporary files, which is removed with the object that holds it.

    What a killed process has left behind is removed with it.
    """

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        sweep(parent, "pskem.")
        self.folder = parent / f"pskem.{own_mark()}"
        self.folder.mkdir(mode=0o700)
        held = None
        if fcntl is not None:
            held = _held(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
        weakref.finalize(self, _remove, self.folder, held)


def own_mark() -> str:
    """The end of a temporary file's name: whose it is, and a number."""
    return f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"


def _remove(folder: Path, held: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if held is not None:
        os.close(held)


def _held(path: Any, flags: int) -> int:
    """Make a temporary file that is locked until its process closes it or is gone."""
    while True:
        file = os.open(path, flags, mode=0o600)
        if fcntl is None:
            return file
        with suppress(OSError):  # file systems without locks
            fcntl.flock(file, fcntl.LOCK_EX)  # others hold it for the moment that they look
        if os.path.exists(path):
            return file
        os.close(file)  # others have removed it before it was locked


def _is_held(path: Path) -> bool | None:
    """Whether a process holds a temporary file or folder; None if that cannot be told."""
    if fcntl is None:
        return None
    if path.is_dir():
        path /= LOCK
    try:  # what others put there may be a pipe, which would be waited for, or a link
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # NFS grants no other to who only reads
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)
    return False


def _is_left(path: Path, process: int) -> bool:
    """Whether the process that made a temporary file is gone.

    Its number alone does not tell: containers of one name may share a folder, each with a process
    of that number. A lock does, once the file is not quite new.
    """
    held = _is_held(path)
    if held:
        return False
    if not is_alive(process):
        return True
    with suppress(OSError):
        return held is False and time.time() - path.stat().st_mtime > NEW
    return False


def sweep(folder: Path, beginning: str) -> None:
    """Remove temporary files, with names that begin like this, whose process is gone.

    On Windows, where that cannot be asked, they stay.
    """
    mark = re.compile(rf"{re.escape(beginning + socket.gethostname())}\.(\d+)\.[0-9a-f]{{8}}")
    for path in folder.glob(f"{glob.escape(beginning)}*"):
        found = mark.fullmatch(path.name)
        if found is None or not _is_left(path, int(found[1])):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):  # another user's, where each removes only their own
                path.unlink()


def is_alive(process: int) -> bool:
    """Whether there is such a process, or one cannot tell."""
    if os.name == "nt":  # os.kill would not ask there, but send Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def atomic_write(path: Any, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    with replacing(path) as stream:
        stream.write(content)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
