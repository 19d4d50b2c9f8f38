"""Fits and answers of a Dask cluster are those of memory, with the same bits for all workers."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from clustered import (
    MARKS,
    NAMES,
    L,
    M,
    N,
    check_same_bits,
    chunked,
    classifier,
    da,
    dask,
    dd,
    decided,
    parquet,
)
from pskem import SharedKernelClassifier, SharedKernelDensity
from reference import distance

pytestmark = MARKS


def test_a_cluster_gives_the_model_of_memory_with_the_same_bits_for_all_numbers_of_workers(
    many, alone_fitted, cluster, tmp_path
):
    """Of rows in memory and of files: kernels, block weights, temperature and shares."""
    X, y = many
    expected, table = classifier().fit(X, y), parquet(tmp_path, X, y).on_cluster()
    with dask.config.set(scheduler="threads"):
        read = classifier().fit(table)
    found = {"arrays": [alone_fitted], "files": [read]}
    for n_workers in (1, 2, 4):
        with cluster(n_workers):
            found["arrays"].append(classifier().fit(*chunked(X, y)))
            found["files"].append(classifier().fit(table))
    for first, *others in found.values():
        assert distance(expected, first) < 1e-9
        np.testing.assert_allclose(decided(first), decided(expected), 1e-6)
        for model in others:
            check_same_bits(first, model)


def test_default_fits_agree_too(many):
    X, y = many
    expected = SharedKernelClassifier(random_state=0).fit(X, y)
    model = SharedKernelClassifier(random_state=0).fit(*chunked(X, y))
    assert distance(expected, model) < 1e-9
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("kind", ["weights", "gaps", "unlabelled", "numpy labels"])
def test_all_kinds_of_samples_are_learnt_from(many, kind):
    X, y = many
    rng, weights = np.random.default_rng(1), None
    model = classifier(unlabelled_weight=1.0)
    if kind == "gaps":
        X = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    if kind == "weights":
        weights = rng.choice([0.0, 1.0, 2.0], size=N)
    if kind == "unlabelled":
        y = np.where(rng.random(N) < 0.3, np.nan, y.astype(float))
    expected = classifier(unlabelled_weight=1.0).fit(X, y, weights)
    dX, dy = chunked(X, y)
    dw = None if weights is None else da.from_array(weights, chunks=5000)
    model.fit(dX, y if kind == "numpy labels" else dy, dw)
    assert distance(expected, model) < 1e-9


def test_data_frames_may_have_categories(many):
    X, y = many
    frame = pd.DataFrame(X, columns=NAMES)
    rng = np.random.default_rng(2)
    frame["colour"] = np.array(["red", "green", "blue"])[(y + (rng.random(N) < 0.3)) % 3]
    labels = pd.Series(np.array(["iris", "rose", "tulip"])[y])
    expected = classifier().fit(frame, labels)
    parts, target = dd.from_pandas(frame, npartitions=7), dd.from_pandas(labels, npartitions=7)
    model = classifier().fit(parts, target)
    assert distance(expected, model) < 1e-9
    assert model.classes_.tolist() == ["iris", "rose", "tulip"]
    assert model.feature_names_in_.tolist() == [*NAMES, "colour"]
    answers = model.predict(parts)
    assert isinstance(answers, da.Array)
    np.testing.assert_array_equal(answers.compute(), model.predict(frame))


def test_columns_of_every_kind_are_read_as_in_memory(many):
    """Numbers of pandas' own types and of Python's, with gaps; texts that begin in a late part."""
    X, y = many
    some = np.random.default_rng(3).random(N) < 0.1
    frame = pd.DataFrame(X, columns=NAMES)
    frame["a"] = pd.array(np.round(X[:, 0] * 10).astype(int)).astype("Int64")
    frame.loc[some, "a"] = pd.NA
    frame["b"] = frame["b"].astype("Float64").mask(some)
    frame["c"] = pd.Series(X[:, 2] * 100.0).round().astype("Int32")
    frame["d"] = pd.Series(np.where(some, None, X[:, 3]), dtype=object)
    text = np.where(X[:, 4] > 0.0, "high", "low").astype(object)
    text[:6000] = None
    frame["e"] = pd.Series(text, dtype=object)
    labels = pd.Series(y)
    with dask.config.set({"dataframe.convert-string": False}):
        parts, target = (dd.from_pandas(each, npartitions=6) for each in (frame, labels))
        assert parts._meta["e"].dtype == object  # Dask does not know what it holds
        for given in ("from_dtype", ["e"]):
            settings = {"categorical_features": given}
            expected = classifier(**settings).fit(frame, labels)
            model = classifier(**settings).fit(parts, target)
            assert distance(expected, model) < 1e-9
            np.testing.assert_array_equal(model.predict(parts).compute(), expected.predict(frame))
        numbers = parts.drop(columns="e")
        model = classifier().fit(numbers, target)
        assert distance(classifier().fit(frame.drop(columns="e"), labels), model) < 1e-9


def test_files_of_which_few_columns_are_read_keep_their_partitions(many, tmp_path):
    """Dask's optimiser makes one partition of several files for y, and not for X."""
    X, y = many
    for i in range(6):
        rows = slice(i * 4000, (i + 1) * 4000)
        frame = pd.DataFrame(X[rows], columns=NAMES).assign(outcome=y[rows])
        frame.to_parquet(tmp_path / f"part-{i}.parquet")
    frame = dd.read_parquet(str(tmp_path / "*.parquet"))
    dX, dy = frame.drop(columns="outcome"), frame["outcome"]
    assert len(dy.to_delayed()) < len(dX.to_delayed())  # otherwise there is nothing to test
    model = classifier().fit(dX, dy)
    assert distance(classifier().fit(X, y), model) < 1e-9
    assert model.score(dX, dy) == model.score(X, y)
    assert model.predict(dX[NAMES]).numblocks == (6,)


