"""Few constants that explain the record: what a pass costs in time, memory and bytes.

Each kind of cost is a sum of terms with constants that are not negative. They are fitted by least
squares of the relative errors, so small cases count as much as large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.scaling.cases import Case
from benchmarks.scaling.cluster import Cluster, tree

__all__ = [
    "Costs",
    "Fitted",
    "bytes_read",
    "bytes_sent",
    "core_seconds",
    "estimate",
    "fit",
    "measured",
    "once_terms",
    "pass_terms",
    "size_terms",
    "tasks",
    "wall",
]

#: Sources whose cells cost something on top of those in memory.
READ = ("memmap", "parquet", "arrow", "dask", "files")

Record = dict[str, Any]


class Fitted(NamedTuple):
    """Constants by their names, and how well they explain what they were fitted to.

    error : the root of the mean squared relative error
    worst : the largest relative error
    n : measurements
    """

    constants: dict[str, float]
    error: float
    worst: float
    n: int

    def predict(self, terms: dict[str, float]) -> float:
        return sum(self.constants.get(name, 0.0) * value for name, value in terms.items())


class Costs(NamedTuple):
    """What the record says.

    core : seconds of one core for a pass
    out, back : bytes of the model that goes out in a pass, and of the sums that come back
    merge : seconds to add up two sums, for each of their bytes
    fold : seconds of a fold that does nothing: its start, and each task
    carry : seconds of a task for each byte of its result
    graph : bytes of the graph that a client sends for a fold, without the model
    base : bytes of a worker without its rows; of one that reads files, with what it is reading
    number : bytes of memory for each number of X in a fit in memory
    together : how much longer a core takes if the other works as well
    folds : by name, how many a whole fit makes, and how long one takes beside the rows of a pass of
        EM over the same rows with kernels that are as many and as large
    client : seconds that the client of such a fit takes beside its folds
    """

    core: Fitted
    out: Fitted
    back: Fitted
    merge: Fitted
    fold: Fitted
    carry: float
    graph: Fitted
    base: dict[str, float]
    number: float
    together: float
    folds: dict[str, tuple[int, float]]
    client: float

    def seconds(self, case: Case) -> float:
        """One core's seconds for a pass; of workers, without what the client does."""
        return self.core.predict(pass_terms(case))

    def once(self, case: Case) -> float:
        """Seconds of what a pass does once, however many rows and partitions there are."""
        return self.core.predict(once_terms(case))

    def n_folds(self) -> int:
        """How often a whole fit goes through the rows."""
        return sum(n for n, _ in self.folds.values())

    def equivalents(self) -> float:
        """How many passes of EM the rows of a whole fit take as long as."""
        return sum(n * ratio for n, ratio in self.folds.values())


def _statistics(m: int) -> int:
    """Numbers of phi for a block of m features: 1, x and the products."""
    return 1 + m + m * (m + 1) // 2


def tasks(n_partitions: int) -> int:
    """Tasks of a fold: the partitions and the merges of the tree."""
    return n_partitions + len(tree(n_partitions, Cluster(1).arity))


def once_terms(case: Case) -> dict[str, float]:
    """What a pass does once, in the process that fits."""
    return {"update": float(case.R * case.K * case.m**3), "pass": 1.0}


def pass_terms(case: Case) -> dict[str, float]:
    """What a pass does, by the names of the constants; on a cluster, what its workers do."""
    N, R, m, K = case.N, case.R, case.m, case.K
    terms: dict[str, float] = {
        "product": N * R * K * _statistics(m),
        "kernel": N * R * K,
        "feature": N * R * _statistics(m),
    }
    terms |= {"partition": float(case.partitions)} if case.clustered else once_terms(case)
    if case.source in READ:
        terms[f"cell, {case.source}"] = N * R * m
    return terms


def size_terms(case: Case) -> dict[str, float]:
    """What a pass sends."""
    return {
        "number": case.R * case.K * _statistics(case.m),
        "share": case.R * case.K * case.L,
        "message": 1.0,
    }


def fit(terms: Sequence[dict[str, float]], found: Sequence[float]) -> Fitted:
    """Constants that are not negative, by least squares of the relative errors."""
    names = list(dict.fromkeys(name for each in terms for name in each))
    values = np.array(found, dtype=np.float64)
    A = np.array([[each.get(name, 0.0) for name in names] for each in terms])
    A /= values[:, None]
    scale = np.maximum(np.abs(A).max(axis=0), np.finfo(float).tiny)
    x, _ = nnls(A / scale, np.ones(len(values)))
    errors = A / scale @ x - 1.0
    constants = dict(zip(names, (x / scale).tolist(), strict=True))
    return Fitted(
        constants, float(np.sqrt(np.mean(errors**2))), float(np.abs(errors).max()), len(values)
    )


def measured(record: Record, *sections: str) -> list[tuple[Case, Record]]:
    """Cases of passes that were measured, of some sections or of all."""
    return [
        (Case(**entry["case"]), entry)
        for name, section in record["sections"].items()
        for entry in section.get("cases", [])
        if entry.get("passes") and (not sections or name in sections)
    ]


def _beside(record: Record, section: str) -> list[tuple[dict[str, Any], Any]]:
    found = record["sections"].get(section, {}).get("cases", [])
    return [(entry["case"], entry["found"]) for entry in found if "found" in entry]


