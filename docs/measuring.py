"""Measure what docs/data.md reports, and record it in docs/data.

python -m docs.measuring planted                 # gaps in planted models: gaps.csv
python -m docs.measuring tables FOLDER           # public tables, named below: tables.csv
python -m docs.measuring labels FOLDER           # public tables with few labels: labels.csv
python -m docs.measuring outliers                # MNIST against Fashion-MNIST: outliers.csv

FOLDER holds the tables as NAME.csv.gz, with the classes in the column "class". Records that are
there already are kept, so a run can be continued. `python -m docs.data` writes the page.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from docs.data import OF_GAPS, TAKEN
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.naive_bayes import CategoricalNB
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler

from pskem import SharedKernelClassifier
from pskem.datasets import load_fashion_mnist, load_mnist
from pskem.preprocessing import paper_features
from pskem.starts import Start

#: Tables with gaps, or with columns of texts.
TABLES = (
    *("anneal", "audiology", "autos", "breast-w", "car", "colic", "eucalyptus", "heart-c"),
    *("heart-h", "kr-vs-kp", "lymph", "mushroom", "primary-tumor", "sick", "vote", "zoo"),
)
#: Tables with classes of so many rows at least, of which so many keep their label.
LABELLED = (
    *("authorship", "balance-scale", "banknote", "breast-w", "car", "colic", "column3c"),
    *("eucalyptus", "heart-c", "heart-statlog", "kr-vs-kp", "mammography", "mushroom", "optdigits"),
    *("sick", "vote", "waveform5000", "wheat-seeds", "winequality-red", "winequality-white"),
)
SMALLEST_CLASS, LABELS, DRAWS = 40, (3, 10, 30, 100), 3
#: What rows without a class count, by the names of the records.
WEIGHTS = {"chosen": "auto", "full": 1.0, "labels alone": 0.0}
FOLDS, REPEATS, MANY_ROWS = 5, 3, 2000
#: A probability below this counts as this in a log loss.
SMALLEST = 1e-15
UNKNOWN = {"handle_unknown": "use_encoded_value", "unknown_value": -1}

Maker = Callable[[list[str], list[str]], Any]
Scores = tuple[float, float]


def ours() -> SharedKernelClassifier:
    return SharedKernelClassifier(random_state=0)


def text_filled() -> Any:
    return SimpleImputer(strategy="most_frequent")


def filled(imputer: Any) -> Maker:
    """Ours after gaps are filled in: numbers by an imputer, categories by the most frequent."""

    def make(numbers: list[str], texts: list[str]) -> Any:
        parts = [("numbers", make_pipeline(StandardScaler(), imputer), numbers)]
        parts += [("texts", text_filled(), texts)] if texts else []
        columns = ColumnTransformer(parts, verbose_feature_names_out=False)
        return make_pipeline(columns.set_output(transform="pandas"), ours())

    return make


class Former(SharedKernelClassifier):
    """Gaussian kernels on indicators, a block for each category, as `pskem fit` once had it."""

    def fit(self, X: Any, y: Any, **more: Any) -> Any:
        names = [str(name) for name in X.columns]
        origin = [name.split("\t")[0] if "\t" in name else "" for name in names]
        blocks = [[i for i, o in enumerate(origin) if o == name] for name in dict.fromkeys(origin)]
        blocks.sort(key=lambda block: origin[block[0]] != "")
        values = X.to_numpy(dtype=float)
        means: list[Any] = [
            np.unique(values[:, block], axis=0) if origin[block[0]] else None for block in blocks
        ]
        counts = np.unique(y, return_counts=True)[1]
        sizes = [
            int(np.clip(counts // (30 * len(block)), 1, 20).sum()) if known is None else len(known)
            for block, known in zip(blocks, means, strict=True)
        ]
        start = Start(means=means if len(blocks) > 1 else means[0])
        self.set_params(partition=blocks, n_components=sizes, reg_covar=0.1, init=start)
        super().fit(values, y)
        return self

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X.to_numpy(dtype=float))


def former(numbers: list[str], texts: list[str]) -> Any:
    encode = OneHotEncoder(
        drop="first",
        handle_unknown="infrequent_if_exist",
        max_categories=20,
        sparse_output=False,
        feature_name_combiner=lambda name, value: f"{name}\t{value}",
    )
    fill = SimpleImputer(strategy="constant", fill_value="missing")
    parts: list[Any] = []
    if numbers:
        usual = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
        parts.append(("numbers", usual, numbers))
    parts.append(("texts", make_pipeline(fill, encode), texts))
    columns = ColumnTransformer(parts, verbose_feature_names_out=False)
    return make_pipeline(columns.set_output(transform="pandas"), Former(random_state=0))


def naive_bayes(numbers: list[str], texts: list[str]) -> Any:
    bins = KBinsDiscretizer(8, encode="ordinal", strategy="quantile", quantile_method="linear")
    parts: list[Any] = [("texts", OrdinalEncoder(**UNKNOWN, encoded_missing_value=-1), texts)]
    if numbers:
        filled_bins = make_pipeline(SimpleImputer(strategy="median"), bins)
        parts.insert(0, ("numbers", filled_bins, numbers))
    return Pipeline([("columns", ColumnTransformer(parts)), ("bayes", OfKnown())])


class OfKnown(CategoricalNB):
    """Naive Bayes for which an unknown or missing value, -1, is one more value."""

    def fit(self, X: Any, y: Any) -> Any:
        self.set_params(min_categories=[int(n) + 2 for n in np.max(X, axis=0)])
        return super().fit(np.asarray(X) + 1, y)

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(np.asarray(X) + 1)


def logistic(numbers: list[str], texts: list[str]) -> Any:
    usual = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    constant = SimpleImputer(strategy="constant", fill_value="missing")
    indicators = make_pipeline(constant, OneHotEncoder(handle_unknown="ignore"))
    parts = [("numbers", usual, numbers)] if numbers else []
    parts += [("texts", indicators, texts)] if texts else []
    return make_pipeline(ColumnTransformer(parts), LogisticRegression(max_iter=5000))


def boosting(numbers: list[str], texts: list[str]) -> Any:
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan
    )
    columns = ColumnTransformer([("numbers", "passthrough", numbers), ("texts", codes, texts)])
    places = list(range(len(numbers), len(numbers) + len(texts))) or None
    trees = HistGradientBoostingClassifier(categorical_features=places, random_state=0)
    return make_pipeline(columns, trees)


#: By the names of the records: what is made of the names of columns of numbers and of texts.
METHODS: dict[str, Maker] = {
    "pskem": lambda numbers, texts: ours(),
    "pskem, medians": filled(SimpleImputer(strategy="median")),
    "pskem, KNNImputer": filled(KNNImputer()),
    "pskem, IterativeImputer": filled(IterativeImputer(random_state=0)),
    "pskem, indicators": former,
    "CategoricalNB": naive_bayes,
    "LogisticRegression": logistic,
    "HistGradientBoosting": boosting,
}
#: Those that say something of tables with texts alone.
OF_TEXTS = ("pskem, indicators", "CategoricalNB")


def score(model: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> Scores:
    """Accuracy and log loss on the test rows; y are places of classes, all of them in training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proba = model.fit(X, y).predict_proba(X_test)
    own = np.maximum(proba[np.arange(len(y_test)), y_test], SMALLEST)
    return float(np.mean(proba.argmax(axis=1) == y_test)), float(-np.log(own).mean())


