"""Write the tables of docs/beyond.md and README.md from recorded runs.

pskem reproduce report --out RESULTS
python docs/beyond.py RESULTS      # take the summary of RESULTS
python docs/beyond.py              # write the tables anew from what was taken
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

import replication
from replication import OURS, Point, fill, of, reported, spread, table, take

HERE = Path(__file__).parent
TAKEN = HERE / "beyond"
#: The data sets of the comparison, and those besides for the comparison out of the box.
FIVE = ("mnist", "fashion-mnist", "cifar-10", "ionosphere", "rice")
EIGHT = (*FIVE, "digits", "wine", "breast_cancer")
NAMES = {
    "pskem": "**pskem, out of the box**",
    "pskem-cv": "**pskem, settings chosen**",
    "pskem-ensemble": "**pskem, five multiplied**",
    "qda": "QDA",
    "knn": "k nearest neighbours",
    "rbf-svm": "SVM, RBF kernel",
    "hist-gradient-boosting": "HistGradientBoosting",
    "tuned-qda": "QDA, tuned",
    "tuned-knn": "k nearest neighbours, tuned",
    "tuned-rbf-svm": "SVM, RBF kernel, tuned",
}
VARIANTS = ("pskem", "pskem-cv", "pskem-ensemble")
UNTUNED = ("pskem", "qda", "knn", "rbf-svm", "hist-gradient-boosting")

Cells = dict[tuple[str, str], Point]


def load() -> list[Point]:
    return replication.load(TAKEN)


def by_method(points: list[Point]) -> Cells:
    """Points of the comparison by method and data set."""
    return {(point["method"], point["data"]): point for point in of(points, "beyond")}


def show(cells: Cells, name: str, data: str) -> str:
    return spread(cells[name, data], "honest") if (name, data) in cells else "not run"


def mean_ranks(cells: Cells, names: Iterable[str]) -> dict[str, float]:
    """The mean rank over the five sets of the methods that were run on all; ties share ranks."""
    whole = [name for name in names if all((name, data) in cells for data in FIVE)]
    totals = dict.fromkeys(whole, 0.0)
    for data in FIVE:
        scores = {name: cells[name, data]["honest_mean"] for name in whole}
        for name, score in scores.items():
            above = sum(other > score for other in scores.values())
            equal = sum(other == score for other in scores.values())
            totals[name] += above + (equal + 1) / 2
    return {name: total / len(FIVE) for name, total in totals.items()}


def fair_ranks(cells: Cells) -> dict[str, float]:
    """Each of ours by itself among the others, and the others beside ours out of the box."""
    others = [name for name in NAMES if name not in VARIANTS]
    ranks = mean_ranks(cells, [VARIANTS[0], *others])
    for name in VARIANTS:
        ranks |= {
            key: rank for key, rank in mean_ranks(cells, [name, *others]).items() if key == name
        }
    return ranks


def comparison(points: list[Point]) -> str:
    """All classifiers by the five data sets, and what the paper reports."""
    cells = by_method(points)
    ranks = fair_ranks(cells)
    rows = [
        [
            title,
            *(show(cells, name, data) for data in FIVE),
            f"{ranks[name]:.1f}" if name in ranks else "",
        ]
        for name, title in NAMES.items()
    ]
    paper = {
        point["data"]: reported(point)
        for point in of(replication.load(), "table1")
        if point["method"] == OURS
    }
    rows.append(["the paper reports\\*", *(paper[data] for data in FIVE), ""])
    return table(["accuracy, %", *FIVE, "mean rank"], rows)


def box(points: list[Point]) -> str:
    """Nothing tuned, eight data sets."""
    cells = by_method(points)
    rows = [[data, *(show(cells, name, data) for name in UNTUNED)] for data in EIGHT]
    return table(["accuracy, %", *(NAMES[name].strip("*") for name in UNTUNED)], rows)


def short(number: float) -> str:
    """Two significant digits, or a whole number."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def seconds(points: list[Point]) -> str:
    """Training times of the comparison."""
    cells = by_method(points)
    rows = [
        [
            title,
            *(
                short(cells[name, data]["seconds"]) if (name, data) in cells else "not run"
                for data in FIVE
            ),
        ]
        for name, title in NAMES.items()
    ]
    return table(["seconds", *FIVE], rows)


def by_step(points: list[Point]) -> str:
    """Steps by data sets, in the order of the study."""
    found: dict[str, dict[str, str]] = {}
    for point in of(points, "steps"):
        data, step = point["experiment"].split(": ", 1)
        found.setdefault(step, {})[data] = spread(point, "honest")
    columns = [data for data in FIVE if any(data in row for row in found.values())]
    rows = [[step, *(row.get(data, "not run") for data in columns)] for step, row in found.items()]
    return table(["accuracy, %", *columns], rows)


def change(point: Point) -> str:
    """What differs from the defaults, in words."""
    settings = point["settings"]
    if not settings:
        return "the defaults"
    ((name, value),) = settings.items()
    return "four kernels a class" if name == "n_components" else f"`{name}={value!r}`"


def by_default(points: list[Point]) -> str:
    """One default changed at a time, by tables."""
    cells = {(change(p), p["experiment"]): spread(p, "honest") for p in of(points, "defaults")}
    changes = list(dict.fromkeys(name for name, _ in cells))
    columns = list(dict.fromkeys(column for _, column in cells))
    rows = [
        [name, *(cells.get((name, column), "not run") for column in columns)] for name in changes
    ]
    return table(["accuracy, %", *columns], rows)


def by_partition(points: list[Point]) -> str:
    """What dependence partitions leave, and accuracy with EM alone and with what follows it."""
    cells: dict[tuple[str, str, str], str] = {}
    with (TAKEN / "dependence.csv").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            cells[row["data"], row["partition"], "dependence left, nats"] = (
                f"{float(row['nats']):.1f}"
            )
    for point in of(points, "partitions"):
        data, training = point["experiment"].split(", ")
        cells[data, point["settings"]["partition"], f"{training}, %"] = spread(point, "honest")
    pairs = list(dict.fromkeys(key[:2] for key in cells))
    columns = list(dict.fromkeys(key[2] for key in cells))
    rows = [
        [*pair, *(cells.get((*pair, column), "not run") for column in columns)] for pair in pairs
    ]
    return table(["data", "partition", *columns], rows)


def sections(points: list[Point]) -> dict[str, str]:
    """The generated texts by the names of their places."""
    return {
        "comparison": comparison(points),
        "box": box(points),
        "seconds": seconds(points),
        "steps": by_step(points),
        "partitions": by_partition(points),
        "defaults": by_default(points),
        "runs": replication.runs_made(points),
    }


def main() -> None:
    if len(sys.argv) > 1:
        take(Path(sys.argv[1]), TAKEN)
    parts = sections(load())
    for path in (HERE / "beyond.md", HERE.parent / "README.md"):
        path.write_text(fill(path.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main()
