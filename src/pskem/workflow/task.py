"""A table made ready for training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray
from pskem.tables import (
    IMAGES,
    Columns,
    TableError,
    align,
    infer_columns,
    is_named,
    labels_of,
    make_encoder,
    odd_texts,
    read_table,
    weights_of,
)

__all__ = [
    "TABLE",
    "Task",
    "check_classes",
    "check_counts",
    "is_labelled",
    "remarks_on_rows",
]

#: Where a model file says what table it is for.
TABLE = "table"
#: Classes of fewer rows than this cannot be learnt and validated.
SMALLEST_CLASS = 2


def is_labelled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are known: not None."""
    if y.dtype != object:
        return np.ones(len(y), dtype=bool)
    return np.array([label is not None for label in y], dtype=bool)


class Task(NamedTuple):
    """Features as a data frame, labels, and how the one is made from the other's table.

    source : what the table was read from
    y : labels; None, among objects, for rows without a class
    encoder : unfitted steps from the features to what the classifier takes
    remarks : what was done to the table that its owner should know
    weights : how often each row counts; None if all count alike
    """

    source: str
    X: Any
    y: NDArray[Any]
    target: str
    columns: Columns
    encoder: Any
    remarks: list[str]
    weights: FloatArray | None = None

    @classmethod
    def read(
        cls,
        source: str,
        target: str,
        *,
        weights: str | None = None,
        unlabelled: bool = False,
        drop: Collection[str] = (),
        categorical: Collection[str] = (),
        pca: int | None = None,
        ica: bool = False,
        random_state: int | None = None,
        subset: str | None = None,
        data_home: Any = None,
    ) -> Self:
        """Read a table; rows with a weight of 0 are left out, and rows without a class.

        With ``unlabelled`` the latter are kept, to learn from as well.
        """
        frame = read_table(source, subset, data_home, text=categorical, verbatim=[target])
        y, present = labels_of(frame, target)
        if unlabelled and not present.all():
            known, y = y, np.full(len(frame), None, dtype=object)
            y[present] = known
        elif not present.all():
            frame = frame[present]
        counted = None
        if weights is not None:
            if weights == target:
                raise TableError(f"The column {target!r} holds the classes; it has no weights.")
            counted = weights_of(frame, weights)
            frame, y, counted = frame[counted > 0.0], y[counted > 0.0], counted[counted > 0.0]
        n_without = int((~(is_labelled(y) if unlabelled else present)).sum())
        check_classes(y, target)
        image_set = source if is_named(source) and source in IMAGES else None
        if image_set is None:
            unused = drop if weights is None else (*drop, weights)
            columns = infer_columns(frame, target, unused, categorical)
        elif drop or categorical:
            raise TableError(f"The columns of {source} are pixels: leave --drop/--categorical out.")
        else:
            columns = Columns([name for name in frame.columns if name != target], [], {})
        X = align(frame, columns)
        remarks = [
            f"Column {name!r} is left out: {why}."
            for name, why in columns.dropped.items()
            if name != weights
        ]
        for name in columns.categorical:
            slips = [] if name in categorical else odd_texts(frame[name])
            if slips:
                remarks.append(
                    f"Column {name!r} is taken for categories, though most of it is numbers: it"
                    f" holds {', '.join(map(repr, slips[:3]))} in more than a tenth of the rows."
                )
        remarks += remarks_on_rows(n_without, unlabelled)
        gaps = int(X[columns.numeric].isna().to_numpy().sum())
        if gaps and (pca is not None or ica):
            remarks.append(
                f"{gaps:,} missing value(s) are filled with the median of their column: components"
                " need all values. Without --pca and --ica they would stay gaps."
            )
        if (pca is not None or ica) and columns.categorical:
            kind = "Principal" if pca is not None else "Independent"
            remarks.append(
                f"{kind} components mix numbers and categories, so categories have no blocks of"
                " their own."
            )
        encoder = make_encoder(columns, image_set, pca, ica, random_state)
        return cls(source, X, y, target, columns, encoder, remarks, counted)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which rows have a class."""
        return is_labelled(self.y)

    def at(self, rows: NDArray[np.intp]) -> Self:
        """Some rows of it."""
        weights = None if self.weights is None else self.weights[rows]
        return self._replace(X=self.X.iloc[rows], y=self.y[rows], weights=weights)

    @property
    def metadata(self) -> dict[str, Any]:
        """What a model file needs in order to read tables like this one."""
        return {TABLE: {"source": self.source, "target": self.target, **self.columns._asdict()}}


def remarks_on_rows(n_without: int, unlabelled: bool) -> list[str]:
    """What happens to so many rows without a class, if their owner should know."""
    if n_without:
        fate = "are there to learn from" if unlabelled else "are left out"
        return [f"{n_without:,} row(s) without a class {fate}."]
    return ["All rows have a class, so --unlabelled changes nothing."] if unlabelled else []


def check_classes(y: NDArray[Any], target: str) -> None:
    """Refuse labels of a column from which nothing can be learnt."""
    known = y[is_labelled(y)]
    classes, counts = np.unique(known.astype(str), return_counts=True)
    check_counts(
        dict(zip(classes.tolist(), counts.tolist(), strict=True)), target, len(known) < len(y)
    )


def check_counts(counts: Mapping[Any, int], target: str, unlabelled: bool) -> None:
    """Refuse a column of which these are the numbers of rows of each class.

    unlabelled : whether there are rows without a class
    """
    if len(counts) < 2:
        raise TableError(
            f"The column {target!r} holds {'one class only' if counts else 'no class'}; a"
            " classifier needs two at least."
        )
    rare = sorted(str(name) for name, n in counts.items() if n < SMALLEST_CLASS)
    if rare and not unlabelled:  # otherwise other rows say what the class is like
        raise TableError(
            f"The column {target!r} holds {len(rare):,} class(es) with a single row:"
            f" {', '.join(rare[:5])}{', ...' if len(rare) > 5 else ''}. Leave these rows out,"
            " join the classes, or name another target."
        )
