"""The scikit-learn estimators: they validate, store and delegate."""

from pskem.estimators._classifier import EM_ALONE, PAPER, SharedKernelClassifier
from pskem.estimators._density import SharedKernelDensity
from pskem.estimators._ensemble import PartitionEnsemble
from pskem.estimators._search import SharedKernelClassifierCV

__all__ = [
    "EM_ALONE",
    "PAPER",
    "PartitionEnsemble",
    "SharedKernelClassifier",
    "SharedKernelClassifierCV",
    "SharedKernelDensity",
]
