"""The types that a model file may hold. A file names them; it never says where they come from."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["known_name", "known_type"]

_MODULES = {
    "pskem.estimators": ["SharedKernelClassifier"],
    "pskem.estimators._search": ["SharedKernelClassifierCV"],
    "pskem.estimators._density": ["SharedKernelDensity"],
    "pskem.estimators._ensemble": ["PartitionEnsemble"],
    "pskem.preprocessing.images": ["Deskew", "Downsample", "ImageNormalizer"],
    "sklearn.compose": ["ColumnTransformer"],
    "sklearn.decomposition": ["PCA", "FactorAnalysis", "FastICA", "TruncatedSVD"],
    "sklearn.discriminant_analysis": ["LinearDiscriminantAnalysis"],
    "sklearn.feature_selection": ["VarianceThreshold"],
    "sklearn.impute": ["MissingIndicator", "SimpleImputer"],
    "sklearn.pipeline": ["FeatureUnion", "Pipeline"],
    "sklearn.preprocessing": [
        "FunctionTransformer",  # of no function: what "passthrough" becomes; functions are refused
        "KBinsDiscretizer",
        "MaxAbsScaler",
        "MinMaxScaler",
        "Normalizer",
        "OneHotEncoder",
        "OrdinalEncoder",
        "PolynomialFeatures",
        "PowerTransformer",
        "QuantileTransformer",
        "RobustScaler",
        "StandardScaler",
    ],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


@cache
def known_type(name: str) -> type[Any] | None:
    """The estimator of this name, imported from where this table says; None if it has none."""
    if name not in _HOME:
        return None
    found: type[Any] = getattr(import_module(_HOME[name]), name)
    return found


def known_name(value: Any) -> str | None:
    """The name under which a file holds this estimator, or None: subclasses are not known."""
    name = type(value).__name__
    return name if known_type(name) is type(value) else None
