"""The record of a run, kept after every measurement, so that a run that was killed goes on."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import machine
from pskem.files import atomic_write

__all__ = ["Keeper"]


class Keeper:
    """A record in a file.

    sections : what was measured, by its name; each with the day and the load before it
    """

    def __init__(self, path: Path, quick: bool) -> None:
        self.path = path
        self.record: dict[str, Any] = {"quick": quick, "sections": {}}
        if path.exists():
            self.record = json.loads(path.read_text(encoding="utf-8"))
        self.record["machine"] = machine.describe()

    def drop(self, sections: list[str]) -> None:
        """Forget some sections, to measure them again."""
        for name in sections:
            self.record["sections"].pop(name, None)

    def section(self, name: str) -> dict[str, Any]:
        """What there is of a section; it begins now if there is nothing."""
        begun = {"date": date.today().isoformat(), "load_before": machine.load()}
        found: dict[str, Any] = self.record["sections"].setdefault(name, begun)
        return found

    def entry(self, name: str, case: dict[str, Any], **new: Any) -> dict[str, Any]:
        """What there is of a case of a section; it is made if there is nothing."""
        entries: list[dict[str, Any]] = self.section(name).setdefault("cases", [])
        for found in entries:
            if found["case"] == case:
                return found
        entries.append({"case": case, **new})
        return entries[-1]

    def keep(self) -> None:
        """Write what there is."""
        lines = json.dumps(self.record, indent=1)
        atomic_write(self.path, (lines + "\n").encode())
