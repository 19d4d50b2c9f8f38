"""Arrays as bytes in NumPy's own format, and their memory layout."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Kinds of plain values: booleans, integers, floats, text and bytes.
PLAIN_KINDS = "biufUS"
#: Largest memory of a view, relative to its content.
SPARSEST = 64


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


def layout_of(array: NDArray[Any]) -> list[int] | None:
    """Strides of a view of a larger array; None if the array is contiguous.

    The last bits of matrix products depend on the strides. For a view of a much larger array, or
    one that overlaps itself, the result is None and only the values are kept.
    """
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return None
    strides = list(array.strides)
    return strides if _can_have(array, strides) else None


def _can_have(array: NDArray[Any], strides: list[int]) -> bool:
    """Whether an array with these strides does not overlap itself and is not too sparse."""
    if len(strides) != array.ndim:
        return False
    extent = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, array.shape, strict=True)):
        if n > 1 and stride < extent:
            return False
        extent += (n - 1) * stride
    return array.size > 0 and extent <= SPARSEST * array.nbytes


def with_layout(array: NDArray[Any], strides: Any) -> NDArray[Any]:
    """Copy the values to an array with these strides."""
    whole = isinstance(strides, list) and all(type(stride) is int for stride in strides)
    if not whole or not _can_have(array, strides):
        raise CodecError(f"an array cannot have the strides {strides!r}")
    steps = [(n - 1) * stride for n, stride in zip(array.shape, strides, strict=True)]
    memory = np.zeros(sum(map(abs, steps)) + array.itemsize, dtype=np.uint8)
    # A negative stride starts at the end of its axis.
    start = -sum(step for step in steps if step < 0)
    view: NDArray[Any] = np.ndarray(
        array.shape, array.dtype, buffer=memory.data, offset=start, strides=tuple(strides)
    )
    view[...] = array
    return view
