"""Data sets as scikit-learn's Bunches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from pskem import checks
from pskem.datasets.catalogue import CATALOGUE, File
from pskem.datasets.folder import DatasetError, check_digest, fetch
from pskem.datasets.readers import (
    FormatError,
    Table,
    read_bytes,
    read_cifar,
    read_idx,
    read_labelled_arff,
    read_labelled_csv,
)

__all__ = [
    "LOADERS",
    "load_cifar10",
    "load_fashion_mnist",
    "load_ionosphere",
    "load_mnist",
    "load_rice",
]

SUBSETS = ("train", "test", "all")
DIGITS = [str(digit) for digit in range(10)]
CLOTHES = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]
THINGS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def load_rice(
    *, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False
) -> Bunch | tuple[Any, Any]:
    """Load the two rice varieties of Cinar and Koklu (2019): 3,810 grains, 7 shape features.

    The rows are in the publisher's order, sorted by class.

    Parameters
    ----------
    data_home : path-like or None, default=None
        Data folder. None uses ``$PSKEM_DATA``, or else the user's cache.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` only.
    as_frame : bool, default=False
        Whether `data` is a pandas DataFrame and `target` a Series.

    Returns
    -------
    data : Bunch
        With `data` (3810, 7), `target` (3810,), `feature_names`, `target_names`, `frame`, `DESCR`.
    """
    (table,) = _read_all("rice", slice(None), data_home, lambda f: read_labelled_arff(f.path))
    return _table("rice", table, return_X_y, as_frame)


def load_ionosphere(
    *, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False
) -> Bunch | tuple[Any, Any]:
    """Load the radar returns of Sigillito et al. (1989): 351 pulses, 34 features, good or bad.

    The second feature is constant. The paper uses features 3 to 34, ``data[:, 2:]``.

    Parameters
    ----------
    data_home : path-like or None, default=None
        Data folder. None uses ``$PSKEM_DATA``, or else the user's cache.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` only.
    as_frame : bool, default=False
        Whether `data` is a pandas DataFrame and `target` a Series.

    Returns
    -------
    data : Bunch
        With `data` (351, 34), `target` (351,), `feature_names`, `target_names`, `frame`, `DESCR`.
    """
    (table,) = _read_all(
        "ionosphere",
        slice(None),
        data_home,
        lambda f: read_labelled_csv(f.path, 34, ["b", "g"]),
    )
    return _table("ionosphere", table, return_X_y, as_frame)


def load_mnist(
    *,
    subset: str = "train",
    data_home: Any = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load MNIST: 70,000 handwritten digits of 28 x 28 pixels.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The publisher's split: 60,000 training and 10,000 test images. ``"all"`` is both, in this
        order.
    data_home : path-like or None, default=None
        Data folder. None uses ``$PSKEM_DATA``, or else the user's cache.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` only.
    as_frame : bool, default=False
        Whether `data` is a pandas DataFrame and `target` a Series.

    Returns
    -------
    data : Bunch
        With `data` (n, 784) and `images` (n, 28, 28), both uint8 and sharing memory, `target` (n,),
        `feature_names`, `target_names`, `frame`, `DESCR`.
    """
    images, target = _idx("mnist", subset, data_home)
    return _images(
        "mnist", images.reshape(len(images), -1), images, target, DIGITS, return_X_y, as_frame
    )


