"""Options and steps that the commands reproduce and study share."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pskem.cli.console import print_json, progress, remark, show
from pskem.cli.options import as_json, debug_option, home_option, quiet_option, stack

if TYPE_CHECKING:
    from pskem.study import Outcome, Place, RunSpec, Store, Study, WorkProgress

__all__ = ["run_studies", "study_options"]

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
        help="Only this experiment, data set or method; repeatable.",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(file_okay=False),
        default="pskem-results",
        show_default=True,
        help="Folder of the results and the report.",
    ),
    home_option,
    quiet_option,
    as_json,
    debug_option,
)


def run_studies(
    studies: Sequence[Study],
    runs: int | None,
    jobs: int | None,
    only: Sequence[str],
    out: str,
    data_home: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Perform the runs that are not recorded yet and write the report; returns the exit code."""
    import matplotlib

    from pskem.study import Place, Store, check_names, write_report

    matplotlib.use("agg")  # no window is needed, and many machines have no display
    folder = Path(out)
    if studies:
        check_names(studies, only)
    elif runs is not None:
        raise click.UsageError("The report is of the runs that are there; leave --runs out.")
    wanted = {run.key: run for study in studies for run in study.runs(runs, only)}
    ordered = sorted(wanted.values(), key=lambda run: run.seed)
    if ordered:
        _make(folder)
    failed = False
    with Store(folder / "runs.sqlite", create=bool(ordered)) as store, _told(store, wanted, quiet):
        for study in studies:
            store.remember(study)
        if not studies:
            check_names(store.studies(), only)
        if ordered:
            place = Place(folder / "prepared", data_home)
            failed = _tell(_perform(ordered, store, place, jobs, quiet), quiet)
        if not store.seconds():
            return 1 if failed else 0  # nothing has ever been run: there is nothing to report
        written = write_report(store, folder)
        _show(store, [study.name for study in studies], only, as_json, quiet)
    pictures = f" and {len(written.figures)} figure files" if written.figures else ""
    remark(f"Report: {written.page}{pictures}; results: {folder / 'runs.sqlite'}.", quiet)
    return 1 if failed else 0


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(
            f"The folder {folder} cannot be made: {error.strerror}. Name another with --out."
        ) from None


def _perform(
    runs: Sequence[RunSpec], store: Store, place: Place, jobs: int | None, quiet: bool
) -> Outcome:
    """Perform runs in ``jobs`` processes, or as many as there are cores."""
    from pskem.engine import n_threads
    from pskem.study import pool, work

    cores = n_threads(None)
    jobs = jobs or cores
    with pool(jobs) as executor, progress(quiet) as tell:

        def observe(far: WorkProgress) -> None:
            tell(_line(far), far.done + far.failed, far.total)

        return work(runs, store, place, executor, jobs, max(1, cores // jobs), observe)


@contextmanager
def _told(store: Store, wanted: Collection[str], quiet: bool) -> Iterator[None]:
    """Report what is kept when the work stops, and errors of the file of results."""
    from pskem.study import StudyError

    try:
        yield
    except sqlite3.Error as error:
        raise StudyError(
            f"{store.path} cannot be used: {error}. Runs that were done are kept; mend this, and"
            " the same command goes on."
        ) from None
    except BaseException:
        if wanted:
            remark(
                f"Stopped: {len(store.done(wanted))} of {len(wanted)} runs are kept in"
                f" {store.path}; the same command goes on with the others.",
                quiet,
            )
        raise


def _tell(outcome: Outcome, quiet: bool) -> bool:
    """Report how the work went; returns whether runs failed."""
    remark(
        f"{outcome.performed} run(s) performed, {outcome.found} were there already.",
        quiet,
    )
    reasons: dict[str, list[Any]] = {}
    for run, message in outcome.failures:
        reasons.setdefault(message, []).append(run)
    for message, group in reasons.items():
        point = group[0].point
        settings = ", ".join(f"{key}={value}" for key, value in point.settings.items())
        first = f"{point.method}{f' with {settings}' if settings else ''}, seed {group[0].seed}"
        remark(
            f"Error: {len(group)} run(s) on {point.data['source']} failed: {message} (The first:"
            f" {first}.)"
        )
    return bool(reasons)


def _show(
    store: Store, names: Sequence[str], only: Sequence[str], as_json: bool, quiet: bool
) -> None:
    """Print the points of the chosen studies, or of all."""
    from pskem.study import LEGEND, brief_table, names_of, summarise

    chosen = [study for study in store.studies() if not names or study.name in names]
    summaries = {
        study.name: [
            summary
            for summary in summarise(study, store)
            if not only or set(only) & names_of(summary.entry)
        ]
        for study in chosen
    }
    if as_json:
        print_json([s.as_dict() for group in summaries.values() for s in group])
        return
    headings: set[str] = set()
    for study in chosen:
        group = summaries[study.name]
        print(f"\n{study.name}: {study.title}")
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


def _line(far: WorkProgress) -> str:
    parts = [
        f"{far.done} of {far.total} runs",
        *([f"{far.failed} failed"] if far.failed else []),
        *([f"{_spoken(far.left)} left"] if far.left is not None else []),
        far.now,
    ]
    return ", ".join(parts)


def _spoken(seconds: float) -> str:
    """A duration in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
