"""Write data frames to files, part by part; an incomplete file never appears."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
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


def write_parts(parts: Iterable[Any], path: str | None) -> None:
    """Write data frames one below the other, or as CSV to stdout."""
    check_output(path)
    suffix = "" if path is None else Path(path).suffix.lower()
    if path is None:
        _write_text(parts, sys.stdout, ",")
    elif suffix in SEPARATORS:
        with replacing(path, "w", newline="", encoding="utf-8") as stream:
            _write_text(parts, stream, SEPARATORS[suffix])
    else:
        with replacing(path, "wb") as stream:
            _write_parquet(parts, stream)


def _write_text(parts: Iterable[Any], stream: Any, separator: str) -> None:
    for i, part in enumerate(parts):
        part.to_csv(stream, sep=separator, header=i == 0, index=False)


def _write_parquet(parts: Iterable[Any], stream: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writer = None
        for part in parts:
            table = pa.Table.from_pandas(part, preserve_index=False)
            writer = writer or stack.enter_context(pq.ParquetWriter(stream, table.schema))
            writer.write_table(table)
