"""Passes of several cases in turns, so that all of them meet the same noise."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from benchmarks import machine
from benchmarks.child import Worker
from benchmarks.scaling.cases import FILES, Case, Group
from benchmarks.scaling.data import place
from benchmarks.scaling.keeping import Keeper

__all__ = ["measure"]

#: Seconds that anything may take.
PATIENCE = 7200.0

Say = Callable[[str], None]


class Running:
    """The processes of a case: one, or as many as are apart."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        n = case.workers if case.source == "apart" else 1
        self._workers = [Worker(["benchmarks.scaling.session"], case.threads) for _ in range(n)]
        self._pool = ThreadPoolExecutor(n)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()
        self._pool.shutdown()

    def begin(self) -> dict[str, Any]:
        requests = [
            {"do": "begin", "case": self.case, "folder": str(self.folder), "share": share}
            for share in range(len(self._workers))
        ]
        found = self._ask(requests)
        return {
            "seconds": max(each["seconds"] for each in found),
            "before": [size for each in found for size in each["before"]],
        }

    def advance(self, cold: bool = False) -> dict[str, Any]:
        """One pass of all processes at the same time; what each has used."""
        found = self._ask([{"do": "advance", "cold": cold}] * len(self._workers))
        if not all(found):
            return {}
        used = [one for each in found for one in each["used"]]
        return {"wall": max(each["wall"] for each in found), "used": used}

    def end(self) -> list[int]:
        """The most memory that each process had, in bytes."""
        found = self._ask([{"do": "end"}] * len(self._workers))
        return [size for each in found for size in each["peak"]]

    def _ask(self, requests: list[dict[str, Any]]) -> list[Any]:
        pairs = zip(self._workers, requests, strict=True)
        asked = [self._pool.submit(one.ask, timeout=PATIENCE, **what) for one, what in pairs]
        return [each.result() for each in asked]


@contextmanager
def _files(cases: list[Case], folder: Path) -> Iterator[dict[Case, int]]:
    """The files that cases need, and their bytes; they are removed afterwards."""
    wanted = {(case.N, case.M, case.L, case.needs): case for case in cases}
    sizes = {}
    try:
        for N, M, L, kind in wanted:
            request = {"folder": str(folder), "kind": kind, "N": N, "M": M, "L": L}
            with Worker(["benchmarks.scaling.data"], 1) as writer:
                sizes[N, M, L, kind] = writer.ask(timeout=PATIENCE, **request)["bytes"]
        yield {case: sizes[case.N, case.M, case.L, case.needs] for case in cases}
    finally:
        for N, M, L, _ in wanted:
            shutil.rmtree(place(folder, N, M, L), ignore_errors=True)


def measure(keeper: Keeper, section: str, group: Group, folder: Path, say: Say) -> None:
    """Let the cases of a group take turns until each has had as many as it should have."""
    entries = {
        case: keeper.entry(section, case._asdict(), passes=[], cold=[]) for case in group.cases
    }
    open_cases = [case for case, entry in entries.items() if not _done(entry, group)]
    if not open_cases:
        return
    with _files(open_cases, folder) as sizes, ExitStack() as stack:
        running = {}
        for case in open_cases:
            say(f"{section}: {describe(case)}")
            running[case] = stack.enter_context(Running(case, folder))
            entries[case]["bytes"] = sizes[case]
            entries[case]["begin"] = running[case].begin()
        keeper.keep()
        for _ in range(group.rounds):
            for case, one in running.items():
                if len(entries[case]["passes"]) < group.rounds:
                    found = {**one.advance(), "load": machine.load()}
                    entries[case]["passes"].append(found)
                    keeper.keep()
        for case, one in running.items():
            if _wants_cold(group, case) and not entries[case]["cold"]:
                entries[case]["cold"] = [found] if (found := one.advance(cold=True)) else []
            entries[case]["peak"] = one.end()
            keeper.keep()
        for case in open_cases if group.after else []:
            say(f"{section}: a whole fit, {describe(case)}")
            with Worker(["benchmarks.scaling.session"], case.threads) as worker:
                request = {"do": group.after, "case": case, "folder": str(folder)}
                entries[case]["whole"] = worker.ask(timeout=PATIENCE, **request)
            keeper.keep()


def _wants_cold(group: Group, case: Case) -> bool:
    return group.cold and case.source in FILES


def _done(entry: dict[str, Any], group: Group) -> bool:
    whole = "whole" in entry or not group.after
    return len(entry["passes"]) >= group.rounds and "peak" in entry and whole


def describe(case: Case) -> str:
    """A case in a few words."""
    fields = {
        name: value
        for name, value in case._asdict().items()
        if name != "source" and value != Case._field_defaults.get(name)
    }
    return ", ".join([case.source, *(f"{name} = {value:,}" for name, value in fields.items())])