def records(name: str, key: int) -> dict[tuple[str, ...], list[str]]:
    """The rows of a file of records by their first columns."""
    path = TAKEN / name
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as lines:
        return {tuple(row[:key]): row for row in list(csv.reader(lines))[1:]}


def write(name: str, header: list[str], rows: dict[tuple[str, ...], list[str]]) -> None:
    TAKEN.mkdir(exist_ok=True)
    with (TAKEN / name).open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows[key] for key in sorted(rows))


SUMMARY = ["accuracy", "spread", "log loss", "folds", "seconds"]


def summary(found: list[Scores], seconds: float) -> list[str]:
    accuracies, losses = np.array(found).T
    return [
        f"{accuracies.mean():.4f}",
        f"{accuracies.std(ddof=1):.4f}",
        f"{losses.mean():.4f}",
        str(len(found)),
        f"{seconds:.1f}",
    ]


def load(path: Path) -> tuple[Any, Any, list[str], list[str]]:
    """A table: features, classes as places, names of columns of numbers and of texts."""
    frame = pd.read_csv(path)
    y = pd.factorize(frame.pop("class"), sort=True)[0]
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    frame[texts] = frame[texts].astype(object).where(frame[texts].notna(), np.nan)
    return frame, y, [name for name in frame if name not in texts], texts


def suitable(X: Any, texts: list[str]) -> Iterator[str]:
    """The methods that say something about a table."""
    gaps = bool(X.isna().any(axis=None))
    numeric_gaps = gaps and len(texts) < X.shape[1]
    for name in METHODS:
        if name in OF_GAPS and not numeric_gaps:
            continue
        if name in OF_TEXTS and not texts:
            continue
        yield name


def measure_tables(folder: Path) -> None:
    rows = records("tables.csv", 2)
    for table in TABLES:
        X, y, numbers, texts = load(folder / f"{table}.csv.gz")
        repeats = 1 if len(y) > MANY_ROWS else REPEATS
        folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=repeats, random_state=0)
        splits = list(folds.split(X, y))
        missing = float(X.isna().to_numpy().mean())
        about = [str(len(y)), str(len(numbers)), str(len(texts)), f"{missing:.4f}"]
        for name in suitable(X, texts):
            if (table, name) in rows:
                continue
            start = time.perf_counter()
            scores = [
                score(METHODS[name](numbers, texts), X.iloc[a], y[a], X.iloc[b], y[b])
                for a, b in splits
            ]
            made = summary(scores, time.perf_counter() - start)
            rows[table, name] = [table, name, *about, *made]
            print(*rows[table, name], flush=True)
            header = ["table", "method", "rows", "numbers", "texts", "missing", *SUMMARY]
            write("tables.csv", header, rows)


