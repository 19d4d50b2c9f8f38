"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

__all__ = ["atomic_write", "replacing"]


@contextmanager
def replacing(path: Any, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A stream whose content becomes ``path`` if the block ends well, and is dropped if not.

    It is written beside its destination, so that the last step is a rename within one file
    system, which other processes see happen at once.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, mode, **options) as stream:
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
