"""Studies from their definitions to a report: perform what is not done yet, then write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pskem.display import check_page_place
from pskem.engine import n_threads
from pskem.study.configuration import StudyError
from pskem.study.definition import Study, check_names, names_of
from pskem.study.materials import Place
from pskem.study.pages import REPORT, Written, write_report
from pskem.study.runner import Outcome, WorkProgress, pool, work
from pskem.study.store import Store
from pskem.study.summary import PointSummary, summarise

__all__ = ["Session", "conduct"]

RESULTS = "runs.sqlite"


class Session(NamedTuple):
    """What became of studies.

    outcome : how the work ended; None if only a report was asked for
    written : the files of the report; None if nothing has ever been run
    points : of the studies that were asked for, or of all, those with runs
    """

    outcome: Outcome | None
    written: Written | None
    points: list[tuple[Study, list[PointSummary]]]


def conduct(
    studies: Sequence[Study],
    out: Any,
    *,
    runs: int | None = None,
    only: Collection[str] = (),
    jobs: int | None = None,
    data_home: str | None = None,
    observe: Callable[[WorkProgress], None] = lambda progress: None,
) -> Session:
    """Perform the runs that are not in the folder ``out`` yet, and write the report there.

    Without studies, the report is on the runs that are there. What is kept when the work is
    stopped is noted in the exception.
    """
    folder = Path(out)
    _check_report(folder / REPORT)
    if studies:
        check_names(studies, only)
    wanted = {run.key: run for study in studies for run in study.runs(runs, only)}
    ordered = sorted(wanted.values(), key=lambda run: run.seed)
    if ordered:
        _make(folder)
    outcome = None
    with Store(folder / RESULTS, create=bool(ordered)) as store, _noted(store, wanted):
        for study in studies:
            store.remember(study)
        if not studies:
            check_names(store.studies(), only)
        if ordered:
            cores = n_threads(None)
            jobs = jobs or cores
            place = Place(folder / "prepared", data_home)
            with pool(jobs) as executor:
                threads = max(1, cores // jobs)
                outcome = work(ordered, store, place, executor, jobs, threads, observe)
        if not store.seconds():
            return Session(outcome, None, [])
        asked = {study.name for study in studies}
        points = [
            (
                study,
                [s for s in summarise(study, store) if not only or set(only) & names_of(s.entry)],
            )
            for study in store.studies()
            if not asked or study.name in asked
        ]
        return Session(outcome, write_report(store, folder), points)


def _check_report(page: Path) -> None:
    """Refuse a folder whose report is not ours to replace, before work is done for it."""
    if page.parent.is_dir():
        try:
            check_page_place(page)
        except FileExistsError:
            raise StudyError(
                f"{page} exists and is not a report of pskem. Move it, or name another folder."
            ) from None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"The folder {folder} cannot be made: {error.strerror}. Name another folder."
        ) from None


@contextmanager
def _noted(store: Store, wanted: Collection[str]) -> Iterator[None]:
    """Note what is kept when the work is stopped, and tell what is wrong when the file is."""
    try:
        yield
    except sqlite3.Error as error:
        raise StudyError(
            f"{store.path} cannot be used: {error}. Runs that were done are kept; mend this, and"
            " the same command goes on."
        ) from None
    except BaseException as error:
        if wanted:
            error.add_note(
                f"Stopped: {len(store.done(wanted))} of {len(wanted)} runs are kept in"
                f" {store.path}; the same command goes on with the others."
            )
        raise
