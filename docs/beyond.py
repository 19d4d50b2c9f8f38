"""Write the tables of docs/beyond.md from recorded runs.

pskem reproduce report --out RESULTS
python -m docs.beyond RESULTS      # copy the points of RESULTS, then write
python -m docs.beyond              # write the tables from the copy

Points that RESULTS does not have stay as they are: what has not changed need not be run again.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.markdown import fill
from docs.replication import OURS, Point, of, reported, spread

from docs import replication
from pskem.display import Table

HERE = Path(__file__).parent
TAKEN = HERE / "beyond"
#: The data sets of the comparison, and of the comparison of defaults.
FIVE = ("mnist", "fashion-mnist", "cifar-10", "ionosphere", "rice")
EIGHT = (*FIVE, "digits", "wine", "breast_cancer")
NAMES = {
    "pskem": "**pskem, defaults**",
    "pskem-cv": "**pskem, tuned**",
    "pskem-ensemble": "**pskem, ensemble of five**",
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
    """Mean rank over the five data sets of the methods run on all of them; ties share ranks."""
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
    """Rank each pskem row separately among the others, and the others beside our defaults."""
    others = [name for name in NAMES if name not in VARIANTS]
    ranks = mean_ranks(cells, [VARIANTS[0], *others])
    for name in VARIANTS:
        ranks |= {
            key: rank for key, rank in mean_ranks(cells, [name, *others]).items() if key == name
        }
    return ranks


def comparison(points: list[Point]) -> str:
    """Accuracy of all classifiers on the five data sets, and what the paper reports."""
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
    paper = paper_reports()
    rows.append(["the paper reports\\*", *(paper[data] for data in FIVE), ""])
    return Table(["accuracy, %", *FIVE, "mean rank"], rows).markdown()


def paper_reports() -> dict[str, str]:
    """What the paper reports, by data set."""
    return {
        point["data"]: reported(point)
        for point in of(replication.load(), "table1")
        if point["method"] == OURS
    }


def box(points: list[Point]) -> str:
    """Accuracy of untuned classifiers on eight data sets."""
    cells = by_method(points)
    rows = [[data, *(show(cells, name, data) for name in UNTUNED)] for data in EIGHT]
    return Table(["accuracy, %", *(NAMES[name].strip("*") for name in UNTUNED)], rows).markdown()


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
    return Table(["seconds", *FIVE], rows).markdown()


def by_step(points: list[Point]) -> str:
    """Accuracy after each step, in the order of the study."""
    found: dict[str, dict[str, str]] = {}
    for point in of(points, "steps"):
        data, step = point["experiment"].split(": ", 1)
        found.setdefault(step, {})[data] = spread(point, "honest")
    columns = [data for data in FIVE if any(data in row for row in found.values())]
    rows = [[step, *(row.get(data, "not run") for data in columns)] for step, row in found.items()]
    return Table(["accuracy, %", *columns], rows).markdown()


def change(point: Point) -> str:
    """The setting that differs from the defaults."""
    settings = point["settings"]
    if not settings:
        return "the defaults"
    ((name, value),) = settings.items()
    words = {
        "n_components": "four kernels per class",
        "own_mass": f"`init=ClassKMeans(own_mass={value!r})`",
        "shrinkage_target": f"`shrinkage=Shrinkage(target={value!r})`",
    }
    return words.get(name, f"`{name}={value!r}`")


def by_default(points: list[Point]) -> str:
    """Accuracy with one default changed at a time."""
    cells = {(change(p), p["experiment"]): spread(p, "honest") for p in of(points, "defaults")}
    changes = list(dict.fromkeys(name for name, _ in cells))
    columns = list(dict.fromkeys(column for _, column in cells))
    rows = [
        [name, *(cells.get((name, column), "not run") for column in columns)] for name in changes
    ]
    return Table(["accuracy, %", *columns], rows).markdown()


def by_partition(points: list[Point]) -> str:
    """Dependence between the blocks of each partition, and accuracy before and after refining."""
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
    return Table(["data", "partition", *columns], rows).markdown()


def sections(points: list[Point]) -> dict[str, str]:
    """The generated tables by the names of their markers."""
    return {
        "comparison": comparison(points),
        "box": box(points),
        "seconds": seconds(points),
        "steps": by_step(points),
        "partitions": by_partition(points),
        "defaults": by_default(points),
        "runs": replication.runs_made(points),
    }


def renew(results: Path, folder: Path = TAKEN) -> None:
    """Copy the points of a folder of results over those of the record that they repeat."""

    def place(point: Point) -> tuple[str, ...]:
        return tuple(point[name] for name in ("study", "experiment", "method", "label"))

    kept, new = (
        json.loads((where / "summary.json").read_text(encoding="utf-8"))
        for where in (folder, results)
    )
    fresh = {place(point): point for point in new["points"]}
    points = [fresh.get(place(point), point) for point in kept["points"]]
    made_with = list(dict.fromkeys([*kept["made_with"], *new["made_with"]]))
    lines = ",\n".join(map(json.dumps, points))
    text = f'{{"made_with": {json.dumps(made_with)},\n"points": [\n{lines}\n]}}\n'
    (folder / "summary.json").write_text(text, encoding="utf-8")
    rows, others = (
        list(csv.DictReader((where / "summary.csv").open(newline="", encoding="utf-8")))
        for where in (folder, results)
    )
    by_place = {place(row): row for row in others}
    with (folder / "summary.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(by_place.get(place(row), row) for row in rows)


def main() -> None:
    if len(sys.argv) > 1:
        renew(Path(sys.argv[1]))
    page = HERE / "beyond.md"
    text = fill(page.read_text(encoding="utf-8"), sections(load()))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
