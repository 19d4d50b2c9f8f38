"""The process in which one trainer lives: ``python -m benchmarks.worker NAME``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.child import serve
from benchmarks.peers import TRAINERS, Run
from benchmarks.problem import Mixture, Problem, Size, mean_log_likelihood, plant


class Session:
    """What the process holds between requests: the problem, the prepared trainer, its last fit."""

    def __init__(self, name: str) -> None:
        self._trainer = TRAINERS[name]
        self._problem: Problem | None = None
        self._run: Run | None = None
        self._mixture: Mixture | None = None

    def answer(self, do: str, **arguments: Any) -> dict[str, Any]:
        actions: dict[str, Callable[..., dict[str, Any]]] = {
            "prepare": self._prepare,
            "train": self._train,
            "score": self._score,
            "multiply": self._multiply,
            "exponentiate": self._exponentiate,
        }
        return actions[do](**arguments)

    def _prepare(self, size: list[int]) -> dict[str, Any]:
        """Plant the problem and hand it to the trainer."""
        self._problem = plant(Size(*size))
        self._run = self._trainer.prepare(self._problem)
        threadpool_limits(int(os.environ["OMP_NUM_THREADS"]))  # of all that is loaded by now
        return {"version": self._trainer.version()}

    def _train(self, passes: int) -> dict[str, Any]:
        """Fit from the start; wall seconds, and the processor seconds of all threads."""
        assert self._run is not None
        wall, processor = time.perf_counter(), time.process_time()
        self._mixture = self._run(passes)
        return {
            "wall": time.perf_counter() - wall,
            "processor": time.process_time() - processor,
        }

    def _score(self) -> dict[str, Any]:
        """Mean log likelihood of the last fit, by a function that is no trainer's."""
        assert self._problem is not None
        assert self._mixture is not None
        return {"mean_log_likelihood": mean_log_likelihood(self._problem.X, self._mixture)}

    def _multiply(self, n: int, dtype: str) -> dict[str, Any]:
        """Seconds of a product of two (n, n) matrices."""
        a = np.random.default_rng(0).random((n, n)).astype(dtype)
        out = np.zeros_like(a)
        start = time.perf_counter()
        np.matmul(a, a, out=out)
        return {"seconds": time.perf_counter() - start}

    def _exponentiate(self, n: int, dtype: str) -> dict[str, Any]:
        """Seconds of exp of n numbers, in place, in cache."""
        x = np.random.default_rng(0).uniform(-20.0, 0.0, n).astype(dtype)
        out = np.zeros_like(x)
        start = time.perf_counter()
        np.exp(x, out=out)
        return {"seconds": time.perf_counter() - start}


if __name__ == "__main__":
    serve(Session(sys.argv[1]).answer)
