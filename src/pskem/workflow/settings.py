"""Settings in the words of the command line and of studies: flat names and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np

from pskem import checks
from pskem.starts import STARTS, ClassKMeans, Uniform
from pskem.training import Shrinkage

__all__ = ["FLAT_SETTINGS", "classifier_settings"]

#: Settings that are fields of a start or of a Shrinkage, and their defaults.
FLAT_SETTINGS: Mapping[str, Any] = {
    "own_mass": ClassKMeans().own_mass,
    "init_range": (Uniform().low, Uniform().high),
    "init_scale": Uniform().scale,
    "reseed": True,
    "shrinkage_target": Shrinkage().target,
}


def classifier_settings(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of :class:`pskem.SharedKernelClassifier` from flat settings.

    own_mass, init_range, init_scale and reseed become fields of the start, where it has them, and
    shrinkage_target that of a Shrinkage; all others are the classifier's own.
    """
    settings = {key: value for key, value in flat.items() if key not in FLAT_SETTINGS}
    # What is as usual says nothing of a start.
    flat = dict(flat)
    for key in [key for key, value in flat.items() if _usual(key, value)]:
        del flat[key]
    fields: dict[str, Any] = {key: flat[key] for key in ("own_mass", "reseed") if key in flat}
    if "init_scale" in flat:
        fields["scale"] = flat["init_scale"]
    if "init_range" in flat:
        fields["low"], fields["high"] = _range(flat["init_range"])
    if fields:
        start: Any = settings.get("init", "auto")
        if isinstance(start, str) and start == "auto":  # which these settings decide
            start = "class-kmeans"
        if not is_dataclass(start):
            checks.check_choice("init", start, list(STARTS))
            start = STARTS[start]
        checks.check_real("own_mass", fields.get("own_mass", 1.0), 0.0, 1.0)
        checks.check_real("init_scale", fields.get("scale", 1.0), 0.0, strict=True)
        if settings.get("init", "auto") == "auto" and fields.keys() & {"low", "scale"}:
            raise ValueError("init_range and init_scale are for init='random': give that too.")
        own = {name: value for name, value in fields.items() if hasattr(start, name)}
        settings["init"] = replace(start, **own)
    if "shrinkage_target" in flat:
        settings["shrinkage"] = Shrinkage(flat.get("shrinkage", "auto"), flat["shrinkage_target"])
    return settings


def _usual(key: str, value: Any) -> bool:
    """Whether a setting is one of a start or Shrinkage, and what it is anyway."""
    usual = FLAT_SETTINGS.get(key)
    return key in FLAT_SETTINGS and (tuple(value) if np.iterable(value) else value) == (
        tuple(usual) if np.iterable(usual) else usual
    )


def _range(value: Any) -> tuple[float, float]:
    """A pair (low, high) with low < high."""
    ends = checks.numbers("init_range", value) if value is not None else np.empty(0)
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise ValueError(
            f"init_range={value!r} must be a pair of numbers (low, high) with low < high."
        )
    return float(ends[0]), float(ends[1])
