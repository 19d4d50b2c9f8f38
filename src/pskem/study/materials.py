"""Load the data of a run, with features that are computed once if runs can share them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.datasets import CATALOGUE, LOADERS, fetch
from pskem.preprocessing import paper_features
from pskem.study.configuration import Point, StudyError, digest
from pskem.tables import EMBEDDED, IMAGES, TARGET, keeps_columns, labels_of, read_table
from pskem.version import __version__
from pskem.workflow import Task

__all__ = [
    "SCALES",
    "Material",
    "Place",
    "file_digest",
    "has_test_set",
    "is_known",
    "is_ready",
    "load",
    "prepare",
]

ARRAYS = ("X", "y", "n_train")
#: Scalers of a table's features, by name.
SCALES: dict[str, Callable[[], Any]] = {
    "standard": lambda: _preprocessing().StandardScaler(),
    "range": lambda: _preprocessing().MinMaxScaler((-1.0, 1.0)),
    "none": lambda: "passthrough",
}


class Material(NamedTuple):
    """Rows for training and testing.

    X : (N, M) features, or a data frame for the task's encoder
    y : (N,)
    n_train : the publisher's training rows are the first ``n_train``; None without such a split
    task : the table, with an encoder to fit to each training part; None if X holds features
    """

    X: Any
    y: NDArray[Any]
    n_train: int | None
    task: Task | None


class Place(NamedTuple):
    """Folders of the prepared features and of the data sets."""

    prepared: Path
    data_home: str | None = None


def has_test_set(source: str) -> bool:
    """Whether a source is an image set with a publisher's test set."""
    return source in IMAGES and source in CATALOGUE


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load(point: Point, path: str | None, place: Place) -> Material:
    """Load the material of a point; image sets with a test set must be prepared first."""
    if has_test_set(point.data["source"]):
        return _open(str(_folder(point, place)))
    if point.features.get("frame", False):
        return _frame(_frozen(point.data), path, place.data_home)
    return _table(_frozen(point.data), _frozen(point.features), path, place.data_home)


def is_ready(point: Point, path: str | None, place: Place) -> bool:
    """Whether the runs of a point can begin; missing data are fetched if possible."""
    if has_test_set(point.data["source"]):
        return _folder(point, place).is_dir()
    load(point, path, place)
    return True


def prepare(point: Point, place: Place) -> None:
    """Compute the features of an image set and save them as arrays that runs can map."""
    folder = _folder(point, place)
    if folder.is_dir():
        return
    source = point.data["source"]
    features = dict(point.features)
    dtype = np.dtype(features.pop("dtype", "float64"))
    images, y = LOADERS[source](data_home=place.data_home, return_X_y=True)
    images_test, y_test = LOADERS[source](subset="test", data_home=place.data_home, return_X_y=True)
    pipeline = paper_features(**features)
    # Sums over all pixels are taken in double precision whatever the type.
    train = pipeline.fit_transform(images.astype(np.float32))
    test = pipeline.transform(images_test.astype(np.float32))
    X = np.ascontiguousarray(np.concatenate([train, test]), dtype=dtype)
    values = (X, np.concatenate([y, y_test]), np.array(len(y)))
    place.prepared.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=place.prepared))
    try:
        for name, value in zip(ARRAYS, values, strict=True):
            np.save(temporary / f"{name}.npy", value)
        temporary.rename(folder)
    except OSError:
        if not folder.is_dir():  # somebody else was faster
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _folder(point: Point, place: Place) -> Path:
    """Folder of the features of a point, named by a hash of all they depend on."""
    source = point.data["source"]
    files = [
        [str(file), os.stat(file).st_size, os.stat(file).st_mtime_ns]
        for file in fetch(source, place.data_home)
    ]
    return place.prepared / f"{source}-{digest([dict(point.features), files, __version__])}"


@lru_cache(maxsize=8)
def _open(folder: str) -> Material:
    X, y, n_train = (
        np.load(Path(folder) / f"{name}.npy", mmap_mode="r" if name == "X" else None)
        for name in ARRAYS
    )
    return Material(X, y, int(n_train), None)


def _frozen(table: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in table.items())


@lru_cache(maxsize=8)
def _table(
    data: tuple[tuple[str, Any], ...],
    features: tuple[tuple[str, Any], ...],
    path: str | None,
    data_home: str | None,
) -> Material:
    """A table, or a small image set: its features are fitted to each training part."""
    settings, wanted = dict(data), dict(features)
    source = str(path or settings["source"])
    _check_unchanged(path, settings)
    task = Task.read(
        source,
        settings.get("target", TARGET),
        drop=settings.get("drop", ()),
        categorical=settings.get("categorical", ()),
        pca=wanted.get("pca"),
        data_home=data_home,
    )
    if settings["source"] in IMAGES:
        task = task._replace(encoder=paper_features(**wanted))
    elif "scale" in wanted:
        scale = "columns__numbers" if keeps_columns(task.encoder) else "scale"
        task.encoder.set_params(**{scale: SCALES[wanted["scale"]]()})
    return Material(task.X, task.y, None, task)


@lru_cache(maxsize=8)
def _frame(data: tuple[tuple[str, Any], ...], path: str | None, data_home: str | None) -> Material:
    """A table as a data frame, with the columns as they are."""
    settings = dict(data)
    _check_unchanged(path, settings)
    target, categorical = settings.get("target", TARGET), settings.get("categorical", ())
    source = str(path or settings["source"])
    frame = read_table(source, None, data_home, text=categorical, verbatim=[target])
    y, present = labels_of(frame, target)
    X = frame[present].drop(columns=[target, *settings.get("drop", ())])
    return Material(X, y, None, None)


def _check_unchanged(path: str | None, settings: Mapping[str, Any]) -> None:
    if path is not None and file_digest(Path(path)) != settings["digest"]:
        raise StudyError(f"{path} has changed since the study began. Start the command again.")


def _preprocessing() -> Any:
    import sklearn.preprocessing

    return sklearn.preprocessing


def is_known(source: str) -> bool:
    """Whether a source is the name of a data set."""
    return source in EMBEDDED or source in CATALOGUE