def planted(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Three classes of two Gaussians each, in eight features that hang together."""
    means = 1.3 * rng.standard_normal((3, 2, 8))
    roots = rng.standard_normal((3, 2, 8, 8)) / np.sqrt(8) + 0.3 * np.eye(8)
    y, part = rng.integers(3, size=n), rng.integers(2, size=n)
    noise = rng.standard_normal((n, 8))
    return means[y, part] + np.einsum("nab,nb->na", roots[y, part], noise), y


def measure_planted() -> None:
    """Ten planted models, 30 % of the cells missing at random, 2,000 rows to train on."""
    rows = records("gaps.csv", 1)
    names = [f"x{i}" for i in range(8)]
    for name in ("pskem", *OF_GAPS, "HistGradientBoosting"):
        if (name,) in rows:
            continue
        start, scores = time.perf_counter(), []
        for draw in range(10):
            rng = np.random.default_rng(draw)
            X, y = planted(rng, 4000)
            frame = pd.DataFrame(np.where(rng.random(X.shape) < 0.3, np.nan, X), columns=names)
            model = METHODS[name](names, [])
            scores.append(score(model, frame[:2000], y[:2000], frame[2000:], y[2000:]))
        rows[(name,)] = [name, *summary(scores, time.perf_counter() - start)]
        print(*rows[(name,)], flush=True)
        write("gaps.csv", ["method", *SUMMARY], rows)


def measure_labels(folder: Path) -> None:
    """All but a few labels are hidden in seven tenths of the rows; the others are tested on."""
    rows = records("labels.csv", 3)
    for table in LABELLED:
        X, y, _, _ = load(folder / f"{table}.csv.gz")
        often = np.isin(y, np.flatnonzero(np.bincount(y) >= SMALLEST_CLASS))
        X, y = X[often], np.unique(y[often], return_inverse=True)[1]
        for n in LABELS:
            for name, weight in WEIGHTS.items():
                if (table, str(n), name) in rows:
                    continue
                start, scores = time.perf_counter(), []
                for draw in range(DRAWS):
                    rng = np.random.default_rng([draw, n])
                    order = rng.permutation(len(y))
                    train, test = np.split(order, [int(0.7 * len(y))])
                    own = [rng.permutation(train[y[train] == c])[:n] for c in range(y.max() + 1)]
                    if min(map(len, own)) < n or len(train) < 1.3 * n * len(own):
                        break
                    labels = np.full(len(y), None)
                    known = np.concatenate(own)
                    labels[known] = y[known]
                    model = ours().set_params(unlabelled_weight=weight)
                    parts = X.iloc[train], labels[train], X.iloc[test], y[test]
                    scores.append(score(model, *parts))
                if len(scores) == DRAWS:
                    made = summary(scores, time.perf_counter() - start)
                    rows[table, str(n), name] = [table, str(n), name, *made]
                    print(*rows[table, str(n), name], flush=True)
                    write("labels.csv", ["table", "labels", "method", *SUMMARY], rows)


def measure_outliers() -> None:
    """MNIST's test images against Fashion-MNIST's, in MNIST's 39 features."""
    images, y = load_mnist(return_X_y=True)
    encoder = paper_features(39).fit(images)
    X = encoder.transform(images)
    tests = [load(subset="test", return_X_y=True)[0] for load in (load_mnist, load_fashion_mnist)]
    usual, strange = map(encoder.transform, tests)
    both = np.vstack([usual, strange])
    truth = np.repeat([0, 1], [len(usual), len(strange)])
    generative = SharedKernelClassifier(discriminative_iter=0, random_state=0).fit(X, y)
    refined = SharedKernelClassifier(random_state=0).fit(X, y)
    forest = IsolationForest(n_estimators=300, random_state=0).fit(X)
    neighbours = NearestNeighbors(n_neighbors=5).fit(X)
    found = {
        "pskem, EM alone": -generative.score_samples(both),
        "pskem, defaults": -refined.score_samples(both),
        "IsolationForest": -forest.score_samples(both),
        "distance to 5 neighbours": neighbours.kneighbors(both)[0].mean(axis=1),
    }
    accuracy = dict.fromkeys(found, "")
    _, y_test = load_mnist(subset="test", return_X_y=True)
    accuracy["pskem, EM alone"] = f"{generative.score(usual, y_test):.4f}"
    accuracy["pskem, defaults"] = f"{refined.score(usual, y_test):.4f}"
    rows = {}
    for name, values in found.items():
        threshold = np.quantile(values[truth == 0], 0.99)
        caught = float(np.mean(values[truth == 1] > threshold))
        area = roc_auc_score(truth, values)
        rows[(name,)] = [name, f"{area:.5f}", f"{caught:.4f}", accuracy[name]]
        print(*rows[(name,)], flush=True)
    write("outliers.csv", ["method", "AUROC", "caught at 1 %", "accuracy"], rows)


def main() -> None:
    what, *more = sys.argv[1:] or [""]
    if what == "planted":
        measure_planted()
    elif what == "tables" and more:
        measure_tables(Path(more[0]))
    elif what == "labels" and more:
        measure_labels(Path(more[0]))
    elif what == "outliers":
        measure_outliers()
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
