"""Cut M features into R blocks."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pskem.blocks._dependence import group_by_dependence

__all__ = ["ARRANGEMENTS", "partition_features"]

ARRANGEMENTS = ("sequential", "interleaved", "random", "dependence")

#: Features per block that ``n_blocks="auto"`` does not exceed. With kernels that start in their
#: class, the larger blocks were the more accurate ones, but a pass costs O(m^2) per kernel and
#: sample.
AUTO_BLOCK_SIZE = 100


def partition_features(
    n_features: int,
    n_blocks: int | str = "auto",
    partition: str | Sequence[ArrayLike] = "sequential",
    random_state: np.random.Generator | int | None = None,
    feature_names: Sequence[str] | None = None,
    dependence: ArrayLike | None = None,
) -> list[NDArray[np.intp]]:
    """Index arrays of the blocks into which the features are cut.

    Parameters
    ----------
    n_features : int
        M, the number of features.
    n_blocks : int or "auto"
        R, the number of blocks; ``"auto"`` makes blocks of at most 100 features. With an explicit
        partition it must be ``"auto"`` or the number of blocks given.
    partition : {"sequential", "interleaved", "random", "dependence"} or sequence of index arrays
        How features are dealt out. ``"interleaved"`` gives [0, R, 2R, ...], [1, R+1, ...] and so
        on. ``"dependence"`` keeps features together that depend on each other, as `dependence`
        says. An explicit sequence holds one array of column indices (or of column names, where the
        data have them) per block; blocks must not overlap, and a feature that stands in none is
        not used by the model.
    random_state : Generator, int or None
        Source of randomness for ``"random"``.
    feature_names : sequence of str, optional
        Column names that an explicit partition may use.
    dependence : array-like of shape (n_features, n_features), optional
        How much each pair of features depends on each other, symmetric and not negative; needed
        for ``"dependence"``. :class:`SharedKernelClassifier` takes the mean mutual information
        within the classes, ``pskem.blocks.within_class_dependence(X, labels)``.

    Returns
    -------
    blocks : list of ndarray of int
        R arrays. Where they are made here, their sizes differ by at most one.

    Examples
    --------
    >>> [list(map(int, block)) for block in partition_features(7, 3, "interleaved")]
    [[0, 3, 6], [1, 4], [2, 5]]
    >>> related = [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    >>> blocks = partition_features(4, 2, "dependence", dependence=related)
    >>> [list(map(int, block)) for block in blocks]
    [[0, 2], [1, 3]]
    """
    if not isinstance(n_features, Integral) or isinstance(n_features, bool) or n_features < 1:
        raise ValueError(f"n_features={n_features!r} must be an integer of at least 1.")
    if not isinstance(partition, str):
        return _explicit(n_features, n_blocks, partition, feature_names)
    if partition not in ARRANGEMENTS:
        raise ValueError(
            f"partition={partition!r} is not known. Accepted: {', '.join(map(repr, ARRANGEMENTS))}"
            " or a list with one array of column indices per block. For independent components put"
            " pskem.preprocessing.IndependentComponents before the classifier."
        )
    R = _resolve_n_blocks(n_features, n_blocks)
    if partition == "dependence":
        return group_by_dependence(_check_dependence(n_features, dependence), R)
    if partition == "interleaved":
        return [np.arange(r, n_features, R) for r in range(R)]
    features = np.arange(n_features)
    if partition == "random":
        features = np.random.default_rng(random_state).permutation(n_features)
    # Sorting keeps a block's columns in the order of the data, whatever the permutation.
    return [np.sort(block) for block in np.array_split(features, R)]


def _resolve_n_blocks(n_features: int, n_blocks: Any) -> int:
    if isinstance(n_blocks, str) and n_blocks == "auto":
        return -(-n_features // AUTO_BLOCK_SIZE)
    if not isinstance(n_blocks, Integral) or isinstance(n_blocks, bool) or int(n_blocks) < 1:
        raise ValueError(f"n_blocks={n_blocks!r} must be 'auto' or an integer of at least 1.")
    if int(n_blocks) > n_features:
        raise ValueError(
            f"n_blocks={n_blocks} is more than the {n_features} feature(s) of X: every block needs"
            " at least one. Use fewer blocks or n_blocks='auto'."
        )
    return int(n_blocks)


def _check_dependence(n_features: int, dependence: ArrayLike | None) -> NDArray[np.float64]:
    wanted = f"an array of shape ({n_features}, {n_features}), one row and column per feature"
    if dependence is None:
        raise ValueError(
            "partition='dependence' follows from the data, but dependence is missing. Give"
            f" {wanted}, such as pskem.blocks.within_class_dependence(X, labels), or leave the"
            " partition to SharedKernelClassifier, whose fit computes it."
        )
    D = np.asarray(dependence, dtype=np.float64)
    if D.shape != (n_features, n_features):
        raise ValueError(f"dependence has shape {D.shape}; it must be {wanted}.")
    if not (np.isfinite(D).all() and (D >= 0.0).all() and np.allclose(D, D.T)):
        raise ValueError(
            "dependence must be symmetric and hold finite numbers of at least 0: larger ones for"
            " pairs of features that should stand in the same block."
        )
    return D


def _explicit(
    n_features: int,
    n_blocks: Any,
    partition: Sequence[ArrayLike],
    feature_names: Sequence[str] | None,
) -> list[NDArray[np.intp]]:
    try:
        given = list(partition)
    except TypeError:
        raise ValueError(
            f"partition={partition!r} must be one of {', '.join(map(repr, ARRANGEMENTS))} or a"
            " list with one array of column indices per block."
        ) from None
    blocks = [_indices(r, block, n_features, feature_names) for r, block in enumerate(given)]
    if not blocks:
        raise ValueError("partition is an empty list; it needs at least one block of features.")
    if not (isinstance(n_blocks, str) and n_blocks == "auto") and n_blocks != len(blocks):
        raise ValueError(
            f"n_blocks={n_blocks!r} does not match partition, which lists {len(blocks)} block(s)."
            " Leave n_blocks='auto' when the partition is explicit."
        )
    features, counts = np.unique(np.concatenate(blocks), return_counts=True)
    if (counts > 1).any():
        repeated = ", ".join(map(str, features[counts > 1][:10]))
        raise ValueError(
            f"partition uses feature(s) {repeated} more than once; blocks must not overlap."
        )
    return blocks


def _indices(
    r: int, block: ArrayLike, n_features: int, feature_names: Sequence[str] | None
) -> NDArray[np.intp]:
    array = np.asarray(block)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"partition[{r}]={block!r} must be a non-empty list of column indices or names: a"
            " partition is a list of such lists, one per block, like [[0, 1], [2]]."
        )
    if array.dtype.kind in "UO" and all(isinstance(name, str) for name in array):
        columns = {} if feature_names is None else {n: i for i, n in enumerate(feature_names)}
        unknown = [str(name) for name in array if name not in columns]
        if unknown:
            raise ValueError(
                f"partition[{r}] names column(s) {', '.join(unknown[:10])} that X does not have: "
                + (
                    "X has no column names."
                    if feature_names is None
                    else f"it has {', '.join(map(str, feature_names[:20]))}"
                    + (", ..." if len(feature_names) > 20 else ".")
                )
            )
        array = np.array([columns[name] for name in array])
    if array.dtype.kind not in "iu":
        raise ValueError(f"partition[{r}] must hold integer column indices, got {block!r}.")
    out = array[(array < 0) | (array >= n_features)]
    if out.size:
        raise ValueError(
            f"partition[{r}] holds {', '.join(map(str, out[:10]))}, but X has {n_features}"
            f" feature(s): column indices go from 0 to {n_features - 1}."
        )
    return array.astype(np.intp)
