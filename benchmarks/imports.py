"""What importing pskem costs on top of importing sklearn.base.

In fresh interpreters, sklearn.base is imported first and pskem after it, each with its own time.
The first interpreter is left out: it may have to compile or to read from disk.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

from benchmarks.child import ROOT, environment

__all__ = ["measure"]

TARGET = 0.1
CODE = """
import time
start = time.perf_counter()
import sklearn.base
between = time.perf_counter()
import pskem
print(between - start, time.perf_counter() - between)
"""


def _seconds() -> tuple[float, float]:
    """Seconds to import sklearn.base, and then pskem."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(1),
    )
    base, extra = map(float, done.stdout.split())
    return base, extra


def measure(rounds: int) -> dict[str, Any]:
    """Seconds of sklearn.base, and of pskem beyond it: medians and minima."""
    base, extra = zip(*[_seconds() for _ in range(rounds + 1)][1:], strict=True)
    return {
        "rounds": rounds,
        "base_seconds": statistics.median(base),
        "extra_seconds": statistics.median(extra),
        "extra_seconds_best": min(extra),
        "target": TARGET,
    }
