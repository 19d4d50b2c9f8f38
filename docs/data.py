"""Write the tables of docs/data.md from recorded runs.

python -m docs.measuring ...             # see there
python -m docs.streaming ...             # see there
pskem reproduce unlabelled report --out RESULTS
python -m docs.data RESULTS              # copy the summary of RESULTS, then write
python -m docs.data                      # write the tables from the records
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.markdown import fill
from docs.replication import Point, of, spread, take

from docs import replication
from pskem.display import Table

HERE = Path(__file__).parent
TAKEN = HERE / "data"
LABELS = (3, 10, 30, 100, 1000)
FEW = {
    "pskem": "**pskem**",
    "pskem-ensemble": "**pskem, ensemble of five**",
    "pskem-labelled": "pskem, labelled rows alone",
    "label-spreading": "LabelSpreading",
    "self-training": "SelfTrainingClassifier of nearest neighbours",
    "rbf-svm": "SVM, RBF kernel, labelled rows alone",
    "knn": "5 nearest neighbours, labelled rows alone",
}
#: pskem after gaps are filled in.
OF_GAPS = ("pskem, medians", "pskem, KNNImputer", "pskem, IterativeImputer")
BOOSTING = "HistGradientBoosting"
GAPS = ("pskem", *OF_GAPS, BOOSTING)
MIXED = ("pskem", "pskem, indicators", "CategoricalNB", "LogisticRegression", BOOSTING)
STREAMS_OF_IMAGES = (
    *("fit", *(f"parts of {n}" for n in (20_000, 5000, 1000, 500))),
    "parts of 1000, class by class",
)
STREAMS_OF_TABLES = ("fit", "fit, one form", "parts of 250", "parts of 50")

Row = dict[str, str]


def load() -> list[Point]:
    return replication.load(TAKEN)


def rows(name: str) -> list[Row]:
    """The records of a file; none if there is no such file."""
    path = TAKEN / name
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def percent(text: str, digits: int = 1) -> str:
    return f"{100 * float(text):.{digits}f}"


def few_labels(points: list[Point]) -> str:
    """Accuracy by the number of labels a class."""
    cells = {(p["method"], p["experiment"]): spread(p, "honest") for p in of(points, "unlabelled")}
    columns = [f"{n} labels a class" for n in LABELS]
    body = [
        [title, *(cells.get((name, column), "not run") for column in columns)]
        for name, title in FEW.items()
    ]
    return Table(["accuracy, %", *(f"{n} a class" for n in LABELS)], body).markdown()


def sharing(points: list[Point]) -> str:
    """Accuracy with kernels that all classes share, and with kernels of one class each."""
    kinds = {"em": "all classes share all kernels", "class-kmeans": "kernels of one class each"}
    cells = {
        (p["settings"]["init"], p["experiment"]): spread(p, "honest")
        for p in of(points, "unlabelled")
        if p["experiment"].startswith("sharing")
    }
    columns = [f"sharing, {n} labels a class" for n in (3, 10)]
    body = [
        [title, *(cells.get((init, column), "not run") for column in columns)]
        for init, title in kinds.items()
    ]
    return Table(["accuracy, %", "3 a class", "10 a class"], body).markdown()


def few_in_tables() -> str:
    """Accuracy, log loss and ranks over public tables, by what rows without a class count."""
    titles = {"chosen": "chosen (default)", "full": "1", "labels alone": "0: labels alone"}
    found: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows("labels.csv"):
        found.setdefault(row["labels"], {}).setdefault(row["table"], {})[row["method"]] = row
    body = []
    for n, tables in sorted(found.items(), key=lambda item: int(item[0])):
        whole = [methods for methods in tables.values() if len(methods) == len(titles)]
        cells = []
        for name in titles:
            accuracy = sum(float(table[name]["accuracy"]) for table in whole) / len(whole)
            loss = sum(float(table[name]["log loss"]) for table in whole) / len(whole)
            cells.append(f"{100 * accuracy:.1f} ({loss:.2f})")
        body.append([n, str(len(whole)), *cells])
    return Table(["labels a class", "tables", *titles.values()], body).markdown()


def planted() -> str:
    found = {row["method"]: row for row in rows("gaps.csv")}
    body = [
        [name, f"{percent(row['accuracy'])} ± {percent(row['spread'])}", f"{row['log loss']:.5}"]
        for name in GAPS
        if (row := found.get(name))
    ]
    return Table(["30 % of the cells missing", "accuracy, %", "log loss"], body).markdown()


def compared(methods: Sequence[str], wanted: Callable[[Row], bool]) -> str:
    """Accuracy and log loss of methods on some tables, and their mean ranks in both."""
    tables: dict[str, dict[str, Row]] = {}
    for row in rows("tables.csv"):
        if row["method"] in methods and wanted(row):
            tables.setdefault(row["table"], {})[row["method"]] = row
    whole = {name: found for name, found in tables.items() if len(found) == len(methods)}
    body = [
        [name, *(f"{percent(f[m]['accuracy'])} ({float(f[m]['log loss']):.2f})" for m in methods)]
        for name, f in sorted(whole.items())
    ]
    accuracy = mean_ranks([[-float(f[m]["accuracy"]) for m in methods] for f in whole.values()])
    loss = mean_ranks([[float(f[m]["log loss"]) for m in methods] for f in whole.values()])
    pairs = zip(accuracy, loss, strict=True)
    body.append(["mean rank", *(f"{one:.1f} ({two:.1f})" for one, two in pairs)])
    return Table(["accuracy, % (log loss)", *methods], body).markdown()


def mean_ranks(costs: Sequence[Sequence[float]]) -> list[float]:
    """Mean rank of each column over the rows; equals share their ranks."""
    totals = [0.0] * len(costs[0]) if costs else []
    for row in costs:
        for i, cost in enumerate(row):
            totals[i] += sum(c < cost for c in row) + (sum(c == cost for c in row) + 1) / 2
    return [total / len(costs) for total in totals]


def with_gaps(row: Row) -> bool:
    return float(row["missing"]) > 0.0


def with_texts(row: Row) -> bool:
    return int(row["texts"]) > 0


def outliers() -> str:
    body = [
        [
            row["method"],
            f"{float(row['AUROC']):.3f}",
            percent(row["caught at 1 %"]),
            percent(row["accuracy"], 2) if row["accuracy"] else "",
        ]
        for row in sorted(rows("outliers.csv"), key=lambda row: -float(row["AUROC"]))
    ]
    header = ["", "AUROC", "caught, % (1 % of the digits are too)", "accuracy on digits, %"]
    return Table(header, body).markdown()


def streams(ways: Sequence[str], wanted: Callable[[str], bool]) -> str:
    """Accuracy and log loss of streams and of fits of all rows at once, means over seeds."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows("streams.csv"):
        if wanted(row["data"]):
            found.setdefault(row["data"], {}).setdefault(row["way"], []).append(row)
    body = []
    for name, own in found.items():
        cells = []
        for way in ways:
            runs = own.get(way, [])
            accuracy, loss = (
                sum(float(run[key]) for run in runs) / max(1, len(runs))
                for key in ("accuracy", "log loss")
            )
            cells.append(f"{100 * accuracy:.2f} ({loss:.3f})" if runs else "not run")
        body.append([name, *cells])
    return Table(["accuracy, % (log loss)", *ways], body).markdown()


def is_images(name: str) -> bool:
    return name.endswith("mnist")


def sections(points: list[Point]) -> dict[str, str]:
    """The generated tables by the names of their markers."""
    return {
        "planted": planted(),
        "gaps": compared(GAPS, with_gaps),
        "few": few_labels(points),
        "sharing": sharing(points),
        "labels": few_in_tables(),
        "mixed": compared(MIXED, with_texts),
        "outliers": outliers(),
        "streams": streams(STREAMS_OF_IMAGES, is_images),
        "table-streams": streams(STREAMS_OF_TABLES, lambda name: not is_images(name)),
    }


def main() -> None:
    if len(sys.argv) > 1:
        take(Path(sys.argv[1]), TAKEN)
    page = HERE / "data.md"
    text = fill(page.read_text(encoding="utf-8"), sections(load()))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
