"""Shared kernel models: probabilistic classifiers trained by (partitioned) supervised EM."""

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


def __getattr__(name: str) -> Any:
    # Model files take a fifth of the import, and few need them.
    if name in ("load", "save"):
        from pskem import persistence

        return getattr(persistence, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
