"""pskem tune: choose K, blocks and covariance type by cross-validation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from pskem.cli.console import facts, on_terminal, percent, print_json, table
from pskem.cli.learning import read_task, training_facts
from pskem.cli.options import learning_options

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
    """Choose K, blocks and covariance type for DATA by cross-validation, and save the best.

    The cheapest settings come first, until the time budget is used up. The best by accuracy, and
    of equals by log loss, is trained on all rows and saved. The accuracy of the best of many is a
    little too good to be true: measure the model on rows that it has not seen.
    """
    from pskem.classifier import SharedKernelClassifier
    from pskem.workflow import train
    from pskem.workflow import tune as search

    options = {"drop": drop, "categorical": categorical, "pca": pca}
    task, path = read_task(
        data, target, output, quiet, subset=subset, data_home=data_home, **options
    )
    classifier = SharedKernelClassifier(random_state=random_state, n_jobs=n_jobs)
    bar = _Bar(seconds, on_terminal() and not quiet)
    trials = search(task, classifier, folds, seconds, bar)
    bar.close()
    best = trials[0]
    start = time.perf_counter()
    settings = {**best.candidate._asdict(), "reg_covar": None}
    trained = train(task, classifier.set_params(**settings))
    trained.save(path)
    if as_json:
        found = [_plain(trial) for trial in trials]
        print_json({"trials": found, "best": trained.summary(), "model": str(path)})
        return
    table(
        ["kernels", "blocks", "covariance", "accuracy", "+/-", "log loss", "seconds"],
        [_row(trial) for trial in trials[:SHOWN]],
        left=0,
    )
    if len(trials) > SHOWN:
        print(f"({len(trials) - SHOWN} more were tried.)")
    print()
    facts([*training_facts(trained, time.perf_counter() - start), ("saved", path)])


def _plain(trial: Any) -> dict[str, Any]:
    return {
        **trial.candidate._asdict(),
        "accuracies": trial.accuracies,
        "log_losses": trial.log_losses,
        "seconds": trial.seconds,
    }


def _row(trial: Any) -> list[str]:
    K, R, kind = trial.candidate
    return [
        str(K),
        str(R),
        kind,
        percent(float(trial.accuracies.mean())),
        percent(float(np.std(trial.accuracies, ddof=1))),
        f"{trial.log_losses.mean():.4f}",
        f"{trial.seconds:.2f}",
    ]


class _Bar:
    """Progress of the search against its time budget, with the best so far."""

    def __init__(self, seconds: float, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not shown,
        )
        self._progress.start()
        self._task = self._progress.add_task("the first settings", total=seconds)
        self._start = time.monotonic()
        self._best: Any = None

    def __call__(self, trial: Any, n_done: int, n_left: int) -> None:
        if self._best is None or trial.merit > self._best.merit:
            self._best = trial
        text = f"{n_done} tried, {n_left} left, best {percent(self._best.merit[0])}"
        done = time.monotonic() - self._start
        self._progress.update(self._task, description=text, completed=done)

    def close(self) -> None:
        self._progress.stop()
