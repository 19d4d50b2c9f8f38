"""Measure what dependence the partitions of the study "partitions" leave between blocks.

python docs/independence.py      # writes docs/beyond/dependence.csv; needs the image sets

The dependence between blocks within a class is taken as that of Gaussians with the covariance S of
the class's samples, (sum_r log det S_rr - log det S) / 2, the mean over the samples: the
Kullback-Leibler divergence, in nats, from the product of the blocks to the whole.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem import SharedKernelClassifier
from pskem.datasets import load_cifar10, load_fashion_mnist, load_mnist
from pskem.preprocessing import paper_features
from pskem.study import included, parse_study
from pskem.tables import IMAGES

LOADERS = {"mnist": load_mnist, "fashion-mnist": load_fashion_mnist, "cifar-10": load_cifar10}
PLACE = Path(__file__).parent / "beyond" / "dependence.csv"

Array = NDArray[np.floating[Any]]


def between_blocks(X: Array, y: NDArray[Any], blocks: list[NDArray[np.intp]]) -> float:
    """Nats that the blocks of the columns of X have in common within a class, on average."""
    total = 0.0
    for label in np.unique(y):
        own = X[y == label].astype(np.float64)
        covariance = np.cov(own, rowvar=False)
        parts = sum(log_det(covariance[np.ix_(features, features)]) for features in blocks)
        total += len(own) * (parts - log_det(covariance)) / 2.0
    return total / len(X)


def log_det(covariance: Array) -> float:
    return 2.0 * float(np.log(np.diag(np.linalg.cholesky(covariance))).sum())


@cache
def features_of(data: str, n_components: int) -> tuple[Array, NDArray[Any]]:
    """Features as in the study, and classes."""
    images, y = LOADERS[data](return_X_y=True)
    encoder = paper_features(**{**IMAGES[data], "n_components": n_components})
    return encoder.fit_transform(images).astype(np.float32), y


def measure(data: str, n_features: int, settings: Mapping[str, Any]) -> float:
    """The dependence that a partition of the training images leaves."""
    X, y = features_of(data, n_features)
    wanted = {name: settings[name] for name in ("n_blocks", "partition")}
    # The blocks do not depend on how long is trained.
    short = {"max_iter": 1, "tol": 0.0, "discriminative_iter": 0, "random_state": 0}
    model = SharedKernelClassifier(**wanted, **short).fit(X, y)
    Z = X if model.unmixing_ is None else model.unmixing_.components(X)
    return between_blocks(Z, y, [block.features for block in model.blocks_])


def main() -> None:
    study = parse_study("partitions", included()["partitions"])
    rows: dict[tuple[str, str], float] = {}
    for entry in study.entries:
        point = entry.point
        key = (point.data["source"], point.settings["partition"])
        if key not in rows:
            rows[key] = measure(key[0], point.features["n_components"], point.settings)
            print(*key, f"{rows[key]:.2f}", flush=True)
    with PLACE.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["data", "partition", "nats"])
        writer.writerows([*key, f"{nats:.4f}"] for key, nats in rows.items())


if __name__ == "__main__":
    main()
