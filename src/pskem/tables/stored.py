"""Tables that are read piece by piece, as often as they are needed: Parquet, Arrow, and text."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pskem.engine import Mapped, Pieces, give_back, sum_of_squares
from pskem.estimators import Frame, Labels
from pskem.files import Scratch
from pskem.structures import FloatArray
from pskem.tables.base import TableError, check_unique
from pskem.tables.batches import (
    BATCHES,
    Batches,
    FilePart,
    Footer,
    Stored,
    check_names,
)
from pskem.tables.columns import (
    LARGEST,
    Columns,
    category_texts,
    check_size,
    check_weights,
    given_weights,
    infer_columns,
    labels_of,
)
from pskem.tables.heads import check_kinds, first_rows, joined, names_of
from pskem.tables.places import files_of
from pskem.tables.reading import suffix_of
from pskem.tables.spooling import spool, target_type
from pskem.tables.text import COMPRESSED

__all__ = ["FileTable", "open_table", "stored_size"]

#: How many times larger a compressed text is, about.
PACKED = 5


@dataclass(frozen=True, eq=False, repr=False)
class FileTable:
    """Rows of files, read piece by piece.

    It is what :func:`open_table` returns and ``fit`` takes.

    source : what the table was opened from
    files : of Arrow columns: those that were given, or what was made of them
    used : the columns that are features
    names : of these columns, in the order of the file
    target, weights : the columns of the classes and of the weights
    n_rows : in all files
    unlabelled : whether rows without a class are there
    parts : what the workers of a cluster read; none if there is no cluster
    """

    source: str
    files: tuple[Stored, ...]
    used: Columns
    names: list[str]
    target: str | None
    weights: str | None
    n_rows: int
    unlabelled: bool = True
    parts: tuple[FilePart, ...] = ()
    scratch: Scratch | None = None

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError(
            "A FileTable has no array: it is read piece by piece, for fit and score of a classifier"
            " of pskem. `pskem evaluate` and `pskem predict` take files of any size."
        )

    def __repr__(self) -> str:
        about = f"{self.n_rows:,} rows, {self.n_columns} columns, target={self.target!r}"
        return f"<FileTable {self.source}: {about}, weights={self.weights!r}>"

    @property
    def n_columns(self) -> int:
        return len(self.names)

    @property
    def has_classes(self) -> bool:
        return self.target is not None

    @property
    def categorical(self) -> NDArray[np.intp]:
        chosen = set(self.used.categorical)
        return np.flatnonzero([name in chosen for name in self.names])

    @property
    def pieces(self) -> Pieces:
        wanted = [*self.names, *filter(None, (self.target, self.weights))]
        framed = partial(_framed, self.used, self.names, self.target, self.weights, self.unlabelled)
        return Mapped(Batches(self.files, self.parts, wanted), framed)

    def numbers_first(self) -> FileTable:
        """The same table with the columns of numbers before the others."""
        return replace(self, names=self.used.used)

    def on_cluster(self) -> FileTable:
        """The same table, read by the workers of a Dask cluster, which must see its files."""
        return replace(self, parts=tuple(part for file in self.files for part in file.cut()))


def _framed(
    used: Columns,
    names: Sequence[str],
    target: str | None,
    weights: str | None,
    unlabelled: bool,
    batch: Any,
) -> Frame:
    """A piece of a table, from a batch of Arrow columns."""
    labels = Labels.all_alike(batch.num_rows)
    if target is not None:
        labels = _labels(batch.column(target), target)
    if not unlabelled and (labels.codes < 0).any():
        known = np.flatnonzero(labels.codes >= 0)
        batch, labels = batch.take(known), labels._replace(codes=labels.codes[known])
    X = np.empty((len(used.numeric), batch.num_rows))
    for row, name in zip(X, used.numeric, strict=True):
        row[:] = _numbers(batch.column(name))
    counted = None
    if weights is not None:
        counted = _numbers(batch.column(weights))
        check_weights(weights, counted)
        check_size(weights, counted.max(initial=0.0))
    _check_values(X, used.numeric)
    if not used.categorical:
        return Frame(X.T, labels, counted)
    texts = pd.DataFrame({name: _categories(batch.column(name)) for name in used.categorical})
    columns = pd.concat([pd.DataFrame(X.T, columns=used.numeric), texts], axis=1)
    return Frame(columns if list(names) == used.used else columns[list(names)], labels, counted)


def _check_values(X: FloatArray, names: Sequence[str]) -> None:
    """Refuse numbers (M, n) that are too large; infinite ones become NaN, in place."""
    if sum_of_squares(X) <= LARGEST**2:
        return
    largest = np.fmax(np.fmax.reduce(X, axis=1), -np.fmin.reduce(X, axis=1))
    if np.isinf(largest).any():
        warnings.warn("Infinite values count as missing.", UserWarning, stacklevel=2)
        X[np.isinf(X)] = np.nan
        largest = np.fmax.reduce(np.abs(X), axis=1)
    for name, value in zip(names, largest, strict=True):
        check_size(name, value)


def _numbers(column: Any) -> FloatArray:
    """Numbers of an Arrow column, (n,), NaN where one is missing."""
    import pyarrow as pa

    if not pa.types.is_floating(column.type) or pa.types.is_float16(column.type):
        column = column.cast(pa.float64(), safe=False)
    values: FloatArray = column.to_numpy(zero_copy_only=False)
    return values


def _encoded(column: Any) -> tuple[Any, NDArray[np.intp]]:
    """Different values of an Arrow column, and their places, (n,); -1 for none."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return column.dictionary, codes.astype(np.intp)


