"""Tables: files to data frames, data frames to files, columns to features."""

from pskem.tables.columns import Columns, align, all_numeric, labels_of, sort_columns
from pskem.tables.encoding import (
    IMAGES,
    category_features,
    fit_encoder,
    make_encoder,
    unknown_allowed,
    unknown_categories,
)
from pskem.tables.reading import (
    EMBEDDED,
    TARGET,
    is_named,
    is_text,
    read_parts,
    read_table,
)
from pskem.tables.seam import TableError
from pskem.tables.text import MISSING
from pskem.tables.writing import check_output, write_parts

__all__ = [
    "EMBEDDED",
    "IMAGES",
    "MISSING",
    "TARGET",
    "Columns",
    "TableError",
    "align",
    "all_numeric",
    "category_features",
    "check_output",
    "fit_encoder",
    "is_named",
    "is_text",
    "labels_of",
    "make_encoder",
    "read_parts",
    "read_table",
    "sort_columns",
    "unknown_allowed",
    "unknown_categories",
    "write_parts",
]
