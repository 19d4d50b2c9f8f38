"""Values that are not what their column holds: counted, part by part, and told of once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["NO_NUMBERS", "Slip", "SlipTeller", "told_once", "warn_of"]

#: What is wrong with texts in a column of numbers.
NO_NUMBERS = "are no numbers"


class Slip(NamedTuple):
    """Values of a column that count as missing.

    what : is wrong with them
    example : one of them, as it is shown; empty if all are alike
    """

    column: str
    n: int
    what: str
    example: str = ""


#: What is called with slips when they are found.
SlipTeller = Callable[[Slip], None]


def warn_of(slip: Slip) -> None:
    """Warn of a slip."""
    like = f", such as {slip.example}" if slip.example else ""
    warnings.warn(
        f"{slip.n:,} value(s) of the column {slip.column!r} {slip.what}{like}; they count as"
        " missing.",
        UserWarning,
        stacklevel=3,
    )


@contextmanager
def told_once(check: SlipTeller | None = None) -> Iterator[SlipTeller]:
    """What adds slips up over the parts of a table, and at the end warns of each column once.

    An error ends the block without a word: it is about more than missing values.

    check : may refuse the sum of a column before anything is told
    """
    found: dict[tuple[str, str], Slip] = {}

    def add(slip: Slip) -> None:
        before = found.get((slip.column, slip.what))
        total = slip if before is None else before._replace(n=before.n + slip.n)
        found[slip.column, slip.what] = total

    yield add
    if check is not None:
        for slip in found.values():
            check(slip)
    for slip in found.values():
        warn_of(slip)
