"""How the cost of a pass grows: ``python -m benchmarks.scaling``, from the repository's root."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.__main__ import choice
from benchmarks.child import Worker
from benchmarks.report import RESULTS
from benchmarks.scaling import passes
from benchmarks.scaling.cases import PLAN, SECTIONS, Case, groups
from benchmarks.scaling.keeping import Keeper

#: Sections that are measured unless others are asked for; "large" takes 8 GB of disk.
USUAL = tuple(name for name in SECTIONS if name != "large")
BESIDE = ("folds", "sizes", "counts")
#: Numbers of a result, and tasks, of folds that do nothing.
NUMBERS, TASKS = (1, 20_000), (1, 8, 64, 512, 2048)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _requests(section: str, quick: bool) -> list[dict[str, Any]]:
    """What is asked about Dask in a section: each is a measurement."""
    if section == "folds":
        return [
            {"workers": w, "partitions": tasks, "numbers": n, "rounds": 2 if quick else 7}
            for w in (1, 2)
            for tasks in (TASKS[:3] if quick else TASKS)
            for n in NUMBERS
        ]
    if section == "sizes":
        changes: list[dict[str, Any]] = [
            {},
            {"K": 20},
            {"K": 240},
            {"m": 8},
            {"m": 26},
            {"R": 6},
            {"L": 100},
        ]
        cases = [Case("dask", 0)._replace(**change) for change in changes]
        return [{"case": case} for case in cases]
    return [{"case": PLAN._replace(N=21_000 if quick else 60_000)}]


def _ask(keeper: Keeper, section: str, quick: bool) -> None:
    for request in _requests(section, quick):
        entry = keeper.entry(section, _plain(request))
        if "found" not in entry:
            _say(f"{section}: {entry['case']}")
            with Worker(["benchmarks.scaling.wire"], 1) as worker:
                entry["found"] = worker.ask(timeout=passes.PATIENCE, do=section, **request)
            keeper.keep()


def _plain(request: dict[str, Any]) -> dict[str, Any]:
    """A request as it is kept."""
    return {
        name: value._asdict() if isinstance(value, Case) else value
        for name, value in request.items()
    }


def _parse() -> argparse.Namespace:
    every = [*SECTIONS, *BESIDE]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    parser.add_argument(
        "--only",
        default=",".join([*USUAL, *BESIDE]),
        help=f"what to measure, of {','.join(every)}; large takes 8 GB of disk and half an hour"
        " (default: all but large)",
    )
    parser.add_argument(
        "--anew", action="store_true", help="measure again what the record has; it goes on if not"
    )
    parser.add_argument("--folder", type=Path, help="for the rows, which are removed afterwards")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the record")
    return parser.parse_args()


def main() -> None:
    """Measure what the record lacks, and keep every measurement as soon as it is made."""
    arguments = _parse()
    chosen = choice(arguments.only, [*SECTIONS, *BESIDE], "--only")
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = "scaling-quick.json" if arguments.quick else "scaling.json"
    keeper = Keeper(arguments.out / name, arguments.quick)
    if arguments.anew:
        keeper.drop(chosen)
    with tempfile.TemporaryDirectory(prefix="pskem-scaling-", dir=arguments.folder) as folder:
        for section in chosen:
            if section in BESIDE:
                _ask(keeper, section, arguments.quick)
            else:
                for group in groups(section, arguments.quick):
                    passes.measure(keeper, section, group, Path(folder), _say)
    _say(f"{keeper.path} has {', '.join(keeper.record['sections'])}")


if __name__ == "__main__":
    main()
