"""Measure classifiers that learn from streams beside fits of all rows at once, for docs/data.md.

python -m docs.streaming                 # the image sets: what has no record yet
python -m docs.streaming FOLDER          # tables too, from FOLDER/NAME.csv.gz
python -m docs.data                      # write the page

Training rows come in an order that the seed decides. Images are the publishers' training and test
sets; of tables 30 % are test rows. The schedule was settled on 10,000 training images that were set
aside, and in view of such figures of these tables.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from docs.data import TAKEN
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from pskem import SharedKernelClassifier
from pskem.datasets import load_fashion_mnist, load_mnist
from pskem.preprocessing import paper_features
from pskem.tables import read_table

STREAMS = TAKEN / "streams.csv"
HEADER = ["data", "way", "seed", "accuracy", "log loss", "seconds"]
#: Loaders, settings of the features, and seeds.
IMAGES: dict[str, tuple[Callable[..., Any], dict[str, Any], int]] = {
    "mnist": (load_mnist, {"n_components": 40}, 3),
    "fashion-mnist": (load_fashion_mnist, {"n_components": 150, "deskew": False}, 1),
}
IMAGE_PARTS = (20_000, 5000, 1000, 500)
TABLES = ("banknote", "kr-vs-kp", "mushroom", "optdigits", "sick", "waveform5000")
TABLE_PARTS = (250, 50)
TABLE_SEEDS = 3


class Rows(NamedTuple):
    """Rows to train on, in the order in which they come, and rows to test on."""

    X: Any
    y: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]

    def part(self, low: int, size: int) -> tuple[Any, NDArray[Any]]:
        rows = slice(low, low + size)
        return (self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows]), self.y[rows]


class Way(NamedTuple):
    """What is compared: in parts of so many rows or, if that is None, all at once.

    by_class : whether rows come class by class
    """

    name: str
    size: int | None = None
    settings: Mapping[str, Any] = MappingProxyType({})
    by_class: bool = False

    def train(self, rows: Rows, seed: int) -> Any:
        model = SharedKernelClassifier(random_state=seed, **self.settings)
        if self.size is None:
            return model.fit(rows.X, rows.y)
        if self.by_class:
            order = np.argsort(rows.y, kind="stable")
            rows = rows._replace(X=rows.X[order], y=rows.y[order])
        classes = np.unique(rows.y)
        for low in range(0, len(rows.y), self.size):
            model.partial_fit(*rows.part(low, self.size), classes=classes)
        return model


FIT = Way("fit")
OF_IMAGES = (
    *(FIT, *(Way(f"parts of {n}", n) for n in IMAGE_PARTS)),
    Way("parts of 1000, class by class", 1000, by_class=True),
)
OF_TABLES = (
    *(FIT, Way("fit, one form", None, {"covariance_type": "full"})),
    *(Way(f"parts of {n}", n) for n in TABLE_PARTS),
)


def images(name: str) -> Iterator[tuple[int, Rows]]:
    load, steps, seeds = IMAGES[name]
    pixels, y = load(return_X_y=True)
    tests, y_test = load(subset="test", return_X_y=True)
    encoder = paper_features(**steps).fit(pixels)
    X, X_test = encoder.transform(pixels), encoder.transform(tests)
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        yield seed, Rows(X[order], y[order], X_test, y_test)


def table(folder: Path, name: str) -> Iterator[tuple[int, Rows]]:
    frame = read_table(str(folder / f"{name}.csv.gz"), verbatim=["class"])
    y = frame.pop("class").to_numpy(dtype=str)
    for seed in range(TABLE_SEEDS):
        X, X_test, own, y_test = train_test_split(
            frame, y, test_size=0.3, stratify=y, random_state=seed
        )
        yield seed, Rows(X, own, X_test, y_test)


def measure(folder: Path | None) -> None:
    found: dict[tuple[str, ...], list[str]] = {}
    if STREAMS.exists():
        with STREAMS.open(newline="", encoding="utf-8") as lines:
            found = {tuple(row[:3]): row for row in list(csv.reader(lines))[1:]}
    tasks = [(name, OF_IMAGES, images(name)) for name in IMAGES]
    if folder is not None:
        tasks += [(name, OF_TABLES, table(folder, name)) for name in TABLES]
    for name, ways, draws in tasks:
        for seed, rows in draws:
            for way in ways:
                if (name, way.name, str(seed)) in found:
                    continue
                start = time.perf_counter()
                model = way.train(rows, seed)
                seconds = time.perf_counter() - start
                p = model.predict_proba(rows.X_test)
                right = np.mean(model.classes_[p.argmax(axis=1)] == rows.y_test)
                loss = log_loss(rows.y_test, p, labels=model.classes_)
                row = [name, way.name, str(seed), f"{right:.6f}", f"{loss:.6f}", f"{seconds:.1f}"]
                found[name, way.name, str(seed)] = row
                print(*row, flush=True)
                with STREAMS.open("w", newline="", encoding="utf-8") as lines:
                    writer = csv.writer(lines, lineterminator="\n")
                    writer.writerow(HEADER)
                    writer.writerows(found[key] for key in sorted(found))


if __name__ == "__main__":
    measure(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
