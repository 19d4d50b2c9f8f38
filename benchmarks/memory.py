"""Peak memory of a fit, in a fresh process that holds the data and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.child import ask_once, serve
from benchmarks.machine import n_cores

__all__ = ["measure", "peak_bytes"]

FULL_N = 1_000_000
QUICK_N = 200_000
M, N_BLOCKS, K, N_CLASSES = 39, 3, 60, 10
PASSES = 2
MB = 10**6
#: On top of twice the data: interpreter, libraries, the chunks in work.
ALLOWANCE = 300 * MB


def measure(quick: bool) -> dict[str, Any]:
    """Fit in a fresh process with all cores and read its peak."""
    try:
        import resource  # noqa: F401
    except ImportError:
        return {"skipped": "Python's resource module is only there on Unix; run it there"}
    request = {"N": QUICK_N if quick else FULL_N}
    result: dict[str, Any] = ask_once("benchmarks.memory", request, n_threads=n_cores())
    return result


def peak_bytes() -> int:
    """Largest resident set of this process so far, in bytes."""
    import resource

    status = Path("/proc/self/status")
    if status.exists():  # the other figure is never below that of the process that started this one
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _answer(N: int) -> dict[str, Any]:
    from pskem import EM_ALONE, SharedKernelClassifier

    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=N)
    X = np.empty((N, M))
    for low in range(0, N, 10_000):  # in pieces, so that making the data needs no more than them
        rows = X[low : low + 10_000]
        rng.standard_normal(out=rows)
        rows[:, ::3] += y[low : low + 10_000, None]
    before = peak_bytes()
    SharedKernelClassifier(
        n_components=K, n_blocks=N_BLOCKS, max_iter=PASSES, tol=0.0, random_state=0, **EM_ALONE
    ).fit(X, y)
    return {
        "N": N,
        "M": M,
        "n_blocks": N_BLOCKS,
        "K": K,
        "passes": PASSES,
        "data_mb": X.nbytes / MB,
        "before_fit_mb": before / MB,
        "peak_mb": peak_bytes() / MB,
        "budget_mb": (2 * X.nbytes + ALLOWANCE) / MB,
    }


if __name__ == "__main__":
    serve(_answer)
