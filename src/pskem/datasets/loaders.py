"""Data sets as scikit-learn's Bunches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from pskem import checks
from pskem.datasets.catalogue import CATALOGUE, File
from pskem.datasets.folder import DatasetError, check_digest, fetch
from pskem.datasets.readers import (
    FormatError,
    LabelledRows,
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
#: How names of files with test images begin.
TEST_FILES = ("t10k", "test")
DIGITS = [str(digit) for digit in range(10)]
CLOTHES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker"]
CLOTHES += ["Bag", "Ankle boot"]
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
    (table,) = _read_all("rice", None, data_home, lambda path, _: read_labelled_arff(path))
    return _bunch("rice", table, return_X_y, as_frame)


def load_ionosphere(
    *, data_home: Any = None, return_X_y: bool = False, as_frame: bool = False
) -> Bunch | tuple[Any, Any]:
    """Load the radar returns of Sigillito et al. (1989): 351 pulses, 34 features, good or bad.

    The second feature is constant. The paper uses features 3 to 34, ``data[:, 2:]``. Parameters and
    result are as for :func:`load_rice`.
    """

    def read(path: Path, content: bytes) -> LabelledRows:
        return read_labelled_csv(path, 34, ["b", "g"])

    (table,) = _read_all("ionosphere", None, data_home, read)
    return _bunch("ionosphere", table, return_X_y, as_frame)


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
        The publisher's split, 60,000 training, then 10,000 test images; ``"all"`` is both.
    data_home, return_X_y, as_frame
        As for :func:`load_rice`.

    Returns
    -------
    data : Bunch
        With `data` (n, 784) and `images` (n, 28, 28), both uint8 and sharing memory, `target` (n,),
        `feature_names`, `target_names`, `frame`, `DESCR`.
    """
    return _load_idx("mnist", DIGITS, subset, data_home, return_X_y, as_frame)


def load_fashion_mnist(
    *,
    subset: str = "train",
    data_home: Any = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load Fashion-MNIST: 70,000 articles of clothing of 28 x 28 pixels.

    Parameters and result are as for :func:`load_mnist`.
    """
    return _load_idx("fashion-mnist", CLOTHES, subset, data_home, return_X_y, as_frame)


def load_cifar10(
    *,
    subset: str = "train",
    data_home: Any = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load CIFAR-10: 60,000 colour images of 32 x 32 pixels, 50,000 of them for training.

    Parameters and result are as for :func:`load_mnist`, but for `data` (n, 3072), the red, green
    and blue planes one after the other, and `images` (n, 32, 32, 3).
    """
    pixels, labels = zip(*_read_all("cifar-10", subset, data_home, read_cifar), strict=True)
    data = np.concatenate(pixels)
    images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    table = _pixels(data, np.concatenate(labels), THINGS)
    return _bunch("cifar-10", table, return_X_y, as_frame, images=images)


#: Loaders by the names of the catalogue.
LOADERS: dict[str, Callable[..., Any]] = {
    "rice": load_rice,
    "ionosphere": load_ionosphere,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar-10": load_cifar10,
}


def _read_all(
    name: str, subset: str | None, data_home: Any, read: Callable[[Path, bytes], Any]
) -> list[Any]:
    """Read the files of a subset; the error for a wrong file says what to do about it."""
    if subset is not None:
        checks.check_choice("subset", subset, SUBSETS)
    paths = fetch(name, data_home)
    try:
        return [
            _read(path, file, read)
            for path, file in zip(paths, CATALOGUE[name].files, strict=True)
            if subset in (None, "all") or (subset == "test") == path.name.startswith(TEST_FILES)
        ]
    except FormatError as error:
        raise DatasetError(
            f"{error} Remove the file and load again to download it anew, or replace it."
        ) from None


def _read(path: Path, file: File, read: Callable[[Path, bytes], Any]) -> Any:
    """Read one file; its checksum comes last, because a reader's error says more."""
    content = read_bytes(path)
    result = read(path, content)
    n = len(result[0] if isinstance(result, tuple) else result)
    if n != file.rows:
        raise FormatError(f"{path} holds {n:,} rows; there should be {file.rows:,}.")
    try:
        check_digest(content, file)
    except FormatError as error:
        raise FormatError(f"{path} is not the published file: {error}.") from None
    return result


def _load_idx(
    name: str, names: list[str], subset: str, data_home: Any, return_X_y: bool, as_frame: bool
) -> Any:
    # Images and labels stand in turn in the catalogue.
    parts = _read_all(name, subset, data_home, _read_idx_part)
    images = np.concatenate(parts[::2])
    table = _pixels(images.reshape(len(images), -1), np.concatenate(parts[1::2]), names)
    return _bunch(name, table, return_X_y, as_frame, images=images)


def _read_idx_part(path: Path, content: bytes) -> NDArray[np.uint8]:
    """Images (n, 28, 28), or labels (n,), of an MNIST-like data set."""
    images = "images" in path.name
    part = read_idx(path, content, 3 if images else 1)
    if images and part.shape[1:] != (28, 28):
        raise FormatError(f"{path} holds images of {part.shape[1:]}; there should be (28, 28).")
    if not images and part.max(initial=0) > 9:
        raise FormatError(f"{path} holds labels up to {part.max()}; there should be 0 to 9.")
    return part


def _pixels(data: NDArray[np.uint8], target: NDArray[np.uint8], names: list[str]) -> LabelledRows:
    features = [f"pixel{i}" for i in range(data.shape[1])]
    return LabelledRows(data, features, target.astype(np.intp), names)


def _bunch(name: str, table: LabelledRows, return_X_y: bool, as_frame: bool, **more: Any) -> Any:
    X, y, frame = _frame(table) if as_frame else (table.data, table.target, None)
    if return_X_y:
        return X, y
    about = CATALOGUE[name]
    origin = f"From {about.homepage} (licence: {about.licence}).\n\n{about.reference}.\n"
    return Bunch(
        data=X,
        target=y,
        frame=frame,
        feature_names=table.feature_names,
        target_names=np.array(table.target_names),
        DESCR=f"{about.title}\n\n{about.shape}.\n\n{origin}",
        **more,
    )


def _frame(table: LabelledRows) -> tuple[Any, Any, Any]:
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("as_frame=True needs pandas: pip install pandas.") from None
    frame = pd.DataFrame(table.data, columns=table.feature_names)
    y = pd.Series(table.target, name="target")
    return frame, y, frame.assign(target=y)
