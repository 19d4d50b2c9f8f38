"""From columns to features: what stands before the classifier in a pipeline."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from pskem.preprocessing import paper_features
from pskem.tables.columns import Columns

__all__ = ["IMAGES", "make_encoder"]

#: Rarer values of a category share one column.
MAX_CATEGORIES = 30
MISSING = "(missing)"

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
    steps = [("columns", _encode_columns(columns))]
    if pca is not None:
        from sklearn.decomposition import PCA

        steps.append(("pca", PCA(pca, svd_solver="full")))
    return Pipeline(steps)


def _encode_columns(columns: Columns) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = Pipeline([("fill", SimpleImputer(strategy="median")), ("scale", StandardScaler())])
    indicators = OneHotEncoder(
        # One indicator of each category follows from the others: kernels would have no variance.
        drop="first",
        handle_unknown="infrequent_if_exist",
        max_categories=MAX_CATEGORIES,
        sparse_output=False,
    )
    categories = Pipeline(
        [
            ("fill", SimpleImputer(strategy="constant", fill_value=MISSING)),
            ("encode", indicators),
            ("scale", StandardScaler()),
        ]
    )
    parts = [("numbers", numbers, columns.numeric), ("categories", categories, columns.categorical)]
    return ColumnTransformer([part for part in parts if part[2]], verbose_feature_names_out=False)
