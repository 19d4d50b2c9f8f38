"""The scikit-learn estimators: they validate, store and delegate."""

from pskem.estimators._classifier import SharedKernelClassifier
from pskem.estimators._density import SharedKernelDensity
from pskem.estimators._ensemble import PartitionEnsemble
from pskem.estimators._search import SharedKernelClassifierCV

__all__ = [
    "PartitionEnsemble",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelDensity",
]
