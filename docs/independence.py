"""Measure the dependence between blocks for each partition of the study "partitions".

python docs/independence.py      # writes docs/beyond/dependence.csv; needs the image sets

Each class is treated as a Gaussian with the covariance S of its samples. The dependence of its
blocks is (sum_r log det S_rr - log det S) / 2, in nats: the Kullback-Leibler divergence from the
product of the blocks to the joint density. The result is the mean over all samples.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem.datasets import load_cifar10, load_fashion_mnist, load_mnist
from pskem.preprocessing import IndependentComponents, paper_features
from pskem.study import included, parse_study
from pskem.tables import IMAGES
from pskem.training import deal_blocks, draw_seeds

LOADERS = {"mnist": load_mnist, "fashion-mnist": load_fashion_mnist, "cifar-10": load_cifar10}
PLACE = Path(__file__).parent / "beyond" / "dependence.csv"

Array = NDArray[np.floating[Any]]


def between_blocks(X: Array, y: NDArray[Any], blocks: list[NDArray[np.intp]]) -> float:
    """Mean dependence between blocks of columns of X within a class, in nats."""
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
    """The features of the study, and the classes."""
    images, y = LOADERS[data](return_X_y=True)
    encoder = paper_features(**{**IMAGES[data], "n_components": n_components})
    return encoder.fit_transform(images).astype(np.float32), y


def measure(data: str, n_features: int, settings: Mapping[str, Any]) -> float:
    """The dependence between the blocks of a partition of the training images."""
    X, y = features_of(data, n_features)
    partition = settings["partition"]
    if partition == "ica":
        X, partition = IndependentComponents(random_state=0).fit_transform(X, y), "dependence"
    labels = np.unique(y, return_inverse=True)[1]
    (seed,) = draw_seeds(0)
    return between_blocks(X, y, deal_blocks(X, labels, settings["n_blocks"], partition, seed))


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
