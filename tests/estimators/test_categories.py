"""Columns of categories: exact discrete distributions beside Gaussian kernels."""

import pickle
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.naive_bayes import CategoricalNB

import pskem
from pskem import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
)
from pskem.tables import infer_columns

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def mixed(rng, n=500, gaps=0.0):
    """A table of two numbers, two columns of texts and one of categories, and classes."""
    y = rng.integers(2, size=n)
    colour = np.where(rng.random(n) < 0.2 + 0.6 * y, "red", rng.choice(["blue", "green"], n))
    size = np.where(rng.random(n) < 0.7 - 0.4 * y, "small", "large")
    kind = pd.Categorical(np.array(["a", "b", "c", "d"])[(y + rng.integers(3, size=n)) % 4])
    frame = pd.DataFrame(
        {
            "x": rng.standard_normal(n) + y,
            "colour": colour,
            "z": rng.standard_normal(n) * 3.0 + 1.5 * y,
            "size": pd.array(size, dtype="string"),
            "kind": kind,
        }
    )
    return frame.mask(rng.random(frame.shape) < gaps) if gaps else frame, y


def test_one_kernel_a_class_is_naive_bayes_times_gaussians(rng):
    frame, y = mixed(rng)
    model = SharedKernelClassifier(
        n_components=2, shrinkage=0.0, block_weights=None, discriminative_iter=0
    ).fit(frame, y)
    numbers, categories = model.blocks_
    assert numbers.covariance_type == "full"
    assert categories.covariance_type == "categorical"
    codes = np.column_stack(
        [pd.Categorical(frame[name]).codes for name in ("colour", "size", "kind")]
    )
    theirs = CategoricalNB(alpha=1e-10, force_alpha=True).fit(codes, y)
    rows = zip(numbers.means, numbers.covariances, strict=True)
    gaussian = np.array([multivariate_normal(*row).logpdf(frame[["x", "z"]]) for row in rows]).T
    expected = theirs.predict_joint_log_proba(codes) + gaussian
    expected -= logsumexp(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(frame), np.exp(expected), atol=1e-8)


@pytest.mark.parametrize("settings", [{}, {"n_components": 6}, {"n_blocks": 2}, {"init": "em"}])
def test_all_settings_train(rng, settings):
    frame, y = mixed(rng, 1200, gaps=0.1)
    model = SharedKernelClassifier(random_state=0, **settings).fit(frame, y)
    assert model.score(frame, y) > 0.75
    assert np.isfinite(model.score_samples(frame)).all()
    *_, last = model.model_.first_view.blocks
    assert last.covariance_type == "categorical"
    assert last.structure.levels == (3, 2, 4)
    totals = np.add.reduceat(last.means, [0, 3, 5], axis=1)
    np.testing.assert_allclose(totals, 1.0, rtol=1e-9)


def test_likelihoods_never_fall(rng):
    frame, y = mixed(rng, gaps=0.15)
    model = SharedKernelClassifier(
        n_components=[4, 6],
        init="em",
        shrinkage=0.0,
        discriminative_iter=0,
        early_stopping=False,
        tol=0,
        max_iter=30,
        random_state=0,
    ).fit(frame, y)
    trace = model.log_likelihoods_
    assert (np.diff(trace, axis=0) > -1e-9 * np.abs(trace[1:])).all()
    own = model.block_log_likelihood(frame)[np.arange(500), :, y].sum(axis=0)
    assert (own >= trace[-1] - 1e-8).all()


def test_unknown_and_missing_values_are_gaps(rng):
    frame, y = mixed(rng)
    model = SharedKernelClassifier(early_stopping=False, random_state=0).fit(frame, y)
    unknown = frame.assign(colour="mauve")
    missing = frame.assign(colour=None)
    np.testing.assert_array_equal(model.predict_proba(unknown), model.predict_proba(missing))
    without = model.predict_proba(frame.assign(colour=np.nan, size=pd.NA, kind=None))
    nothing = model.model_.marginal([0, 1])  # the features that are numbers
    expected = nothing.log_posterior(frame[["x", "z"]].to_numpy())
    np.testing.assert_allclose(np.log(without), expected, atol=1e-9)
    empty = model.predict_proba(frame.assign(**dict.fromkeys(frame.columns, None)))
    np.testing.assert_allclose(empty, np.tile(model.class_prior_, (500, 1)), rtol=1e-9)


