"""Rules for the values of a study file. Each error says what was given and what is accepted."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from pskem.study.configuration import StudyError

__all__ = [
    "SHARE",
    "TABLE",
    "TRUTH",
    "WORD",
    "WORDS",
    "Rule",
    "as_list",
    "check_known",
    "check_table",
    "choice",
    "choices",
    "number",
    "whole",
]


#: Larger whole numbers are refused.
LARGEST = 2**63


class Rule(NamedTuple):
    """What a value should be: a description and a test."""

    what: str
    accepts: Callable[[Any], bool]


def check_table(where: str, table: Any, rules: Mapping[str, Rule]) -> None:
    """Refuse keys without a rule, and values that break theirs."""
    if not isinstance(table, Mapping):
        raise StudyError(f"{where} should be a table, not {table!r}.")
    check_known(where, table, rules)
    for key, value in table.items():
        if not rules[key].accepts(value):
            raise StudyError(f"{where} has {key} = {value!r}, which should be {rules[key].what}.")


def check_known(where: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse unknown names, and suggest the nearest known one."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, list(known), 1)
            listed = f"Known: {', '.join(sorted(known))}." if known else "None is accepted here."
            hint = f"Did you mean {close[0]!r}?" if close else listed
            raise StudyError(f"{where} has {name!r}, which is not known. {hint}")


def as_list(value: Any) -> list[Any]:
    """A list as it is, or a single value as a list."""
    return value if isinstance(value, list) else [value]


def whole(low: int) -> Rule:
    """A whole number."""
    return Rule(
        f"a whole number from {low}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= low,
    )


def number() -> Rule:
    """A finite number."""
    return Rule("a number", _is_number)


def choice(*names: str) -> Rule:
    """One of some words."""
    return Rule(f"one of {', '.join(names)}", lambda value: value in names)


def choices(*names: str) -> Rule:
    """One or several of some words."""
    return Rule(
        f"one or several of {', '.join(names)}",
        lambda value: value != [] and all(part in names for part in as_list(value)),
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < LARGEST
    return isinstance(value, float) and math.isfinite(value)


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a value: no dates, no infinite numbers."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    return isinstance(value, str | bool) or _is_number(value)


SHARE = Rule("a number between 0 and 1", lambda value: _is_number(value) and 0.0 < value < 1.0)
TABLE = Rule(
    "a table of plain values", lambda value: isinstance(value, Mapping) and _is_plain(value)
)
TRUTH = Rule("true or false", lambda value: isinstance(value, bool))
WORD = Rule("a text", lambda value: isinstance(value, str) and value != "")
WORDS = Rule(
    "a text or a list of texts",
    lambda value: all(isinstance(part, str) for part in as_list(value)),
)