def test_answers_are_lazy_and_the_same(many):
    X, y = many
    dX, dy = chunked(X, y)
    model = classifier().fit(X, y)
    density = SharedKernelDensity(n_components=3, random_state=0).fit(X[:1000])
    asked = {
        "predict": model.predict,
        "predict_proba": model.predict_proba,
        "predict_log_proba": model.predict_log_proba,
        "score_samples": model.score_samples,
        "class_log_likelihood": model.class_log_likelihood,
        "is_outlier": model.is_outlier,
        "density": density.score_samples,
    }
    for name, ask in asked.items():
        lazy, direct = ask(dX), ask(X)
        assert isinstance(lazy, da.Array), name
        assert lazy.shape == direct.shape, name
        assert lazy.dtype == direct.dtype, name
        np.testing.assert_array_equal(lazy.compute(), direct)
        assert lazy.chunks[0] == (2000,) * 12
    assert model.score(dX, dy) == pytest.approx(model.score(X, y))
    weights = np.arange(N) % 3
    assert model.score(dX, dy, da.from_array(weights, chunks=2000)) == pytest.approx(
        model.score(X, y, weights)
    )


def test_empty_partitions_are_answered_with_nothing(many):
    """As a filter leaves them behind."""
    X, y = (part[:900] for part in many)
    model = classifier().fit(X, np.array(["iris", "rose", "tulip"])[y])
    frame = pd.DataFrame(X, columns=NAMES).assign(part=np.repeat([0, 1, 2], 300))
    parts = dd.from_pandas(frame, npartitions=3)
    parts = parts[parts["part"] != 1][NAMES]
    left = X[frame["part"] != 1]
    assert parts.map_partitions(len).compute().tolist() == [300, 0, 300]
    asked = ("predict", "predict_proba", "score_samples", "is_outlier", "block_log_likelihood")
    model.set_reference(X)
    for name in asked:
        lazy, direct = (getattr(model, name)(given) for given in (parts, left))
        assert lazy.dtype == direct.dtype, name
        np.testing.assert_array_equal(lazy.compute(), direct)
    nothing = da.from_array(X[:0], chunks=(10, M))
    assert model.predict_proba(nothing).compute().shape == (0, L)