def test_columns_may_be_named_or_counted(rng):
    frame, y = mixed(rng)
    codes = frame.assign(
        **{name: pd.Categorical(frame[name]).codes for name in ("colour", "size", "kind")}
    )
    expected = SharedKernelClassifier(random_state=0).fit(frame, y).predict_proba(frame)
    named = ["colour", "size", "kind"]
    mask = [False, True, False, True, True]
    for table, given in [(codes, named), (codes.to_numpy(), [1, 3, 4]), (codes.to_numpy(), mask)]:
        model = SharedKernelClassifier(categorical_features=given, random_state=0).fit(table, y)
        np.testing.assert_allclose(model.predict_proba(table), expected, rtol=1e-9)
    as_numbers = SharedKernelClassifier(categorical_features=None, random_state=0).fit(codes, y)
    assert not hasattr(as_numbers, "columns_")
    objects = frame.to_numpy(dtype=object)
    model = SharedKernelClassifier(categorical_features=[1, 3, 4], random_state=0).fit(objects, y)
    np.testing.assert_allclose(model.predict_proba(objects), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("all", "categorical_features='all' is not known"),
        ([7], "categorical_features holds 7, but X has 5"),
        (["shape"], "names the column 'shape'"),
        ([1.5], r"categorical_features=\[1.5\] is not accepted"),
    ],
)
def test_columns_that_are_not_there_are_refused(rng, given, message):
    model = SharedKernelClassifier(categorical_features=given)
    with pytest.raises(ValueError, match=message):
        model.fit(*mixed(rng, 40))
    assert not hasattr(model, "columns_")


def test_too_many_values_are_refused(rng):
    frame = pd.DataFrame({"id": [f"r{i}" for i in range(1500)], "x": rng.standard_normal(1500)})
    with pytest.raises(ValueError, match="'id' has 1,500 different values"):
        SharedKernelClassifier().fit(frame, np.arange(1500) % 2)
    with pytest.raises(ValueError, match="'id' of X holds 'r0', which is no number"):
        SharedKernelDensity().fit(frame)


def test_texts_of_arrow_are_categories(rng):
    pytest.importorskip("pyarrow")
    frame, y = mixed(rng, 200)
    theirs = frame.astype({"colour": "string[pyarrow]", "kind": "string[pyarrow]"})
    one, other = (SharedKernelClassifier(random_state=0).fit(X, y) for X in (frame, theirs))
    np.testing.assert_allclose(one.predict_proba(frame), other.predict_proba(theirs))


def test_texts_that_are_numbers_are_doubted(rng):
    y = rng.integers(2, size=60)
    ages = [str(20 + i) for i in range(59)]
    frame = pd.DataFrame({"age": [*ages, "?"], "x": rng.standard_normal(60)})
    with pytest.warns(UserWarning, match=r"'age' holds texts that are numbers, but for '\?'"):
        SharedKernelClassifier(max_iter=2).fit(frame, y)
    meant = frame.astype({"age": "category"})
    assert len(SharedKernelClassifier(max_iter=2).fit(meant, y).columns_.values[0]) == 60


@pytest.mark.parametrize(
    ("n_values", "n_rows", "gaps", "is_identifier"),
    [
        (120, 120, 0, True),
        (51, 102, 0, True),
        (51, 103, 0, False),
        (50, 50, 0, False),
        (60, 121, 1, True),  # gaps are no texts
    ],
)
def test_identifiers_are_warned_of_by_the_rule_of_the_command_line(
    rng, n_values, n_rows, gaps, is_identifier
):
    texts = [f"r{i % n_values}" for i in range(n_rows)]
    texts[n_rows - gaps :] = [None] * gaps
    frame = pd.DataFrame({"id": texts, "x": rng.standard_normal(n_rows)})
    y = np.arange(n_rows) % 2
    dropped = infer_columns(frame.assign(y=y), "y").dropped
    assert ("id" in dropped) == is_identifier
    model = SharedKernelClassifier(early_stopping=False, max_iter=2)
    expected = pytest.warns(UserWarning, match=rf"'id' looks like an identifier: it has {n_values}")
    with expected if is_identifier else nullcontext():
        kept = clone(model).fit(frame, y)
    assert kept.columns_.levels == (n_values,)
    # Whoever says that it is a category hears nothing.
    clone(model).set_params(categorical_features=["id"]).fit(frame, y)
    clone(model).fit(frame.astype({"id": "category"}), y)
    clone(model).fit(frame[["x"]], y)


