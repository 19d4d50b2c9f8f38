"""The report of a study: a page, figures and tables, from the recorded runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pskem.display import Page, Table
from pskem.files import atomic_write
from pskem.study.comparison import (
    OURS,
    RANKED,
    cells_of,
    compare,
    duels,
    failures_of,
    has_probabilities,
    rank_table,
    record,
    standing,
    table_by_table,
)
from pskem.study.definition import Study
from pskem.study.drawing import chosen, draw
from pskem.study.methods import lacking
from pskem.study.rankplot import draw_ranks
from pskem.study.store import Store
from pskem.study.summary import PointSummary, Spread, describe, summarise

__all__ = [
    "LEGEND",
    "REPORT",
    "Written",
    "brief_table",
    "left_out",
    "percent",
    "point_table",
    "write_figure",
    "write_report",
]

#: The page's name in the folder of results.
REPORT = "report.html"

PROTOCOLS = (
    "Accuracies are given by two protocols. The paper's protocol keeps the pass with the best"
    " accuracy on the test rows. It is optimistic, because the test rows chose the pass. The honest"
    " protocol keeps the pass that validation rows chose, which are training data, and measures it"
    " on the same test rows. Without validation it keeps the last pass. Classifiers without passes"
    " have one figure. The spread is one standard deviation over runs with different seeds."
)
#: What the headings of the tables mean.
LEGEND = {
    "reported %": "reported: in the paper.",
    "paper* %": "paper*: best pass by TEST accuracy, the paper's optimistic protocol.",
    "honest %": "honest: pass chosen without test data.",
    "difference": "difference: paper* minus honest.",
    "pass*": "pass*: the best pass by test accuracy, median.",
    "pass": "pass: the pass chosen without test data, median.",
    "shared": "shared: the shared proportion after the last pass.",
    "s/pass": "s/pass: seconds of a training pass, or of the whole fit of a classifier without"
    " passes, on one thread unless summary.csv says otherwise.",
}
#: Columns of the report for which a terminal is too narrow.
BESIDE = ("pass*", "pass", "shared")
#: What stands around text that is bold.
BOLD = "**"
#: Tables of more rows than this are folded away, if there is a figure to look at instead.
LONG = 25


class Written(NamedTuple):
    """The files of a report."""

    page: Path
    figures: list[Path]


def write_report(store: Store, folder: Any) -> Written:
    """Write ``report.html``, figures as PNG and SVG, ``summary.csv`` and ``summary.json``.

    A study that measures probabilities also has the means of each table and method, as CSV with the
    study's name.
    """
    folder = Path(folder)
    page = Page("Studies of shared kernel models")
    page.text(PROTOCOLS)
    page.text(" ".join(LEGEND.values()))
    everything: list[PointSummary] = []
    pictures: list[Path] = []
    for study in store.studies():
        summaries = summarise(study, store)
        everything += summaries
        page.heading(f"{study.name}: {study.title}")
        if study.about:
            page.text(study.about)
        if study.left_out:
            page.text(left_out(study))
        page.text(_state(study, summaries))
        if not summaries:
            continue
        pictures += _write_comparison(study, store, page, folder)
        for figure in study.figures:
            if not chosen(figure, summaries):
                continue
            made = draw(figure, summaries)
            pictures += write_figure(made, folder, figure["name"])
            page.figure(made, f"{figure['name']}. {figure['title']}")
        long = bool(study.figures) and len(summaries) > LONG
        page.table(point_table(summaries), folded=f"All {len(summaries)} points" if long else None)
        for text in _warned(summaries):
            page.text(text)
    page.heading("How it was made")
    made_with = [
        ", ".join(f"{name} {version}" for name, version in versions.items())
        for versions in store.made_with()
    ]
    for text in made_with:
        page.text(text)
    failed = _failed(store)
    if failed:
        page.heading("Runs that failed")
        page.table(Table(["study", "experiment", "settings", "seed", "why"], failed, left=5))
    atomic_write(folder / "summary.csv", _csv(everything).encode())
    atomic_write(folder / "summary.json", _json(made_with, everything).encode())
    page.write(folder / REPORT)
    return Written(folder / REPORT, list(dict.fromkeys(pictures)))


def left_out(study: Study) -> str:
    """Which methods are not there, in words."""
    names = ", ".join(study.left_out)
    libraries = " ".join(filter(None, map(lacking, study.left_out)))
    remedy = f" To have them: pip install {libraries}" if libraries else ""
    return f"Left out, because their libraries are not installed: {names}.{remedy}"


def _write_comparison(study: Study, store: Store, page: Page, folder: Path) -> list[Path]:
    """Ranks over tables, for a study that measures probabilities; returns the figures."""
    cells = cells_of(study, store)
    if not cells:
        if has_probabilities(study, store):
            runs = max(entry.experiment.runs for entry in study.entries)
            page.text(
                f"There are no ranks yet: they need all {runs} runs of a method. Run the same"
                " command without --runs."
            )
        return []
    atomic_write(folder / f"{study.name}.csv", record(cells).encode())
    comparison = compare(cells, failures_of(study, store))
    if comparison is None:
        page.text("There are no ranks yet: they need two methods with all runs of a table.")
        return []
    for measure in RANKED:
        page.text(standing(comparison, measure))
    made = draw_ranks(comparison)
    name = f"{study.name}-ranks"
    written = write_figure(made, folder, name)
    page.figure(made, f"{name}. Bars join methods that do not differ at the level 0.05.")
    page.table(rank_table(comparison))
    if OURS in comparison.methods:
        page.table(duels(comparison))
        page.text(
            f"Table by table: {OURS} and the best peer, by accuracy and by log loss. The ECE is"
            " that of the latter. The peer is chosen in hindsight. The better of the two is bold."
        )
        page.table(table_by_table(comparison, mark=BOLD), mark=BOLD)
    return written


def write_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG."""
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        atomic_write(path, _rendered(figure, path.suffix[1:]))
    return paths


