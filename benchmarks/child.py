"""Fresh processes with a given number of threads, so that no measurement touches another.

The limits are in the environment before anything is imported: most thread pools read them only
once. A process of its own per trainer also keeps the floating-point modes, the allocators and the
OpenMP runtimes that libraries bring along away from the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

__all__ = ["ROOT", "ChildError", "Worker", "ask_once", "environment", "serve"]

ROOT = Path(__file__).resolve().parent.parent


class ChildError(RuntimeError):
    """A child process failed, or did not answer in time."""


def environment(n_threads: int) -> dict[str, str]:
    """The environment of a process that is to use this many threads."""
    limits = dict.fromkeys(
        [
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "BLIS_NUM_THREADS",
            "VECLIB_MAXIMUM_THREADS",
            "NUMEXPR_NUM_THREADS",
            "NPROC",  # the size of JAX's thread pool
        ],
        str(n_threads),
    )
    single = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"} if n_threads == 1 else {}
    return {**os.environ, **limits, **single, "JAX_PLATFORMS": "cpu"}


def ask_once(module: str, request: dict[str, Any], n_threads: int) -> Any:
    """The answer of a fresh ``python -m module`` to one request."""
    with Worker([module], n_threads) as worker:
        return worker.ask(**request)


class Worker:
    """A process that answers lines of JSON with lines of JSON.

    Parameters
    ----------
    command : list of str
        Module and arguments, as after ``python -m``.
    n_threads : int
        Threads that the process may use.
    """

    def __init__(self, command: list[str], n_threads: int) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            cwd=ROOT,
            env=environment(n_threads),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def ask(self, timeout: float = 600.0, **request: Any) -> Any:
        """Send a request and wait for its answer.

        Raises
        ------
        ChildError
            If the process answers with an error, dies, or takes longer than ``timeout`` seconds,
            in which case it is ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(timeout, end)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            raise ChildError(f"no answer within {timeout:.0f} s")
        if not line:
            self._stderr.seek(0)
            said = self._stderr.read().decode(errors="replace").strip().splitlines()
            raise ChildError(f"the process died: {said[-1] if said else 'it left no message'}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise ChildError(answer["error"])
        return answer


def serve(answer: Callable[..., Any]) -> None:
    """Answer requests, in a child process: ``answer(**request)`` for each line of input.

    Libraries may print to standard output, so answers have a channel of their own.
    """
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(**json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        channel.write(json.dumps(reply) + "\n")
        channel.flush()