def test_scores_of_collections_are_those_of_memory(many):
    X, y = (part[:900] for part in many)
    model = classifier(unlabelled=-1).fit(X, np.where(np.arange(900) % 2, y, -1))
    partly = np.where(np.arange(900) % 3 == 0, -1, y)
    partly[:300] = -1  # a whole partition without a class
    weights = np.arange(900) % 5
    dX, dy, dw = (da.from_array(part, chunks=300) for part in (X, partly, weights))
    assert model.score(dX, dy) == pytest.approx(model.score(X, partly))
    assert model.score(dX, partly, dw) == pytest.approx(model.score(X, partly, weights))
    frame, labels = pd.DataFrame(X, columns=NAMES), pd.Series(y)
    parts = dd.from_pandas(frame, npartitions=3)
    named = classifier().fit(frame, labels)
    found = named.score(parts, dd.from_pandas(labels, npartitions=3))
    assert found == pytest.approx(named.score(frame, labels))
    with pytest.raises(ValueError, match="unknown lengths, and y is not"):
        named.score(parts, y)
    with pytest.raises(ValueError, match="X has 900 samples and y has 800"):
        model.score(dX, dy[:800])
    with pytest.raises(ValueError, match="no sample that has a class"):
        model.score(dX, da.full(900, -1, chunks=300))


def test_what_needs_memory_says_so_and_gathers_nothing(many):
    from pskem import PartitionEnsemble, SharedKernelClassifierCV

    X, y = (part[:300] for part in many)

    def touched(block):
        raise AssertionError("the collection was computed")

    dX = da.from_array(X, chunks=100).map_blocks(touched, dtype=float, meta=np.empty((0, 0)))
    model = classifier().fit(X, y)
    asked = {
        "ensemble": lambda: PartitionEnsemble().fit(dX, y),
        "search": lambda: SharedKernelClassifierCV().fit(dX, y),
        "decide": lambda: model.decide(dX),
        "impute": lambda: model.impute(dX),
        "responsibilities": lambda: model.responsibilities(dX),
        "priors": lambda: model.estimate_priors(dX),
        "reference": lambda: model.set_reference(dX),
        "bic": lambda: model.bic(dX, y),
    }
    for ask in asked.values():
        with pytest.raises(ValueError, match="A collection of Dask's is read piece by piece"):
            ask()


def test_more_answers_are_lazy(many):
    from pskem import PartitionEnsemble

    X, y = (part[:300] for part in many)
    dX = da.from_array(X, chunks=(100, M))
    model = classifier().fit(X, y)
    ensemble = PartitionEnsemble(classifier(), n_estimators=2, random_state=0).fit(X, y)
    ensemble.set_reference(X)
    asked = [
        model.block_log_likelihood,
        model.predict_joint_log_proba,
        model.decision_function,
        ensemble.predict_log_proba,
        ensemble.predict,
        ensemble.block_log_likelihood,
        ensemble.is_outlier,
    ]
    for ask in asked:
        lazy, direct = ask(dX), ask(X)
        assert isinstance(lazy, da.Array)
        assert lazy.shape == direct.shape
        assert lazy.dtype == direct.dtype
        np.testing.assert_allclose(lazy.compute(), direct, atol=1e-12)


def test_a_collection_is_known_by_its_graph():
    """As xarray's objects have one only if they are lazy."""
    from pskem.clusters import is_dask

    class Wrapped:
        def __init__(self, graph):
            self.graph = graph

        def __dask_graph__(self):
            return self.graph

    assert is_dask(da.zeros(3))
    assert is_dask(dd.from_pandas(pd.DataFrame({"a": [1]}), npartitions=1))
    assert is_dask(Wrapped({}))
    assert not is_dask(Wrapped(None))
    assert not is_dask(da.Array)
    assert not is_dask(np.zeros(3))


