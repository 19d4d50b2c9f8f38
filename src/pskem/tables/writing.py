"""Write data frames to files, part by part; an incomplete file never appears."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pskem.files import replacing
from pskem.tables.base import TableError
from pskem.tables.reading import PARQUET
from pskem.tables.text import SEPARATORS

__all__ = ["check_output", "write_parts"]


def check_output(path: str | None) -> None:
    """Refuse a file with an unknown suffix before any work is done."""
    accepted = (*SEPARATORS, *PARQUET)
    if path is not None and Path(path).suffix.lower() not in accepted:
        raise TableError(
            f"{path}: the kind of file is not known. Accepted: {', '.join(accepted)}; without a"
            " file, CSV goes to stdout."
        )


def write_parts(parts: Iterable[Any], path: str | None) -> int:
    """Write data frames one below the other, or as CSV to stdout; returns the number of rows."""
    check_output(path)
    if path is None:
        return _write_text(parts, sys.stdout, ",")
    suffix = Path(path).suffix.lower()
    if suffix in SEPARATORS:
        with replacing(path, "w", newline="", encoding="utf-8") as stream:
            return _write_text(parts, stream, SEPARATORS[suffix])
    with replacing(path, "wb") as stream:
        return _write_parquet(parts, stream)


def _write_text(parts: Iterable[Any], stream: Any, separator: str) -> int:
    n_rows = 0
    for part in parts:
        part.to_csv(stream, sep=separator, header=n_rows == 0, index=False)
        n_rows += len(part)
    return n_rows


def _write_parquet(parts: Iterable[Any], stream: Any) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_rows, writer = 0, None
    try:
        for part in parts:
            table = pa.Table.from_pandas(part, preserve_index=False)
            writer = writer or pq.ParquetWriter(stream, table.schema)
            writer.write_table(table)
            n_rows += len(part)
    finally:
        if writer is not None:
            writer.close()
    return n_rows
