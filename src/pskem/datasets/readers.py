"""The publishers' file formats: IDX, CIFAR-10's binary version, ARFF, comma-separated numbers.

These formats hold data only: nothing is unpickled or executed.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Bytes of one row of CIFAR-10: a label, then a red, a green and a blue plane of 32 x 32.
CIFAR_ROW = 1 + 3 * 32 * 32
IDX_UINT8 = 0x08


class FormatError(ValueError):
    """A file does not have the expected format."""


class LabelledRows(NamedTuple):
    """Numbers (n, M) with the names of their columns, and a nominal column as codes (n,)."""

    data: NDArray[Any]
    feature_names: list[str]
    target: NDArray[np.intp]
    target_names: list[str]


def read_bytes(path: Path) -> bytes:
    """A file's content, unpacked if its name ends in .gz."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as stream:
            return stream.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{path} is not a complete gzip file ({error}).") from None


def read_idx(path: Path, content: bytes, n_dimensions: int) -> NDArray[np.uint8]:
    """Array from the content of an IDX file of unsigned bytes."""
    header = 4 + 4 * n_dimensions
    if len(content) < header or content[:4] != bytes([0, 0, IDX_UINT8, n_dimensions]):
        raise FormatError(
            f"{path} is not an IDX file of unsigned bytes with {n_dimensions} dimension(s): it"
            f" starts with {content[:4].hex(' ') or 'nothing'}, not with 00 00 08 0{n_dimensions}."
        )
    shape = tuple(np.frombuffer(content, dtype=">u4", count=n_dimensions, offset=4).tolist())
    expected = header + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        raise FormatError(
            f"{path} holds {len(content):,} bytes where its header, {shape}, promises {expected:,}."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def read_cifar(path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Colour planes (n, 3072), red, green, blue, and labels (n,) of one batch."""
    if len(content) == 0 or len(content) % CIFAR_ROW:
        raise FormatError(
            f"{path} holds {len(content):,} bytes, which is no multiple of the {CIFAR_ROW:,} bytes"
            " of a row of CIFAR-10's binary version."
        )
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, CIFAR_ROW)
    if rows[:, 0].max() > 9:
        raise FormatError(f"{path} holds labels up to {rows[:, 0].max()}; CIFAR-10 has 0 to 9.")
    return rows[:, 1:], rows[:, 0]


class Arff(NamedTuple):
    """An ARFF file: attributes in their order, each with its values (n,).

    values : numbers as floats, with NaN for missing; nominal values as texts, with "?" for missing
    nominal : the possible values of each nominal attribute
    """

    values: dict[str, NDArray[Any]]
    nominal: dict[str, list[str]]

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.values.values()), ()))


def read_arff(path: Path) -> Arff:
    """Read an ARFF file of numeric and nominal attributes."""
    from scipy.io import arff

    try:
        with path.open(encoding="utf-8") as stream:
            records, header = arff.loadarff(stream)
    except NotImplementedError:
        raise FormatError(
            f"{path} has attributes of text or dates; numeric and nominal ones can be read. Convert"
            " it to CSV."
        ) from None
    except (arff.ArffError, ValueError, StopIteration, IndexError) as error:
        reason = " ".join(str(error).split())
        raise FormatError(f"{path} is not an ARFF file that can be read ({reason}).") from None
    nominal = {
        name: list(header[name][1] or ())
        for name, kind in zip(header.names(), header.types(), strict=True)
        if kind == "nominal"
    }
    values = {
        name: np.char.decode(records[name], "utf-8") if name in nominal else records[name]
        for name in header.names()
    }
    return Arff(values, nominal)


def read_labelled_arff(path: Path) -> LabelledRows:
    """Read an ARFF file of numeric attributes with the class as last attribute."""
    file = read_arff(path)
    *features, target = file.values
    if list(file.nominal) != [target] or not file.n_rows:
        raise FormatError(
            f"{path} should have rows of numeric attributes and a nominal class at the end; it has"
            f" {file.n_rows} rows, and of its {len(file.values)} attributes these are nominal:"
            f" {', '.join(file.nominal) or 'none'}."
        )
    names = file.nominal[target]
    order = {name: code for code, name in enumerate(names)}
    codes = np.array(
        [order.get(value, -1) for value in file.values[target].tolist()], dtype=np.intp
    )
    data = np.column_stack([file.values[name].astype(np.float64) for name in features])
    if (codes < 0).any() or not np.isfinite(data).all():
        raise FormatError(f"{path} has missing values; this data set has none.")
    return LabelledRows(data, features, codes, names)


def read_labelled_csv(path: Path, n_features: int, target_names: list[str]) -> LabelledRows:
    """Read a CSV file without a header: numbers, then one of the given labels."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            lines = [line for line in csv.reader(stream, strict=True) if line]
    except (csv.Error, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not comma-separated text ({error}).") from None
    if not lines:
        raise FormatError(f"{path} is empty.")
    data = np.empty((len(lines), n_features))
    codes = np.empty(len(lines), dtype=np.intp)
    for i, (*values, label) in enumerate(lines):
        try:
            data[i] = values
            codes[i] = target_names.index(label.strip())
        except ValueError:
            raise FormatError(
                f"{path}, row {i + 1}: expected {n_features} numbers and one of"
                f" {', '.join(target_names)}, got {','.join(lines[i])[:60]!r}."
            ) from None
    names = [f"Attribute{i}" for i in range(1, n_features + 1)]
    return LabelledRows(data, names, codes, target_names)
