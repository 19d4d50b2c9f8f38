"""Encoders from columns to features, for the steps of a pipeline before the classifier."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pskem.preprocessing import IndependentComponents, least_spread, paper_features
from pskem.structures import FloatArray
from pskem.tables.base import TableError
from pskem.tables.columns import Columns

__all__ = [
    "IMAGES",
    "encode",
    "fit_encoder",
    "indicator_encoder",
    "keeps_columns",
    "make_encoder",
    "scale_of",
    "scaler_of",
    "selected_columns",
    "unknown_allowed",
    "unknown_categories",
]

#: One-hot columns of a category at most; rarer values share one.
MAX_CATEGORIES = 30
MISSING = "(missing)"
CATEGORY = "category "
NUMBERS = "numbers"

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
    """Make the unfitted steps before the classifier: the paper's image features, or components.

    Without either, columns are selected, and those of numbers scaled: the classifier takes gaps and
    categories as they are. ``image_set`` is the name of an image set, if the columns are pixels.
    ``pca`` principal components are kept; None keeps all features of a table, and the paper's
    number for images. With ``ica``, independent components of these are the features;
    ``random_state`` is for them.
    """
    unmix = [("ica", IndependentComponents(random_state=random_state))] if ica else []
    if image_set in IMAGES:
        settings = IMAGES[image_set]
        made = paper_features(**(settings if pca is None else {**settings, "n_components": pca}))
        return Pipeline([*made.steps, *unmix])
    if pca is None and not ica:
        return Pipeline([("columns", _select_columns(columns))])
    from sklearn.decomposition import PCA

    if pca is None:  # independent components scale by themselves, and know what rounding is
        return Pipeline([("columns", _encode_columns(columns)), *unmix])
    steps = indicator_encoder(columns).steps
    return Pipeline([*steps, ("pca", PCA(pca, svd_solver="full")), *unmix])


def indicator_encoder(columns: Columns, scaler: Any = None) -> Pipeline:
    """Make an unfitted encoder to numbers without gaps, on one scale, for those who need them.

    Gaps take the median of their column, and categories become indicators.
    """
    from sklearn.preprocessing import StandardScaler

    scale = StandardScaler() if scaler is None else clone(scaler, safe=False)
    if hasattr(scale, "set_output"):  # it may have been made for a data frame
        scale.set_output(transform="default")
    return Pipeline([("columns", _encode_columns(columns)), ("scale", scale)])


def scaler_of(encoder: Pipeline) -> Any:
    """The scaler of an unfitted encoder that keeps columns; None if there are no numbers."""
    return next((part for name, part, _ in encoder[0].transformers if name == NUMBERS), None)


def keeps_columns(encoder: Pipeline) -> bool:
    """Whether an encoder leaves columns as they are, so that categories are still categories."""
    return list(encoder.named_steps) == ["columns"]


def fit_encoder(encoder: Pipeline, X: Any) -> tuple[Pipeline, Any]:
    """Fit a copy of an encoder to a data frame; returns it and the features.

    More principal components than there can be, or than are more than rounding, are refused.
    """
    fitted = clone(encoder)
    names = list(fitted.named_steps)
    if "pca" not in names:
        return fitted, fitted.fit_transform(X)
    place = names.index("pca")
    scaled = names[place - 1] == "scale"
    numbers = fitted[: place - scaled].fit_transform(X)
    features = fitted["scale"].fit_transform(numbers) if scaled else numbers
    pca = fitted[place]
    n_rows, n_features = features.shape
    most = min(n_rows - 1, n_features)  # their mean takes one
    if pca.n_components > most:
        raise TableError(
            f"{pca.n_components:,} principal components were asked for, but {n_rows:,} row(s) of"
            f" {n_features:,} feature(s) have {most:,} at most. Ask for fewer (--pca), or use more"
            " rows."
        )
    components = pca.fit_transform(features)
    if scaled:
        _check_spread(numbers, fitted["scale"], pca)
    rest = fitted[place + 1 :]
    return fitted, np.asarray(rest.fit_transform(components) if len(rest) else components)


def _check_spread(numbers: FloatArray, scaler: Any, pca: Any) -> None:
    """Refuse principal components (C,) of numbers (n, M) that are nothing but rounding."""
    scale = np.where(scaler.var_ > 0.0, scaler.scale_, np.inf)
    rank = int((np.sqrt(pca.explained_variance_) > least_spread(numbers, scale)).sum())
    if rank < pca.n_components:
        raise TableError(
            f"{pca.n_components:,} principal components were asked for, but the"
            f" {numbers.shape[1]:,} feature(s) have {rank:,} that are more than rounding: some"
            " follow from others. Ask for fewer (--pca)."
        )


def encode(encoder: Pipeline, X: Any) -> Any:
    """Features of a data frame; those of an unknown category are those of a rare one."""
    with unknown_allowed():
        return encoder.transform(X)


@contextmanager
def unknown_allowed() -> Iterator[None]:
    """Silence scikit-learn's warning about unknown categories, which names no column or value."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        yield


def selected_columns(columns: Columns, n: Any, mean: Any, variance: Any) -> Any:
    """Fitted selection of columns whose numbers have these means and variances, (M,) each.

    n : how many values there are of each
    """
    import pandas as pd

    frame = pd.DataFrame({name: [0.0] for name in columns.numeric})
    for name in columns.categorical:
        frame[name] = pd.Series([""], dtype=object)
    selection = _select_columns(columns).fit(frame)
    if columns.numeric:
        scaler = selection.named_transformers_[NUMBERS]
        scaler.mean_, scaler.var_, scaler.scale_ = mean, variance, scale_of(mean, variance)
        scaler.n_samples_seen_ = n.astype(np.int64)
    return selection


def scale_of(mean: Any, variance: Any) -> Any:
    """What numbers are divided by, (M,): their standard deviation, or 1 if they do not vary."""
    spread = np.sqrt(variance)
    constant = spread <= 10.0 * np.finfo(np.float64).eps * np.abs(mean)
    return np.where(constant, 1.0, spread)


def _select_columns(columns: Columns) -> Any:
    """Select columns by name, whatever others there are, and scale those of numbers."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import StandardScaler

    parts: list[tuple[str, Any, list[str]]] = []
    if columns.numeric:
        parts.append((NUMBERS, StandardScaler(), columns.numeric))
    if columns.categorical:
        parts.append(("categories", "passthrough", columns.categorical))
    made = ColumnTransformer(parts, verbose_feature_names_out=False)
    return made.set_output(transform="pandas")


def _encode_columns(columns: Columns) -> Any:
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
        parts.insert(0, (NUMBERS, SimpleImputer(strategy="median"), columns.numeric))
    return ColumnTransformer(parts, verbose_feature_names_out=False)


def unknown_categories(model: Any, X: Any) -> dict[str, list[Any]]:
    """Categories that a trained model, perhaps with steps before it, has not seen, by column."""
    steps = list(model) if isinstance(model, Pipeline) else [model]
    code = getattr(steps[-1], "columns_", None)
    found: dict[str, list[Any]] = {} if code is None else code.unknown(X)
    for name, part, columns in getattr(steps[0], "transformers_", []):
        if name.startswith(CATEGORY):
            known = set(part["encode"].categories_[0])
            new = sorted(set(X[columns[0]].fillna(MISSING)) - known)
            if new:
                found[columns[0]] = new
    return found
