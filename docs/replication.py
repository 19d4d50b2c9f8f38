"""Write the tables of docs/replication.md from recorded runs.

pskem reproduce report --out RESULTS
python -m docs.replication RESULTS      # copy the summary and the figures of RESULTS, then write
python -m docs.replication              # write the tables from the copy
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.markdown import fill

from pskem.display import Table

HERE = Path(__file__).parent
TAKEN = HERE / "replication"
FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "starts")
DATA = ("rice", "ionosphere", "mnist", "fashion-mnist", "cifar-10")
OURS = "shared-kernels"
BLOCKS = (12, 6, 3, 2, 1)
#: Numbers of kernels in the tables of the curves.
SHOWN = (4, 8, 16, 24, 32, 40)

Point = dict[str, Any]


def take(results: Path, folder: Path, figures: tuple[str, ...] = ()) -> None:
    """Copy the summary and some figures of a folder of results."""
    folder.mkdir(exist_ok=True)
    names = ["summary.csv", "summary.json"]
    names += [f"{figure}.{suffix}" for figure in figures for suffix in ("png", "svg")]
    for name in names:
        shutil.copyfile(results / name, folder / name)


def load(folder: Path = TAKEN) -> list[Point]:
    return list(json.loads((folder / "summary.json").read_text(encoding="utf-8"))["points"])


def spread(point: Point, name: str) -> str:
    """Mean and standard deviation in percent."""
    mean, sd = point[f"{name}_mean"], point[f"{name}_sd"]
    if mean is None:
        return ""
    return f"{100 * mean:.2f}" + (f" ± {100 * sd:.2f}" if sd is not None else "")


def reported(point: Point) -> str:
    if point["paper_accuracy"] is None:
        return ""
    sd = point["paper_sd"]
    return f"{point['paper_accuracy']:g}" + ("" if sd is None else f" ± {sd:g}")


def of(points: list[Point], study: str) -> list[Point]:
    return [point for point in points if point["study"] == study]


def table1(points: list[Point]) -> str:
    """The paper's Table 1 beside ours."""
    rows = []
    for ours in paper_rows(points):
        others = [
            point
            for point in of(points, "table1")
            if point["data"] == ours["data"] and point["method"] != OURS
        ]
        best = max(others, key=lambda point: point["honest_mean"], default=None)
        rows.append(
            [
                ours["data"],
                str(ours["runs"]),
                reported(ours),
                spread(ours, "peak"),
                spread(ours, "honest"),
                spread(ours, "last"),
                f"{best['label']}: {spread(best, 'honest')}" if best else "not run",
            ]
        )
    headings = ["data set", "runs", "the paper reports, %", "paper\\*, %", "honest, %"]
    return Table([*headings, "last pass, %", "best conventional here, %"], rows).markdown()


def speed(points: list[Point]) -> str:
    """Seconds of an EM pass in the paper's Table 1 and here."""
    rows = [
        [
            ours["data"],
            f"{ours['paper_seconds_per_pass']:g}",
            f"{ours['seconds_per_pass']:.2g}",
        ]
        for ours in paper_rows(points)
    ]
    return Table(["seconds a pass", "the paper reports", "here"], rows).markdown()


def paper_rows(points: list[Point]) -> list[Point]:
    """The PSKEM points of Table 1, in the paper's order."""
    ours = {point["data"]: point for point in of(points, "table1") if point["method"] == OURS}
    return [ours[name] for name in DATA]


def conventional(points: list[Point]) -> str:
    """Conventional classifiers by data sets."""
    group = [point for point in of(points, "table1") if point["method"] != OURS]
    labels = list(dict.fromkeys(point["label"] for point in group))
    cells = {(point["label"], point["data"]): spread(point, "honest") for point in group}
    rows = [[label, *(cells.get((label, name), "not run") for name in DATA)] for label in labels]
    return Table(["accuracy, %", *DATA], rows).markdown()


def experiments(points: list[Point], study: str) -> str:
    """All points of a study, one per row."""
    rows = [
        [
            ", ".join(filter(None, [point["experiment"], point["label"]])),
            str(point["runs"]),
            reported(point),
            spread(point, "peak"),
            spread(point, "honest"),
            spread(point, "last"),
            "" if point["shared_mean"] is None else f"{point['shared_mean']:.2f}",
        ]
        for point in of(points, study)
    ]
    headings = ["", "runs", "the paper reports, %", "paper\\*, %", "honest, %"]
    return Table([*headings, "last pass, %", "shared"], rows).markdown()


