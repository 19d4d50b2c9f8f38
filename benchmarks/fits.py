"""Whole fits with default settings, beside the classifiers that users would pick otherwise.

All classifiers get the same features in float64 and may use two threads. Each has a process of its
own. Fits are repeated while time allows, and the shortest counts; so do predictions.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.child import ChildError, Worker, ask_once, serve
from benchmarks.machine import n_cores

__all__ = ["CANDIDATES", "DATA", "FULL", "OURS", "QUICK", "Effort", "measure"]

OURS = "pskem"
THREADS = 2


class Effort(NamedTuple):
    """How long to measure.

    rows : training and test rows that are used of each set, or None for all
    rounds : most fits of a classifier
    seconds : after which a classifier gets no further fit
    timeout : seconds after which a classifier is given up
    """

    rows: int | None
    rounds: int
    seconds: float
    timeout: float


FULL = Effort(rows=None, rounds=3, seconds=60.0, timeout=3600.0)
QUICK = Effort(rows=1_000, rounds=1, seconds=1.0, timeout=300.0)


class Candidate(NamedTuple):
    """A classifier with its settings; what is not set is the library's default.

    package : what pip calls the library
    threads : the setting for the number of threads, or None if the classifier has none
    """

    name: str
    package: str
    module: str
    kind: str
    settings: dict[str, Any]
    threads: str | None

    def missing(self) -> str | None:
        """Why the classifier cannot be used here and what would help; None if it can."""
        if importlib.util.find_spec(self.module.split(".")[0]) is None:
            return f"{self.package} is not installed; `pip install {self.package}` adds it"
        return None

    def all_settings(self, n_threads: int) -> dict[str, Any]:
        return {**self.settings, **({self.threads: n_threads} if self.threads else {})}

    def call(self, n_threads: int) -> str:
        """How the classifier is made, as one would write it."""
        pairs = self.all_settings(n_threads).items()
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def make(self, n_threads: int) -> Any:
        kind = getattr(importlib.import_module(self.module), self.kind)
        return kind(**self.all_settings(n_threads))


SEED = {"random_state": 0}
CANDIDATES = [
    Candidate(OURS, "pskem", "pskem", "SharedKernelClassifier", SEED, "n_jobs"),
    # verbose=-1 keeps it from writing a line for every leaf that it cannot split.
    Candidate(
        "LightGBM", "lightgbm", "lightgbm", "LGBMClassifier", {**SEED, "verbose": -1}, "n_jobs"
    ),
    Candidate("XGBoost", "xgboost", "xgboost", "XGBClassifier", SEED, "n_jobs"),
    Candidate(
        "SVM, RBF kernel", "scikit-learn", "sklearn.svm", "SVC", {"C": 5, "gamma": "scale"}, None
    ),
    # It takes as many threads as OMP_NUM_THREADS says, which the process has in its environment.
    Candidate(
        "HistGradientBoosting",
        "scikit-learn",
        "sklearn.ensemble",
        "HistGradientBoostingClassifier",
        SEED,
        None,
    ),
    Candidate(
        "random forest",
        "scikit-learn",
        "sklearn.ensemble",
        "RandomForestClassifier",
        {"n_estimators": 300, **SEED},
        "n_jobs",
    ),
]
BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}


class Data(NamedTuple):
    """A data set as the classifiers get it.

    steps : settings of ``paper_features``, which is fitted to the training rows
    """

    name: str
    title: str
    steps: dict[str, Any]


DATA = [
    Data("mnist", "MNIST", {"n_components": 40}),
    Data("fashion-mnist", "Fashion-MNIST", {"n_components": 150, "deskew": False}),
    Data("digits", "scikit-learn's digits", {"n_components": 40, "deskew": False}),
]
BY_SET = {data.name: data for data in DATA}

Say = Callable[[str], None]


def measure(effort: Effort, say: Say = lambda text: None) -> dict[str, Any]:
    """Fit every classifier that is installed to every data set that is there."""
    n_threads = min(THREADS, n_cores())
    absent = {c.name: reason for c in CANDIDATES if (reason := c.missing()) is not None}
    for name, reason in absent.items():
        say(f"fits: without {name}: {reason}")
    present = [candidate for candidate in CANDIDATES if candidate.name not in absent]
    sets = {}
    with tempfile.TemporaryDirectory() as folder:
        for data in DATA:
            path = str(Path(folder) / f"{data.name}.npz")
            request = {"do": "prepare", "name": data.name, "path": path, "rows": effort.rows}
            sets[data.name] = entry = ask_once("benchmarks.fits", request, n_threads)
            if "skipped" in entry:
                say(f"fits: without {data.name}: {entry['skipped']}")
                continue
            entry |= _measure_set(data.name, path, present, n_threads, effort, say)
    return {
        "n_threads": n_threads,
        "rounds": effort.rounds,
        "classifiers": {
            c.name: {"call": c.call(n_threads), "package": c.package, "version": version(c.package)}
            for c in present
        },
        "absent": absent,
        "sets": sets,
    }


def _measure_set(
    data: str, path: str, candidates: list[Candidate], n_threads: int, effort: Effort, say: Say
) -> dict[str, Any]:
    """All classifiers on one set, one after the other, each in a fresh process."""
    found, failed = {}, {}
    for candidate in candidates:
        say(f"fits: {data}, {candidate.name}")
        request = {
            "do": "fit",
            "name": candidate.name,
            "path": path,
            "n_threads": n_threads,
            "rounds": effort.rounds,
            "seconds": effort.seconds,
        }
        with Worker(["benchmarks.fits"], n_threads) as worker:
            try:
                found[candidate.name] = worker.ask(timeout=effort.timeout, **request)
            except ChildError as error:
                failed[candidate.name] = str(error)
                say(f"fits: {candidate.name} failed on {data}: {error}")
    return {"classifiers": found, "failed": failed}


def _answer(do: str, **arguments: Any) -> dict[str, Any]:
    actions: dict[str, Callable[..., dict[str, Any]]] = {"prepare": _prepare, "fit": _fit}
    return actions[do](**arguments)


def _prepare(name: str, path: str, rows: int | None) -> dict[str, Any]:
    """Write the features of a set to a file; its shape, or why it is not there."""
    from pskem.datasets import is_present
    from pskem.preprocessing import paper_features

    data = BY_SET[name]
    if name != "digits" and not is_present(name):
        return {
            "title": data.title,
            "skipped": f"it is not in the data folder; `pskem datasets fetch {name}` gets it",
        }
    X_train, X_test, y_train, y_test = _digits() if name == "digits" else _images(name)
    steps = paper_features(**data.steps)
    Z_train = steps.fit_transform(X_train[:rows]).astype(np.float64)
    Z_test = steps.transform(X_test[:rows]).astype(np.float64)
    np.savez(path, X=Z_train, y=y_train[:rows], X_test=Z_test, y_test=y_test[:rows])
    return {
        "title": data.title,
        "n_train": len(Z_train),
        "n_test": len(Z_test),
        "n_features": Z_train.shape[1],
        "n_classes": len(np.unique(y_train[:rows])),
    }


def _digits() -> Any:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, random_state=0, stratify=y)


def _images(name: str) -> Any:
    """A set with the publisher's split, in which the order of the rows tells nothing."""
    from pskem.datasets import load_fashion_mnist, load_mnist

    load = {"mnist": load_mnist, "fashion-mnist": load_fashion_mnist}[name]
    X_train, y_train = load(subset="train", return_X_y=True)
    X_test, y_test = load(subset="test", return_X_y=True)
    return X_train, X_test, y_train, y_test


