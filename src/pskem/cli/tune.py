"""pskem tune: choose K, blocks, covariances and shrinkage by cross-validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from pskem.cli.console import facts, on_terminal, percent, print_json, remark, table
from pskem.cli.learning import read_task, training_facts
from pskem.cli.options import finite, learning_options

if TYPE_CHECKING:
    from pskem.estimators._selection import Trial
    from pskem.workflow import Search, Task

__all__ = ["tune"]

#: Rows of the printed table.
SHOWN = 15


@click.command(
    epilog="""\b
Examples:
  pskem tune flowers.csv --target species -o flowers.pskem
  pskem tune patients.csv -t outcome --seconds 300 --folds 10"""
)
@click.argument("data")
@click.option(
    "--seconds",
    type=click.FloatRange(0.0),
    callback=finite,
    default=60.0,
    show_default=True,
    help="Time budget of the search.",
)
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True, help="Folds.")
@learning_options
def tune(
    data: str,
    target: str | None,
    output: str | None,
    seconds: float,
    folds: int,
    drop: Sequence[str],
    categorical: Sequence[str],
    pca: int | None,
    random_state: int,
    n_jobs: int | None,
    subset: str | None,
    data_home: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Choose K, blocks, covariances and shrinkage for DATA, and save the best.

    By cross-validation: what fit would choose comes first, then what is close to it, until the time
    budget is used up. The best by accuracy, and of equals by log loss, is trained on all rows and
    saved. The accuracy of the best of many is a little too good to be true: measure the model on
    rows that it has not seen.
    """
    from pskem.estimators._classifier import SharedKernelClassifier
    from pskem.workflow import train
    from pskem.workflow import tune as search

    options = {"drop": drop, "categorical": categorical, "pca": pca}
    task, path = read_task(
        data, target, output, quiet, subset=subset, data_home=data_home, **options
    )
    classifier = SharedKernelClassifier(random_state=random_state, n_jobs=n_jobs)
    with _bar(seconds, on_terminal() and not quiet) as observe:
        found = search(task, classifier, folds, seconds, observe)
    for line in _shortcuts(found, task, folds):
        remark(line, quiet)
    best = found.trials[0]
    start = time.perf_counter()
    settings = {**best.candidate._asdict(), "reg_covar": None}
    trained = train(task, classifier.set_params(**settings))
    trained.save(path)
    if as_json:
        print_json(
            {
                "trials": [_plain(trial) for trial in found.trials],
                "n_candidates": found.n_candidates,
                "n_rows": found.n_rows,
                "best": trained.summary(),
                "model": str(path),
            }
        )
        return
    table(
        ["kernels", "blocks", "covariance", "shrinkage", "accuracy", "+/-", "log loss", "seconds"],
        [_row(trial) for trial in found.trials[:SHOWN]],
        left=0,
    )
    if len(found.trials) > SHOWN:
        print(f"({len(found.trials) - SHOWN} more were tried.)")
    print()
    facts([*training_facts(trained, time.perf_counter() - start), ("saved", path)])


def _shortcuts(found: Search, task: Task, folds: int) -> Iterator[str]:
    """What was done for lack of time."""
    if found.n_rows < len(task.y):
        yield f"The search used {found.n_rows:,} of {len(task.y):,} rows."
    if found.n_folds < folds:
        yield f"The search used {found.n_folds} folds, for lack of time or of rows of a class."
    if len(found.trials) < found.n_candidates:
        yield (
            f"{len(found.trials)} of {found.n_candidates} settings were tried within the time;"
            " --seconds gives it more."
        )


def _plain(trial: Trial) -> dict[str, Any]:
    return {
        **trial.candidate._asdict(),
        "accuracies": trial.accuracies,
        "log_losses": trial.log_losses,
        "seconds": trial.seconds,
    }


def _row(trial: Trial) -> list[str]:
    K, R, kind, pseudo = trial.candidate
    return [
        str(K),
        str(R),
        kind,
        f"{pseudo:g}",
        percent(float(trial.accuracies.mean())),
        percent(float(np.std(trial.accuracies, ddof=1))),
        f"{trial.log_losses.mean():.4f}",
        f"{trial.seconds:.2f}",
    ]


@contextmanager
def _bar(seconds: float, shown: bool) -> Iterator[Callable[[Trial, int, int], None]]:
    """Something that shows the progress of the search against its budget, and the best so far."""
    if not shown:
        yield lambda trial, n_done, n_left: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("the first settings", total=seconds)
        start = time.monotonic()
        best = 0.0

        def observe(trial: Trial, n_done: int, n_left: int) -> None:
            nonlocal best
            best = max(best, trial.merit[0])
            text = f"{n_done} seen to, {n_left} left, best {percent(best)}"
            progress.update(task, description=text, completed=time.monotonic() - start)

        yield observe
