"""The types that a model file may hold. A file has their names, never their import paths."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import Any

from pskem import starts, structures
from pskem.engine import Coordinates, Health, Kernels, Pull, Statistics, Step, Summary
from pskem.estimators import ColumnCode
from pskem.margins import Margins, Power, Quantiles
from pskem.model import Block, Model, Sharing
from pskem.recoding import Indicators, Mapped, Recoding, Steps, Turn
from pskem.training import Refined, Shrinkage, State, Verdict

#: Immutable values of ours that fitted models and trainings hold, by their names.
VALUES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(
            Block,
            ColumnCode,
            Coordinates,
            Health,
            Indicators,
            Kernels,
            Mapped,
            Margins,
            Model,
            Power,
            Pull,
            Quantiles,
            Recoding,
            Refined,
            Sharing,
            Shrinkage,
            State,
            Statistics,
        ),
        *(Step, Steps, Summary, Turn, Verdict, starts.Start, *map(type, starts.STARTS.values())),
        *(structures.Categorical, structures.Gaussians, *map(type, structures.STRUCTURES.values())),
    )
}

_MODULES = {
    "pskem.estimators": [
        "PartitionEnsemble",
        "SharedKernelClassifier",
        "SharedKernelClassifierCV",
        "SharedKernelDensity",
    ],
    "pskem.preprocessing": ["Deskew", "Downsample", "ImageNormalizer", "IndependentComponents"],
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
    """Import the estimator of this name; None if it is not in the table."""
    if name not in _HOME:
        return None
    return getattr(import_module(_HOME[name]), name)


def known_name(value: Any) -> str | None:
    """Name of this estimator in a model file; None for unknown types and for subclasses."""
    name = type(value).__name__
    return name if known_type(name) is type(value) else None


def stands_alone(value: Any) -> bool:
    """Whether a file may hold this and nothing around it: an estimator, a model, a training."""
    return known_name(value) is not None or type(value) in (Model, Refined, State)


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of one of the values: a frozen dataclass or a NamedTuple.

    Fields that follow from the others are not written.
    """
    named: tuple[str, ...] = getattr(kind, "_fields", ())
    return named or tuple(f.name for f in fields(kind) if not f.metadata.get("derived"))
