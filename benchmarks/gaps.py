"""Milliseconds per EM pass with gaps, by how many different patterns of them there are."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.child import ask_once, serve
from benchmarks.markdown import Record, heading, paragraph, table

__all__ = ["gaps_text", "measure"]

N_FEATURES, SHARE = 39, 0.3
PATTERNS = (1, 10, 100, 1000)
#: Times as long as without gaps that a pass may take with ten patterns.
TARGET = 1.3
#: Seconds after which a size gets no more passes.
PATIENCE = 20.0


class Case(NamedTuple):
    """A size: blocks, kernels, and whether each belongs to one class."""

    n_blocks: int
    n_components: int
    own: bool

    @property
    def name(self) -> str:
        whose = "of one class each" if self.own else "that all classes share"
        blocks = f"{self.n_blocks} x {N_FEATURES // self.n_blocks} features"
        return f"{blocks}, {self.n_components} kernels {whose}"


CASES = (Case(3, 60, False), Case(1, 200, True), Case(3, 60, True))


def measure(quick: bool) -> dict[str, Any]:
    """Every case in a process of its own, with two threads."""
    found = []
    for case in CASES:
        request = {"case": case, "N": 6000 if quick else 60_000, "passes": 3 if quick else 8}
        found.append({"name": case.name, **ask_once("benchmarks.gaps", request, n_threads=2)})
    return {"cases": found, "share": SHARE, "target": TARGET}


def _rows(N: int) -> tuple[NDArray[np.float64], NDArray[np.intp], str]:
    """MNIST's features and classes or, without the images, planted ones."""
    from pskem.datasets import DatasetError, load_mnist
    from pskem.preprocessing import paper_features

    try:
        images, y = load_mnist(return_X_y=True)
    except DatasetError:
        rng = np.random.default_rng(0)
        y = rng.integers(10, size=N)
        centres = rng.standard_normal((10, N_FEATURES))
        return centres[y] + rng.standard_normal((N, N_FEATURES)), y, "planted"
    return paper_features(N_FEATURES).fit_transform(images[:N]), y[:N], "MNIST"


def _answer(case: list[Any], N: int, passes: int) -> dict[str, Any]:
    n_blocks, n_components, own = case
    X, y, data = _rows(N)
    rng = np.random.default_rng(0)

    def seconds(X: NDArray[np.float64]) -> float:
        """Of the quickest pass."""
        from pskem import SharedKernelClassifier
        from pskem.estimators import EM_ALONE
        from pskem.starts import ClassKMeans

        ends: list[float] = []

        def watch(model: Any) -> bool:
            ends.append(time.perf_counter())
            return len(ends) > 2 and ends[-1] - ends[0] > PATIENCE

        settings = {**EM_ALONE, "init": ClassKMeans(own_mass=1.0 if own else 0.5)}
        SharedKernelClassifier(
            **settings,
            n_components=n_components,
            n_blocks=n_blocks,
            max_iter=passes,
            tol=0.0,
            random_state=0,
            n_jobs=2,
        ).fit(X, y, watch=watch)
        return float(np.diff(ends).min())

    whole = seconds(X)
    ratios = {}
    for number in PATTERNS:
        missing = rng.random((number, N_FEATURES)) < SHARE
        holes = np.where(missing[rng.integers(number, size=len(X))], np.nan, X)
        ratios[str(number)] = seconds(holes) / whole
    return {"data": data, "N": N, "ms": 1e3 * whole, "ratios": ratios}


def gaps_text(record: Record) -> str:
    """The table of a run."""
    rows = [
        [case["name"], f"{case['ms']:.0f}", *(f"{case['ratios'][str(n)]:.2g}" for n in PATTERNS)]
        for case in record["cases"]
    ]
    header = ["", "no gaps (ms)", *(f"{n:,} pattern{'s' * (n > 1)}" for n in PATTERNS)]
    first = record["cases"][0]
    met = sum(case["ratios"]["10"] <= record["target"] for case in record["cases"])
    kind = "the paper's features of MNIST" if first["data"] == "MNIST" else "planted features"
    text = (
        f"Milliseconds per EM pass on 2 threads, {first['N']:,} rows of {kind}, without gaps; and"
        f" how many times as long a pass takes with {record['share']:.0%} of the cells missing, by"
        " the number of different patterns. The goal with ten patterns is"
        f" {record['target']:g}, which {met} of {len(record['cases'])} cases meet. Each pattern"
        " needs the factors of its own part of every covariance, so the time grows with patterns"
        " times kernels; that shows most where a pass is short."
    )
    return "\n\n".join([heading(record), table(header, rows), paragraph(text)])


if __name__ == "__main__":
    serve(_answer)
