"""Shared kernel models: probabilistic classifiers trained by (partitioned) supervised EM."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pskem.blocks import partition_features
from pskem.estimators import (
    EM_ALONE,
    PAPER,
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
)
from pskem.model import Block, Model
from pskem.training import Shrinkage
from pskem.version import __version__

if TYPE_CHECKING:
    from pskem.persistence import load, save

__all__ = [
    "EM_ALONE",
    "PAPER",
    "Block",
    "Model",
    "PartitionEnsemble",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelDensity",
    "Shrinkage",
    "__version__",
    "load",
    "partition_features",
    "save",
]


#: Packages that are imported when they are asked for.
LATER = ("datasets", "display", "evaluation", "persistence", "preprocessing", "study")


def __getattr__(name: str) -> Any:
    if name in LATER:
        return import_module(f"pskem.{name}")
    # Model files take a fifth of the import, and few need them.
    if name in ("load", "save"):
        return getattr(import_module("pskem.persistence"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *LATER})
