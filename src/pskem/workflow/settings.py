"""Settings in the words of the command line and of studies: flat names and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pskem import checks
from pskem.starts import STARTS, ClassKMeans, Uniform
from pskem.training import Shrinkage

__all__ = ["START_SETTINGS", "classifier_settings"]

#: Settings of a start that have names of their own.
START_SETTINGS = ("own_mass", "init_range", "init_scale", "reseed")


def classifier_settings(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of :class:`pskem.SharedKernelClassifier` from flat settings.

    own_mass, init_range, init_scale and reseed become a start, shrinkage_target a Shrinkage; all
    others are the classifier's own. What a start does not have is not used.
    """
    settings = {key: value for key, value in flat.items() if key not in START_SETTINGS}
    given = {key: flat[key] for key in START_SETTINGS if key in flat}
    if given:
        checks.check_choice("init", settings.get("init", "class-kmeans"), list(STARTS))
        start: Any = STARTS[settings.get("init", "class-kmeans")]
        own_mass, scale = given.get("own_mass", 1.0), given.get("init_scale", Uniform().scale)
        checks.check_real("own_mass", own_mass, 0.0, 1.0)
        checks.check_real("init_scale", scale, 0.0, strict=True)
        low, high = _range(given.get("init_range", (Uniform().low, Uniform().high)))
        if "own_mass" in given and isinstance(start, ClassKMeans):
            start = replace(start, own_mass=own_mass)
        if isinstance(start, Uniform):
            start = Uniform(low, high, scale)
        settings["init"] = replace(start, reseed=given.get("reseed", True))
    if "shrinkage_target" in settings:
        target = settings.pop("shrinkage_target")
        settings["shrinkage"] = Shrinkage(settings.get("shrinkage", "auto"), target)
    return settings


def _range(value: Any) -> tuple[float, float]:
    """A pair (low, high) with low < high."""
    ends = checks.numbers("init_range", value) if value is not None else np.empty(0)
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise ValueError(
            f"init_range={value!r} must be a pair of numbers (low, high) with low < high."
        )
    return float(ends[0]), float(ends[1])