def _fit(name: str, path: str, n_threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Fit while time allows, predict, and judge the last fit; all fits are the same."""
    candidate = BY_NAME[name]
    with np.load(path) as arrays:
        X, y, X_test, y_test = (arrays[key] for key in ("X", "y", "X_test", "y_test"))
    fits: list[float] = []
    processor = 0.0
    while not fits or (len(fits) < rounds and sum(fits) + min(fits) < seconds):
        model = candidate.make(n_threads)
        start, busy = time.perf_counter(), time.process_time()
        model.fit(X, y)
        fits.append(time.perf_counter() - start)
        processor += time.process_time() - busy
    has_proba = hasattr(model, "predict_proba")
    predictions: list[float] = []
    while not predictions or (len(predictions) < rounds and sum(predictions) < seconds):
        start = time.perf_counter()
        output = model.predict_proba(X_test) if has_proba else model.predict(X_test)
        predictions.append(time.perf_counter() - start)
    labels = model.classes_[output.argmax(axis=1)] if has_proba else output
    return {
        "fit_seconds": min(fits),
        "fits": fits,
        "processors_busy": processor / sum(fits),
        "rows_per_second": len(X_test) / min(predictions),
        "accuracy": float((labels == y_test).mean()),
        **(_probabilities(output, model.classes_, y_test) if has_proba else {}),
    }


def _probabilities(
    proba: NDArray[np.floating], classes: NDArray[Any], y: NDArray[Any]
) -> dict[str, Any]:
    """Log loss in float64, and for how many rows the true class was said to be impossible."""
    from sklearn.metrics import log_loss

    proba = proba.astype(np.float64)
    proba /= proba.sum(axis=1, keepdims=True)  # XGBoost's are in float32
    true = proba[np.arange(len(y)), np.searchsorted(classes, y)]
    return {
        "log_loss": float(log_loss(y, proba, labels=classes)),
        "impossible": int((true == 0.0).sum()),
    }


if __name__ == "__main__":
    serve(_answer)