def test_identifiers_of_polars_are_warned_of(rng):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": [f"r{i}" for i in range(80)], "x": rng.standard_normal(80)})
    model, y = SharedKernelClassifier(early_stopping=False, max_iter=2), np.arange(80) % 2
    with pytest.warns(UserWarning, match="'id' looks like an identifier"):
        clone(model).fit(frame, y)
    clone(model).fit(frame.with_columns(polars.col("id").cast(polars.Categorical)), y)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.date_range("2020-01-01", periods=40), "'when' holds dates or times"),
        (pd.Categorical(pd.date_range("2020-01-01", periods=40)), "kind Timestamp"),
    ],
)
def test_columns_that_mean_nothing_are_refused(rng, column, message):
    frame = pd.DataFrame({"when": column, "x": rng.standard_normal(40)})
    with pytest.raises(ValueError, match=message):
        SharedKernelClassifier().fit(frame, np.arange(40) % 2)


def test_a_table_without_any_value_is_refused():
    frame = pd.DataFrame({"a": pd.array([None] * 4, dtype="string")})
    with pytest.raises(ValueError, match="no values at all"):
        SharedKernelClassifier().fit(frame, [0, 1, 0, 1])


def test_texts_among_numbers_are_named(rng):
    frame, y = mixed(rng, 100)
    model = SharedKernelClassifier(max_iter=2).fit(frame, y)
    wrong = frame.astype({"x": object})
    wrong.loc[3, "x"] = "n/a"
    with pytest.raises(ValueError, match="'x' of X holds 'n/a', which is no number"):
        model.predict(wrong)


def test_two_columns_that_say_nothing_each_for_itself(rng):
    """Classes by whether two values are the same: one kernel a class would see nothing."""
    one, two = rng.integers(2, size=(2, 1000))
    frame = pd.DataFrame({"one": np.array(["a", "b"])[one], "two": np.array(["a", "b"])[two]})
    y = (one == two).astype(int)
    model = SharedKernelClassifier(random_state=0).fit(frame[:700], y[:700])
    assert model.score(frame[700:], y[700:]) == 1.0


def test_categories_alone(rng):
    frame, y = mixed(rng, gaps=0.1)
    frame = frame[["colour", "size", "kind"]]
    model = SharedKernelClassifier(covariance_type="full", random_state=0).fit(frame, y)
    assert len(model.blocks_) == 1
    assert model.score(frame, y) > 0.65
    assert np.isfinite(model.bic(frame, y))


def test_weights_count_categories(rng):
    frame, y = mixed(rng, gaps=0.1)
    counts = rng.integers(4, size=500)
    rows = rng.permutation(np.repeat(np.arange(500), counts))
    model = SharedKernelClassifier(random_state=0)
    one, other = clone(model).fit(frame, y, counts), clone(model).fit(frame.iloc[rows], y[rows])
    for a, b in zip(one.blocks_, other.blocks_, strict=True):
        np.testing.assert_allclose(a.means, b.means, rtol=1e-9)


def test_samples_and_imputations_are_columns(rng):
    frame, y = mixed(rng, 2000)
    model = SharedKernelClassifier(random_state=0, discriminative_iter=0).fit(frame, y)
    X, labels = model.sample(5000, random_state=0)
    drawn = pd.DataFrame(X, columns=frame.columns)
    assert set(drawn["colour"]) == {"red", "blue", "green"}
    for j in range(2):
        ours, theirs = drawn[labels == j], frame[y == j]
        assert abs((ours["colour"] == "red").mean() - (theirs["colour"] == "red").mean()) < 0.05
        assert abs(ours["z"].astype(float).mean() - theirs["z"].mean()) < 0.3
    holes = frame.mask(rng.random(frame.shape) < 0.3)
    filled = pd.DataFrame(model.impute(holes, y), columns=frame.columns)
    assert filled.notna().all(axis=None)
    seen = holes["colour"].notna()
    assert (filled["colour"][seen] == frame["colour"][seen]).all()
    likely = filled["colour"][~seen][y[~seen] == 1]
    assert (likely == "red").all()  # the most probable one in this class
    again = [model.impute(holes, y, method="draw", random_state=s)[:, 1] for s in (0, 1)]
    assert (again[0] != again[1]).any()


