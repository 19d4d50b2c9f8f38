"""What a file may ask for: memory in proportion to its size, and time in proportion to that.

Loading takes at most ten times the size of the file, and ``FREE`` bytes. The file itself is held
once, and arrays take up to five times what they take in it (``arrays.SPARSEST``, and once to read
them). The rest is left to what is made of its text.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from pskem.persistence.arrays import CodecError

__all__ = ["FREE", "check_count", "check_keys", "check_members", "check_text"]

#: Bytes that any file may take, however small it is.
FREE = 2**24
#: Memory at most, in sizes of the file: of all, and of arrays beside the file itself.
MOST, ARRAYS = 10, 5
#: Bytes at most of a list, of an object, of a pair in an object, of a pointer, of a text and of a
#: number, as JSON and as what it stands for together.
LIST, OBJECT, PAIR, POINTER, TEXT, NUMBER = 150, 300, 80, 20, 64, 32
#: What an entry in the directory of an archive begins with.
ENTRY = b"PK\x01\x02"
#: Bytes of an archive's member at least: two headers with a name, and the header of an array.
SMALLEST_MEMBER = 200
#: Bytes of a member's own header, without the name.
MEMBER_HEADER = 30
#: Keys of a dictionary at most that are no texts: one can choose such keys that are found slowly.
MOST_KEYS = 10_000
#: As many keys may have one hash.
FEW_KEYS = 100


def check_count(content: bytes) -> None:
    """Refuse an archive whose directory alone would take more memory than its members."""
    if content.count(ENTRY) * SMALLEST_MEMBER > len(content) + FREE // 8:
        raise CodecError("it has more members than a file of its size can hold")


def check_members(archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse members that overlap, of which a small file could hold any amount."""
    free = 0
    for member in members:
        if member.header_offset < free:
            raise CodecError(f"{member.filename} overlaps another member")
        free = member.header_offset + MEMBER_HEADER + len(member.filename) + member.compress_size
    if free > archive.start_dir:
        raise CodecError(f"{members[-1].filename} is longer than the file")


def check_text(text: str, length: int, size: int) -> None:
    """Refuse a text of JSON, of so many bytes, of which more would be made than its file may take.

    Brackets within texts count as if they were some, which is harmless in a file of a model.
    """
    n_commas, n_pairs, n_texts = text.count(","), text.count(":"), text.count('"') // 2
    n_lists, n_objects = text.count("["), text.count("{")
    n_numbers = max(0, n_commas + n_lists + n_objects + n_pairs - n_texts)
    wide = 32 if "\\u" in text else 0
    memory = (
        2 * sys.getsizeof(text)
        + LIST * n_lists
        + OBJECT * n_objects
        + PAIR * n_pairs
        + POINTER * n_commas
        + (TEXT + wide) * n_texts
        + NUMBER * n_numbers
    )
    if memory > (MOST - 1) * size - ARRAYS * (size - length) + FREE:
        raise CodecError(
            f"its text of {len(text):,} characters describes more parts than a file of"
            f" {size:,} bytes can hold"
        )


def check_keys(keys: Iterable[Any]) -> None:
    """Refuse keys that make a dictionary slow: numbers can be chosen so that all have one hash."""
    hashes = sorted(hash(key) for key in keys if type(key) is not str)  # a set would be as slow
    if len(hashes) > MOST_KEYS:
        raise CodecError(
            f"a dictionary has {len(hashes):,} keys that are not texts; {MOST_KEYS:,} are accepted"
        )
    if sum(a == b for a, b in pairwise(hashes)) > FEW_KEYS:
        raise CodecError("a dictionary has many keys of one hash")
