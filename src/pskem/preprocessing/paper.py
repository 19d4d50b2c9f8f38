"""The paper's image features, as one pipeline."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from pskem.preprocessing.images import Deskew, Downsample, ImageNormalizer

__all__ = ["paper_features"]


def paper_features(
    n_components: int = 39,
    *,
    deskew: bool = True,
    half_size: bool = False,
    scale: str | None = "global",
    standardize: str | None = "global",
    shape: tuple[int, ...] | None = None,
) -> Pipeline:
    """Make the pipeline of section 3.1 of the paper: deskewing, scaling, standardising, PCA.

    Parameters
    ----------
    n_components : int, default=39
        Number of principal components; the paper's best MNIST model has 39.
    deskew : bool, default=True
        Whether to deskew the images first. The paper does so for MNIST only.
    half_size : bool, default=False
        Whether to halve the images, as in the paper's trade-off studies.
    scale, standardize : str or None, default="global"
        As in :class:`ImageNormalizer`.
    shape : tuple of int or None, default=None
        Shape of an image. None assumes square images of one plane.

    Returns
    -------
    pipeline : Pipeline
        With the steps ``deskew`` and ``downsample``, if asked for, ``normalize`` and ``pca``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pskem.preprocessing import paper_features
    >>> X, _ = load_digits(return_X_y=True)
    >>> paper_features(20).fit_transform(X).shape
    (1797, 20)
    """
    # scikit-learn's decompositions take long to import, which importing this package should not.
    from sklearn.decomposition import PCA

    steps: list[tuple[str, Any]] = []
    if deskew:
        steps.append(("deskew", Deskew(shape)))
    if half_size:
        steps.append(("downsample", Downsample(2, shape)))
    steps.append(("normalize", ImageNormalizer(scale=scale, standardize=standardize)))
    # The paper takes the eigenvectors of the sample covariance; so does this solver.
    steps.append(("pca", PCA(n_components, svd_solver="covariance_eigh")))
    return Pipeline(steps)
