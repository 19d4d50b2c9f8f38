"""Dask's arrays and data frames: what ``fit`` makes of them, and lazy answers about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial, wraps
from itertools import count
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from pskem.clusters import DaskPieces, current_client, is_dask, persisted
from pskem.engine import Pieces, rows_at_a_time, serial_map
from pskem.estimators._columns import check_frame, find_categorical
from pskem.estimators._stored import Frame, Labels, plain_numbers

__all__ = ["DaskTable", "alone", "dask_table", "delayed_rows", "lazily"]


@dataclass(frozen=True, eq=False)
class DaskTable:
    """Rows on a cluster."""

    pieces: Pieces
    names: Sequence[str] | None
    n_columns: int
    has_classes: bool
    categorical: NDArray[np.intp]


def _frames(numeric: bool, partition: tuple[Any, Labels, Any]) -> Iterator[Frame]:
    """The pieces of a partition, with arrays if all columns are numeric.

    No more is copied at a time than one of them.
    """
    X, labels, weights = partition
    frame = hasattr(X, "iloc")
    step = rows_at_a_time(X.shape[1])
    for low in range(0, len(X), step):
        rows = slice(low, low + step)
        part = X.iloc[rows] if frame else X[rows]
        yield Frame(
            plain_numbers(part) if numeric else part,
            labels._replace(codes=labels.codes[rows]),
            None if weights is None else np.asarray(weights[rows], dtype=np.float64),
        )


class _Texts(NamedTuple):
    """Places of columns of objects that hold texts."""

    places: frozenset[int]

    def merge(self, other: _Texts) -> _Texts:
        return _Texts(self.places | other.places)


def _find_texts(places: Sequence[int], frame: Frame) -> _Texts:
    columns = {place: frame.X.iloc[:, place] for place in places}
    return _Texts(
        frozenset(i for i, column in columns.items() if any(isinstance(v, str) for v in column))
    )


def _find_categorical(X: Any, given: Any, rows: list[Any], client: Any) -> NDArray[np.intp]:
    """Places of the columns that hold categories.

    Dask does not know what is in a column of objects. So the rows are looked at once if there are
    such columns.
    """
    if not hasattr(X, "columns"):
        return find_categorical(np.empty((1, X.shape[1])), given, None)
    none = X._meta.copy()
    check_frame(none)
    if isinstance(given, str):
        objects = [place for place, kind in enumerate(none.dtypes) if kind == np.dtype(object)]
        if objects:
            pieces = DaskPieces(rows, partial(_frames, False), client)
            found = pieces.fold(partial(_find_texts, objects), serial_map)
            for place in found.places:
                none.isetitem(place, none.iloc[:, place].astype("category"))
    return find_categorical(none, given, [str(name) for name in X.columns])


def dask_table(estimator: Any, X: Any, y: Any, sample_weight: Any) -> DaskTable:
    """Collections of Dask's as a table that is read on the workers.

    They are kept in the memory of the cluster, if there is one, which spills them to disk if it has
    to. Without a client they are made anew in every pass.
    """
    rows = delayed_rows(X, y, sample_weight)
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    client = current_client()
    rows = persisted(rows, client)
    places = _find_categorical(X, getattr(estimator, "categorical_features", None), rows, client)
    width = len(names) if names is not None else int(X.shape[1])
    pieces = DaskPieces(rows, partial(_frames, not len(places)), client)
    return DaskTable(pieces, names, width, y is not None, places)


def delayed_rows(X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """Delayed tuples of the same rows of X, labels and weights (or None)."""
    import dask

    parts, lengths = _parts(X)
    columns = [parts]
    for name, part in (("y", y), ("sample_weight", sample_weight)):
        columns.append(_beside(name, part, len(parts), lengths))
    return [
        dask.delayed(_row)(*row, dask_key_name=name)
        for row, name in zip(zip(*columns, strict=True), _names("rows"), strict=False)
    ]


def _names(what: str) -> Iterator[str]:
    """Names of tasks, which the dashboard shows without their last two words."""
    mark = uuid4().hex[:8]
    return (f"pskem-{what}-{mark}-{i}" for i in count())


def _parts(X: Any) -> tuple[list[Any], Sequence[float]]:
    """Delayed partitions of X, each of whole rows, and how many those are; NaN if not known."""
    n = _dimensions(X)
    if n != 2:
        more = "" if n is None else f", with {n} dimension(s)"
        raise ValueError(
            f"X is of the type {type(X).__name__}{more}; give rows of features, as an array or a"
            " data frame."
        )
    if hasattr(X, "columns"):
        parts = _partitions(X)
        return parts, [np.nan] * len(parts)
    X = X.rechunk({1: -1})
    return [row[0] for row in X.to_delayed()], X.chunks[0]


def _dimensions(collection: Any) -> int | None:
    """Of an array or a data frame of Dask's; None of bags, and of whatever is delayed."""
    found = getattr(collection, "ndim", None)  # of something delayed, something delayed
    return found if isinstance(found, int) else None


