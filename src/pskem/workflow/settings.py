"""Settings in the words of the command line and of studies: flat names and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
        start: Any = STARTS[settings.get("init", "class-kmeans")]
        if "own_mass" in given and isinstance(start, ClassKMeans):
            start = replace(start, own_mass=given["own_mass"])
        if isinstance(start, Uniform):
            low, high = given.get("init_range", (start.low, start.high))
            start = replace(start, low=low, high=high, scale=given.get("init_scale", start.scale))
        settings["init"] = replace(start, reseed=given.get("reseed", True))
    if "shrinkage_target" in settings:
        target = settings.pop("shrinkage_target")
        settings["shrinkage"] = Shrinkage(settings.get("shrinkage", "auto"), target)
    return settings