def test_a_gaussian_mixture_of_a_cluster_is_that_of_scikit_learn(many, tmp_path):
    """From the same means, and one file for all that tables are read from."""
    from sklearn.mixture import GaussianMixture

    from pskem import open_table
    from pskem.starts import Start

    X, _ = many
    means = X[:4]
    start = Start(means=means, covariances=np.tile(np.eye(M), (4, 1, 1)), weights=np.full(4, 0.25))
    passes = {"n_components": 4, "max_iter": 10, "tol": 0.0}
    density = SharedKernelDensity(init=start, reg_covar=0.0, shrinkage=0.0, **passes)
    density.fit(chunked(X, X[:, 0])[0])
    precisions = np.tile(np.eye(M), (4, 1, 1))
    given = {"weights_init": np.full(4, 0.25), "means_init": means, "precisions_init": precisions}
    with pytest.warns(ConvergenceWarning):  # ten passes, whatever comes of them
        theirs = GaussianMixture(reg_covar=0.0, **given, **passes).fit(X)
    np.testing.assert_allclose(density.means_, theirs.means_, atol=1e-8)
    np.testing.assert_allclose(density.covariances_, theirs.covariances_, atol=1e-8)
    pd.DataFrame(X, columns=NAMES).to_parquet(tmp_path / "X.parquet")
    np.save(tmp_path / "X.npy", X)
    for stored in (
        open_table(tmp_path / "X.parquet"),
        np.load(tmp_path / "X.npy", mmap_mode="r"),
    ):
        other = SharedKernelDensity(**density.get_params()).fit(stored)
        assert distance(density, other) < 1e-9


def test_few_rows_are_simply_fetched(many):
    X, y = (part[:600] for part in many)
    expected = SharedKernelClassifier(random_state=0).fit(X, y)
    model = SharedKernelClassifier(random_state=0)
    model.fit(da.from_array(X, chunks=(100, M)), da.from_array(y, chunks=100))
    assert len(model.trials_) > 1
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_what_cannot_be_is_refused(many):
    from dask import bag

    X, y = many
    dX, dy = chunked(X, y)
    with pytest.raises(ValueError, match="y is missing"):
        classifier().fit(dX)
    with pytest.raises(ValueError, match="X has 24000 samples and y has 100"):
        classifier().fit(dX, y[:100])
    with pytest.raises(ValueError, match="X has 24000 samples and y has 100"):
        classifier().fit(dX, dy[:100])
    frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=4)
    with pytest.raises(ValueError, match="unknown lengths, and y is not"):
        classifier().fit(frame, y)
    with pytest.raises(ValueError, match=r"X has 4 partition\(s\) and y has 3"):
        classifier().fit(frame, dd.from_pandas(pd.Series(y), npartitions=3))
    for wrong in (dask.delayed(X), bag.from_sequence(range(9))):
        kind = type(wrong).__name__
        with pytest.raises(ValueError, match=f"X is of the type {kind}; give rows of features"):
            classifier().fit(wrong, y)
        with pytest.raises(ValueError, match=f"y is of the type {kind}; give an array"):
            classifier().fit(dX, wrong)
    with pytest.raises(ValueError, match=r"type Array, with 1 dimension\(s\); give rows"):
        classifier().fit(dX[:, 0], dy)
    with pytest.raises(ValueError, match="infinity"):
        classifier().fit(da.where(dX > 4.0, np.inf, dX), dy)
    with pytest.raises(ValueError, match="complex"):
        classifier().fit(dX + 1j, dy)
    with pytest.raises(ValueError, match="X holds dates or times"):
        classifier().fit(dX.astype("datetime64[s]"), dy)
    columns = pd.DataFrame(X, columns=NAMES)
    target = dd.from_pandas(pd.Series(y), npartitions=4)
    for column, said in (
        (pd.Timestamp("2020-01-01"), "Column 'c' holds dates"),
        (1j, "complex"),
        ("much", "'much', which is no number"),
    ):
        wrong = dd.from_pandas(columns.assign(c=column), npartitions=4)
        with pytest.raises(ValueError, match=said):
            classifier(categorical_features=None).fit(wrong, target)


def test_what_is_not_fitted_says_so(many):
    dX, dy = chunked(*many)
    for name in ("predict", "predict_proba", "score_samples", "is_outlier"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(classifier(), name)(dX)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        classifier().score(dX, dy)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SharedKernelDensity().score_samples(dX)
