"""Write data frames to files, part by part; an incomplete file never appears."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pandas.api.types import is_numeric_dtype

from pskem.files import replacing
from pskem.tables.base import TableError
from pskem.tables.reading import PARQUET
from pskem.tables.text import SEPARATORS

__all__ = ["check_output", "write_parts"]

#: What spreadsheets take for the beginning of a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def check_output(path: str | None) -> None:
    """Refuse a file with an unknown suffix before any work is done."""
    accepted = (*SEPARATORS, *PARQUET)
    if path is not None and Path(path).suffix.lower() not in accepted:
        raise TableError(
            f"{path}: the kind of file is not known. Accepted: {', '.join(accepted)}; without a"
            " file, CSV goes to stdout."
        )


def write_parts(
    parts: Iterable[Any],
    path: str | None,
    safe: bool = False,
    kinds: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write data frames one below the other, or as CSV to stdout.

    With ``safe``, texts are quoted, and begin with an apostrophe if a spreadsheet would take them
    for formulas. ``kinds`` holds Arrow's types of columns, for Parquet; without, the first part
    decides.
    """
    check_output(path)
    if safe:
        if path is not None and Path(path).suffix.lower() not in SEPARATORS:
            raise TableError(f"{path} is no CSV or TSV file; in others no text is a formula.")
        parts = map(_without_formulas, parts)
    quoting = csv.QUOTE_NONNUMERIC if safe else csv.QUOTE_MINIMAL  # which forgets about CR
    suffix = "" if path is None else Path(path).suffix.lower()
    if path is None:
        _write_text(parts, sys.stdout, ",", quoting)
    elif suffix in SEPARATORS:
        with replacing(path, "w", newline="", encoding="utf-8") as stream:
            _write_text(parts, stream, SEPARATORS[suffix], quoting)
    else:
        with replacing(path, "wb") as stream:
            _write_parquet(parts, stream, kinds)


def _without_formulas(frame: Any) -> Any:
    texts = {
        name: column.map(_no_formula)
        for name, column in frame.items()
        if not is_numeric_dtype(column)
    }
    return frame.assign(**texts).set_axis([_no_formula(name) for name in frame.columns], axis=1)


def _no_formula(value: Any) -> Any:
    """The value, with an apostrophe before a text that begins as formulas do and is no number."""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _write_text(parts: Iterable[Any], stream: Any, separator: str, quoting: Any) -> None:
    for i, part in enumerate(parts):
        part.to_csv(stream, sep=separator, header=i == 0, index=False, quoting=quoting)


def _write_parquet(parts: Iterable[Any], stream: Any, kinds: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writer = None
        for part in parts:
            table = pa.Table.from_pandas(part, preserve_index=False)
            if writer is None:
                schema = _lasting(table.schema, kinds)
                writer = stack.enter_context(pq.ParquetWriter(stream, schema))
            writer.write_table(_with_types(schema, table))


def _lasting(schema: Any, kinds: Mapping[str, Any]) -> Any:
    """The types of all parts: those that are known, or those of the first.

    A column with nothing in it is one of texts, and categories may be as many as come.
    """
    import pyarrow as pa

    for i, field in enumerate(schema):
        kind = kinds.get(field.name, field.type)
        if pa.types.is_null(kind):
            kind = pa.string()
        if pa.types.is_dictionary(kind):
            kind = pa.dictionary(pa.int32(), kind.value_type)
        schema = schema.set(i, field.with_type(kind))
    return schema.remove_metadata()  # which is pandas' memory of the types of the first part


def _with_types(schema: Any, table: Any) -> Any:
    """A part with the types of all."""
    import pyarrow as pa

    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        try:
            columns.append(_as_kind(column, field.type))
        except pa.ArrowException:
            raise TableError(
                f"The column {field.name!r} holds {field.type} in the first rows and {column.type}"
                " in others, which cannot be one column of a Parquet file. Write a CSV file"
                " instead."
            ) from None
    return pa.Table.from_arrays(columns, schema=schema)


def _as_kind(column: Any, wanted: Any) -> Any:
    """A column of another type, in which its values stay what they are."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(wanted):
        return _as_kind(column, wanted.value_type).dictionary_encode()
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kinds = column.type, wanted
    texts = (types.is_string, types.is_large_string)
    if all(any(is_text(kind) for is_text in texts) for kind in kinds):
        return column.cast(wanted)
    if all(types.is_integer(kind) or types.is_floating(kind) for kind in kinds):
        cast = column.cast(wanted)
        same = cast.cast(column.type).equals(column)
    else:
        cast, same = column.cast(wanted), column.type == wanted or types.is_null(column.type)
    if not same:
        raise pa.ArrowInvalid("the values would be others")
    return cast
