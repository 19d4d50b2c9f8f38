"""Tables: files to data frames, data frames to files, columns to features."""

from pskem.tables.columns import Columns, align, all_numeric, labels_of, sort_columns
from pskem.tables.encoding import IMAGES, make_encoder
from pskem.tables.reading import EMBEDDED, TARGET, TableError, is_named, read_parts, read_table
from pskem.tables.writing import check_output, write_parts

__all__ = [
    "EMBEDDED",
    "IMAGES",
    "TARGET",
    "Columns",
    "TableError",
    "align",
    "all_numeric",
    "check_output",
    "is_named",
    "labels_of",
    "make_encoder",
    "read_parts",
    "read_table",
    "sort_columns",
    "write_parts",
]
