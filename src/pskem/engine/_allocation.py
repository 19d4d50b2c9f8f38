"""Memory that is kept while samples are read and used, piece by piece.

glibc gives what is freed back to the system if it is much, and clearing new pages takes a quarter
of a pass. What is much it learns from the largest array that was freed, up to 32 MB: so one of that
size is made and let go. No page of it is touched.

Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_=65536``: what is freed goes back to the
system. That also ends the allocator's habit of learning how large arrays are, so each one that is
larger than 128 kB is made of new pages, which the system has to clear. A pass makes many such
arrays, and the pages took a third of its time. Inside :data:`kept_memory` the allocator keeps what
is freed. Afterwards its limits are what they were, and the next ``free`` gives the memory back.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

import numpy as np

from pskem.engine._parallel import Shared

__all__ = ["kept_memory"]

#: As in glibc's malloc.h; its own limit where nobody has set one; the largest that it allows.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
USUAL_MMAP, LARGEST_MMAP = 2**17, 2**25
#: Bytes that may lie free at the end of a heap.
KEPT = 2**28


@cache
def _mallopt() -> Callable[[int, int], int] | None:
    """The function that sets limits of the allocator; None if it has none."""
    try:
        found: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # not glibc
        return None
    return found


def _keep() -> Callable[[], None]:
    """Let the allocator keep memory, if it has been told not to; what undoes it."""
    trim, mapped = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    mallopt = _mallopt()
    if mallopt is None or not trim.isdigit() or int(trim) >= KEPT:
        np.empty(LARGEST_MMAP - 2**16, dtype=np.uint8)
        return lambda: None
    before = int(trim), int(mapped) if mapped.isdigit() else USUAL_MMAP

    def limit(trim: int, mapped: int) -> None:
        mallopt(TRIM_THRESHOLD, trim)
        mallopt(MMAP_THRESHOLD, mapped)

    limit(KEPT, LARGEST_MMAP)
    return lambda: limit(*before)


#: While anyone is inside, the allocator keeps memory.
kept_memory = Shared(_keep)