def brief_table(summaries: Sequence[PointSummary]) -> Table:
    """What fits on a terminal of :func:`point_table`: experiment and settings in one column."""
    headings, rows, left = point_table(summaries)
    kept = [i for i, name in enumerate(headings[left:], left) if name not in BESIDE]
    joined = [[", ".join(filter(None, row[:left])), *(row[i] for i in kept)] for row in rows]
    return Table([headings[0], *(headings[i] for i in kept)], joined)


def point_table(summaries: Sequence[PointSummary]) -> Table:
    """A row of texts for each point; columns with nothing in them are left out."""
    columns: dict[str, list[str]] = {
        "experiment": [s.entry.experiment.name for s in summaries],
        "settings": [describe(s.entry.label) for s in summaries],
        "runs": [str(s.n_runs) for s in summaries],
        "reported %": [_reported(s) for s in summaries],
        "paper* %": [percent(s.peak) if s.has_passes else "" for s in summaries],
        "honest %": [percent(s.honest) for s in summaries],
        "difference": [percent(s.optimism) if s.has_passes else "" for s in summaries],
        "pass*": [f"{s.best:g}" if s.has_passes else "" for s in summaries],
        "pass": [f"{s.chosen:g}" if s.has_passes else "" for s in summaries],
        "shared": ["" if s.shared is None else f"{s.shared.mean:.2f}" for s in summaries],
        "s/pass": [f"{s.seconds_per_pass:.3g}" for s in summaries],
    }
    filled = {heading: texts for heading, texts in columns.items() if any(texts)}
    rows = [list(row) for row in zip(*filled.values(), strict=True)]
    return Table(list(filled), rows, left=1 + ("settings" in filled))


def percent(spread: Spread) -> str:
    """Mean and standard deviation of shares, in percent."""
    mean = f"{100 * spread.mean:.2f}"
    return f"{mean} ± {100 * spread.sd:.2f}" if spread.sd else mean


def _reported(summary: PointSummary) -> str:
    paper = summary.entry.experiment.paper
    if "accuracy" not in paper:
        return ""
    return f"{paper['accuracy']:g}" + (f" ± {paper['spread']:g}" if "spread" in paper else "")


def _state(study: Study, summaries: Sequence[PointSummary]) -> str:
    """WorkProgress of a study in words."""
    done = {summary.entry.point.key for summary in summaries}
    missing = sum(entry.point.key not in done for entry in study.entries)
    runs = sorted({summary.n_runs for summary in summaries})
    spoken = "no runs yet" if not runs else f"{runs[0]} to {runs[-1]} runs a point"
    if len(runs) == 1:
        spoken = f"{runs[0]} run(s) a point"
    return f"{len(summaries)} of {len(study.entries)} points, {spoken}." + (
        f" {missing} point(s) have not been run." if missing and summaries else ""
    )


def _failed(store: Store) -> list[tuple[str, ...]]:
    """Rows for the runs that failed and have not succeeded since."""
    failures = store.failures().values()
    return [
        (
            study.name,
            entry.experiment.name,
            describe(entry.label),
            str(failure.seed),
            failure.message,
        )
        for study in store.studies()
        for entry in study.entries
        for failure in failures
        if failure.point == entry.point.key
    ]


def _warned(summaries: Sequence[PointSummary]) -> list[str]:
    """Warnings, each with the number of runs that gave it."""
    total: dict[str, int] = {}
    for summary in summaries:
        for text, count in summary.warnings.items():
            total[text] = total.get(text, 0) + count
    runs = sum(summary.n_runs for summary in summaries)
    return [f"{count} of {runs} runs warned: {text}" for text, count in sorted(total.items())]


def _rendered(figure: Any, suffix: str) -> bytes:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    # Without a date and with fixed names, the same runs give the same file.
    metadata = {"Date": None} if suffix == "svg" else {}
    with plt.rc_context({"svg.hashsalt": "pskem"}):
        figure.savefig(buffer, format=suffix, dpi=130, metadata=metadata)
    return buffer.getvalue()


def _json(made_with: Sequence[str], summaries: Sequence[PointSummary]) -> str:
    """One point per line, so that two versions can be compared."""
    points = ",\n".join(json.dumps(summary.as_dict()) for summary in summaries)
    return f'{{"made_with": {json.dumps(made_with)},\n"points": [\n{points}\n]}}\n'


def _csv(summaries: Sequence[PointSummary]) -> str:
    buffer = io.StringIO()
    rows = [summary.as_dict() for summary in summaries]
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "settings": json.dumps(row["settings"])})
    return buffer.getvalue()