def _as_pandas(column: Any) -> Any:
    return column.to_pandas(types_mapper=pd.ArrowDtype)


def _categories(column: Any) -> Any:
    values, codes = _encoded(column)
    texts = category_texts(_as_pandas(values))
    known, places = np.unique(texts.dropna().astype(str), return_inverse=True)
    recoded = np.full(len(texts) + 1, -1, dtype=np.intp)
    recoded[np.flatnonzero(texts.notna())] = places
    return pd.Categorical.from_codes(recoded[codes], categories=known.astype(object))


def _labels(column: Any, target: str) -> Labels:
    values, codes = _encoded(column)
    each = values.to_pylist()
    labels, place = _classes(target, values.type, frozenset(each))
    return Labels(labels, np.array([place.get(v, -1) for v in each] + [-1], dtype=np.intp)[codes])


@lru_cache(maxsize=4)  # all pieces have the same classes, mostly
def _classes(target: str, kind: Any, values: frozenset[Any]) -> tuple[NDArray[Any], dict[Any, int]]:
    """The classes that values of an Arrow type stand for, and the place of each value there."""
    import pyarrow as pa

    if not values:
        return np.empty(0, dtype=np.intp), {}
    ordered = sorted(values, key=str)
    column = _as_pandas(pa.array(ordered, kind))
    labels, present = labels_of(pd.DataFrame({target: column}), target)
    return labels, {ordered[i]: place for place, i in enumerate(np.flatnonzero(present))}