def test_other_estimators_take_categories(rng, tmp_path):
    frame, y = mixed(rng, gaps=0.1)
    search = SharedKernelClassifierCV(n_components=[2, 4], shrinkage=[2.0], cv=3, random_state=0)
    ensemble = PartitionEnsemble(SharedKernelClassifier(n_blocks=2), 2, random_state=0)
    for model in (SharedKernelClassifier(random_state=0), search, ensemble):
        model.fit(frame, y)
        assert model.score(frame, y) > 0.75
        pskem.save(
            model if model is not search else model.best_estimator_,
            tmp_path / "m.pskem",
            overwrite=True,
        )
        for loaded in (pskem.load(tmp_path / "m.pskem"), pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))


def test_a_partition_is_of_numbers(rng):
    frame, y = mixed(rng)
    for partition in ([["x"], ["z"]], [[0], [2]]):
        model = SharedKernelClassifier(partition=partition, random_state=0).fit(frame, y)
        assert [block.features.tolist() for block in model.blocks_[:2]] == [[0], [1]]
    with pytest.raises(ValueError, match=r"partition\[1\] holds column 1"):
        SharedKernelClassifier(partition=[[0], [1]]).fit(frame, y)
    with pytest.raises(ValueError, match="no equivalent mixture of Gaussians"):
        model.expand()


def test_polars_columns(rng):
    polars = pytest.importorskip("polars")
    frame, y = mixed(rng)
    plain = frame.astype({"kind": str, "size": str, "colour": str})
    table = polars.DataFrame({name: plain[name].tolist() for name in plain.columns})
    one = SharedKernelClassifier(random_state=0).fit(plain, y)
    other = SharedKernelClassifier(random_state=0).fit(table, y)
    np.testing.assert_allclose(other.predict_proba(table), one.predict_proba(plain), rtol=1e-9)


def truths(values, kind):
    """A column of truth values, some of which may be missing, as users have them."""
    if kind == "polars":
        return pytest.importorskip("polars").Series(values)
    if kind == "bool[pyarrow]":
        pytest.importorskip("pyarrow")
    if kind == "object with NaN":
        return pd.Series([np.nan if value is None else value for value in values], dtype=object)
    return pd.Series(values, dtype=kind)


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_truth_values_are_the_numbers_0_and_1(rng, texts, gaps):
    """However they are stored, in training and in predictions, and their gaps are gaps."""
    n = 120
    y = rng.integers(2, size=n)
    found = (rng.random((n, 2)) < 0.2 + 0.6 * y[:, None]).astype(object)
    found[rng.random((n, 2)) < 0.2 * gaps] = None
    colour = np.where(rng.random(n) < 0.3 + 0.4 * y, "red", "blue").tolist()
    numbers = pd.DataFrame(found, columns=["one", "two"]).astype(float)
    if texts:
        numbers["colour"] = colour
    model = SharedKernelClassifier(n_components=2, random_state=0)
    expected = clone(model).fit(numbers, y).predict_proba(numbers)
    assert numbers.isna().any(axis=None) == gaps
    kinds = ["boolean", "bool[pyarrow]", "object", "object with NaN", "polars"]
    frames = []
    for kind in kinds if gaps else ["bool", *kinds]:
        columns = {"one": truths(found[:, 0].tolist(), kind)}
        columns["two"] = truths(found[:, 1].tolist(), kind)
        columns |= {"colour": colour} if texts else {}
        made = pytest.importorskip("polars") if kind == "polars" else pd
        frames.append(made.DataFrame(columns))
    for frame in frames:
        fitted = clone(model).fit(frame, y)
        for other in frames:
            np.testing.assert_array_equal(fitted.predict_proba(other), expected)
        if not texts:
            density = SharedKernelDensity(n_components=2, random_state=0)
            theirs = clone(density).fit(numbers).score_samples(numbers)
            np.testing.assert_array_equal(density.fit(frame).score_samples(frame), theirs)


