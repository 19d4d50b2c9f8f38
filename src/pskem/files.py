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
from functools import partial
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Seconds after which a temporary file is locked, if it ever is.
NEW = 60.0
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
    mine = partial(os.open, mode=0o600)
    sweep(target.parent, f".{target.name}.")
    temporary = target.with_name(f".{target.name}.{own_mark()}")
    try:  # a signal may come as soon as there is something to remove
        with open(temporary, mode.replace("w", "x"), opener=mine, **options) as stream:
            _hold(stream.fileno())
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(target.stat().st_mode if target.exists() else 0o666 & ~_umask())
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
        held = None if os.name == "nt" else os.open(self.folder, os.O_RDONLY)
        weakref.finalize(self, _remove, self.folder, held)
        if held is not None:
            _hold(held)


def own_mark() -> str:
    """The end of a temporary file's name: whose it is, and a number."""
    return f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"


def _remove(folder: Path, held: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if held is not None:
        os.close(held)


def _hold(file: int) -> None:
    """Lock a temporary file or folder that is open, until its process closes it or is gone."""
    if fcntl is not None:
        with suppress(OSError):  # file systems without locks
            fcntl.flock(file, fcntl.LOCK_EX)  # others hold it for the moment that they look


def _is_held(path: Path) -> bool | None:
    """Whether a process holds a temporary file or folder; None if that cannot be told."""
    if fcntl is None:
        return None
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)
    return False


def _is_left(path: Path, process: int) -> bool:
    """Whether the process that made a temporary file is gone.

    Containers of one name may share a folder and have processes of the same number, so that the
    number alone does not tell. A lock does, once the file is not quite new.
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
