"""What decides a run, as plain data: a point of a study and a seed, and the keys made from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Point", "Run", "StudyError", "digest"]


class StudyError(ValueError):
    """Something is wrong with a study, its data or its file of results."""


def _canonical(value: Any) -> str:
    """One text for one value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """A short name for a plain value."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:24]


class Point(NamedTuple):
    """Everything that decides a run but the seed; all tables hold plain values.

    data : source (a named data set, or a file's name and digest), target, drop, categorical
    features : how features are made of it
    split : which rows train and test
    validation : which rows choose the pass; empty for methods without passes
    method, settings : the classifier
    """

    data: Mapping[str, Any]
    features: Mapping[str, Any]
    split: Mapping[str, Any]
    validation: Mapping[str, Any]
    method: str
    settings: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The canonical form."""
        return _canonical(self._asdict())

    @property
    def key(self) -> str:
        return digest(self._asdict())


class Run(NamedTuple):
    """A point and a seed.

    path : where the point's file lies, if it has one; no part of what is run
    """

    point: Point
    seed: int
    path: str | None = None

    @property
    def key(self) -> str:
        return digest([self.point.key, self.seed])
