"""Seconds that the paper's features of as many images as MNIST has take on one core."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.child import ask_once, serve

__all__ = ["measure"]

FULL_N = 60_000
QUICK_N = 6_000
SIDE, N_FEATURES = 28, 39
#: Seconds for all of MNIST.
TARGET = 15.0


def measure(quick: bool) -> dict[str, Any]:
    """Deskew, normalise and decompose images in a fresh process with one thread."""
    request = {"N": QUICK_N if quick else FULL_N}
    result: dict[str, Any] = ask_once("benchmarks.features", request, n_threads=1)
    return result


def _answer(N: int) -> dict[str, Any]:
    from pskem.preprocessing import paper_features

    # The time does not depend on what is in the pictures.
    images = np.random.default_rng(0).integers(256, size=(N, SIDE * SIDE), dtype=np.uint8)
    start = time.perf_counter()
    paper_features(N_FEATURES).fit_transform(images)
    return {
        "N": N,
        "side": SIDE,
        "n_features": N_FEATURES,
        "seconds": time.perf_counter() - start,
        "target": TARGET * N / FULL_N,
    }


if __name__ == "__main__":
    serve(_answer)