def open_table(
    source: Any,
    target: str | None = None,
    *,
    weights: str | None = None,
    drop: Collection[str] = (),
    categorical: Collection[str] = (),
    unlabelled: bool = True,
) -> FileTable:
    """Open a table that need not fit into memory, for ``fit``.

    Nothing is kept of it in memory. Parquet and Arrow files are read anew in every pass, while the
    next rows are being read ahead. Text is parsed once, into an Arrow file in the folder for
    temporary files (``TMPDIR``), which is about as large as the text and is removed with the table.
    Columns are used as on the command line: the first 20,000 rows say which hold numbers, and which
    categories.

    Parameters
    ----------
    source : path-like, or list of path-like
        Parquet, Arrow (.arrow, .feather), CSV or TSV files, perhaps compressed, with the same
        columns. A name may have wildcards (``part-*.parquet``); a folder stands for the Parquet
        files in it. Parquet files may lie elsewhere, as far as pyarrow knows how to read from there
        (``s3://bucket/part-*.parquet``).
    target : str
        Column of the classes; None for a table without, for :class:`SharedKernelDensity`.
    weights : str or None, default=None
        Column that says how often each row counts.
    drop, categorical : collection of str
        Columns that are left out, and columns of numbers that are categories.
    unlabelled : bool, default=True
        Whether rows without a class are learnt from as well; otherwise they are left out.

    Returns
    -------
    table : FileTable
        For :meth:`SharedKernelClassifier.fit`, in the place of X and y.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import pskem
    >>> from sklearn.datasets import load_iris
    >>> frame = load_iris(as_frame=True).frame
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "iris.parquet"
    ...     frame.to_parquet(path)
    ...     table = pskem.open_table(path, target="target")
    ...     model = pskem.SharedKernelClassifier(random_state=0).fit(table)
    >>> model.n_features_in_
    4
    """
    paths = files_of(source)
    name = str(source) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    first = first_rows(paths, name, target, weights, categorical)
    head = counted = joined(first)
    give_back()
    if target is not None:
        if weights == target:
            raise TableError(f"The column {target!r} holds the classes; it has no weights.")
        _, present = labels_of(head, target)
        counted = head if unlabelled else head[present]
    if weights is not None:
        given_weights(counted, weights)
    unused = drop if weights is None else (*drop, weights)
    columns = infer_columns(head, target, unused, categorical)
    check_kinds(first, [*columns.numeric, target, *unused, *categorical])
    scratch = None
    wanted = [*columns.used, *filter(None, (target, weights))]
    numbers = [*columns.numeric, *([] if weights is None else [weights])]
    footers = {path: Footer.of(path) for path in paths if suffix_of(path) in BATCHES}
    late = {
        name: f"{path} has it and {paths[0]} does not"
        for path in paths[1:]
        for name in set(names_of(path, footers.get(path))).difference(head.columns)
    }
    early = {
        name: why if name in drop else f"{why}, as far as the first rows tell"
        for name, why in columns.dropped.items()
    }
    columns = columns._replace(dropped={**early, **late})
    typed = [_typed(path, footer, wanted, numbers) for path, footer in footers.items()]
    whole = all(typed) and len(footers) == len(set(paths))
    if whole and target is not None:
        _check_classes(footers, target)
    if not whole:
        scratch = Scratch()
        kind = None if target is None else target_type(footers.values(), head, target)
        paths = [spool(paths, columns, target, kind, weights, categorical, scratch)]
        footers = {path: Footer.of(path) for path in paths}
    n_rows = sum(sum(footer.sizes) for footer in footers.values())
    files = tuple(Stored.at(path, footers[path]) for path in paths)
    chosen = set(columns.used)
    return FileTable(
        name,
        files,
        columns,
        [name for name in map(str, head.columns) if name in chosen],
        target,
        weights,
        n_rows,
        unlabelled,
        scratch=scratch,
    )


def stored_size(path: str) -> int:
    """Bytes that the rows of a file take in memory, about."""
    if suffix_of(path) in BATCHES:
        footer = Footer.of(path)
        return 8 * sum(footer.sizes) * len(footer.schema.names)
    packed = path.lower().endswith(tuple(COMPRESSED))
    return os.path.getsize(path) * (PACKED if packed else 1)


def _check_classes(footers: Mapping[str, Footer], target: str) -> None:
    """Refuse a file whose classes are texts where those of another are numbers."""
    from pyarrow import types

    holders: dict[bool, str] = {}
    for path, footer in footers.items():
        kind = footer.schema.field(target).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if not types.is_null(kind):
            holders.setdefault(types.is_string(kind) or types.is_large_string(kind), path)
    if len(holders) == 2:
        raise TableError(
            f"The column {target!r} holds texts in {holders[True]} and other values in"
            f" {holders[False]}. Give the classes one type in all files."
        )


def _typed(path: str, footer: Footer, wanted: Sequence[str], numbers: Sequence[str]) -> bool:
    """Whether the numbers of a file are numbers, and not texts that mean some."""
    from pyarrow import types as kinds

    schema = footer.schema
    check_unique(path, schema.names)
    check_names(path, wanted, schema.names)
    numeric = (kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_null)
    return all(any(is_one(schema.field(name).type) for is_one in numeric) for name in numbers)
