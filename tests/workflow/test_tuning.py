"""The search for settings: what is tried, in which order, and by how much it is judged."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pskem import SharedKernelClassifier, Shrinkage
from pskem.estimators._selection import AUTO, Trial, make_candidates
from pskem.structures import STRUCTURES
from pskem.tables import TableError
from pskem.workflow import Task, tune, tuning
from reference import COVARIANCE_TYPES


def test_candidates_suit_the_data_and_the_likely_ones_come_first():
    grid = make_candidates(np.full(10, 100), 20)
    usual = Shrinkage().amount(STRUCTURES["full"], 20)
    assert grid[0] == (10, 1, "full", usual), "what fit would choose"

    def away(candidate):
        """How many settings are others, and by how many factors of two K is."""
        K, R, kind, shrinkage = candidate
        usual = Shrinkage().amount(STRUCTURES["full"], 20 // R)
        return np.log2(K / 10) + (R != 1) + (kind != "full") + (shrinkage != usual)

    ranks = [(away(candidate), candidate.cost(1000, 20)) for candidate in grid]
    assert ranks == sorted(ranks)
    assert len(set(grid)) == len(grid)
    assert {candidate.covariance_type for candidate in grid} == set(COVARIANCE_TYPES)
    assert {candidate.n_blocks for candidate in grid} == {1, 2}
    assert {candidate.n_components for candidate in grid} == {10, 20, 40, 80}
    assert len({candidate.shrinkage for candidate in grid if candidate.n_blocks == 1}) == 3
    assert {candidate.n_blocks for candidate in make_candidates(np.array([50, 50]), 2)} == {1}
    assert {candidate.n_blocks for candidate in make_candidates(np.array([50, 50]), 150)} == {
        2,
        5,
        10,
    }
    assert make_candidates(np.array([2] * 5 + [1] * 10), 3)


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
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    train, _ = next(folds.split(X, y))
    grid = make_candidates(np.bincount(y[train]), 13, covariance_type=list(STRUCTURES))
    assert len(trials) == 1 + len(grid) == found.n_candidates
    assert (found.n_rows, found.n_folds) == (178, 4)
    assert [left for _, _, left in seen] == list(range(1 + len(grid)))[::-1]
    assert trials[0].merit == max(trial.merit for trial in trials)
    defaults = seen[0][0]
    assert defaults.candidate == AUTO
    for trial in [defaults, *trials[:2]]:
        model = SharedKernelClassifier(**trial.candidate._asdict(), random_state=0, max_iter=20)
        pipeline = make_pipeline(StandardScaler(), model)
        np.testing.assert_array_equal(
            cross_val_score(pipeline, task.X, task.y, cv=folds), trial.accuracies
        )
        losses = cross_val_score(pipeline, task.X, task.y, cv=folds, scoring="neg_log_loss")
        np.testing.assert_allclose(-losses, trial.log_losses, rtol=1e-6, atol=1e-9)


def test_without_time_the_first_candidate_is_still_tried(table):
    task = Task.read(str(table), "species")
    found = tune(task, SharedKernelClassifier(random_state=0), n_folds=5, budget=0.0)
    assert [trial.candidate for trial in found.trials] == [AUTO]
    assert found.n_folds == 2
    assert found.n_candidates > 10
    given = tune(task, SharedKernelClassifier(init="k-means++", random_state=0), 5, 0.0)
    assert given.n_candidates == found.n_candidates - 1  # what fit would do has that form


def test_candidates_that_would_take_too_long_are_left_out(table, monkeypatch):
    task = Task.read(str(table), "species")
    clock = [0.0]
    monkeypatch.setattr(tuning.time, "monotonic", lambda: clock[0])

    def attempt(candidate):
        seconds = candidate.cost(265, 2) / 1e4
        clock[0] += seconds
        return Trial(candidate, np.zeros(3), np.zeros(3), np.nan, seconds)

    monkeypatch.setattr(tuning, "by_folds", lambda make: attempt)
    whole = tune(task, SharedKernelClassifier(random_state=0), n_folds=3, budget=1e9)
    total = sum(trial.seconds for trial in whole.trials)
    for budget in (0.3 * total, 0.6 * total):
        clock[0] = 0.0
        found = tune(task, SharedKernelClassifier(random_state=0), n_folds=3, budget=budget)
        assert clock[0] <= budget
        assert 1 < len(found.trials) < found.n_candidates


def test_tables_of_categories_have_no_sizes_to_search(tmp_path, rng):
    y = np.arange(60) % 2
    frame = pd.DataFrame({"a": np.where(rng.random(60) < 0.9, y, 1 - y), "y": y})
    frame["a"] = frame["a"].map({0: "no", 1: "yes"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    task = Task.read(str(tmp_path / "t.csv"), "y")
    found = tune(task, SharedKernelClassifier(random_state=0), n_folds=3, budget=60.0)
    assert found.n_candidates == 2
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


def test_folds_are_no_more_than_the_smallest_class_has_rows(tmp_path):
    y = np.repeat([0, 1], [20, 3])
    frame = pd.DataFrame({"x": np.arange(23) + 50.0 * y, "c": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    task = Task.read(str(tmp_path / "t.csv"), "c")
    found = tune(task, SharedKernelClassifier(random_state=0), n_folds=10, budget=60.0)
    assert found.n_folds == 3
    assert len(found.trials[0].accuracies) == 3


def test_a_search_keeps_what_covariances_shrink_to(tmp_path, monkeypatch):
    wine = load_wine(as_frame=True).frame
    wine.to_csv(tmp_path / "wine.csv", index=False)
    task = Task.read(str(tmp_path / "wine.csv"), "target")
    seen = []
    make = tuning.configured
    monkeypatch.setattr(tuning, "configured", lambda *given: seen.append(make(*given)) or seen[-1])
    classifier = SharedKernelClassifier(shrinkage=Shrinkage(target="pooled"), random_state=0)
    tune(task, classifier, 2, 0.0)
    assert {each.shrinkage.target for each in seen} == {"pooled"}
