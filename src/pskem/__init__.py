"""Shared kernel models: probabilistic classifiers trained by (partitioned) supervised EM."""

from pskem.classifier import SharedKernelClassifier
from pskem.density import SharedKernelDensity
from pskem.model import Block
from pskem.partition import partition_features

__all__ = ["Block", "SharedKernelClassifier", "SharedKernelDensity", "partition_features"]

__version__ = "0.1.0"