def _partitions(part: Any) -> list[Any]:
    """Delayed partitions, as many as a collection says that it has.

    Where few columns of files are read, Dask's optimiser puts several files into one partition, in
    y more than in X. Then the partitions are taken as they were before that.
    """
    found = list(np.ravel(part.to_delayed()))
    if len(found) == part.npartitions or not hasattr(part, "divisions"):
        return found
    return list(part.to_delayed(optimize_graph=False))


def _row(X: Any, y: Any, weights: Any) -> tuple[Any, Labels, Any]:
    """A partition. Labels are encoded here, once, and not sorted in every pass."""
    for name, part in (("y", y), ("sample_weight", weights)):
        if part is not None and len(part) != len(X):
            raise ValueError(
                f"A partition of X has {len(X)} rows and that of {name} {len(part)}; they must be"
                " cut alike."
            )
    labels = Labels.all_alike(len(X)) if y is None else Labels.of(np.asarray(y))
    return X, labels, weights


def _beside(name: str, part: Any, n: int, chunks: Sequence[float]) -> list[Any]:
    """One delayed piece for every partition of X."""
    if part is None:
        return [None] * n
    unknown = bool(np.isnan(chunks).any())
    if not is_dask(part):
        if unknown:
            raise ValueError(
                f"X is a collection of Dask's of unknown lengths, and {name} is not. Give both as"
                " such, cut alike."
            )
        array = np.asarray(part)
        _check_length(name, len(array), sum(chunks))
        return list(np.split(array, np.cumsum(chunks)[:-1]))
    if _dimensions(part) is None:
        kind = type(part).__name__
        raise ValueError(f"{name} is of the type {kind}; give an array or a column of Dask's.")
    if hasattr(part, "rechunk") and not unknown and not np.isnan(part.chunks[0]).any():
        _check_length(name, sum(part.chunks[0]), sum(chunks))
        part = part.rechunk((chunks, *part.chunks[1:]))
    pieces = _partitions(part)
    if len(pieces) != n:
        raise ValueError(
            f"X has {n} partition(s) and {name} has {len(pieces)}; they must be cut alike. Take"
            " both from one collection, or repartition one of them."
        )
    return pieces


def _check_length(name: str, n: float, expected: float) -> None:
    if n != expected:
        raise ValueError(f"X has {expected} samples and {name} has {n}; they must agree.")


def alone(estimator: Any) -> Any:
    """A copy that uses one thread: the cluster has threads of its own."""
    one = copy(estimator)
    one.n_jobs = 1
    return one


Method = TypeVar("Method", bound=Callable[..., Any])


def lazily(
    per_class: bool = False, per_block: bool = False, dtype: Any = np.float64
) -> Callable[[Method], Method]:
    """Let a method of a fitted estimator answer collections of Dask's lazily, with arrays.

    per_class, per_block : whether a row has a value for each class, and for each block
    dtype : of the answers; None for that of the classes
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def answer(self: Any, X: Any, *more: Any, **options: Any) -> Any:
            if not is_dask(X):
                return method(self, X, *more, **options)
            check_is_fitted(self)
            kind = np.dtype(self.classes_.dtype if dtype is None else dtype)
            width = [len(self.model_.blocks)] if per_block else []
            width += [len(self.classes_)] if per_class else []
            ask = _Ask(alone(self), method.__name__, more, options, np.empty((0, *width), kind))
            return _mapped(ask, X)

        return answer  # type: ignore[return-value]

    return decorate


@dataclass(frozen=True, eq=False)
class _Ask:
    """A question to an estimator.

    nothing : the answer about no rows, as empty partitions have them
    """

    estimator: Any
    method: str
    more: tuple[Any, ...]
    options: dict[str, Any]
    nothing: NDArray[Any]

    def __call__(self, X: Any) -> Any:
        if not len(X):
            return self.nothing
        return getattr(self.estimator, self.method)(X, *self.more, **self.options)


def _mapped(ask: _Ask, X: Any) -> Any:
    """An array of Dask's, of what is answered about each partition."""
    import dask
    import dask.array as da

    sent = dask.delayed(ask, traverse=False)
    width, kind = ask.nothing.shape[1:], ask.nothing.dtype
    names = _names(ask.method.replace("_", "-"))
    made = [
        da.from_delayed(sent(part, dask_key_name=name), (n, *width), dtype=kind)
        for name, (part, n) in zip(names, zip(*_parts(X), strict=True), strict=False)
    ]
    return da.concatenate(made, axis=0, allow_unknown_chunksizes=True)
