"""pskem tune: choose K, blocks, covariances and shrinkage by cross-validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from pskem.cli.console import Tell, facts, percent, print_json, progress, remark, show
from pskem.cli.options import finite, learning_options
from pskem.cli.task import keeping, read_task, training_facts

if TYPE_CHECKING:
    from pskem.estimators import Trial
    from pskem.workflow import Search, Task

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
    help="Time budget of the search.",
)
@click.option("--folds", type=click.IntRange(2), default=5, help="Number of folds.")
@learning_options
def tune(
    data: str,
    output: str | None,
    overwrite: bool,
    checkpoint: str | None,
    seconds: float,
    folds: int,
    quiet: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Choose K, blocks, covariances and shrinkage for DATA, and save the best.

    Cross-validates the defaults of fit first, which multiply models of several forms. Then come
    single models, those of the usual sizes first, until the time budget is used up. The best
    setting by accuracy, and by log loss among equals, is trained on all rows and saved. Its
    cross-validated accuracy is slightly optimistic, because it is the best of many: measure the
    model on rows that it has not seen.
    """
    from pskem.display import Table
    from pskem.estimators import AUTO, SharedKernelClassifier, configured
    from pskem.workflow import last_fit, train
    from pskem.workflow import tune as search

    task, path = read_task(data, output, overwrite, quiet, parameters)
    classifier = SharedKernelClassifier(**parameters)
    with keeping(checkpoint, path, quiet) as kept:
        with progress(quiet) as tell:
            found = search(task, classifier, folds, seconds, _observer(tell, seconds), kept)
        for line in _shortcuts(found, task, folds):
            remark(line, quiet)
        best = found.trials[0]
        start = time.perf_counter()
        last = last_fit(kept, best.candidate)
        trained = train(task, configured(classifier, best.candidate), checkpoint=last)
        trained.save(path, overwrite=overwrite)
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
    headings = ("kernels", "blocks", "covariance", "shrinkage", "accuracy", "+/-", "log loss")
    rows = [_row(trial) for trial in found.trials[:SHOWN]]
    show(Table((*headings, "seconds"), rows, left=0))
    if any(trial.candidate == AUTO for trial in found.trials[:SHOWN]):
        print("\nauto: the defaults of fit, which multiply models of several forms.")
    if len(found.trials) > SHOWN:
        print(f"({len(found.trials) - SHOWN} more were tried.)")
    print()
    facts(*training_facts(trained, time.perf_counter() - start), ("saved", path))


def _observer(tell: Tell, seconds: float) -> Callable[[Trial, int, int], None]:
    """Tells how much of the time budget is used, and the best accuracy so far."""
    start, best = time.monotonic(), 0.0

    def observe(trial: Trial, n_done: int, n_left: int) -> None:
        nonlocal best
        best = max(best, trial.merit[0])
        text = f"{n_done} settings tried or skipped, {n_left} left, best {percent(best)}"
        tell(text, time.monotonic() - start, seconds)

    return observe


def _shortcuts(found: Search, task: Task, folds: int) -> Iterator[str]:
    """Remarks on rows, folds and settings that the search left out."""
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
        pseudo if isinstance(pseudo, str) else f"{pseudo:g}",
        percent(float(trial.accuracies.mean())),
        percent(float(trial.accuracies.std(ddof=1))),
        f"{trial.log_losses.mean():.4f}",
        f"{trial.seconds:.2f}",
    ]
