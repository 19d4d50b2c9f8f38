"""From a table to a trained model: what is learnt, held out, suggested and saved."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pskem import SharedKernelClassifier
from pskem.preprocessing import paper_features
from pskem.starts import ClassKMeans, Start
from pskem.tables import TableError
from pskem.training import suggest_n_components
from pskem.workflow import Task, classifier_settings, train
from pskem.workflow.training import hold_out
from reference import plain


def test_a_task_says_what_was_done_to_the_table(table):
    task = Task.read(str(table), "species", drop=["width"])
    assert list(task.X.columns) == ["length", "colour", "fresh"]
    assert len(task.X) == len(task.y) == 398
    assert task.X["length"].isna().any()  # which is nothing to tell of
    assert task.remarks == [
        "Column 'id' is left out: it looks like an identifier (398 distinct texts in 398 rows).",
        "Column 'width' is left out: as asked.",
        "2 row(s) without a class are left out.",
    ]


def test_a_task_tells_of_gaps_in_numbers_and_of_mixed_categories(tmp_path):
    frame = {"x": [1.0, None, 3.0, 4.0], "c": ["a", None, None, "b"], "y": [0, 0, 1, 1]}
    path = tmp_path / "t.csv"
    pd.DataFrame(frame).to_csv(path, index=False)
    assert Task.read(str(path), "y").remarks == []
    first, second = Task.read(str(path), "y", pca=1).remarks
    assert first.startswith("1 missing value(s) are filled with the median of their column")
    assert "mix numbers and categories" in second


@pytest.mark.parametrize(
    ("classes", "match"),
    [
        (["a", "a", "a", "a"], "one class only"),
        ([None] * 4, "no class"),
        (["a", "a", "b", "a"], "a single row: b"),
    ],
)
def test_tables_without_enough_classes_are_refused(tmp_path, classes, match):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": [1, 2, 3, 4], "c": classes}).to_csv(path, index=False)
    with pytest.raises(TableError, match=match):
        Task.read(str(path), "c")


def test_image_sets_keep_all_pixels_and_get_the_papers_features(tiny):
    home, made = tiny
    task = Task.read("mnist", "class", subset="all", data_home=home, pca=3)
    images = np.concatenate([made["mnist", part][0] for part in ("train", "t10k")])
    np.testing.assert_array_equal(task.X, images.reshape(10, -1))
    expected = paper_features(3).fit_transform(images.reshape(10, -1))
    np.testing.assert_allclose(task.encoder.fit_transform(task.X), expected, atol=1e-9)
    with pytest.raises(TableError, match="are pixels"):
        Task.read("mnist", "class", data_home=home, drop=["pixel0"])


def test_training_is_that_of_the_pipeline_by_hand(tmp_path):
    X, y = load_wine(return_X_y=True)
    pd.DataFrame(X).assign(c=y).to_csv(tmp_path / "wine.csv", index=False)
    model = SharedKernelClassifier(n_components=3, covariance_type="tied", random_state=0)
    task = Task.read(str(tmp_path / "wine.csv"), "c")
    np.testing.assert_array_equal(task.X, X)
    np.testing.assert_array_equal(task.y, y.astype(str))
    trained = train(task, model)
    by_hand = make_pipeline(StandardScaler(), model)
    by_hand.fit(task.X, task.y)
    assert trained.n_train == 178
    assert trained.validation_accuracy is None
    assert trained.training_accuracy == by_hand.score(task.X, task.y)
    np.testing.assert_array_equal(
        trained.pipeline.predict_proba(task.X), by_hand.predict_proba(task.X)
    )
    own = np.arange(178), y
    encoded = by_hand[:-1].transform(task.X)
    expected = by_hand[-1].class_log_likelihood(encoded)[own].mean()
    assert trained.log_likelihood == pytest.approx(expected)


def test_held_out_rows_are_seen_by_no_step(table):
    task = Task.read(str(table), "species")
    model = SharedKernelClassifier(covariance_type="diag", random_state=0)
    trained = train(task, model, 0.2)
    assert trained.n_train + trained.n_validation == 398
    assert trained.n_validation == pytest.approx(80, abs=2)
    unchanged = 0
    for row in task.X.index[:40]:
        # An outrageous value in one row changes nothing of the model if the row is held out.
        X = task.X.copy()
        X.loc[row, "length"] = 1e6
        again = train(task._replace(X=X), model, 0.2)
        means = [part.classifier.blocks_[0].means for part in (trained, again)]
        unchanged += np.array_equal(*means)
    assert 2 <= unchanged <= 16


def test_early_stopping_needs_rows_to_validate_on(table):
    task = Task.read(str(table), "species")
    with pytest.raises(TableError, match="Early stopping needs rows"):
        train(task, SharedKernelClassifier(early_stopping=True), 0.0)
    kept = train(task, plain(early_stopping=True, reg_covar=0.1, random_state=0), 0.2)
    scores = kept.classifier.validation_scores_
    assert kept.validation_accuracy == scores.max()
    assert kept.ending == f"pass {scores.argmax() + 1} kept"


def test_suggestions_grow_with_the_data():
    # Every class has one kernel, and one for every 30 samples and feature, 20 at most.
    assert suggest_n_components(np.array([30, 30, 40]), 4) == 3
    assert suggest_n_components(np.array([300, 300, 400]), 4) == 2 + 2 + 3
    assert suggest_n_components(np.array([10**6] * 3), 4) == 60
    assert suggest_n_components(np.array([10**6] * 50), 4) == 1000
    # Smaller blocks bear more kernels.
    few, many = (suggest_n_components(np.array([1000, 1000]), m) for m in (16, 4))
    assert few < many


def test_categories_get_a_block_of_their_own(trained):
    model = trained.classifier
    first = model.model_.first_view.blocks
    assert [block.features.tolist() for block in first] == [[0, 1], [2, 3, 4, 5, 6]]
    assert first[1].covariance_type == "categorical"
    # With one kernel a class it is a table of frequencies, until discriminative passes change it.
    task = trained.task
    by_em = train(task, plain(init=ClassKMeans(), n_components=3, random_state=0), 0.2).classifier
    rows, _ = hold_out(task.y, 0.2, 0)
    colours = pd.crosstab(task.y[rows], task.X["colour"].iloc[rows], normalize="index")
    np.testing.assert_allclose(by_em.blocks_[1].means[:, :3], colours, atol=1e-6)
    without = Task.read(task.source, "species", drop=["colour", "fresh"])
    alone = train(without, SharedKernelClassifier(n_views=1)).classifier
    assert len(alone.blocks_) == 1


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_blocks": 3}, r"n_blocks=3 .* for the 2 column\(s\) of numbers: categories"),
        ({"n_components": [2, 3, 2]}, r"has 3 entries for 1 block\(s\).* of numbers"),
    ],
)
def test_blocks_and_kernels_are_for_numbers(table, settings, match):
    task = Task.read(str(table), "species")
    with pytest.raises(ValueError, match=match):
        train(task, SharedKernelClassifier(**settings))


def test_categories_that_tell_nothing_cost_nothing(tmp_path, rng):
    n = 600
    y = rng.integers(3, size=n)
    frame = pd.DataFrame({"x": rng.standard_normal(n) + 2.0 * y, "y": y})
    accuracy = []
    for noise in (False, True):
        if noise:
            frame["colour"] = rng.choice(["red", "green", "blue"], n)
            frame["flag"] = rng.choice(["yes", "no"], n)
        frame.to_csv(tmp_path / "t.csv", index=False)
        task = Task.read(str(tmp_path / "t.csv"), "y")
        trained = train(task, SharedKernelClassifier(random_state=0), 0.5)
        accuracy.append(trained.validation_accuracy)
    assert accuracy[1] > accuracy[0] - 0.05
    assert accuracy[0] > 0.7


def test_given_kernels_are_for_numbers_alone(table):
    task = Task.read(str(table), "species")
    given = SharedKernelClassifier(init=Start(means=np.zeros((3, 5))))
    with pytest.raises(ValueError, match="categories have a block of their own"):
        train(task, given)


@pytest.mark.parametrize(
    ("flat", "said"),
    [
        ({"own_mass": 7.0, "init": "kmeans"}, "own_mass=7.0 must be a finite number of at least 0"),
        ({"init_range": (3.0, 1.0)}, r"init_range=\(3.0, 1.0\) must be a pair"),
        ({"init_scale": 0.0}, "init_scale=0.0 must be a finite number above 0"),
        ({"init_scale": 3.0}, "init_scale are for init='random'"),
        ({"init": "kmean", "reseed": False}, "init='kmean' is not known"),
    ],
)
def test_flat_settings_are_checked_under_their_own_names(flat, said):
    with pytest.raises(ValueError, match=said):
        classifier_settings(flat)


def test_any_random_state_can_hold_rows_out():
    y = np.repeat(["a", "b"], 50)
    one, two = (hold_out(y, 0.2, np.random.RandomState(seed)) for seed in (0, 0))
    np.testing.assert_array_equal(one[1], two[1])
    assert len(one[1]) == 20
    np.testing.assert_array_equal(np.sort(np.concatenate(one)), np.arange(100))
    assert len(hold_out(y, 0.2, None)[1]) == 20


# ------------------------------------------------------------------------------------ weights


@pytest.fixture
def weighted_table(tmp_path, rng):
    """A CSV file with a column of weights, and the same with rows repeated."""
    y = rng.integers(2, size=120)
    frame = pd.DataFrame(rng.standard_normal((120, 2)) + y[:, None], columns=["a", "b"])
    frame = frame.assign(kind=np.where(y == 0, "x", "y"), times=rng.integers(4, size=120))
    frame.to_csv(tmp_path / "weighted.csv", index=False)
    repeated = frame.loc[frame.index.repeat(frame["times"])].drop(columns="times")
    repeated.to_csv(tmp_path / "repeated.csv", index=False)
    return tmp_path


def test_a_column_of_weights_counts_rows(weighted_table):
    task = Task.read(str(weighted_table / "weighted.csv"), "kind", weights="times")
    assert list(task.X.columns) == ["a", "b"]
    assert task.remarks == []
    assert task.weights.min() == 1.0
    repeated = Task.read(str(weighted_table / "repeated.csv"), "kind")
    encoder = make_pipeline(StandardScaler())
    # The scaler knows no weights, so starts differ; one kernel a class has nothing to start from.
    classifier = SharedKernelClassifier(
        n_components=2, early_stopping=False, discriminative_iter=0, random_state=0
    )
    one, other = (train(part._replace(encoder=encoder), classifier) for part in (task, repeated))
    assert one.training_accuracy == pytest.approx(other.training_accuracy, rel=1e-12)
    assert (one.n_train, other.n_train) == (len(task.y), len(repeated.y))
    assert sum(task.weights) == len(repeated.y)


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ([1.0, 2.0, -1.0, 1.0], "1 row\\(s\\) without a weight, or with a negative one"),
        ([1.0, None, 2.0, 1.0], "1 row\\(s\\) without a weight"),
        ([0.0] * 4, "All weights in the column 'w' are 0"),
        (["a", "b", "c", "d"], "holds texts"),
    ],
)
def test_columns_that_hold_no_weights_are_refused(tmp_path, weights, match):
    path = tmp_path / "t.csv"
    frame = pd.DataFrame({"x": [1.5, 2.0, 3.0, 4.0], "w": weights, "c": ["a", "a", "b", "b"]})
    frame.to_csv(path, index=False)
    with pytest.raises(TableError, match=match):
        Task.read(str(path), "c", weights="w")
    with pytest.raises(TableError, match="no column 'v' to take weights from"):
        Task.read(str(path), "c", weights="v")
    with pytest.raises(TableError, match="holds the classes"):
        Task.read(str(path), "c", weights="c")
