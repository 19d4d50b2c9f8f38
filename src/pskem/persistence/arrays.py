"""Arrays as bytes, in NumPy's own format, and the order in which they lie in memory."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PLAIN_KINDS", "ArrayError", "from_bytes", "layout_of", "to_bytes", "with_layout"]

#: Kinds of data that hold plain values: booleans, integers, floats, text and bytes.
PLAIN_KINDS = "biufUS"
#: How much larger than its content the memory of a view may be.
SPARSEST = 64


class ArrayError(ValueError):
    """Bytes that are no plain array."""


def to_bytes(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def from_bytes(content: bytes) -> NDArray[Any]:
    """An array, whose bytes must be as many as its header says before it is made."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ArrayError("is of another version")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    size = math.prod(shape)
    plain = dtype.kind in PLAIN_KINDS and (dtype.itemsize > 0 or size <= 1)
    if not plain or size * dtype.itemsize != len(content) - stream.tell():
        raise ArrayError(f"is not {dtype} of shape {shape}")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def layout_of(array: NDArray[Any]) -> list[int] | None:
    """Strides of an array that is a view of a larger one; None if it is contiguous.

    Matrix products depend on them in the last bits.
    """
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return None
    strides = list(array.strides)
    return strides if _fits(array.shape, strides, array.nbytes) else None


def _fits(shape: tuple[int, ...], strides: list[int], n_bytes: int) -> bool:
    return len(strides) == len(shape) and _extent(shape, strides) <= SPARSEST * n_bytes


def _extent(shape: tuple[int, ...], strides: list[int]) -> int:
    """Bytes from the first to the last element."""
    return sum((n - 1) * abs(stride) for n, stride in zip(shape, strides, strict=True))


def with_layout(array: NDArray[Any], strides: Any) -> NDArray[Any]:
    """The same values in an array of these strides."""
    whole = isinstance(strides, list) and all(type(stride) is int for stride in strides)
    if not whole or array.size == 0 or not _fits(array.shape, strides, array.nbytes):
        raise ArrayError(f"cannot have the strides {strides!r}")
    memory = np.zeros(_extent(array.shape, strides) + array.itemsize, dtype=np.uint8)
    # A negative stride starts at the end of its axis.
    start = sum((n - 1) * -s for n, s in zip(array.shape, strides, strict=True) if s < 0)
    view: NDArray[Any] = np.ndarray(
        array.shape, array.dtype, buffer=memory.data, offset=start, strides=tuple(strides)
    )
    view[...] = array
    if not np.array_equal(view, array, equal_nan=array.dtype.kind == "f"):
        raise ArrayError(f"overlaps itself with the strides {strides!r}")
    return view
