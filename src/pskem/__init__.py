"""Shared kernel models: probabilistic classifiers trained by (partitioned) supervised EM."""

from pskem.blocks._partition import partition_features
from pskem.estimators._classifier import SharedKernelClassifier
from pskem.estimators._density import SharedKernelDensity
from pskem.estimators._ensemble import PartitionEnsemble
from pskem.estimators._search import SharedKernelClassifierCV
from pskem.model import Block
from pskem.persistence import load, save
from pskem.version import __version__

__all__ = [
    "Block",
    "PartitionEnsemble",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelDensity",
    "__version__",
    "load",
    "partition_features",
    "save",
]