def load_fashion_mnist(
    *,
    subset: str = "train",
    data_home: Any = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load Fashion-MNIST: 70,000 articles of clothing of 28 x 28 pixels.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The publisher's split: 60,000 training and 10,000 test images. ``"all"`` is both, in this
        order.
    data_home : path-like or None, default=None
        Data folder. None uses ``$PSKEM_DATA``, or else the user's cache.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` only.
    as_frame : bool, default=False
        Whether `data` is a pandas DataFrame and `target` a Series.

    Returns
    -------
    data : Bunch
        With `data` (n, 784) and `images` (n, 28, 28), both uint8 and sharing memory, `target` (n,),
        `feature_names`, `target_names`, `frame`, `DESCR`.
    """
    images, target = _idx("fashion-mnist", subset, data_home)
    data = images.reshape(len(images), -1)
    return _images("fashion-mnist", data, images, target, CLOTHES, return_X_y, as_frame)


def load_cifar10(
    *,
    subset: str = "train",
    data_home: Any = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load CIFAR-10: 60,000 colour images of 32 x 32 pixels.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The publisher's split: 50,000 training and 10,000 test images. ``"all"`` is both, in this
        order.
    data_home : path-like or None, default=None
        Data folder. None uses ``$PSKEM_DATA``, or else the user's cache.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` only.
    as_frame : bool, default=False
        Whether `data` is a pandas DataFrame and `target` a Series.

    Returns
    -------
    data : Bunch
        With `data` (n, 3072), the red, green and blue planes one after the other, and `images`
        (n, 32, 32, 3), both uint8 and sharing memory, `target` (n,), `feature_names`,
        `target_names`, `frame`, `DESCR`.
    """
    batches = {"train": slice(5), "test": slice(5, 6), "all": slice(6)}[_subset(subset)]
    parts = _read_all("cifar-10", batches, data_home, lambda f: read_cifar(f.path, f.content))
    data = np.concatenate([pixels for pixels, _ in parts])
    target = np.concatenate([labels for _, labels in parts]).astype(np.intp)
    images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return _images("cifar-10", data, images, target, THINGS, return_X_y, as_frame)


#: Loaders by the names of the catalogue.
LOADERS: dict[str, Callable[..., Any]] = {
    "rice": load_rice,
    "ionosphere": load_ionosphere,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar-10": load_cifar10,
}


def _subset(subset: Any) -> str:
    checks.check_choice("subset", subset, SUBSETS)
    return str(subset)


class _Found(NamedTuple):
    """A file of a data set: path, content and position in the catalogue."""

    path: Path
    content: bytes
    position: int


def _read_all(name: str, which: slice, data_home: Any, read: Callable[[_Found], Any]) -> list[Any]:
    """Read files of a data set.

    The error for a wrong file says what to do about it.
    """
    paths = fetch(name, data_home)
    files = list(enumerate(zip(paths, CATALOGUE[name].files, strict=True)))[which]
    try:
        return [_read(_Found(path, read_bytes(path), i), file, read) for i, (path, file) in files]
    except FormatError as error:
        raise DatasetError(
            f"{error} Remove the file and load again to download it anew, or replace it."
        ) from None


def _read(found: _Found, file: File, read: Callable[[_Found], Any]) -> Any:
    """Read one file; its checksum comes last, because a reader's error says more."""
    result = read(found)
    n = len(result[0] if isinstance(result, tuple) else result)
    if n != file.rows:
        raise FormatError(f"{found.path} holds {n:,} rows; there should be {file.rows:,}.")
    try:
        check_digest(found.content, file)
    except FormatError as error:
        raise FormatError(f"{found.path} is not the published file: {error}.") from None
    return result


def _idx(name: str, subset: str, data_home: Any) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Images (n, 28, 28) and labels (n,) of an MNIST-like data set."""
    which = {"train": slice(2), "test": slice(2, 4), "all": slice(4)}[_subset(subset)]
    # Images and labels stand in turn in the catalogue.
    parts = _read_all(name, which, data_home, lambda f: _idx_part(f, images=f.position % 2 == 0))
    images, labels = np.concatenate(parts[::2]), np.concatenate(parts[1::2])
    return images, labels.astype(np.intp)


def _idx_part(found: _Found, images: bool) -> NDArray[np.uint8]:
    path = found.path
    part = read_idx(path, found.content, 3 if images else 1)
    if images and part.shape[1:] != (28, 28):
        raise FormatError(f"{path} holds images of {part.shape[1:]}; there should be (28, 28).")
    if not images and part.max(initial=0) > 9:
        raise FormatError(f"{path} holds labels up to {part.max()}; there should be 0 to 9.")
    return part


def _description(name: str) -> str:
    dataset = CATALOGUE[name]
    return (
        f"{dataset.title}\n\n{dataset.shape}.\n\nFrom {dataset.homepage} (licence:"
        f" {dataset.licence}).\n\n{dataset.reference}.\n"
    )


def _table(name: str, table: Table, return_X_y: bool, as_frame: bool) -> Any:
    names = np.array(table.target_names)
    return _bunch(name, table.data, table.target, table.feature_names, names, return_X_y, as_frame)


def _images(
    name: str,
    data: NDArray[np.uint8],
    images: NDArray[np.uint8],
    target: NDArray[np.intp],
    target_names: list[str],
    return_X_y: bool,
    as_frame: bool,
) -> Any:
    features = [f"pixel{i}" for i in range(data.shape[1])]
    names = np.array(target_names)
    return _bunch(name, data, target, features, names, return_X_y, as_frame, images=images)


def _bunch(
    name: str,
    data: NDArray[Any],
    target: NDArray[np.intp],
    feature_names: list[str],
    target_names: NDArray[np.str_],
    return_X_y: bool,
    as_frame: bool,
    **more: Any,
) -> Any:
    X, y, frame = data, target, None
    if as_frame:
        X, y, frame = _frame(data, target, feature_names)
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        frame=frame,
        feature_names=feature_names,
        target_names=target_names,
        DESCR=_description(name),
        **more,
    )


def _frame(data: NDArray[Any], target: NDArray[np.intp], names: list[str]) -> tuple[Any, Any, Any]:
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("as_frame=True needs pandas: pip install pandas.") from None
    frame = pd.DataFrame(data, columns=names)
    y = pd.Series(target, name="target")
    return frame, y, frame.assign(target=y)
