"""Folders of tables: a study on every table that is there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from pskem.study.configuration import StudyError
from pskem.tables import TARGET, TableError, labels_of, read_parts, read_table

__all__ = ["FoundTable", "tables_in"]

SUFFIXES = (".csv.gz", ".csv")
ADVICE = (
    "Put tables there, each as NAME.csv or NAME.csv.gz: a line of column names, the classes in the"
    f" column {TARGET!r} or else in the last one, nothing where a value is missing. Or name a"
    " folder that has them: --data FOLDER, or FOLDER/tables with $PSKEM_DATA set to FOLDER."
)


class FoundTable(NamedTuple):
    """A table of a folder, and the column of its classes."""

    name: str
    path: Path
    target: str


def tables_in(folder: Path) -> list[FoundTable]:
    """The tables of a folder, by name. A folder without any is refused."""
    if not folder.is_dir():
        raise StudyError(f"There is no folder of tables {folder}. {ADVICE}")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
        if suffix is None or path.name.startswith(".") or not path.is_file():
            continue
        name = path.name[: -len(suffix)]
        if name in found:
            raise StudyError(f"{folder} has two tables {name!r}: {found[name].name}, {path.name}.")
        found[name] = path
    if not found:
        raise StudyError(f"There are no tables in the folder {folder}. {ADVICE}")
    return [FoundTable(name, found[name], _target(found[name])) for name in sorted(found)]


def _target(path: Path) -> str:
    """The column of the classes, by its name or the last one; it has to hold two classes."""
    try:
        columns = [str(name) for name in next(iter(read_parts(str(path), rows=1))).columns]
        target = TARGET if TARGET in columns else columns[-1]
        labels, _ = labels_of(read_table(str(path), verbatim=[target]), target)
    except TableError as error:
        raise StudyError(
            f"The table {path.name} of the folder cannot be used. {error} Or take it out of the"
            " folder."
        ) from None
    if len(np.unique(labels)) < 2:
        raise StudyError(
            f"The table {path.name} of the folder holds fewer than two classes in its column"
            f" {target!r}, and nothing can be compared on it. Name the column of the classes"
            f" {TARGET!r}, or take the table out of the folder."
        )
    return target
