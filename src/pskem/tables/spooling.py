"""Copies of tables as one file of Arrow columns, where they cannot be read piece by piece as is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from pskem.engine import rows_at_a_time
from pskem.files import Scratch
from pskem.tables.base import NoRowsError, TableError, spoken
from pskem.tables.batches import Footer, check_names
from pskem.tables.columns import NUMBER_SHARE, Columns, align, labels_of
from pskem.tables.places import rows_of
from pskem.tables.slips import NO_NUMBERS, Slip, SlipTeller, told_once, warn_of

__all__ = ["aligned", "spool", "target_type"]


def target_type(footers: Collection[Footer], head: Any, target: str) -> Any:
    """Arrow's type of the classes, in all files; text where they are not of one."""
    import pyarrow as pa

    kinds = [pa.array(head[target], from_pandas=True).type]
    kinds += [footer.schema.field(target).type for footer in footers]
    plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    try:
        fields = [pa.schema([(target, kind)]) for kind in plain]
        return pa.unify_schemas(fields, promote_options="permissive").field(target).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()


def spool(
    paths: Sequence[str],
    columns: Columns,
    target: str | None,
    kind: Any,
    weights: str | None,
    categorical: Collection[str],
    scratch: Scratch,
) -> str:
    """The columns that are used, as a file of Arrow columns in a folder of its own.

    kind : Arrow's type of the target
    """
    import pyarrow as pa

    place = str(scratch.folder / "table.arrow")
    more, classes = ([] if name is None else [name] for name in (weights, target))
    schema = pa.schema(
        [(name, pa.float64()) for name in [*columns.numeric, *more]]
        + [(name, pa.string()) for name in columns.categorical]
        + [(name, kind) for name in classes]
    )
    as_text = kind is None or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    wanted = Columns([*columns.numeric, *more], columns.categorical, {})
    n_rows = 0
    try:
        with (
            pa.OSFile(place, "wb") as file,
            pa.ipc.new_file(file, schema) as writer,
            told_once(lambda slip: _check_texts(slip, n_rows, paths[0])) as tell,
        ):
            for path in paths:
                for part in _parts_of(path, schema.names, classes, categorical):
                    frame = aligned(path, part, wanted, tell, strictly=False)
                    n_rows += len(frame)
                    for name in classes:
                        texts = _texts_of(part, name) if as_text else None
                        plain = pd.ArrowDtype(kind)
                        frame[name] = part[name].astype(plain) if texts is None else texts
                    writer.write_batch(pa.RecordBatch.from_pandas(frame, schema, False))
    except OSError as error:
        raise TableError(
            f"{spoken(paths[0])} cannot be copied into {scratch.folder.parent}:"
            f" {error.strerror or error}. Make room there, name another folder in TMPDIR, or give a"
            " Parquet file, which needs no copy."
        ) from None
    return place


def _parts_of(
    path: str, names: Sequence[str], verbatim: Collection[str], text: Collection[str]
) -> Iterator[Any]:
    """A file that has these columns, as data frames; none if it has no rows."""
    with suppress(NoRowsError):
        for part in rows_of(path, text, verbatim, rows_at_a_time(len(names))):
            check_names(path, names, part.columns)
            yield part


def _check_texts(slip: Slip, n_rows: int, path: str) -> None:
    """Refuse a column that holds numbers in the first rows, and many texts in all."""
    if slip.what == NO_NUMBERS and slip.n > (1.0 - NUMBER_SHARE) * n_rows:
        raise TableError(
            f"{spoken(path)}: the column {slip.column!r} holds numbers in the first rows, but"
            f" {slip.n:,} texts, such as {slip.example}, in {n_rows:,} rows. Drop it, or name it as"
            " a categorical one."
        )


def aligned(
    path: str,
    part: Any,
    columns: Columns,
    tell: SlipTeller = warn_of,
    strictly: bool = True,
) -> Any:
    """Columns of a part of a file; errors name the file."""
    try:
        return align(part, columns, tell, strictly)
    except TableError as error:
        raise TableError(f"{path}: {error}") from None


def _texts_of(part: Any, target: str) -> Any:
    labels, present = labels_of(part, target)
    texts = np.full(len(part), None, dtype=object)
    texts[present] = [str(label) for label in labels]
    return texts
