"""Compare methods over tables: ranks, wins and losses, from the means over folds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pskem.display import Table
from pskem.study.definition import Entry, Study
from pskem.study.ranking import Ranking, rank
from pskem.study.store import Record, Store

__all__ = [
    "MEASURES",
    "OURS",
    "RANKED",
    "Cell",
    "Comparison",
    "cells_of",
    "compare",
    "duels",
    "failures_of",
    "has_probabilities",
    "rank_table",
    "read_record",
    "record",
    "standing",
    "table_by_table",
    "wins",
]

#: The methods of this package: how their names begin.
OURS = "pskem"
#: Measures by name, and whether more of them is better.
MEASURES: Mapping[str, bool] = {"accuracy": True, "log loss": False, "ECE": False}
#: Those that methods are ranked by.
RANKED = ("accuracy", "log loss")
#: Decimals that are kept.
DIGITS = 6
#: Columns of a record.
HEADINGS = ("table", "method", "folds", "accuracy", "log loss", "ece", "fit seconds")


class Cell(NamedTuple):
    """Results of a method on a table: means over its folds."""

    table: str
    method: str
    folds: int
    accuracy: float
    log_loss: float
    calibration_error: float
    fit_seconds: float

    def measure(self, name: str) -> float:
        """A measure of :data:`MEASURES`."""
        values = {"log loss": self.log_loss, "ECE": self.calibration_error}
        return values.get(name, self.accuracy)

    def cost(self, name: str) -> float:
        """The measure, turned so that less is better."""
        return -self.measure(name) if MEASURES[name] else self.measure(name)


class Comparison(NamedTuple):
    """Methods and the tables that all of them are done with.

    cells : by table and method; there is none where a method has failed
    """

    tables: list[str]
    methods: list[str]
    cells: Mapping[tuple[str, str], Cell]

    def ranking(self, measure: str) -> Ranking:
        """Ranks of the methods by a measure."""
        costs = [[self.cost(t, method, measure) for method in self.methods] for t in self.tables]
        return rank(np.array(costs))

    def cost(self, table: str, method: str, measure: str) -> float:
        """The measure, turned so that less is better; infinite where a method has failed."""
        cell = self.cells.get((table, method))
        return np.inf if cell is None else cell.cost(measure)

    def best_peer(self, table: str, measure: str) -> Cell | None:
        """The best method of others on a table: in hindsight, and for each measure anew."""
        found = [
            self.cells[table, method]
            for method in self.methods
            if not method.startswith(OURS) and (table, method) in self.cells
        ]
        return min(found, key=lambda cell: cell.cost(measure), default=None)


def cells_of(study: Study, store: Store) -> list[Cell]:
    """The points of a study that have probabilities measured and all their runs.

    Only the runs of the study count, so that all methods have the same folds.
    """
    by_point: dict[str, list[Record]] = {}
    for found in store.records([entry.point for entry in study.entries]):
        by_point.setdefault(found.point, []).append(found)
    cells = []
    for entry in study.entries:
        own = by_point.get(entry.point.key, [])
        records = [found for found in own if found.seed < entry.experiment.runs]
        parts = [part for found in records for part in found.result.parts]
        losses = [part.log_loss for part in parts if part.log_loss is not None]
        errors = [part.calibration_error for part in parts if part.calibration_error is not None]
        if not losses or len(losses) < len(parts) or len(records) < entry.experiment.runs:
            continue
        cells.append(
            Cell(
                entry.experiment.name,
                _name(study, entry),
                len(parts),
                _mean([part.honest for part in parts]),
                _mean(losses),
                _mean(errors),
                _mean([part.seconds for part in parts]),
            )
        )
    return cells


def has_probabilities(study: Study, store: Store) -> bool:
    """Whether any run of a study measured probabilities."""
    records = store.records([entry.point for entry in study.entries])
    return any(part.log_loss is not None for found in records for part in found.result.parts)


def _mean(values: Sequence[float]) -> float:
    """A mean, rounded: equals are equal, whatever the order of the sum."""
    return round(float(np.mean(values)), DIGITS)


def _name(study: Study, entry: Entry) -> str:
    """A method by its name, and by its settings if a table has it several times."""
    method = entry.point.method
    several = [point.method for point in entry.experiment.points].count(method) > 1
    return str(entry.label.get("method", method)) if several else method


def compare(cells: Iterable[Cell], failed: Iterable[tuple[str, str]] = ()) -> Comparison | None:
    """The tables that all methods are done with; ``failed`` are pairs that have no result.

    A table on which some method has not been run yet does not count. A method that has failed
    everywhere is the last everywhere.
    """
    by_place = {(cell.table, cell.method): cell for cell in cells}
    done = dict.fromkeys([*by_place, *failed])
    methods = list(dict.fromkeys(method for _, method in done))
    tables = [
        table
        for table in dict.fromkeys(table for table, _ in by_place)
        if all((table, method) in done for method in methods)
    ]
    return Comparison(tables, methods, by_place) if tables and len(methods) > 1 else None


def failures_of(study: Study, store: Store) -> list[tuple[str, str]]:
    """Tables and methods of which some run failed."""
    points = {failure.point for failure in store.failures().values()}
    return [
        (entry.experiment.name, _name(study, entry))
        for entry in study.entries
        if entry.point.key in points
    ]


def standing(comparison: Comparison, measure: str) -> str:
    """What the tests say about a measure, in a sentence."""
    ranking = comparison.ranking(measure)
    k, N = len(comparison.methods), ranking.n_tables
    tested = f"Friedman's test: p = {ranking.p_value:.2g}. " if ranking.p_value is not None else ""
    return (
        f"Mean ranks by {measure} of {k} methods over {N} tables. {tested}Two mean ranks differ at"
        f" the level 0.05 if they are {ranking.difference:.2f} apart (Nemenyi)."
    )


def rank_table(comparison: Comparison) -> Table:
    """Mean ranks of both measures, means of all measures, and seconds; the best rank is first."""
    ranks = {name: comparison.ranking(name).mean for name in RANKED}
    rows = []
    for i in np.argsort(ranks["accuracy"], kind="stable"):
        method = comparison.methods[i]
        found = [
            comparison.cells[table, method]
            for table in comparison.tables
            if (table, method) in comparison.cells
        ]
        missing = len(comparison.tables) - len(found)
        rows.append(
            [
                method + (f" (failed on {missing})" if missing else ""),
                *(f"{ranks[name][i]:.2f}" for name in RANKED),
                f"{100 * np.mean([cell.accuracy for cell in found]):.2f}" if found else "",
                *(
                    f"{np.mean([cell.measure(name) for cell in found]):.3f}" if found else ""
                    for name in ("log loss", "ECE")
                ),
                f"{np.median([cell.fit_seconds for cell in found]):.2g}" if found else "",
            ]
        )
    headings = ["", "rank, accuracy", "rank, log loss", "accuracy, %", "log loss", "ECE"]
    return Table([*headings, "s/fit, median"], rows)


def duels(comparison: Comparison, method: str = OURS) -> Table:
    """On how many tables a method is better, equal and worse, against each of the others."""
    rows = []
    for other in comparison.methods:
        if other == method:
            continue
        row = [other]
        for name in RANKED:
            costs = [
                (comparison.cost(table, method, name), comparison.cost(table, other, name))
                for table in comparison.tables
            ]
            row.append(" - ".join(map(str, _tally(costs))))
        rows.append(row)
    return Table([f"{method} against", *(f"{name}: won - tied - lost" for name in RANKED)], rows)


def table_by_table(comparison: Comparison, method: str = OURS, mark: str = "**") -> Table:
    """A method on each table beside the best peer by accuracy and by log loss.

    Marks stand around the better of the two: by default those of bold text in Markdown.

    The best peer is named in hindsight. The ECE is of the best by log loss: on its own it says
    little, as the frequencies of the classes have the least.
    """
    rows = []
    for table in comparison.tables:
        row = [table]
        for name in MEASURES:
            best = comparison.best_peer(table, name if name in RANKED else "log loss")
            ours = comparison.cells.get((table, method))
            row += [
                _shown(ours, name, best, mark),
                "" if best is None else f"{_shown(best, name, ours, mark)} {best.method}",
            ]
        rows.append(row)
    headings = [f"{name}{', %' if name == 'accuracy' else ''}" for name in MEASURES]
    return Table(["table", *(part for text in headings for part in (text, "best peer"))], rows)


def _shown(cell: Cell | None, name: str, other: Cell | None, mark: str) -> str:
    if cell is None:
        return "failed"
    value = cell.measure(name)
    text = f"{100 * value:.1f}" if name == "accuracy" else f"{value:.3f}"
    better = other is None or cell.cost(name) < other.cost(name)
    return f"{mark}{text}{mark}" if better else text


def wins(comparison: Comparison, measure: str, method: str = OURS) -> tuple[int, int, int]:
    """On how many tables a method is better than all peers, as good as the best, and worse."""
    costs = []
    for table in comparison.tables:
        best = comparison.best_peer(table, measure)
        theirs = np.inf if best is None else best.cost(measure)
        costs.append((comparison.cost(table, method, measure), theirs))
    return _tally(costs)


def _tally(costs: Iterable[tuple[float, float]]) -> tuple[int, int, int]:
    """How often the first cost is less, the same, more."""
    pairs = list(costs)
    won, tied = sum(a < b for a, b in pairs), sum(a == b for a, b in pairs)
    return won, tied, len(pairs) - won - tied


def record(cells: Sequence[Cell]) -> str:
    """The cells as CSV, one line each."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADINGS)
    for cell in cells:
        writer.writerow([*cell[:3], *(f"{value:.{DIGITS}f}" for value in cell[3:])])
    return buffer.getvalue()


def read_record(text: str) -> list[Cell]:
    """The inverse of :func:`record`."""
    rows: Iterable[dict[str, Any]] = csv.DictReader(io.StringIO(text))
    return [
        Cell(
            row["table"],
            row["method"],
            int(row["folds"]),
            *(float(row[name]) for name in HEADINGS[3:]),
        )
        for row in rows
    ]
