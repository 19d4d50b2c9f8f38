"""What makes the members of an ensemble differ: the rows and the columns that each is given."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem import checks
from pskem.engine import Mapper
from pskem.estimators._columns import ColumnCode
from pskem.estimators._input import accept_labelled, checked_weights
from pskem.model import Model, multiply
from pskem.structures import FloatArray
from pskem.training import Lots, draw_lots, fit_left_out, make_lots

__all__ = [
    "Given",
    "Resampled",
    "alternatives",
    "categories_among",
    "check_blocks",
    "count_columns",
    "draw_columns",
    "fit_product",
]

#: Streams of a member's seed that decide about its columns and rows.
COLUMNS, ROWS = 5, 6


class Given(NamedTuple):
    """Samples as an ensemble sees them: X (N, M) as features, labels (N,), weights (N,) or None.

    labels : -1 where nobody knows the class, or the sample does not count
    """

    X: FloatArray
    labels: NDArray[np.intp]
    weights: FloatArray | None

    @classmethod
    def accept(cls, estimator: Any, X: Any, y: Any, sample_weight: Any, marker: Any) -> Given:
        """Validated samples; the estimator learns of its features."""
        X, y, known = accept_labelled(estimator, X, y, marker, True)
        known = np.ones(len(X), dtype=bool) if known is None else known
        weights = None if sample_weight is None else checked_weights(sample_weight, len(X))
        counted = known if weights is None else known & (weights > 0.0)
        labels = np.full(len(X), -1, dtype=np.intp)
        labels[counted] = np.unique(y[counted[known]], return_inverse=True)[1]
        return cls(X, labels, weights)


class Resampled(NamedTuple):
    """What members are trained on: lots, and how often each is drawn for each member, (V, C)."""

    lots: Lots
    drawn: NDArray[np.intp]
    n_samples: int

    @classmethod
    def draw(cls, given: Given, seeds: list[int]) -> Resampled:
        if not (given.labels >= 0).any():
            raise ValueError("sample_weight is zero for all samples whose class is known.")
        lots = make_lots(*given)
        drawn = [draw_lots(lots, np.random.default_rng([seed, ROWS])) for seed in seeds]
        return cls(lots, np.array(drawn), len(given.X))

    def sample_weight(self, member: int) -> FloatArray:
        """Weights of the samples for a member, (N,)."""
        return self.lots.sample_weight(self.drawn[member], self.n_samples)


def alternatives(n_components: Any) -> list[Any]:
    """Numbers of kernels that members are given in turn; one value is the same for all."""
    found = [n_components]
    if np.iterable(n_components) and not isinstance(n_components, str):
        found = list(n_components)
    if not found:
        raise ValueError(
            f"n_components={n_components!r} holds nothing. Give a sequence of alternatives, such as"
            " [3, 6, 'auto'], which members are given in turn, or None for the estimator's own."
        )
    return found


def count_columns(max_features: Any, n_columns: int) -> int:
    """How many of the columns each member is given."""
    share = isinstance(max_features, Real) and not isinstance(max_features, Integral | bool)
    number = isinstance(max_features, Integral) and not isinstance(max_features, bool)
    if share and 0.0 < float(max_features) <= 1.0:
        return max(1, int(float(max_features) * n_columns))
    if number and 1 <= int(max_features) <= n_columns:
        return int(max_features)
    raise ValueError(
        f"max_features={max_features!r} must be a share above 0.0 and at most 1.0, or an integer"
        f" from 1 to the {n_columns} column(s) of X."
    )


def draw_columns(number: int, n_columns: int, seed: int) -> NDArray[np.intp]:
    """Places of the columns of a member, (number,), sorted."""
    rng = np.random.default_rng([seed, COLUMNS])
    return np.sort(rng.choice(n_columns, size=number, replace=False)).astype(np.intp)


def check_blocks(partition: Any, n_blocks: Any, numbers: Sequence[int], max_features: Any) -> None:
    """Refuse blocks that members with so many columns of numbers each cannot have."""
    if not isinstance(partition, str):
        raise ValueError(
            f"partition lists columns of X, but with max_features={max_features!r} members are"
            " given different ones. Set max_features=1.0, or partition='random'."
        )
    fewest = min((number for number in numbers if number), default=0)
    if fewest and isinstance(n_blocks, Integral) and fewest < int(n_blocks):
        raise ValueError(
            f"n_blocks={n_blocks} is more than the {fewest} column(s) of numbers that"
            f" max_features={max_features!r} gives to a member. Use fewer blocks, n_blocks='auto'"
            " or larger max_features."
        )


def categories_among(code: ColumnCode | None, columns: NDArray[np.intp]) -> list[int]:
    """Which of some columns are categories, by their places among these."""
    if code is None:
        return []
    return np.flatnonzero(~np.isin(columns, code.numeric)).tolist()


def fit_product(
    models: list[Model],
    given: Given,
    resampled: Resampled,
    class_weight: Any,
    parallel_map: Mapper,
) -> FloatArray:
    """Exponents of the members' models in their product, (V,), by the rows that each left out."""
    lots = resampled.lots
    known = lots.labels >= 0
    places, labels, counted = lots.places[known], lots.labels[known], lots.weights[known]
    left_out = resampled.drawn[:, known] == 0
    masses: FloatArray = np.bincount(labels, counted).astype(np.float64)
    by_class = checks.check_class_weight(class_weight, models[0].classes, masses)
    counted = counted if by_class is None else counted * by_class[labels]
    answers = np.zeros((len(models), len(places), len(models[0].classes)))
    for answer, model, asked in zip(answers, models, left_out, strict=True):
        answer[asked] = model.log_posterior(given.X[places[asked]], parallel_map)
    priors = multiply(models, [1.0] * len(models)).priors
    return fit_left_out(answers, left_out, labels, priors, counted)
