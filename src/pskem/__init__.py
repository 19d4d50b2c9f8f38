"""Shared kernel models: probabilistic classifiers trained by (partitioned) supervised EM."""

from __future__ import annotations

from pskem.version import __version__

# Importing pskem imports nothing else: names come when they are asked for, so that the command line
# starts at once. Type checkers take this for the constant of ``typing``, which takes a while.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pskem.blocks import partition_features
    from pskem.clusters import ClusterError
    from pskem.estimators import (
        EM_ALONE,
        PAPER,
        PartitionEnsemble,
        SharedKernelClassifier,
        SharedKernelClassifierCV,
        SharedKernelDensity,
    )
    from pskem.model import Block, Model
    from pskem.persistence import Checkpoint, CheckpointError, ModelFileError, load, save
    from pskem.tables import TableError, open_table
    from pskem.training import Shrinkage, Stepwise

__all__ = [
    "EM_ALONE",
    "PAPER",
    "Block",
    "Checkpoint",
    "CheckpointError",
    "ClusterError",
    "Model",
    "ModelFileError",
    "PartitionEnsemble",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelDensity",
    "Shrinkage",
    "Stepwise",
    "TableError",
    "__version__",
    "load",
    "open_table",
    "partition_features",
    "save",
]

#: The packages that names are from.
_HOMES = {
    "blocks": ("partition_features",),
    "clusters": ("ClusterError",),
    "estimators": (
        "EM_ALONE",
        "PAPER",
        "PartitionEnsemble",
        "SharedKernelClassifier",
        "SharedKernelClassifierCV",
        "SharedKernelDensity",
    ),
    "model": ("Block", "Model"),
    "persistence": ("Checkpoint", "CheckpointError", "ModelFileError", "load", "save"),
    "tables": ("TableError", "open_table"),
    "training": ("Shrinkage", "Stepwise"),
}
_HOME = {name: package for package, names in _HOMES.items() for name in names}
#: Packages that can be had as attributes.
_PACKAGES = (
    *("blocks", "checks", "clusters", "datasets", "display", "engine", "estimators", "evaluation"),
    *(
        "files",
        "imputation",
        "margins",
        "model",
        "persistence",
        "preprocessing",
        "recoding",
        "starts",
    ),
    *("structures", "study", "tables", "training", "typicality", "workflow"),
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"pskem.{name}")
    if name in _HOME:
        value = getattr(import_module(f"pskem.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES} - {"TYPE_CHECKING"})
