"""Arrays as bytes in NumPy's own format, and their memory layout."""

from __future__ import annotations

import io
import math
import reprlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Kinds of plain values: booleans, integers, floats, text and bytes.
PLAIN_KINDS = "biufUS"
#: Largest memory of a view, relative to what it takes in a file.
SPARSEST = 4
#: Bytes that an array takes in a file besides its values, at least.
HEADERS = 200
#: Files of earlier versions may say of views that they take this many times their values.
SPARSEST_WRITTEN = 64


class CodecError(ValueError):
    """A value cannot be stored in a model file, or a file holds an invalid one."""


def to_bytes(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def from_bytes(content: bytes, name: str) -> NDArray[Any]:
    """Read an array, after checking that its size is what its header says."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise CodecError(f"{name} is of another version")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    size = math.prod(shape)
    plain = dtype.kind in PLAIN_KINDS and (dtype.itemsize > 0 or size <= 1)
    if not plain or size * dtype.itemsize != len(content) - stream.tell():
        raise CodecError(f"{name} is not {dtype} of shape {shape}")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def arranged(array: NDArray[Any]) -> tuple[NDArray[Any], list[int] | None]:
    """The array to write, and its strides if it is a view of a larger one.

    The last bits of matrix products depend on the order in memory. Of a view of a much larger
    array, or one that overlaps itself, the order of the axes is kept, and the gaps are not.
    """
    extent = _extent(array, list(array.strides))
    if extent is None or extent > _room(array):
        array = array.copy(order="K")
    whole = array.flags.c_contiguous or array.flags.f_contiguous
    return array, None if whole else list(array.strides)


def _extent(array: NDArray[Any], strides: list[int]) -> int | None:
    """Bytes from the first to the last value with these strides; None if values overlap."""
    if len(strides) != array.ndim or not array.size:
        return None
    extent = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, array.shape, strict=True)):
        if n > 1 and stride < extent:
            return None
        extent += (n - 1) * stride
    return extent


def _room(array: NDArray[Any]) -> int:
    return SPARSEST * (array.nbytes + HEADERS)


def with_layout(array: NDArray[Any], strides: Any) -> NDArray[Any]:
    """Copy the values to an array with these strides or, where that takes much, without gaps."""
    whole = isinstance(strides, list) and all(type(stride) is int for stride in strides)
    extent = _extent(array, strides) if whole else None
    if extent is None or extent > SPARSEST_WRITTEN * array.nbytes:
        raise CodecError(f"an array cannot have the strides {reprlib.repr(strides)}")
    if extent > _room(array):
        view = _compact(array, strides)
    else:
        steps = [(n - 1) * stride for n, stride in zip(array.shape, strides, strict=True)]
        memory = np.zeros(extent, dtype=np.uint8)
        # A negative stride starts at the end of its axis.
        start = -sum(step for step in steps if step < 0)
        view = np.ndarray(
            array.shape, array.dtype, buffer=memory.data, offset=start, strides=tuple(strides)
        )
    view[...] = array
    return view


def _compact(array: NDArray[Any], strides: list[int]) -> NDArray[Any]:
    """An array without gaps whose axes follow each other in memory as with these strides."""
    order = sorted(range(array.ndim), key=lambda axis: -abs(strides[axis]))
    empty = np.empty([array.shape[axis] for axis in order], array.dtype)
    return empty.transpose(np.argsort(order))
