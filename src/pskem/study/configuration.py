"""The configuration of a run as plain data, and the key made from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Point", "RunSpec", "StudyError", "digest"]


class StudyError(ValueError):
    """A study, its data or its file of results is invalid."""


def _canonical(value: Any) -> str:
    """The same text for equal values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Short hash of a plain value."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:24]


class Point(NamedTuple):
    """Configuration of a run without its seed; all tables hold plain values.

    data : source (a named data set, or a file's name and digest), target, drop, categorical
    features : how features are made from the data
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


class RunSpec(NamedTuple):
    """A point and a seed.

    path : path of the data file, if there is one; not part of the key
    """

    point: Point
    seed: int
    path: str | None = None

    @property
    def key(self) -> str:
        return digest([self.point.key, self.seed])
