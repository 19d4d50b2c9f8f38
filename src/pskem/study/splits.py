"""Split the rows of a run into training, validation and test rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.study.configuration import StudyError
from pskem.workflow import hold_out

__all__ = ["Part", "make_parts"]

Rows = NDArray[np.intp]
ORDERS = ("given", "shuffled", "stratified")


class Part(NamedTuple):
    """A training set and its test set, as row indices; cross-validation has several.

    validation : other rows to watch while the model trains; may be empty
    inner : splits of the training rows that choose the pass if there are no validation rows
    unlabelled : rows to train on without their classes; may be empty
    """

    train: Rows
    test: Rows
    validation: Rows
    inner: list[tuple[Rows, Rows]]
    unlabelled: Rows


def make_parts(
    y: NDArray[Any],
    n_train: int | None,
    split: Mapping[str, Any],
    validation: Mapping[str, Any],
    seed: int,
) -> list[Part]:
    """The parts of a run on rows with labels y (N,); the seed decides all randomness.

    The publisher's test rows, if there are any, begin at ``n_train``.
    """
    seed = 0 if split.get("fixed", False) else seed
    if split.get("single", False):
        # Runs 0, 1, ... are the folds of one shuffle, and then of the next.
        shuffle, fold = divmod(seed, int(split["folds"]))
        pairs = [_folds(y, split, shuffle)[fold]]
    elif "folds" in split:
        pairs = _folds(y, split, seed)
    else:
        pairs = [_pair(y, n_train, split, seed)]
    parts = []
    for i, (train, test) in enumerate(pairs):
        rng = np.random.default_rng([seed, 1, i])
        watched: Rows = np.empty(0, dtype=np.intp)
        if "train" in split:
            order = rng.permutation(train)
            size = int(split["train"])
            wanted = size + int(validation.get("rows", 0))
            if wanted > len(train):
                raise StudyError(
                    f"{size:,} rows to train on and {validation.get('rows', 0):,} to validate on"
                    f" were asked for, but there are {len(train):,}."
                )
            train, watched = np.sort(order[:size]), np.sort(order[size:wanted])
        hidden: Rows = np.empty(0, dtype=np.intp)
        if "labels" in split:
            train, hidden = _hide(y, train, int(split["labels"]), seed, i)
        inner = _inner(y, train, validation, seed)
        for what, rows in (("test", [test]), ("validate", [held_out for _, held_out in inner])):
            if not all(map(len, rows)):
                raise StudyError(
                    f"The share of {len(y):,} rows that was asked for leaves no rows to {what} on."
                )
        parts.append(Part(train, test, watched, inner, hidden))
    return parts


def _hide(y: NDArray[Any], train: Rows, n: int, seed: int, i: int) -> tuple[Rows, Rows]:
    """Training rows of which so many of each class keep their class, and the others."""
    rng = np.random.default_rng([seed, 2, i])
    known = []
    for name in np.unique(y[train]):
        own = train[y[train] == name]
        if len(own) < n:
            raise StudyError(f"{n:,} labels of each class were asked for; {name} has {len(own):,}.")
        known.append(rng.choice(own, n, replace=False))
    kept = np.sort(np.concatenate(known))
    return kept, np.setdiff1d(train, kept)


def _pair(
    y: NDArray[Any], n_train: int | None, split: Mapping[str, Any], seed: int
) -> tuple[Rows, Rows]:
    """The publisher's split or, if there is none, a random one."""
    if n_train is not None:
        return np.arange(n_train), np.arange(n_train, len(y))
    train, test = hold_out(y, float(split.get("test", 0.25)), seed)
    return np.sort(train), np.sort(test)


def _folds(y: NDArray[Any], split: Mapping[str, Any], seed: int) -> list[tuple[Rows, Rows]]:
    from sklearn.model_selection import KFold, StratifiedKFold

    n, order = int(split["folds"]), split.get("order", "stratified")
    _, counts = np.unique(y, return_counts=True)
    # Of single folds, some may lack a class of few rows.
    single = bool(split.get("single", False))
    which, fewest = ("largest", counts.max()) if single else ("smallest", counts.min())
    if n > (fewest if order == "stratified" else len(y)):
        raise StudyError(
            f"{n} folds are too many: "
            + (
                f"the {which} class has {fewest} rows."
                if order == "stratified"
                else f"there are {len(y)} rows."
            )
        )
    splitter: Any
    if order == "stratified":
        splitter = StratifiedKFold(n, shuffle=True, random_state=seed)
    elif order == "shuffled":
        splitter = KFold(n, shuffle=True, random_state=seed)
    else:
        splitter = KFold(n)
    with warnings.catch_warnings():
        if single:
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        pairs: list[tuple[Rows, Rows]] = list(splitter.split(np.zeros(len(y)), y))
    return pairs


def _inner(
    y: NDArray[Any], train: Rows, validation: Mapping[str, Any], seed: int
) -> list[tuple[Rows, Rows]]:
    """Splits of the training rows that choose the pass: a single one, or folds."""
    if "fraction" in validation:
        kept, held_out = hold_out(y[train], float(validation["fraction"]), seed)
        return [(np.sort(train[kept]), np.sort(train[held_out]))]
    if "folds" in validation:
        folds = {"folds": validation["folds"], "order": "stratified"}
        return [(train[a], train[b]) for a, b in _folds(y[train], folds, seed)]
    return []
