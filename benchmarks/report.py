"""Pages from the record of a run.

``python -m benchmarks.report`` writes the tables of ``benchmarks/results/benchmark.json`` between
the markers in ``benchmarks/README.md``, and the short table of whole fits in ``README.md``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.child import ROOT
from benchmarks.fit_tables import fits_text, short_fits_text
from benchmarks.gaps import gaps_text
from benchmarks.goal_tables import goals_text
from benchmarks.markdown import Record, fill, heading
from benchmarks.pass_tables import passes_text

__all__ = ["RESULTS", "pages", "tables"]

RESULTS = ROOT / "benchmarks" / "results"


def tables(record: Record) -> str:
    """All tables of a record, in Markdown."""
    parts = [engine_text(record)] if "machine" in record else []
    if "fits" in record:
        parts.append(fits_text(record["fits"]))
    if "gaps" in record:
        parts.append(gaps_text(record["gaps"]))
    return "\n\n".join(parts)


def engine_text(record: Record) -> str:
    """What was measured of passes, threads, memory, import and features."""
    parts = [heading(record)]
    if "passes" in record:
        parts.append(passes_text(record))
    parts.append(goals_text(record))
    return "\n\n".join(part for part in parts if part)


def pages(record: Record) -> dict[str, dict[str, str]]:
    """The generated places of each page, by the page's path from the root."""
    places: dict[str, dict[str, str]] = {"README.md": {}, "benchmarks/README.md": {}}
    if "machine" in record:
        places["benchmarks/README.md"]["engine"] = engine_text(record)
    if "fits" in record:
        places["benchmarks/README.md"]["fits"] = fits_text(record["fits"])
        places["README.md"]["fits"] = short_fits_text(record["fits"])
    if "gaps" in record:
        places["benchmarks/README.md"]["gaps"] = gaps_text(record["gaps"])
    return places


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULTS / "benchmark.json")
    arguments = parser.parse_args()
    if not arguments.json.exists():
        raise SystemExit(f"There is no {arguments.json}. `python -m benchmarks` writes it.")
    record = json.loads(arguments.json.read_text(encoding="utf-8"))
    for path, places in pages(record).items():
        page = ROOT / path
        try:
            text = fill(page.read_text(encoding="utf-8"), places)
        except ValueError as error:
            raise SystemExit(f"{path}: {error}") from None
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
