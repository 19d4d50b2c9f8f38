"""scikit-learn transformers for flattened images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import isqrt, prod
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from pskem import checks
from pskem.preprocessing.geometry import block_means, measure_slant, straighten
from pskem.structures import FloatArray

__all__ = ["Deskew", "Downsample", "ImageNormalizer"]

#: Images processed at a time, so that their arrays stay in cache.
BATCH = 256
FLOATS = [np.float64, np.float32]
SCOPES = ("global", "pixel", "image")


class ImageTransformer(TransformerMixin, BaseEstimator, ABC):
    """Base of the transformers: check the images, and work on a batch at a time."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn what the transformation needs from images X (n_samples, n_pixels)."""
        self._learn(validate_data(self, X, dtype=FLOATS, order="C"))
        return self

    def transform(self, X: Any) -> FloatArray:
        """Transform images: (n_samples, n_pixels) -> (n_samples, n_pixels_out)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, order="C", reset=False)
        result = np.empty((len(X), self._transformed(X[:1]).shape[1]), dtype=X.dtype)
        for rows in gen_batches(len(X), BATCH):
            result[rows] = self._transformed(X[rows])
        return result

    @abstractmethod
    def _learn(self, X: FloatArray) -> None:
        """Check the parameters and set the fitted attributes."""

    @abstractmethod
    def _transformed(self, X: FloatArray) -> FloatArray:
        """A batch of images (n, n_pixels), flattened again."""


class Deskew(OneToOneFeatureMixin, ImageTransformer):
    """Deskew images: shear them upright and centre their mass.

    The slant is computed from the image's moments up to order two, as LeCun et al. (1998) did for
    MNIST. Pixels are interpolated bilinearly.

    Parameters
    ----------
    shape : tuple of int or None, default=None
        Shape of an image, (height, width) or (planes, height, width); planes move together. None
        assumes square images of one plane. One number may be -1 and is then inferred.

    Attributes
    ----------
    shape_ : tuple of int
        (planes, height, width).
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pskem.preprocessing import Deskew
    >>> X, _ = load_digits(return_X_y=True)
    >>> Deskew().fit_transform(X).shape
    (1797, 64)
    """

    def __init__(self, shape: tuple[int, ...] | None = None) -> None:
        self.shape = shape

    def _learn(self, X: FloatArray) -> None:
        self.shape_ = image_shape(self.shape, X.shape[1])

    def _transformed(self, X: FloatArray) -> FloatArray:
        images = X.reshape(-1, *self.shape_)
        return straighten(images, measure_slant(images.sum(axis=1))).reshape(len(X), -1)


class ImageNormalizer(OneToOneFeatureMixin, ImageTransformer):
    """Scale pixels to [0, 1], then subtract a mean and divide by a standard deviation.

    The paper does not say over which pixels; each setting is a possible reading.

    Parameters
    ----------
    scale : {"global", "image", None}, default="global"
        Which minimum and maximum become 0 and 1: those of all training images together, or those
        of each image. None does not scale.
    standardize : {"global", "pixel", "image", None}, default="global"
        Which mean and standard deviation are used: those of all training images together, of each
        pixel over the training images, or of each image. None does not standardise.

    Attributes
    ----------
    minimum_, maximum_ : float
        Of the training images.
    mean_, std_ : float, ndarray of shape (n_pixels,) or None
        Mean and standard deviation after scaling; None if `standardize` is ``"image"`` or None.
        `std_` is 1 for constant pixels.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pskem.preprocessing import ImageNormalizer
    >>> X, _ = load_digits(return_X_y=True)
    >>> bool(abs(ImageNormalizer().fit_transform(X).std() - 1.0) < 1e-9)
    True
    """

    def __init__(self, *, scale: str | None = "global", standardize: str | None = "global") -> None:
        self.scale = scale
        self.standardize = standardize

    def _learn(self, X: FloatArray) -> None:
        checks.check_choice("scale", self.scale, ["global", "image"], none=True)
        checks.check_choice("standardize", self.standardize, list(SCOPES), none=True)
        self.minimum_, self.maximum_ = float(X.min()), float(X.max())
        self.mean_ = self.std_ = None
        if self.standardize in ("global", "pixel"):
            self.mean_, self.std_ = self._moments(X)

    def _moments(self, X: FloatArray) -> tuple[Any, Any]:
        """Mean and standard deviation of scaled pixels, in two passes over batches."""
        axis = 0 if self.standardize == "pixel" else None
        count = len(X) if axis == 0 else X.size
        batches = list(gen_batches(len(X), BATCH))
        total = sum(self._scaled(X[rows]).sum(axis=axis, dtype=np.float64) for rows in batches)
        mean = total / count
        squares = sum(
            np.square(self._scaled(X[rows]) - mean, dtype=np.float64).sum(axis=axis)
            for rows in batches
        )
        std = _divisor(mean, np.sqrt(squares / count), X.dtype)
        return (mean, std) if axis == 0 else (float(mean), float(std))

    def _scaled(self, X: FloatArray) -> FloatArray:
        """A batch after the first step; always a new array."""
        if self.scale is None:
            return X.copy()
        low: Any = self.minimum_
        high: Any = self.maximum_
        if self.scale == "image":
            low, high = X.min(axis=1, keepdims=True), X.max(axis=1, keepdims=True)
        return (X - low) / np.where(high > low, high - low, 1.0).astype(X.dtype)

    def _transformed(self, X: FloatArray) -> FloatArray:
        part = self._scaled(X)
        mean, std = self.mean_, self.std_
        if self.standardize == "image":
            mean, std = part.mean(axis=1, keepdims=True), part.std(axis=1, keepdims=True)
            std = _divisor(mean, std, X.dtype)
        return part if mean is None else (part - mean) / std


class Downsample(ClassNamePrefixFeaturesOutMixin, ImageTransformer):
    """Downsample images: each new pixel is the mean of factor x factor old ones.

    Parameters
    ----------
    factor : int, default=2
        Divisor of the height and the width.
    shape : tuple of int or None, default=None
        Shape of an image, (height, width) or (planes, height, width). None assumes square images
        of one plane. One number may be -1 and is then inferred.

    Attributes
    ----------
    shape_ : tuple of int
        (planes, height, width) of the original images.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pskem.preprocessing import Downsample
    >>> X, _ = load_digits(return_X_y=True)
    >>> Downsample().fit_transform(X).shape
    (1797, 16)
    """

    def __init__(self, factor: int = 2, shape: tuple[int, ...] | None = None) -> None:
        self.factor = factor
        self.shape = shape

    def _learn(self, X: FloatArray) -> None:
        checks.check_integer("factor", self.factor, 1)
        shape = image_shape(self.shape, X.shape[1])
        if shape[1] % self.factor or shape[2] % self.factor:
            raise ValueError(
                f"factor={self.factor} does not divide the images' height and width,"
                f" {shape[1]} x {shape[2]}."
            )
        self.shape_ = shape

    @property
    def _n_features_out(self) -> int:
        return prod(self.shape_) // self.factor**2

    def _transformed(self, X: FloatArray) -> FloatArray:
        return block_means(X.reshape(-1, *self.shape_), self.factor).reshape(len(X), -1)


def _divisor(mean: Any, std: Any, dtype: Any) -> Any:
    """The standard deviation, or 1 where it is only rounding error."""
    return np.where(std > 10 * np.finfo(dtype).eps * np.abs(mean), std, 1.0)


def image_shape(shape: Any, n_pixels: int) -> tuple[int, int, int]:
    """(planes, height, width) from the parameter and the number of pixels."""
    if shape is None:
        side = isqrt(n_pixels)
        if side * side != n_pixels:
            raise ValueError(
                f"X has {n_pixels} features, which make no square image. Give shape=(height,"
                " width) or (planes, height, width)."
            )
        return 1, side, side
    sides = list(shape) if np.iterable(shape) and not isinstance(shape, str) else []
    whole = all(
        isinstance(side, Integral) and (int(side) >= 1 or int(side) == -1) for side in sides
    )
    if len(sides) not in (2, 3) or sides.count(-1) > 1 or not whole:
        raise ValueError(
            f"shape={shape!r} must be (height, width) or (planes, height, width), of which one may"
            " be -1."
        )
    known = prod(side for side in sides if side != -1)
    filled = [n_pixels // known if side == -1 else int(side) for side in sides]
    if prod(filled) != n_pixels:
        raise ValueError(f"shape={shape!r} does not make the {n_pixels} features of X.")
    planes, height, width = [1, *filled][-3:]
    return planes, height, width
