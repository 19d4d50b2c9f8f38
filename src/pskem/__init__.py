"""Shared kernel models: probabilistic classifiers trained by (partitioned) supervised EM."""

from pskem.classifier import SharedKernelClassifier
from pskem.classifier_cv import SharedKernelClassifierCV
from pskem.density import SharedKernelDensity
from pskem.ensemble import PartitionEnsemble
from pskem.model import Block
from pskem.partition import partition_features
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
