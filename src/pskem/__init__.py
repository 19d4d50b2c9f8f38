"""Shared kernel models: probabilistic classifiers trained by (partitioned) supervised EM."""

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
from pskem.persistence import load, save
from pskem.training import Shrinkage
from pskem.version import __version__

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
