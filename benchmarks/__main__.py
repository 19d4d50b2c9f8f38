"""The one command: ``python -m benchmarks`` from the root of the repository."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import features, fits, gaps, imports, machine, memory, passes, plot, threads
from benchmarks.peers import PEERS, Trainer
from benchmarks.report import RESULTS, tables

#: Of the engine; they are measured in one run, which the record names.
ENGINE = ("passes", "threads", "memory", "import", "features")
SECTIONS = (*ENGINE, "fits", "gaps")


def choice(text: str, known: list[str], option: str) -> list[str]:
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := sorted(set(chosen) - set(known)):
        raise SystemExit(f"{option} knows {', '.join(known)}; not {', '.join(unknown)}.")
    return chosen


def _parse() -> argparse.Namespace:
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure pskem beside other trainers of Gaussian mixtures and classifiers.",
    )
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument(
        "--only",
        default=",".join(SECTIONS),
        help=f"what to measure, separated by commas (default: {','.join(SECTIONS)})",
    )
    parser.add_argument(
        "--peers",
        default=",".join(names),
        help="which peers to measure where they are installed, separated by commas, '' for none"
        f" (default: {','.join(names)})",
    )
    parser.add_argument(
        "--peer-seconds",
        type=float,
        help="time that a peer may take of a size before it is skipped",
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure_engine(
    sections: list[str], quick: bool, effort: passes.Effort, peers: list[Trainer]
) -> dict[str, Any]:
    start = time.perf_counter()
    record: dict[str, Any] = {}
    if "passes" in sections:
        record["passes"] = passes.measure(effort, peers, _say)
    if "threads" in sections:
        _say("threads")
        record["threads"] = threads.measure(rounds=2 if quick else 7)
    if "memory" in sections:
        _say("memory")
        record["memory"] = memory.measure(quick)
    if "import" in sections:
        _say("import")
        record["import"] = imports.measure(rounds=3 if quick else 11)
    if "features" in sections:
        _say("features")
        record["features"] = features.measure(quick)
    record["seconds"] = time.perf_counter() - start
    return record


def main() -> None:
    """Measure, print the tables, write JSON and plot.

    The record holds three runs: of the engine, of whole fits, and of gaps. A run replaces what it
    measures and leaves the others.
    """
    arguments = _parse()
    sections = choice(arguments.only, list(SECTIONS), "--only")
    chosen = choice(arguments.peers, [peer.name for peer in PEERS], "--peers")
    quick = arguments.quick
    effort = passes.QUICK if quick else passes.FULL
    if arguments.peer_seconds is not None:
        effort = effort._replace(peer_seconds=arguments.peer_seconds)

    run = {
        "date": date.today().isoformat(),
        "quick": quick,
        "machine": machine.describe(),
        "load_before": machine.load(),
    }
    target = arguments.out / "benchmark.json"
    record: dict[str, Any] = json.loads(target.read_text()) if target.exists() else {}
    if set(sections) & set(ENGINE):
        others = {str(name): record[name] for name in ("fits", "gaps") if name in record}
        peers = [peer for peer in PEERS if peer.name in chosen]
        record = {**run, **_measure_engine(sections, quick, effort, peers), **others}
    if "fits" in sections:
        record["fits"] = {**run, **fits.measure(fits.QUICK if quick else fits.FULL, _say)}

    if "gaps" in sections:
        _say("gaps")
        record["gaps"] = {**run, **gaps.measure(quick)}

    print(tables(record))
    arguments.out.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record, indent=1) + "\n")
    _say(f"wrote {target}")
    if "passes" in sections:
        picture = target.with_suffix(".png")
        try:
            plot.draw(record, picture)
        except ImportError:
            _say("no plot: matplotlib is not installed; `pip install pskem[plot]` adds it")
        else:
            _say(f"wrote {picture}")


if __name__ == "__main__":
    main()
