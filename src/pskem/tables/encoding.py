"""From columns to features: what stands before the classifier in a pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pskem.preprocessing import paper_features
from pskem.tables.columns import Columns
from pskem.tables.seam import TableError

__all__ = [
    "IMAGES",
    "category_features",
    "fit_encoder",
    "make_encoder",
    "unknown_allowed",
    "unknown_categories",
]

#: Rarer values of a category share one column.
MAX_CATEGORIES = 30
MISSING = "(missing)"
CATEGORY = "category "

#: The paper's features of the named image sets; the number of components is that of its table.
IMAGES: dict[str, dict[str, Any]] = {
    "digits": {"n_components": 24, "deskew": False},
    "mnist": {"n_components": 39},
    "fashion-mnist": {"n_components": 150, "deskew": False},
    "cifar-10": {"n_components": 96, "deskew": False, "shape": (3, 32, 32)},
}


def make_encoder(
    columns: Columns, image_set: str | None = None, pca: int | None = None
) -> Pipeline:
    """Gaps filled, numbers scaled, categories as indicators; images as in the paper.

    Parameters
    ----------
    columns : Columns
    image_set : str or None
        The name of an image set, whose columns are pixels.
    pca : int or None
        Principal components to keep at the end; None keeps all features of a table, and the
        paper's number for images.
    """
    if image_set in IMAGES:
        settings = IMAGES[image_set]
        return paper_features(**(settings if pca is None else {**settings, "n_components": pca}))
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    steps = [("columns", _encode_columns(columns)), ("scale", StandardScaler())]
    if pca is not None:
        steps.append(("pca", PCA(pca, svd_solver="full")))
    return Pipeline(steps)


def fit_encoder(encoder: Pipeline, X: Any) -> tuple[Pipeline, NDArray[Any]]:
    """A copy of an encoder, fitted to a data frame, and the features that it makes of it.

    Principal components, if there are any, are the last step of an encoder.
    """
    fitted = clone(encoder)
    if "pca" not in fitted.named_steps:
        return fitted, np.asarray(fitted.fit_transform(X))
    features, pca = fitted[:-1].fit_transform(X), fitted[-1]
    n_rows, n_features = features.shape
    if pca.n_components > min(n_rows, n_features):
        raise TableError(
            f"{pca.n_components:,} principal components are to be kept, but {n_rows:,} row(s) of"
            f" {n_features:,} feature(s) have {min(n_rows, n_features):,} at most. Ask for fewer"
            " (--pca), or use more rows."
        )
    return fitted, np.asarray(pca.fit_transform(features))


def _encode_columns(columns: Columns) -> Any:
    """Numbers together, and every category by itself, so that its features can be told."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    encode = OneHotEncoder(
        # One indicator follows from the others: kernels would have no variance.
        drop="first",
        handle_unknown="infrequent_if_exist",
        max_categories=MAX_CATEGORIES,
        sparse_output=False,
    )
    fill = SimpleImputer(strategy="constant", fill_value=MISSING)
    category = Pipeline([("fill", fill), ("encode", encode)])
    parts = [(f"{CATEGORY}{name}", category, [name]) for name in columns.categorical]
    if columns.numeric:
        parts.insert(0, ("numbers", SimpleImputer(strategy="median"), columns.numeric))
    return ColumnTransformer(parts, verbose_feature_names_out=False)


def category_features(encoder: Pipeline) -> list[NDArray[np.intp]]:
    """Positions of the features that a fitted encoder makes of each category, as far as any."""
    places = getattr(encoder[0], "output_indices_", {})
    if "pca" in encoder.named_steps:
        return []
    found = [
        np.arange(place.start, place.stop)
        for name, place in places.items()
        if name.startswith(CATEGORY)
    ]
    return [features for features in found if len(features)]


@contextmanager
def unknown_allowed() -> Iterator[None]:
    """Without scikit-learn's warning of unknown categories: it names neither columns nor values."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        yield


def unknown_categories(encoder: Pipeline, X: Any) -> dict[str, list[str]]:
    """Values of categories that the encoder has not seen, by column; a gap is one, too."""
    found: dict[str, list[str]] = {}
    for name, part, columns in getattr(encoder[0], "transformers_", []):
        if name.startswith(CATEGORY):
            known = set(part["encode"].categories_[0])
            new = sorted(set(X[columns[0]].fillna(MISSING)) - known)
            if new:
                found[columns[0]] = new
    return found
