"""From a table to a model and back: what is learnt, held out, chosen, saved and applied."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pskem
from pskem import SharedKernelClassifier, SharedKernelDensity
from pskem.persistence import read_header
from pskem.preprocessing import paper_features
from pskem.tables import TableError, write_parts
from pskem.workflow import Predictor, Task, candidates, check_model_place, train, tune, tuning
from pskem.workflow.training import hold_out, suggest_n_components, suggest_reg_covar

UNSET = {"n_components": None, "reg_covar": None}


@pytest.fixture
def table(tmp_path, rng):
    """A messy table: gaps, categories, truth values, an identifier, rows without a class."""
    n = 400
    y = rng.integers(3, size=n)
    frame = pd.DataFrame(
        {
            "id": [f"row {i}" for i in range(n)],
            "length": np.where(rng.random(n) < 0.05, np.nan, rng.standard_normal(n) + 3 * y),
            "width": rng.standard_normal(n) * (1 + y),
            "colour": np.array(["red", "green", "blue"])[np.where(rng.random(n) < 0.5, y, 0)],
            "fresh": np.where(rng.random(n) < 0.5, "true", "false"),
            "species": np.array(["a", "b", "c"])[y],
        }
    )
    frame.loc[[3, 7], "species"] = None
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


@pytest.fixture
def trained(table):
    task = Task.read(str(table), "species")
    return train(task, SharedKernelClassifier(**UNSET, random_state=0), 0.2)


def test_a_task_says_what_was_done_to_the_table(table):
    task = Task.read(str(table), "species", drop=["width"])
    assert list(task.X.columns) == ["length", "colour", "fresh"]
    assert len(task.X) == len(task.y) == 398
    gaps = int(task.X["length"].isna().sum())
    assert task.remarks == [
        "Column 'id' is left out: it holds 398 different texts in 398 rows.",
        "Column 'width' is left out: as asked.",
        "2 row(s) without a class are left out.",
        f"{gaps} missing value(s) are filled in.",
    ]


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
    by_hand = make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), model)
    by_hand.fit(task.X, task.y)
    assert trained.n_train == 178
    assert trained.validation_accuracy is None
    assert trained.training_accuracy == by_hand.score(task.X, task.y)
    np.testing.assert_array_equal(
        trained.pipeline.predict_proba(task.X), by_hand.predict_proba(task.X)
    )
    total = by_hand[-1].log_likelihoods_[-1].sum()
    assert trained.log_likelihood == pytest.approx(total / 178)


def test_held_out_rows_are_seen_by_no_step(trained):
    task = trained.task
    assert trained.n_train + trained.n_validation == 398
    assert trained.n_validation == pytest.approx(80, abs=2)
    model = SharedKernelClassifier(**UNSET, random_state=0)
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
    kept = train(task, SharedKernelClassifier(**UNSET, early_stopping=True), 0.2)
    scores = kept.classifier.validation_scores_
    assert kept.validation_accuracy == scores.max()
    assert kept.ending == f"pass {scores.argmax() + 1} kept"


def test_suggestions_grow_with_the_data():
    assert suggest_n_components(100, 4, 3, "auto") == 6
    assert suggest_n_components(1000, 4, 3, "auto") == 40
    assert suggest_n_components(10**6, 4, 3, "auto") == 64
    assert suggest_n_components(10**6, 4, 50, "auto") == 100
    # Smaller blocks bear more kernels.
    assert suggest_n_components(1000, 16, 2, 4) > suggest_n_components(1000, 16, 2, 1)


def test_the_suggested_floor_is_high_for_few_rows_and_for_categories(table):
    task = Task.read(str(table), "species")
    assert suggest_reg_covar(task) == 0.1
    many = task._replace(y=np.zeros(20_000))
    assert suggest_reg_covar(many) == 0.1
    numbers = task.columns._replace(categorical=[])
    assert suggest_reg_covar(many._replace(columns=numbers)) == SharedKernelClassifier().reg_covar


def test_a_saved_model_predicts_the_table_as_the_trained_one(table, trained, tmp_path, monkeypatch):
    path = tmp_path / "model.pskem"
    trained.save(path)
    assert read_header(path).metadata["table"]["target"] == "species"
    predictor = Predictor.load(path)
    whole = pd.concat(predictor.predictions(str(table), proba=True, keep=["id"]))
    assert list(whole.columns) == ["id", "prediction", "p(a)", "p(b)", "p(c)"]
    assert len(whole) == 400
    rows = trained.task.X.index
    expected = trained.pipeline.predict_proba(trained.task.X)
    np.testing.assert_allclose(whole.iloc[rows, 2:], expected, rtol=1e-13)
    assert (whole["prediction"].iloc[rows] == trained.pipeline.predict(trained.task.X)).all()
    # In parts of a few rows, of which some hold one category, or nothing but gaps.
    monkeypatch.setattr("pskem.tables.reading.read_parts.__defaults__", (None, None, (), (), 3))
    parts = list(predictor.predictions(str(table), proba=True))
    assert [len(part) for part in parts[:2]] == [3, 3]
    np.testing.assert_allclose(pd.concat(parts).iloc[:, 1:], whole.iloc[:, 2:], rtol=1e-12)


def test_judging_takes_rows_with_a_class_and_counts_the_others(table, trained, tmp_path):
    trained.save(tmp_path / "model.pskem")
    predictor = Predictor.load(tmp_path / "model.pskem")
    labels, proba, n_without = predictor.judged(str(table), predictor.target_for(str(table)))
    assert n_without == 2
    assert (predictor.classes[labels] == trained.task.y).all()
    assert proba.shape == (398, 3)
    other = pd.read_csv(table).replace({"species": {"c": "d"}})
    other.to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(TableError, match=r"class.*d that the model was not trained on. It knows a"):
        predictor.judged(str(tmp_path / "other.csv"), "species")
    other.assign(species=None).to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises(TableError, match="holds no class"):
        predictor.judged(str(tmp_path / "none.csv"), "species")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_kept_columns_come_out_as_they_went_in(table, trained, tmp_path, monkeypatch, kind):
    frame = pd.read_csv(table)
    n = len(frame)
    text = ["" if i < 3 else f"{i:04}" for i in range(n)]
    frame = frame.assign(
        code=text,
        big=pd.array([None if i == 4 else 2**60 + i for i in range(n)], dtype="Int64"),
        late=[None] * (n - 1) + ["x"],
    )
    path = str(tmp_path / f"kept.{kind}")
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    trained.save(tmp_path / "model.pskem")
    predictor = Predictor.load(tmp_path / "model.pskem")
    keep = ["code", "big", "late", "width", "colour"]
    without = pd.concat(predictor.predictions(path, proba=True))
    monkeypatch.setattr("pskem.tables.reading.read_parts.__defaults__", (None, None, (), (), 3))
    out = str(tmp_path / "out.parquet")
    write_parts(predictor.predictions(path, proba=True, keep=keep), out)
    read = pd.read_parquet(out, dtype_backend="numpy_nullable")
    assert read["code"].tolist() == text
    assert [str(v) for v in read["big"][[0, 5]]] == [str(2**60), str(2**60 + 5)]
    assert read["late"].tolist()[-1] == "x"
    assert read["colour"].tolist() == frame["colour"].tolist()
    np.testing.assert_allclose(read["width"].astype(float), frame["width"], rtol=1e-15)
    np.testing.assert_allclose(read.iloc[:, -3:].astype(float), without.iloc[:, -3:], rtol=1e-12)


def test_classes_are_known_by_text_or_by_value(tmp_path, rng):
    n = 90
    y = np.arange(n) % 3
    frame = pd.DataFrame({"x": rng.standard_normal(n) + 9.0 * y})
    classes = {
        "whole.csv": ["0.0", "1.0", "2.0"],
        "fractions.csv": ["0.5", "1.0", "2.0"],
        "codes.csv": ["00", "01", "02"],
    }
    for name, texts in classes.items():
        path = tmp_path / name
        frame.assign(c=np.array(texts)[y]).to_csv(path, index=False)
        train(Task.read(str(path), "c"), SharedKernelClassifier(**UNSET)).save(tmp_path / "m")
        predictor = Predictor.load(tmp_path / "m")
        values = np.array([float(text) for text in texts])[y]
        frame.assign(c=values).to_parquet(tmp_path / "t.parquet")
        frame.assign(c=values)[y > 0].to_parquet(tmp_path / "part.parquet")
        for other, rows in ((path, y >= 0), ("t.parquet", y >= 0), ("part.parquet", y > 0)):
            labels, _, _ = predictor.judged(str(tmp_path / other), "c")
            np.testing.assert_array_equal(labels, y[rows])
        again = train(Task.read(str(tmp_path / "t.parquet"), "c"), SharedKernelClassifier(**UNSET))
        again.save(tmp_path / "m")
        labels, _, _ = Predictor.load(tmp_path / "m").judged(str(path), "c")
        np.testing.assert_array_equal(labels, y)


def test_metadata_of_others_are_no_table(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=4, random_state=0).fit(X, y)
    pskem.save(model, tmp_path / "m", metadata={"numeric": True, "target": 3})
    assert Predictor.load(tmp_path / "m").columns is None
    pskem.save(model, tmp_path / "m", metadata={"table": {"numeric": []}})
    with pytest.raises(TableError, match="does not say rightly"):
        Predictor.load(tmp_path / "m")


def test_bare_models_take_columns_by_name_or_by_number(tmp_path):
    X, y = load_iris(return_X_y=True)
    frame = load_iris(as_frame=True).data
    path = tmp_path / "model.pskem"
    frame.assign(note="x").to_csv(tmp_path / "iris.csv", index=False)
    model = SharedKernelClassifier(n_components=4, random_state=0)
    for data in (X, frame):
        pskem.save(model.fit(data, y), path)
        (part,) = Predictor.load(path).predictions(str(tmp_path / "iris.csv"))
        assert (part["prediction"] == model.predict(data)).all()
    pskem.save(model.fit(X[:, :3], y), path)
    with pytest.raises(TableError, match=r"takes 3 columns of numbers without names.*has 4"):
        list(Predictor.load(path).predictions(str(tmp_path / "iris.csv")))
    with pytest.raises(TableError, match="does not say which column"):
        Predictor.load(path).target_for("iris.csv")
    pskem.save(SharedKernelDensity(n_components=2).fit(X), path)
    with pytest.raises(TableError, match="SharedKernelDensity, which is no fitted classifier"):
        Predictor.load(path)


def test_only_model_files_are_written_over(tmp_path, trained):
    path = tmp_path / "model.pskem"
    check_model_place(path)
    trained.save(path)
    check_model_place(path)
    with pytest.raises(FileExistsError, match="is not a model file"):
        check_model_place(tmp_path / "table.csv")
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        check_model_place(tmp_path / "nowhere" / "model.pskem")
    with pytest.raises(IsADirectoryError):
        check_model_place(tmp_path)


# Tuning


def test_candidates_suit_the_data_and_the_likely_ones_come_first():
    grid = candidates(1000, 20, 10)  # 20 kernels would be suggested
    kernels = [candidate.n_components for candidate in grid]
    assert kernels[: len(grid) // 4] == [16] * (len(grid) // 4)
    assert set(kernels[len(grid) // 4 : 3 * len(grid) // 4]) == {8, 32}
    costs = [candidate.cost(1000, 20) for candidate in grid if candidate.n_components == 16]
    assert costs == sorted(costs)
    assert len(set(grid)) == len(grid)
    assert {candidate.covariance_type for candidate in grid} == {
        "full",
        "tied",
        "diag",
        "spherical",
    }
    assert {candidate.n_blocks for candidate in grid} == {1, 2, 3}
    assert {candidate.n_components for candidate in grid} == {8, 16, 32, 64}
    assert {candidate.n_blocks for candidate in candidates(100, 2, 2)} == {1}
    assert candidates(20, 3, 15)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_trials_are_those_of_scikit_learns_cross_validation(tmp_path):
    X, y = load_wine(return_X_y=True)
    pd.DataFrame(X).assign(c=y).to_csv(tmp_path / "wine.csv", index=False)
    task = Task.read(str(tmp_path / "wine.csv"), "c")
    seen = []
    found = tune(
        task,
        SharedKernelClassifier(random_state=0, max_iter=20),
        n_folds=4,
        budget=600.0,
        observe=lambda trial, done, left: seen.append((trial, done, left)),
    )
    trials = found.trials
    grid = candidates(133, 13, 3)
    assert len(trials) == len(grid) == found.n_candidates
    assert (found.n_rows, found.n_folds) == (178, 4)
    assert [left for _, _, left in seen] == list(range(len(grid)))[::-1]
    assert trials[0].merit == max(trial.merit for trial in trials)
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    for trial in trials[:2]:
        model = SharedKernelClassifier(
            **trial.candidate._asdict(), reg_covar=0.1, random_state=0, max_iter=20
        )
        pipeline = make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), model)
        np.testing.assert_array_equal(
            cross_val_score(pipeline, task.X, task.y, cv=folds), trial.accuracies
        )
        losses = cross_val_score(pipeline, task.X, task.y, cv=folds, scoring="neg_log_loss")
        np.testing.assert_allclose(-losses, trial.log_losses, rtol=1e-6, atol=1e-9)


def test_without_time_the_first_candidate_is_still_tried(table):
    task = Task.read(str(table), "species")
    found = tune(task, SharedKernelClassifier(random_state=0), n_folds=5, budget=0.0)
    assert len(found.trials) == 1
    assert found.n_folds == 2
    assert found.n_candidates > 10


def test_candidates_that_would_take_too_long_are_left_out(table, monkeypatch):
    task = Task.read(str(table), "species")
    clock = [0.0]
    monkeypatch.setattr(tuning.time, "monotonic", lambda: clock[0])

    def trial(classifier, candidate, task, folds):
        seconds = candidate.cost(*folds[0].X.shape) / 1e4
        clock[0] += seconds
        return tuning.Trial(candidate, np.zeros(3), np.zeros(3), seconds)

    monkeypatch.setattr(tuning, "_try", trial)
    whole = tune(task, SharedKernelClassifier(random_state=0), n_folds=3, budget=1e9)
    total = sum(trial.seconds for trial in whole.trials)
    for budget in (0.3 * total, 0.6 * total):
        clock[0] = 0.0
        found = tune(task, SharedKernelClassifier(random_state=0), n_folds=3, budget=budget)
        assert clock[0] <= budget
        assert 1 < len(found.trials) < found.n_candidates


def test_tables_of_categories_have_nothing_to_search_but_the_kind(tmp_path, rng):
    y = np.arange(60) % 2
    frame = pd.DataFrame({"a": np.where(rng.random(60) < 0.9, y, 1 - y), "y": y})
    frame["a"] = frame["a"].map({0: "no", 1: "yes"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    task = Task.read(str(tmp_path / "t.csv"), "y")
    found = tune(task, SharedKernelClassifier(random_state=0), n_folds=3, budget=60.0)
    assert found.n_candidates == 4
    assert found.trials[0].accuracies.mean() > 0.8
    frame["a"] = ["yes"] + ["no"] * 59
    frame.to_csv(tmp_path / "t.csv", index=False)
    task = Task.read(str(tmp_path / "t.csv"), "y")
    with pytest.raises(TableError, match="No column varies within a fold"):
        tune(task, SharedKernelClassifier(random_state=0), n_folds=3, budget=60.0)


def test_large_tables_are_searched_by_a_part_of_their_rows(table, monkeypatch):
    monkeypatch.setattr(tuning, "MOST_ROWS", 100)
    task = Task.read(str(table), "species")
    found = tune(task, SharedKernelClassifier(random_state=0), n_folds=3, budget=0.0)
    assert found.n_rows == pytest.approx(100, abs=1)


def test_a_category_of_one_value_in_a_fold_is_no_trouble(tmp_path, rng):
    frame = pd.DataFrame({"x": rng.standard_normal(60), "c": np.arange(60) % 2, "rare": "no"})
    frame.loc[7, "rare"] = "yes"
    frame.to_csv(tmp_path / "t.csv", index=False)
    task = Task.read(str(tmp_path / "t.csv"), "c")
    assert task.columns.categorical == ["rare"]
    found = tune(task, SharedKernelClassifier(random_state=0), n_folds=5, budget=60.0)
    assert found.n_folds == 5


def test_categories_get_blocks_of_their_own(trained):
    model = trained.classifier
    assert [block.features.tolist() for block in model.blocks_] == [[0, 1], [2, 3], [4]]
    assert [len(block.means) for block in model.blocks_][1:] == [3, 2]
    # A category alone is a table of frequencies: the weights of its kernels are those of the class.
    task = trained.task
    rows, _ = hold_out(task.y, 0.2, 0)
    colours = pd.crosstab(task.y[rows], task.X["colour"].iloc[rows], normalize="index")
    weights = np.sort(model.blocks_[1].weights, axis=1)
    np.testing.assert_allclose(weights, np.sort(colours, axis=1), atol=1e-3)


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
        trained = train(task, SharedKernelClassifier(**UNSET, random_state=0), 0.5)
        accuracy.append(trained.validation_accuracy)
    assert accuracy[1] > accuracy[0] - 0.05
    assert accuracy[0] > 0.7


def test_folds_are_no_more_than_the_smallest_class_has_rows(tmp_path):
    y = np.repeat([0, 1], [20, 3])
    frame = pd.DataFrame({"x": np.arange(23) + 50.0 * y, "c": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    task = Task.read(str(tmp_path / "t.csv"), "c")
    found = tune(task, SharedKernelClassifier(random_state=0), n_folds=10, budget=60.0)
    assert found.n_folds == 3
    assert len(found.trials[0].accuracies) == 3