def test_truth_values_are_categories_if_you_say_so(rng):
    polars = pytest.importorskip("polars")
    n = 120
    y = rng.integers(2, size=n)
    member = [None if rng.random() < 0.2 else bool(rng.random() < 0.2 + 0.6 * c) for c in y]
    spelled = pd.DataFrame({"member": [None if v is None else str(v) for v in member]})
    model = SharedKernelClassifier(n_components=2, random_state=0)
    expected = clone(model).fit(spelled, y).predict_proba(spelled)
    named = clone(model).set_params(categorical_features=["member"])
    for frame, each in [
        (pd.DataFrame({"member": pd.array(member, dtype="boolean")}), named),
        (pd.DataFrame({"member": pd.Series(member, dtype=object)}), named),
        (polars.DataFrame({"member": member}), named),
        (pd.DataFrame({"member": pd.Categorical(member)}), model),
    ]:
        fitted = clone(each).fit(frame, y)
        np.testing.assert_array_equal(fitted.columns_.values[0], [False, True])
        np.testing.assert_array_equal(fitted.predict_proba(frame), expected)
        assert set(fitted.sample(50, random_state=0)[0][:, 0]) == {False, True}


def test_warm_start_goes_on(rng):
    """The first pass of the second fit is the fourth of one that was not interrupted."""
    frame, y = mixed(rng)
    settings = {"discriminative_iter": 0, "block_weights": None, "tol": 0, "random_state": 0}
    model = SharedKernelClassifier(warm_start=True, max_iter=3, init="em", **settings).fit(frame, y)
    whole = SharedKernelClassifier(max_iter=4, init="em", **settings).fit(frame, y)
    again = model.fit(frame, y).log_likelihoods_[0]
    np.testing.assert_allclose(again, whole.log_likelihoods_[3], rtol=1e-9)


def test_everything_at_once_has_one_likelihood(rng):
    """Weights, gaps, categories and samples without a class, against a direct evaluation."""
    frame, y = mixed(rng, 300, gaps=0.2)
    labels = np.where(rng.random(300) < 0.8, None, y)
    weights = rng.integers(1, 4, 300).astype(float)
    model = SharedKernelClassifier(
        n_components=[3, 4],
        init="em",
        n_blocks=1,
        shrinkage=0.0,
        tol=0,
        max_iter=12,
        discriminative_iter=0,
        unlabelled_weight=1.0,
        random_state=0,
    )
    last, before = (
        clone(model).set_params(max_iter=n).fit(frame, labels, weights) for n in (12, 11)
    )
    trace = last.joint_log_likelihoods_
    assert (np.diff(trace) > -1e-9 * np.abs(trace[1:])).all()
    numbers, categories = before.blocks_
    terms = []
    for block in (numbers, categories):
        log_n = np.zeros((300, len(block.means)))
        for n in range(300):
            if block is numbers:
                x = frame[["x", "z"]].to_numpy(dtype=float)[n]
                seen = ~np.isnan(x)
                if seen.any():
                    log_n[n] = [
                        multivariate_normal(m[seen], P[np.ix_(seen, seen)]).logpdf(x[seen])
                        for m, P in zip(block.means, block.covariances, strict=True)
                    ]
            else:
                first = 0
                columns = zip(["colour", "size", "kind"], before.columns_.values, strict=True)
                for name, known in columns:
                    value = frame[name].iloc[n]
                    if not pd.isna(value):
                        log_n[n] += np.log(block.means[:, first + known.tolist().index(value)])
                    first += len(known)
        terms.append(logsumexp(log_n[:, None] + np.log(block.weights), axis=2))
    joint = sum(terms) + np.log(before.class_prior_)
    known = np.array([label is not None for label in labels])
    own = joint[known, labels[known].astype(int)]
    expected = weights[known] @ own + weights[~known] @ logsumexp(joint[~known], axis=1)
    assert trace[11] == pytest.approx(expected, rel=1e-9)
