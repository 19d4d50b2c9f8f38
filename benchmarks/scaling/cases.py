"""What is measured: sizes, where the rows come from, and which of them take turns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

__all__ = ["FILES", "PLAN", "SECTIONS", "Case", "Group", "groups"]

#: Sources whose rows lie in files, which are read anew in every pass.
FILES = ("memmap", "parquet", "arrow")
#: The case of the paper: blocks of 13 features, 60 kernels, ten classes.
R, M_OF_BLOCK, K, L = 3, 13, 60, 10
#: What is measured by passes that take turns.
SECTIONS = ("sources", "N", "K", "m", "R", "L", "threads", "workers", "checkpoint", "large")


class Case(NamedTuple):
    """A pass of EM.

    source : where the rows come from: "memory", "memmap", "parquet", "arrow", "dask" for a Dask
        array on workers of one thread, "files" for Parquet files that such workers read, and
        "apart" for processes with a part of the rows each that know nothing of each other
    N, R, m, K, L : rows, blocks, features of a block, kernels, classes
    partitions : of the Dask array
    """

    source: str
    N: int
    R: int = R
    m: int = M_OF_BLOCK
    K: int = K
    L: int = L
    threads: int = 1
    workers: int = 0
    partitions: int = 0

    @property
    def M(self) -> int:
        """Features of all blocks."""
        return self.R * self.m

    @property
    def clustered(self) -> bool:
        return self.source in ("dask", "files")

    @property
    def needs(self) -> str:
        """The kind of file that its rows come from."""
        return {"parquet": "parquet", "files": "parquet", "arrow": "arrow"}.get(self.source, "npy")


#: What is extrapolated to: a billion rows of 96 features.
PLAN = Case("dask", 10**9, R=8, m=12, K=60, L=10)


class Group(NamedTuple):
    """Cases that take turns, and how often.

    cold : once more after the files were dropped from memory
    after : a whole fit in a fresh process afterwards: "short", or one with a "checkpoint"
    """

    cases: tuple[Case, ...]
    rounds: int
    cold: bool = False
    after: str = ""


def groups(section: str, quick: bool) -> list[Group]:
    """The groups of a section."""
    return list(
        {"sources": _sources, "N": _rows, "workers": _workers}.get(section, _axis)(section, quick)
    )


def _sources(section: str, quick: bool) -> Iterator[Group]:
    N, rounds = (40_000, 2) if quick else (1_000_000, 5)
    here = [Case(source, N) for source in ("memory", *FILES)]
    there = [Case("dask", N, workers=n, partitions=8) for n in (1, 2)]
    yield Group((*here, *there), rounds, cold=True)
    yield Group(tuple(case._replace(threads=2) for case in here), rounds)


def _rows(section: str, quick: bool) -> Iterator[Group]:
    rounds = {10_000: 9, 30_000: 9, 100_000: 7, 300_000: 5, 1_000_000: 3, 10_000_000: 2}
    if quick:
        rounds = {10_000: 2, 30_000: 2, 100_000: 2}
    for N, turns in rounds.items():
        # Making ten million rows as files of every kind takes longer than the passes.
        sources = ("memory", *FILES) if N < 10_000_000 else ("memory", "parquet")
        yield Group(tuple(Case(source, N) for source in sources), turns)


def _workers(section: str, quick: bool) -> Iterator[Group]:
    N, rounds = (40_000, 2) if quick else (1_000_000, 7)
    for partitions in (8, 32) if quick else (8, 32, 128):
        both = [Case("dask", N, workers=n, partitions=partitions) for n in (1, 2)]
        apart = [Case("apart", N, workers=n) for n in (1, 2)] if partitions == 8 else []
        yield Group((*both, *apart), rounds)
    yield Group(tuple(Case("files", N, workers=n) for n in (1, 2)), rounds)


def _axis(section: str, quick: bool) -> Iterator[Group]:
    """Sections in which one thing differs."""
    N, rounds = (30_000, 2) if quick else (100_000, 5)
    both = ("memory", "parquet")
    if section == "large":
        size, turns = (200_000, 1) if quick else (20_000_000, 2)
        yield Group((Case("parquet", size, threads=2),), turns, cold=True, after="short")
        return
    if section == "checkpoint":
        N, rounds = (30_000, 1) if quick else (1_000_000, 1)
        yield Group((Case("parquet", N, threads=2),), rounds, after="checkpoint")
        return
    values = {
        "K": (10, 20, 60, 120, 240),
        "m": (4, 8, 13, 26, 52),
        "R": (1, 2, 3, 6, 12),
        "L": (2, 5, 10, 30, 100),
        "threads": (1, 2),
    }[section]
    if section == "threads":
        N, rounds = (40_000, 2) if quick else (300_000, 7)
    elif quick:
        values = values[1:4]
    changes: list[tuple[str, dict[str, Any]]] = [
        (source, {section: value}) for value, source in product(values, both)
    ]
    yield Group(tuple(Case(source, N)._replace(**change) for source, change in changes), rounds)