def core_seconds(case: Case, entry: Record) -> float:
    """Seconds of all cores together in a pass; if there are workers, without the client."""
    used = [one["used"][1:] if case.clustered else one["used"] for one in entry["passes"]]
    return median(sum(each["processor"] for each in processes) for processes in used)


def wall(entry: Record) -> float:
    return median(one["wall"] for one in entry["passes"])


def bytes_read(entry: Record) -> float:
    """Bytes that a pass reads from files; those of mapped files are not known."""
    return median(sum(one.get("read", 0.0) for one in each["used"]) for each in entry["passes"])


def bytes_sent(entry: Record) -> float:
    """Bytes that the workers send in a pass, to each other and to the client."""
    return median(sum(one.get("sent", 0.0) for one in each["used"]) for each in entry["passes"])


def _small(case: Case) -> bool:
    """Whether rows of files are read once, into memory, because there are so few."""
    return case.source in READ and case.N < 20_000


def _core(record: Record) -> Fitted:
    # Two threads slow each other; that is a constant of its own.
    alone = [
        (case, entry)
        for case, entry in measured(record)
        if case.threads == 1 and case.workers < 2 and case.source != "apart" and not _small(case)
    ]
    return fit([pass_terms(case) for case, _ in alone], [core_seconds(*each) for each in alone])


def _sizes(record: Record, what: str) -> tuple[list[Case], list[float]]:
    pairs = [(Case(**case["case"]), found[what]) for case, found in _beside(record, "sizes")]
    return [case for case, _ in pairs], [value for _, value in pairs]


def _bytes(record: Record, what: str) -> Fitted:
    cases, found = _sizes(record, what)
    return fit([size_terms(case) for case in cases], found)


def _merge(record: Record) -> Fitted:
    _, seconds = _sizes(record, "merge")
    _, back = _sizes(record, "back")
    return fit([{"byte": size, "merge": 1.0} for size in back], seconds)


def _folds(record: Record) -> tuple[Fitted, float]:
    """What a task of two workers costs, and each byte of its result."""
    points: dict[int, list[tuple[float, float]]] = {}
    for case, found in _beside(record, "folds"):
        if case["workers"] == 2:
            seconds = median(one["wall"] for one in found["folds"])
            point = float(tasks(case["partitions"])), seconds
            points.setdefault(case["numbers"], []).append(point)
    fits = {
        numbers: fit([{"task": n, "fold": 1.0} for n, _ in each], [s for _, s in each])
        for numbers, each in points.items()
    }
    few, many = min(fits), max(fits)
    more = fits[many].constants["task"] - fits[few].constants["task"]
    return fits[few], max(0.0, more) / (8.0 * (many - few))


def _graph(record: Record) -> Fitted:
    """Bytes of graphs, from folds of functions that have next to none themselves."""
    found = _beside(record, "folds")
    few = min(case["numbers"] for case, _ in found)
    pairs = [(case["partitions"], each["graph"]) for case, each in found if case["numbers"] == few]
    return fit([{"partition": float(n), "graph": 1.0} for n, _ in pairs], [s for _, s in pairs])


def _base(record: Record) -> dict[str, float]:
    """Peaks of workers without the rows that they keep."""
    found: dict[str, float] = {}
    for case, entry in measured(record, "workers"):
        if case.clustered:
            # A worker that had nothing to do has no peak of interest, so the largest counts.
            kept = case.N * (case.M + 1) * 8 / case.workers if case.source == "dask" else 0.0
            found[case.source] = max(found.get(case.source, 0.0), max(entry["peak"][1:]) - kept)
    return found


def _number(record: Record) -> float:
    """Bytes of memory for each number in memory, as the peak grows with N."""
    there = sorted(
        (case.N * case.M, entry["peak"][0])
        for case, entry in measured(record, "N")
        if case.source == "memory"
    )
    (low, least), (high, most) = there[0], there[-1]
    return (most - least) / (high - low)


def _together(record: Record) -> float:
    """Time of two processes apart with half of the rows each, over half the time of one."""
    found = {c.workers: wall(entry) for c, entry in measured(record) if c.source == "apart"}
    return 2.0 * found[2] / found[1]


def _whole(record: Record, core: Fitted) -> tuple[dict[str, tuple[int, float]], float]:
    """Folds of a whole fit in passes' worth, and what its client took.

    Its folds went through rows one after the other, so the unit is what the constants say of the
    same rows: kernels shared by all classes, as in the passes that are multiplied by it.
    """
    for request, found in _beside(record, "counts"):
        unit = core.predict(pass_terms(Case(**request["case"])))
        folds = {
            name: (fold["n"], fold["seconds"] / fold["n"] / unit)
            for name, fold in found["folds"].items()
        }
        inside = sum(fold["seconds"] for fold in found["folds"].values())
        return folds, max(0.0, found["seconds"] - inside)
    raise ValueError("The record has no whole fit; run python -m benchmarks.scaling --only counts.")


def estimate(record: Record) -> Costs:
    """The constants of a record."""
    core = _core(record)
    fold, carry = _folds(record)
    folds, client = _whole(record, core)
    return Costs(
        core=core,
        out=_bytes(record, "out"),
        back=_bytes(record, "back"),
        merge=_merge(record),
        fold=fold,
        carry=carry,
        graph=_graph(record),
        base=_base(record),
        number=_number(record),
        together=_together(record),
        folds=folds,
        client=client,
    )
