"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any


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
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:  # a signal may come as soon as there is something to remove
        with open(temporary, mode.replace("w", "x"), opener=mine, **options) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(target.stat().st_mode if target.exists() else 0o666 & ~_umask())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def atomic_write(path: Any, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    with replacing(path) as stream:
        stream.write(content)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
