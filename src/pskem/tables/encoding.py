"""Encoders from columns to features, for the steps of a pipeline before the classifier."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pskem.preprocessing import IndependentComponents, paper_features
from pskem.tables.base import TableError
from pskem.tables.columns import Columns

__all__ = [
    "IMAGES",
    "category_features",
    "fit_encoder",
    "make_encoder",
    "unknown_allowed",
    "unknown_categories",
]

#: One-hot columns of a category at most; rarer values share one.
MAX_CATEGORIES = 30
MISSING = "(missing)"
CATEGORY = "category "

#: The paper's features of the named image sets, with the numbers of components of its Table 1.
IMAGES: dict[str, dict[str, Any]] = {
    "digits": {"n_components": 24, "deskew": False},
    "mnist": {"n_components": 39},
    "fashion-mnist": {"n_components": 150, "deskew": False},
    "cifar-10": {"n_components": 96, "deskew": False, "shape": (3, 32, 32)},
}


def make_encoder(
    columns: Columns,
    image_set: str | None = None,
    pca: int | None = None,
    ica: bool = False,
    random_state: int | None = None,
) -> Pipeline:
    """Make an unfitted encoder: one-hot encode and scale, or the paper's image features.

    ``image_set`` is the name of an image set, if the columns are pixels. ``pca`` principal
    components are kept; None keeps all features of a table, and the paper's number for images.
    With ``ica``, independent components of these are the features; ``random_state`` is for them.
    Gaps stay gaps, except before components, which are sums over all features.
    """
    unmix = [("ica", IndependentComponents(random_state=random_state))] if ica else []
    if image_set in IMAGES:
        settings = IMAGES[image_set]
        made = paper_features(**(settings if pca is None else {**settings, "n_components": pca}))
        return Pipeline([*made.steps, *unmix])
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    mixed = pca is not None or ica
    steps = [("columns", _encode_columns(columns, fill=mixed)), ("scale", StandardScaler())]
    if pca is not None:
        steps.append(("pca", PCA(pca, svd_solver="full")))
    return Pipeline([*steps, *unmix])


def fit_encoder(encoder: Pipeline, X: Any) -> tuple[Pipeline, NDArray[Any]]:
    """Fit a copy of an encoder to a data frame; returns it and the features.

    More principal components than there can be are refused.
    """
    fitted = clone(encoder)
    names = list(fitted.named_steps)
    if "pca" not in names:
        return fitted, np.asarray(fitted.fit_transform(X))
    place = names.index("pca")
    features, pca = fitted[:place].fit_transform(X), fitted[place]
    n_rows, n_features = features.shape
    if pca.n_components > min(n_rows, n_features):
        raise TableError(
            f"{pca.n_components:,} principal components were asked for, but {n_rows:,} row(s) of"
            f" {n_features:,} feature(s) have {min(n_rows, n_features):,} at most. Ask for fewer"
            " (--pca), or use more rows."
        )
    return fitted, np.asarray(fitted[place:].fit_transform(features))


def _encode_columns(columns: Columns, fill: bool) -> Any:
    """Encode numbers together and each category separately, so that its features are known."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    encode = OneHotEncoder(
        # One indicator follows from the others, which would make covariances singular.
        drop="first",
        handle_unknown="infrequent_if_exist",
        max_categories=MAX_CATEGORIES,
        sparse_output=False,
    )
    missing = SimpleImputer(strategy="constant", fill_value=MISSING)
    category = Pipeline([("fill", missing), ("encode", encode)])
    parts = [(f"{CATEGORY}{name}", category, [name]) for name in columns.categorical]
    if columns.numeric:
        numbers = SimpleImputer(strategy="median") if fill else "passthrough"
        parts.insert(0, ("numbers", numbers, columns.numeric))
    return ColumnTransformer(parts, verbose_feature_names_out=False)


def category_features(encoder: Pipeline) -> list[NDArray[np.intp]]:
    """Feature indices of each category in a fitted encoder."""
    places = getattr(encoder[0], "output_indices_", {})
    if {"pca", "ica"} & set(encoder.named_steps):
        return []
    return [
        np.arange(place.start, place.stop)
        for name, place in places.items()
        if name.startswith(CATEGORY) and place.start < place.stop
    ]


@contextmanager
def unknown_allowed() -> Iterator[None]:
    """Silence scikit-learn's warning about unknown categories, which names no column or value."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        yield


def unknown_categories(encoder: Pipeline, X: Any) -> dict[str, list[str]]:
    """Categories that the encoder has not seen, by column; a missing value is a category."""
    found: dict[str, list[str]] = {}
    for name, part, columns in getattr(encoder[0], "transformers_", []):
        if name.startswith(CATEGORY):
            known = set(part["encode"].categories_[0])
            new = sorted(set(X[columns[0]].fillna(MISSING)) - known)
            if new:
                found[columns[0]] = new
    return found
