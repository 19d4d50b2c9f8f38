"""Memory that is kept while samples are read and used, piece by piece.

glibc gives what is freed back to the system if it is much, and clearing new pages takes a quarter
of a pass. What is much it learns from the largest array that was freed, up to 32 MB: so one of that
size is made and let go. No page of it is touched.

Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_=65536``: what is freed goes back to the
system. That also ends the allocator's habit of learning how large arrays are, so each one that is
larger than 128 kB is made of new pages, which the system has to clear. A pass makes many such
arrays, and the pages took a third of its time. Inside :data:`kept_memory` the allocator keeps what
is freed, and for a moment afterwards: the next partition comes soon. Then its limits are what they
were, and the memory is given back.

What was kept for one pass lies scattered, and the next may need arrays of other sizes. So it is
given back after a pass that took so long that clearing the pages again does not count. The same
holds for what Arrow keeps for files to come, about 100 MB for Parquet.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import monotonic
from typing import Any

import numpy as np

from pskem.engine._parallel import Shared

__all__ = ["give_back", "given_back", "kept_memory"]

#: As in glibc's malloc.h; its own limit where nobody has set one; the largest that it allows.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
USUAL_MMAP, LARGEST_MMAP = 2**17, 2**25
#: Bytes that may lie free at the end of a heap.
KEPT = 2**28
#: Seconds for which memory is kept for those who come next.
MOMENT = 2.0
#: Seconds of work beside which it takes no time to clear pages.
LONG = 5.0


@cache
def _allocator() -> Any:
    """The C library, if its allocator can be told what to keep; None if not."""
    try:
        library = ctypes.CDLL(None)
        return library if library.mallopt and library.malloc_trim else None
    except (OSError, TypeError, AttributeError):  # not glibc
        return None


def _keep() -> Callable[[], None] | None:
    """Let the allocator keep memory; what undoes it, if it had been told not to."""
    trim, mapped = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    library = _allocator()
    if library is None or not trim.isdigit() or int(trim) >= KEPT:
        np.empty(LARGEST_MMAP - 2**16, dtype=np.uint8)
        return None
    before = int(trim), int(mapped) if mapped.isdigit() else USUAL_MMAP

    def limit(trim: int, mapped: int) -> None:
        library.mallopt(TRIM_THRESHOLD, trim)
        library.mallopt(MMAP_THRESHOLD, mapped)

    def undo() -> None:
        limit(*before)
        give_back()

    limit(KEPT, LARGEST_MMAP)
    return undo


#: While anyone is inside, the allocator keeps memory.
kept_memory = Shared(_keep, linger=MOMENT)


def give_back() -> None:
    """Give the system the memory that the C library keeps, and Arrow if it was imported."""
    library, arrow = _allocator(), sys.modules.get("pyarrow")
    if library is not None:
        library.malloc_trim(0)
    pool = getattr(arrow, "default_memory_pool", None)  # it may be in the middle of its import
    if pool is not None:
        pool().release_unused()


@contextmanager
def given_back() -> Iterator[None]:
    """Give free memory back to the system at the end, if it is long after the beginning."""
    start = monotonic()
    yield
    if monotonic() - start > LONG:
        give_back()
