"""The types that a model file may hold. A file has their names, never their import paths."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from pskem import starts, structures
from pskem.engine import (
    Coordinates,
    Frame,
    Health,
    Kernels,
    Moments,
    Pull,
    Running,
    Statistics,
    Step,
    Summary,
)
from pskem.estimators import Candidate, ColumnCode, Trial
from pskem.margins import Margins, Power, Quantiles
from pskem.model import Block, Model, Sharing
from pskem.recoding import Indicators, Mapped, Recoding, Steps, Turn
from pskem.training import (
    Pages,
    Refined,
    Shrinkage,
    State,
    Stepwise,
    Stream,
    Verdict,
    Watch,
    Window,
)

#: Immutable values of ours that fitted models and trainings hold, by their names.
VALUES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(
            Block,
            Candidate,
            ColumnCode,
            Coordinates,
            Frame,
            Health,
            Indicators,
            Kernels,
            Mapped,
            Margins,
            Model,
            Moments,
            Pages,
            Power,
            Pull,
            Quantiles,
            Recoding,
            Refined,
            Running,
            Sharing,
            Shrinkage,
            State,
            Statistics,
            Stepwise,
            Stream,
        ),
        *(
            Step,
            Steps,
            Summary,
            Trial,
            Turn,
            Verdict,
            Watch,
            Window,
            structures.SecondMoments,
            starts.Start,
            *map(type, starts.STARTS.values()),
        ),
        *(structures.Categorical, structures.Gaussians, *map(type, structures.STRUCTURES.values())),
    )
}

#: Fields that are copied when a value is made, and what they must be: NumPy would make an array of
#: a list, as wide as its longest text.
COPIED: dict[str, dict[str, Any]] = {
    "Block": {
        "features": np.ndarray,
        "kernels": Kernels,
        "coordinates": Coordinates,
        "allowed": np.ndarray,
    },
    "Coordinates": dict.fromkeys(Coordinates._fields, np.ndarray),
    "Kernels": dict.fromkeys(Kernels._fields, np.ndarray),
    "Margins": {"maps": tuple},
    "Model": {
        **dict.fromkeys(("classes", "priors", "block_weights"), np.ndarray),
        "blocks": tuple,
        "shift": np.ndarray | None,
        "sharing": Sharing | None,
        "views": tuple | None,
    },
    "Recoding": {"parts": tuple},
    "Sharing": dict.fromkeys(Sharing._fields, np.ndarray),
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
    return known_name(value) is not None or type(value) in (Model, Pages, Refined, State)


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of one of the values: a frozen dataclass or a NamedTuple.

    Fields that follow from the others are not written.
    """
    named: tuple[str, ...] = getattr(kind, "_fields", ())
    return named or tuple(f.name for f in fields(kind) if not f.metadata.get("derived"))
