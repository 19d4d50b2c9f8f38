"""Options and steps that the commands reproduce and study share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pskem.cli.console import print_json, progress, remark, say, show
from pskem.cli.options import as_json, home_option, quiet_option, stack

if TYPE_CHECKING:
    from pskem.study import PointSummary, Study

#: Printed rows of a study's table, at most; the report has them all.
SHOWN = 30

study_options = stack(
    click.option(
        "-n",
        "--runs",
        type=click.IntRange(1),
        help="Runs per point, with seeds from 0.  [default: given by the study]",
    ),
    click.option(
        "-j", "--jobs", type=click.IntRange(1), help="Parallel runs.  [default: all cores]"
    ),
    click.option(
        "--only",
        multiple=True,
        metavar="NAME",
        help="Only this experiment, data set or method; repeatable, and names add up.",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(file_okay=False),
        default="pskem-results",
        help="Folder of the results and the report.",
    ),
    home_option,
    quiet_option,
    as_json,
)


def run_studies(
    studies: Sequence[Study], runs: int | None, quiet: bool, as_json: bool, **options: Any
) -> int:
    """Perform the runs that are not recorded yet and write the report; returns the exit code."""
    import matplotlib

    from pskem.study import conduct, left_out

    matplotlib.use("agg")  # no window is needed, and many machines have no display
    if not studies and runs is not None:
        raise click.UsageError("The report is of the runs that are there; leave --runs out.")
    try:
        with progress(quiet) as tell:
            session = conduct(
                studies,
                runs=runs,
                observe=lambda far: tell(far.text, far.done + far.failed, far.total),
                **options,
            )
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            remark(note, quiet)
        raise
    outcome, written, points = session
    for study in studies:
        if study.left_out:
            remark(left_out(study), quiet)
    if outcome is not None:
        done = f"{outcome.performed} run(s) performed, {outcome.found} were there already."
        remark(done, quiet)
        for text in outcome.reasons():
            remark(f"Error: {text}")
    if written is not None:
        _show(points, as_json, quiet)
        pictures = f" and {len(written.figures)} figure files" if written.figures else ""
        results = written.page.with_name("runs.sqlite")
        remark(f"Report: {written.page}{pictures}; results: {results}.", quiet)
    return int(outcome is not None and bool(outcome.failures))


def _show(points: Sequence[tuple[Study, list[PointSummary]]], as_json: bool, quiet: bool) -> None:
    from pskem.study import LEGEND, brief_table

    if as_json:
        print_json([summary.as_dict() for _, group in points for summary in group])
        return
    headings: set[str] = set()
    for study, group in points:
        say()
        say(f"{study.name}: {study.title}")
        if group:
            table = brief_table(group[:SHOWN])
            headings.update(table.headings)
            show(table)
        else:
            print("no runs yet")
        if len(group) > SHOWN:
            print(f"({len(group) - SHOWN} more in the report.)")
    meanings = [meaning for heading, meaning in LEGEND.items() if heading in headings]
    remark(" ".join(meanings), quiet or not meanings)
