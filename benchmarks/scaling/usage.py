"""What a process has used so far, and what the workers of a Dask cluster have."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_bytes

__all__ = ["difference", "peaks", "used"]


def _read() -> dict[str, int]:
    """Bytes that were read from files, and those of them that came from a disk; Linux alone tells.

    Files that are mapped to memory count only if they come from the disk.
    """
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return {}
    found = dict(line.split(": ") for line in lines)
    return {"read": int(found["rchar"]), "disk": int(found["read_bytes"])}


def _own() -> dict[str, float]:
    return {"processor": time.process_time(), **_read()}


def _of_worker(dask_worker: Any) -> dict[str, float]:
    return {**_own(), "sent": dask_worker.transfer_outgoing_bytes_total}


def used(client: Any = None) -> list[dict[str, float]]:
    """Processor seconds, bytes read, and bytes sent by workers to each other and to the client.

    This process is the first.
    """
    there = [] if client is None else list(client.run(_of_worker).values())
    return [_own(), *there]


def difference(
    before: list[dict[str, float]], after: list[dict[str, float]]
) -> list[dict[str, float]]:
    """What was used in between."""
    pairs = zip(before, after, strict=True)
    return [{name: b[name] - a[name] for name in b} for a, b in pairs]


def peaks(client: Any = None) -> list[int]:
    """Bytes of memory at most, of this process and of each worker."""
    there = [] if client is None else list(client.run(peak_bytes).values())
    return [peak_bytes(), *there]
