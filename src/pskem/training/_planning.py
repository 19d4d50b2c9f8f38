"""The plan of a classifier's fit: components, blocks, starts, and which samples validate."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem import checks
from pskem.blocks._dependence import within_class_dependence
from pskem.blocks._partition import partition_features
from pskem.engine._parallel import workers
from pskem.engine._sources import canonical_order
from pskem.model import Block
from pskem.structures import STRUCTURES, FloatArray
from pskem.training._defaults import make_wishes, suggest_n_components
from pskem.training._explicit import check_starts
from pskem.training._fitting import check_unchanged, make_plan, starts_from
from pskem.training._holdout import Holdout
from pskem.training._loop import Data, Plan, make_data, make_holdout, split
from pskem.training._refining import Wishes
from pskem.training._weighting import Weighting, equal_weighting
from pskem.unmixing import Unmixing, fit_unmixing, representative

__all__ = ["divide", "find_unmixing", "plan_fit"]

#: Partitions that within-class dependence decides.
BY_DEPENDENCE = ("dependence", "ica")


def find_unmixing(
    estimator: Any,
    X: FloatArray,
    labels: NDArray[np.intp],
    before: list[Block] | None,
    seed: int,
) -> Unmixing | None:
    """What turns X into what the blocks take; None if they take X itself."""
    wanted = isinstance(estimator.partition, str) and estimator.partition == "ica"
    if before is not None:
        known: Unmixing | None = getattr(estimator, "unmixing_", None)
        if wanted != (known is not None):
            was = "was not 'ica'" if wanted else "was 'ica'"
            raise ValueError(
                f"warm_start=True needs the partition of the last fit, which {was}, but"
                f" partition={estimator.partition!r}. Set warm_start=False to start afresh."
            )
        return known
    if not wanted:
        return None
    rows = canonical_order(X, labels)[representative(len(X))]
    with workers(1):  # BLAS rounds by the number of its threads
        unmixing = fit_unmixing(X[rows], seed)
    wanted_blocks = estimator.n_blocks
    if isinstance(wanted_blocks, Integral) and int(wanted_blocks) > unmixing.n_components:
        raise ValueError(
            f"n_blocks={estimator.n_blocks} is more than the {unmixing.n_components} component(s)"
            f" that partition='ica' finds in the {X.shape[1]} feature(s) of X, which is the"
            " rank of X. Use fewer blocks or n_blocks='auto'."
        )
    return unmixing


def _deal_blocks(
    estimator: Any,
    X: FloatArray,
    labels: NDArray[np.intp],
    before: list[Block] | None,
    seed: int,
) -> list[NDArray[np.intp]]:
    """The blocks of the columns of X, which are features or components."""
    M, R = X.shape[1], estimator.n_blocks
    arrangement = estimator.partition if isinstance(estimator.partition, str) else None
    if before is not None and arrangement in ("random", *BY_DEPENDENCE):
        # What chance or other data decided stays as it was, if as many blocks are wanted.
        blocks = partition_features(M, R)
        return [block.features for block in before] if len(before) == len(blocks) else blocks
    if arrangement in BY_DEPENDENCE:
        rows = canonical_order(X, labels)[representative(len(X))]
        with workers(1):  # BLAS rounds by the number of its threads
            dependence = within_class_dependence(X[rows], labels[rows])
        return partition_features(M, R, "dependence", dependence=dependence)
    names = getattr(estimator, "feature_names_in_", None)
    rng = np.random.default_rng([seed, 0])
    return partition_features(M, R, estimator.partition, rng, names)


def plan_fit(
    estimator: Any,
    X: FloatArray,
    labels: NDArray[np.intp],
    classes: NDArray[Any],
    before: list[Block] | None,
    seed: int,
) -> Plan:
    """The plan of a fit to X, features or components; ``before`` is where it goes on from."""
    blocks = _deal_blocks(estimator, X, labels, before, seed)
    counts = np.bincount(labels)
    suggested = (
        [suggest_n_components(counts, len(features)) for features in blocks]
        if before is None
        else [len(block.means) for block in before]
    )
    n_components = checks.check_n_components(estimator.n_components, suggested)
    if before is None:
        structure = STRUCTURES[estimator.covariance_type]
        explicit = (estimator.weights_init, estimator.means_init, estimator.covariances_init)
        starts = check_starts(*explicit, blocks, n_components, len(classes), structure)
    else:
        check_unchanged(before, estimator.covariance_type, blocks, n_components)
        if not np.array_equal(classes, estimator.classes_):
            raise ValueError(
                "warm_start=True needs the classes of the last fit,"
                f" {estimator.classes_.tolist()}, but y has {classes.tolist()}. Set"
                " warm_start=False to start afresh."
            )
        starts = starts_from(before)
    weights = checks.check_block_weights(estimator.block_weights, len(blocks))
    return make_plan(
        estimator,
        blocks,
        n_components,
        starts,
        seed,
        checks.check_boolean("early_stopping", estimator.early_stopping, auto=True) is True,
        estimator.n_iter_no_change,
        Weighting(weights, 1.0)
        if isinstance(weights, np.ndarray)
        else equal_weighting(len(blocks)),
    )


def divide(
    estimator: Any,
    X: FloatArray,
    labels: NDArray[np.intp],
    prior: FloatArray,
    plan: Plan,
    validation: tuple[FloatArray, NDArray[np.intp]] | None,
) -> tuple[Data, Holdout | None, Wishes]:
    """Samples to train on, samples to validate on, and what to do after EM."""
    weights = estimator.block_weights if isinstance(estimator.block_weights, str) else None
    wishes = make_wishes(
        weights,
        estimator.discriminative_iter,
        float(estimator.discriminative_smoothing),
        checks.check_boolean("early_stopping", estimator.early_stopping, auto=True),
        len(labels),
        validation is not None,
    )
    rows = None
    if validation is None and (plan.early_stopping or wishes.choose or wishes.fit_weights):
        fraction = estimator.validation_fraction
        rows, held_out = split(X, labels, fraction, len(prior), plan.seed)
        if len(held_out):
            validation = X[held_out], labels[held_out]
        elif plan.early_stopping or weights == "fit":
            raise ValueError(
                f"validation_fraction={fraction} of {len(labels)} samples leaves none to validate"
                " on (every class keeps one to train on). Use a larger fraction or more samples,"
                " give X_val and y_val, or set early_stopping=False and block_weights=None."
            )
        else:
            wishes = wishes.without_validation()
    data = make_data(X, labels, rows, len(prior), plan)
    if validation is None:
        return data, None, wishes
    return data, make_holdout(*validation, prior, data, plan), wishes