def starts(points: list[Point]) -> str:
    """Honest accuracies from two starts, and of one kernel per class."""
    numbers = (8, 24, 40)
    uniform = grid(points, "fig2", lambda point: spread(point, "honest"))
    better = grid(points, "starts", lambda point: spread(point, "honest"))
    rows = [
        [f"{R} x {36 // R}, {name}", *(cells[R, K] for K in numbers)]
        for R in (12, 3, 2, 1)
        for name, cells in (("the paper's start", uniform), ("k-means++", better))
    ]
    qda = next(point for point in of(points, "starts") if point["method"] == "qda")
    rows.append(["1 x 36, one kernel per class (QDA): K = 10", spread(qda, "honest"), "", ""])
    return Table(["honest, %", *(f"K = {K}" for K in numbers)], rows).markdown()


def grid(points: list[Point], study: str, show: Any) -> dict[tuple[int, int], str]:
    return {
        (point["settings"]["n_blocks"], point["settings"]["n_components"]): show(point)
        for point in of(points, study)
        if point["method"] == OURS
    }


def curves(points: list[Point], heading: str, show: Any) -> str:
    """Accuracy of some points of Fig. 2 to 4."""
    rows = []
    for study, name in (("fig2", "sequential"), ("fig3", "interleaved"), ("fig4", "random")):
        cells = grid(points, study, show)
        for R in BLOCKS if study == "fig2" else BLOCKS[:-1]:
            label = f"{name}, {R} x {36 // R}" if R > 1 else "not partitioned, 1 x 36"
            rows.append([label, *(cells[R, K] for K in SHOWN)])
    return Table([heading, *(f"K = {K}" for K in SHOWN)], rows).markdown()


def sharing(points: list[Point]) -> str:
    """The shared proportion of some points of Fig. 5."""
    cells = grid(points, "fig5", lambda point: f"{point['shared_mean']:.2f}")
    rows = [[f"{R} x {36 // R}", *(cells[R, K] for K in SHOWN)] for R in BLOCKS]
    return Table(["N_S / N_T", *(f"K = {K}" for K in SHOWN)], rows).markdown()


def cost(points: list[Point]) -> str:
    """Cost of a whole training, and how much partitioning speeds up a pass."""
    K = 40
    group = {
        p["settings"]["n_blocks"]: p
        for p in of(points, "fig1")
        if p["settings"]["n_components"] == K
    }
    whole = group[1]
    rows = []
    for R in BLOCKS:
        point = group[R]
        passes = [p["settings"]["max_iter"] for p in (whole, point)]
        counted = whole["operations"] / passes[0] / (point["operations"] / passes[1])
        measured = whole["seconds_per_pass"] / point["seconds_per_pass"]
        rows.append(
            [
                f"{R} x {36 // R}",
                f"{point['operations']:.2g}",
                f"{point['seconds']:.1f}",
                f"{counted:.1f}",
                f"{measured:.1f}",
            ]
        )
    headings = [f"K = {K}", "operations", "seconds", "speed-up, counted", "speed-up, measured"]
    return Table(headings, rows).markdown()


def runs_made(points: list[Point]) -> str:
    """Number of runs of each study."""
    rows = []
    for study in dict.fromkeys(point["study"] for point in points):
        group = of(points, study)
        numbers = sorted({point["runs"] for point in group})
        spoken = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        warned = sum(point["warned_runs"] for point in group)
        total = sum(point["runs"] for point in group)
        rows.append([study, str(len(group)), spoken, str(total), str(warned)])
    distinct = {point["point"]: point["runs"] for point in points}
    rows.append(["distinct", str(len(distinct)), "", str(sum(distinct.values())), ""])
    return Table(["study", "points", "runs per point", "runs", "with warnings"], rows).markdown()


def sections(points: list[Point]) -> dict[str, str]:
    """The generated tables by the names of their markers."""
    return {
        "table1": table1(points),
        "speed": speed(points),
        "conventional": conventional(points),
        "curves": curves(points, "honest, %", lambda point: spread(point, "honest")),
        "peaks": curves(points, "paper\\*, %", lambda point: f"{100 * point['peak_mean']:.2f}"),
        "sharing": sharing(points),
        "cost": cost(points),
        "mda": experiments(points, "mda"),
        "ionosphere": experiments(points, "ionosphere"),
        "rice": experiments(points, "rice"),
        "starts": starts(points),
        "runs": runs_made(points),
    }


def main() -> None:
    if len(sys.argv) > 1:
        take(Path(sys.argv[1]), TAKEN, FIGURES)
    parts = sections(load())
    path = HERE / "replication.md"
    path.write_text(fill(path.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main()
