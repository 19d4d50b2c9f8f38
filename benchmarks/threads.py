"""How much faster two threads fit a model of three blocks than one.

Whole fits are compared, with their start and all that runs in one thread. The two take turns, and
the quickest of each counts. Beside it stands what the machine gives to two threads that have
nothing in common: two matrix products at once instead of one after the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.child import ask_once, serve
from benchmarks.machine import n_cores
from benchmarks.problem import FloatArray, Size, plant

__all__ = ["measure"]

TARGET = 1.7
SIZE = Size(30_000, 39, 60)
N_BLOCKS = 3
N_CLASSES = 10
PASSES = 20
GEMM_SIDE = 1024


def measure(rounds: int) -> dict[str, Any]:
    """Measure in a fresh process that may use two threads."""
    if n_cores() < 2:
        return {"skipped": "this process may use one core only; run it where it may use two"}
    result: dict[str, Any] = ask_once("benchmarks.threads", {"rounds": rounds}, n_threads=2)
    return result


def _fit_seconds(X: FloatArray, y: Any, n_jobs: int) -> tuple[float, Any]:
    from pskem import EM_ALONE, SharedKernelClassifier

    model = SharedKernelClassifier(
        n_components=SIZE.K,
        n_blocks=N_BLOCKS,
        max_iter=PASSES,
        tol=0.0,
        n_jobs=n_jobs,
        random_state=0,
        **EM_ALONE,
    )
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start, model.log_likelihoods_


def _products_seconds(
    pool: ThreadPoolExecutor, matrices: Sequence[FloatArray]
) -> tuple[float, float]:
    """Products of each matrix with itself: one after the other, and at once."""

    def square(a: FloatArray) -> None:
        a @ a

    start = time.perf_counter()
    for a in matrices:
        square(a)
    between = time.perf_counter()
    list(pool.map(square, matrices))
    return between - start, time.perf_counter() - between


def _answer(rounds: int) -> dict[str, Any]:
    X, _ = plant(SIZE)
    rng = np.random.default_rng(0)
    y = (X @ rng.standard_normal((SIZE.m, N_CLASSES))).argmax(axis=1)
    matrices = [rng.random((GEMM_SIDE, GEMM_SIDE)) for _ in range(2)]
    seconds: dict[int, list[float]] = {1: [], 2: []}
    products: list[tuple[float, float]] = []
    with threadpool_limits(1), ThreadPoolExecutor(2) as pool:
        for _ in range(rounds + 1):
            traces = []
            for n_jobs in seconds:
                taken, trace = _fit_seconds(X, y, n_jobs)
                seconds[n_jobs].append(taken)
                traces.append(trace)
            products.append(_products_seconds(pool, matrices))
    one, two = (np.array(taken[1:]) for taken in seconds.values())  # the first round warms up
    serial, parallel = np.array(products[1:]).T
    return {
        "N": SIZE.N,
        "M": SIZE.m,
        "n_blocks": N_BLOCKS,
        "K": SIZE.K,
        "n_classes": N_CLASSES,
        "passes": PASSES,
        "seconds": {"1": one.tolist(), "2": two.tolist()},
        "speedup": float(one.min() / two.min()),
        "speedup_median": float(statistics.median(one) / statistics.median(two)),
        "speedup_of_products": float(serial.min() / parallel.min()),
        "same_bits": bool(np.array_equal(*traces)),
        "target": TARGET,
    }


if __name__ == "__main__":
    serve(_answer)
