"""What importing pskem costs on top of importing sklearn.base.

Each import is timed in a fresh interpreter, the two take turns, and their medians are compared.
The first pair is left out: it may have to compile or to read from disk.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

from benchmarks.child import ROOT, environment

__all__ = ["measure"]

TARGET = 0.1
MODULES = ("sklearn.base", "pskem")


def _seconds(module: str) -> float:
    code = (
        "import time; start = time.perf_counter(); "
        f"import {module}; print(time.perf_counter() - start)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(1),
    )
    return float(done.stdout)


def measure(rounds: int) -> dict[str, Any]:
    """Seconds of both imports and their difference."""
    taken: dict[str, list[float]] = {module: [] for module in MODULES}
    for _ in range(rounds + 1):
        for module in MODULES:
            taken[module].append(_seconds(module))
    medians = {module: statistics.median(seconds[1:]) for module, seconds in taken.items()}
    best = {module: min(seconds[1:]) for module, seconds in taken.items()}
    base, package = MODULES
    return {
        "rounds": rounds,
        "median_seconds": medians,
        "best_seconds": best,
        "extra_seconds": medians[package] - medians[base],
        "extra_seconds_best": best[package] - best[base],
        "target": TARGET,
    }
