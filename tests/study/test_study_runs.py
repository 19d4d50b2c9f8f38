"""What a run does: splits that do not leak, traces that other code confirms, both protocols."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedKFold

from pskem.engine import ArraySource, measure, serial_map
from pskem.starts import STARTS
from pskem.structures import STRUCTURES
from pskem.study import Place, Point, RunSpec, StudyError
from pskem.study.execution import PartResult, Result, perform
from pskem.study.materials import file_digest, is_ready, load, prepare
from pskem.study.methods import CLASSIFIERS, Sample, lacking
from pskem.study.splits import make_parts
from pskem.training._initial import Fixed, initialise, look
from reference import plain

Y = np.repeat([0, 1, 2], [30, 50, 40])
SETTINGS = {"n_components": 5, "n_blocks": 2, "max_iter": 6, "priors": "uniform", "reg_covar": 0.1}
IRIS = Point({"source": "iris"}, {}, {"folds": 3}, {"fraction": 0.2}, "shared-kernels", SETTINGS)


def check_parts(parts, n):
    for part in parts:
        rows = [set(group.tolist()) for group in (part.train, part.validation, part.test)]
        assert sum(map(len, rows)) == len(set().union(*rows))
        assert set().union(*rows) <= set(range(n))
        for kept, held_out in part.inner:
            assert not set(kept) & set(held_out)
            assert set(kept) | set(held_out) <= rows[0]


def test_folds_in_the_given_order_are_contiguous():
    parts = make_parts(Y, None, {"folds": 10, "order": "given"}, {"folds": 3}, 7)
    check_parts(parts, 120)
    assert [part.test.tolist() for part in parts] == np.arange(120).reshape(10, 12).tolist()
    for part in parts:
        assert np.sort(np.concatenate([b for _, b in part.inner])).tolist() == part.train.tolist()


def test_shuffled_folds_depend_on_the_seed_alone():
    first, same, other = (
        make_parts(Y, None, {"folds": 4, "order": "shuffled"}, {}, seed) for seed in (1, 1, 2)
    )
    check_parts(first, 120)
    assert all((a.test == b.test).all() for a, b in zip(first, same, strict=True))
    assert any((a.test != b.test).any() for a, b in zip(first, other, strict=True))
    assert sorted(np.concatenate([part.test for part in first])) == list(range(120))


def test_a_publishers_test_rows_are_never_trained_on():
    split = {"train": 40}
    (part,) = make_parts(Y, 90, split, {"rows": 20}, 3)
    check_parts([part], 120)
    assert part.test.tolist() == list(range(90, 120))
    assert (len(part.train), len(part.validation), part.inner) == (40, 20, [])
    assert part.train.max() < 90
    assert part.validation.max() < 90
    (all_of_them,) = make_parts(Y, 90, {}, {}, 3)
    assert all_of_them.train.tolist() == list(range(90))


def test_a_fixed_split_is_the_same_for_all_seeds():
    for fixed in (True, False):
        a, b = (make_parts(Y, 90, {"train": 40, "fixed": fixed}, {"rows": 9}, s)[0] for s in (1, 2))
        assert (a.train == b.train).all() == fixed


def test_rows_held_out_at_random_keep_the_shares_of_the_classes():
    (part,) = make_parts(Y, None, {"test": 0.1}, {"fraction": 0.5}, 0)
    check_parts([part], 120)
    assert np.bincount(Y[part.test]).tolist() == [3, 5, 4]
    ((kept, held_out),) = part.inner
    assert len(kept) + len(held_out) == len(part.train) == 108
    assert abs(len(kept) - len(held_out)) <= 3


@pytest.mark.parametrize(
    ("split", "validation", "said"),
    [
        ({"train": 80}, {"rows": 20}, "80 rows to train on and 20 to validate on"),
        ({"folds": 31}, {}, "31 folds are too many: the smallest class has 30 rows"),
        ({"folds": 121, "order": "given"}, {}, "there are 120 rows"),
        ({"test": 0.001}, {}, "leaves no rows to test on"),
        ({"test": 0.2}, {"fraction": 0.001}, "leaves no rows to validate on"),
    ],
)
def test_a_split_that_cannot_be_had_is_refused(split, validation, said):
    with pytest.raises(StudyError, match=said):
        make_parts(Y, 90 if "train" in split else None, split, validation, 0)


def test_accuracies_after_each_pass_are_those_of_shorter_trainings():
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    X = X @ rng.standard_normal((64, 12)) / 50
    train, test, other = np.split(rng.permutation(len(y)), [900, 1400])
    method = CLASSIFIERS["shared-kernels"]
    model = method.make({**SETTINGS, "n_components": 12}, 3, 1)
    samples = [Sample(X[rows], y[rows]) for rows in (train, test, other)]
    trace = method.train(model, samples[0], samples[1:])
    assert [len(scores) for scores in trace.accuracies] == [6, 6]
    for p in (1, 3, 6):
        alone = plain(
            **{**SETTINGS, "n_components": 12, "max_iter": p}, tol=0.0, random_state=3
        ).fit(X[train], y[train])
        assert trace.accuracies[0][p - 1] == alone.score(X[test], y[test])
        assert trace.accuracies[1][p - 1] == alone.score(X[other], y[other])
        assert trace.shared[p - 1] == alone.shared_proportion()
        assert trace.log_likelihoods[p - 1] == alone.log_likelihoods_[-1].sum()
    assert trace.seconds > 0.0


def test_class_frequencies_count_where_they_are_the_priors():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((300, 2)), (rng.random(300) < 0.1).astype(int)
    settings = {"n_components": 2, "max_iter": 3, "reg_covar": 0.1}
    for priors in (None, "uniform"):
        model = CLASSIFIERS["shared-kernels"].make({**settings, "priors": priors}, 0, 1)
        trace = CLASSIFIERS["shared-kernels"].train(model, Sample(X, y), [Sample(X, y)])
        assert trace.accuracies[0][-1] == model.score(X, y)
    assert trace.accuracies[0][-1] < 0.8 < np.mean(y == 0)


def test_the_two_protocols():
    """Peak: the best pass by test. Honest: that of validation, the first of equals."""
    part = PartResult(10, 5, 8, [0.5, 0.9, 0.7, 0.6], [0.1, 0.2, 0.8, 0.8], 3, [], [0.5], 2.0)
    other = part._replace(test=[0.2, 0.4, 0.4, 0.4], chosen=1)
    result = Result([part, other], 9.0, {})
    assert (part.peak, part.honest) == (0.9, 0.7)
    assert result.peak == pytest.approx(0.65)
    assert result.honest == pytest.approx(0.45)
    assert result.last == pytest.approx(0.5)
    assert result.seconds_per_pass == 0.5


def test_the_pass_is_chosen_by_an_inner_training_from_the_training_rows(tmp_path):
    result = perform(RunSpec(IRIS, 4), Place(tmp_path))
    assert len(result.parts) == 3
    X, y = load_iris(return_X_y=True)
    folds = StratifiedKFold(3, shuffle=True, random_state=4).split(X, y)
    for part, (train, test) in zip(result.parts, folds, strict=True):
        assert (part.n_train, part.n_validation, part.n_test) == (len(train), 20, len(test))
        assert part.chosen == 1 + part.validation.index(max(part.validation))
        assert part.peak >= part.honest
        assert len(part.test) == len(part.validation) == len(part.log_likelihoods) == 6
        assert (np.diff(part.log_likelihoods) > -1e-9 * np.abs(part.log_likelihoods[1:])).all()


def test_without_validation_the_last_pass_counts(tmp_path):
    result = perform(RunSpec(IRIS._replace(validation={}), 0), Place(tmp_path))
    assert result.honest == result.last
    assert [part.chosen for part in result.parts] == [6, 6, 6]


def test_a_run_is_the_same_twice_and_for_any_number_of_threads(tmp_path):
    first, again = (perform(RunSpec(IRIS, 1), Place(tmp_path), threads) for threads in (1, 2))
    for a, b in zip(first.parts, again.parts, strict=True):
        assert a._replace(seconds=0.0) == b._replace(seconds=0.0)
    assert perform(RunSpec(IRIS, 2), Place(tmp_path)).parts[0].test != first.parts[0].test


def test_a_conventional_classifier_is_scikit_learns_own(tmp_path):
    point = IRIS._replace(method="lda", settings={}, validation={}, features={"scale": "none"})
    result = perform(RunSpec(point, 5), Place(tmp_path))
    X, y = load_iris(return_X_y=True)
    folds = StratifiedKFold(3, shuffle=True, random_state=5).split(X, y)
    scores = [LinearDiscriminantAnalysis().fit(X[a], y[a]).score(X[b], y[b]) for a, b in folds]
    assert result.honest == result.peak == pytest.approx(np.mean(scores))
    assert result.shared is None


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name != "shared-kernels"])
def test_every_conventional_classifier_learns(name, tmp_path):
    if lacking(name):
        pytest.skip(f"{lacking(name)} is not installed")
    # The members of an ensemble over one block would all be the same, and say so.
    given = {"n_blocks": 2} if name == "pskem-ensemble" else {}
    point = IRIS._replace(method=name, settings=CLASSIFIERS[name].complete(given), validation={})
    result = perform(RunSpec(point, 0), Place(tmp_path))
    assert result.honest > 0.9
    known = {"y contains no unlabeled samples": 3} if name == "self-training" else {}
    assert result.warnings == known


def test_so_many_labels_of_each_class_are_kept():
    y = np.repeat([0, 1, 2], [50, 30, 40])
    (part,) = make_parts(y, None, {"test": 0.25, "labels": 4}, {}, 3)
    assert np.bincount(y[part.train]).tolist() == [4, 4, 4]
    everyone = np.sort(np.concatenate([part.train, part.unlabelled, part.test]))
    np.testing.assert_array_equal(everyone, np.arange(120))
    (other,) = make_parts(y, None, {"test": 0.25, "labels": 4}, {}, 4)
    assert set(other.train) != set(part.train)
    with pytest.raises(StudyError, match="40 labels of each class were asked for; 0 has 38"):
        make_parts(y, None, {"labels": 40}, {}, 0)


def test_rows_without_their_classes_are_learnt_from_by_those_who_can(rng):
    y = rng.integers(2, size=400)
    X = rng.standard_normal((400, 4)) + 4.0 * y[:, None]
    sample = Sample(X[:6], y[:6], X[6:300])
    seen = {}
    for name in ("pskem", "pskem-labelled", "pskem-ensemble", "self-training", "label-spreading"):
        method = CLASSIFIERS[name]
        model = method.make(method.complete({}), 0, 1)
        fit = model.fit
        model.fit = lambda X, y, name=name, fit=fit: seen.update({name: len(X)}) or fit(X, y)
        trace = method.train(model, sample, [Sample(X[300:], y[300:])])
        assert trace.accuracies[0][0] > (0.5 if name == "self-training" else 0.9)
    assert seen.pop("pskem-labelled") == 6
    assert set(seen.values()) == {300}
    texts = Sample(X[:6], np.array(["a", "b"])[y[:6]], X[6:300]).together(-1)
    assert texts.y.dtype == object


def test_gaps_are_filled_for_those_who_do_not_take_them(tmp_path, rng):
    X, y = load_iris(return_X_y=True)
    X = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    pd.DataFrame(X, columns=list("abcd")).assign(kind=y).to_csv(tmp_path / "t.csv", index=False)
    digest = file_digest(tmp_path / "t.csv")
    data = {"source": "t.csv", "target": "kind", "digest": digest}
    accuracies = {}
    for name in ("lda", "hist-gradient-boosting", "pskem", "tuned-knn"):
        settings = CLASSIFIERS[name].complete({})
        point = IRIS._replace(data=data, method=name, settings=settings, validation={})
        result = perform(RunSpec(point, 0, str(tmp_path / "t.csv")), Place(tmp_path))
        accuracies[name] = result.honest
    assert min(accuracies.values()) > 0.85


def test_settings_that_a_classifier_refuses_are_not_chosen(recwarn):
    X, y = load_iris(return_X_y=True)
    method = CLASSIFIERS["tuned-knn"]._replace(grid={"n_neighbors": [-1, 5]})
    search = method.make({}, 0, 1)
    trace = method.train(search, Sample(X, y), [Sample(X, y)])
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [True, False]
    assert trace.accuracies[0][0] > 0.9
    assert not recwarn.list


def test_warnings_are_kept_once_with_their_number(tmp_path):
    point = IRIS._replace(settings={**SETTINGS, "n_components": 40, "reg_covar": 1e-6})
    result = perform(RunSpec(point, 0), Place(tmp_path))
    (text,) = result.warnings
    assert text.startswith("Kernels collapsed")
    assert result.warnings[text] == 6  # three folds, each once more for the choice of the pass


def test_scalers_see_the_training_rows_alone(tmp_path):
    """A test fold far away must not change what the training rows look like."""
    path = tmp_path / "t.csv"
    rows = ["x,y,c", *(f"{i % 7},{i % 3},{'ab'[i % 2]}" for i in range(60))]
    results = []
    for last in ("3,1,a", "1000000,1,a"):
        path.write_text("\n".join([*rows, last]) + "\n")
        point = Point(
            {"source": "t.csv", "target": "c", "digest": file_digest(path)},
            {"scale": "range"},
            {"folds": 61, "order": "given"},
            {},
            "shared-kernels",
            {"n_components": 2, "max_iter": 2, "reg_covar": 0.1},
        )
        result = perform(RunSpec(point, 0, str(path)), Place(tmp_path / str(len(results))))
        results.append(result)
    # The last part tests on the last row and trains on the others, which are the same.
    assert results[0].parts[-1].log_likelihoods == results[1].parts[-1].log_likelihoods
    assert results[0].parts[0].log_likelihoods != results[1].parts[0].log_likelihoods


def test_both_models_of_the_mda_study_start_from_the_same_kernels(rng):
    X = rng.standard_normal((200, 4))
    source = ArraySource([X.T.copy()], np.array([0, 100, 200]), serial_map)
    coordinates = measure(source)
    (view,) = look(source.standardise(coordinates), coordinates, [5], [None])
    full, tied = (
        initialise(
            STARTS["random"], 1e-6, STRUCTURES[kind], view, 5, Fixed(), np.random.default_rng(3)
        )
        for kind in ("full", "tied")
    )
    assert (full.means == tied.means).all()
    assert (full.weights == tied.weights).all()
    np.testing.assert_allclose(full.covariances, [tied.covariances] * 5, rtol=1e-12, atol=1e-15)


def test_features_of_divided_image_sets_are_made_once(tiny, tmp_path):
    home, _ = tiny
    place = Place(tmp_path / "prepared", str(home))
    features = {"n_components": 3, "deskew": False}
    point = Point({"source": "mnist"}, features, {}, {}, "lda", {})
    assert not is_ready(point, None, place)
    prepare(point, place)
    assert is_ready(point, None, place)
    material = load(point, None, place)
    assert material.X.shape == (10, 3)
    assert material.n_train == 6
    assert material.X.dtype == np.float64
    before = {file: file.stat().st_mtime_ns for file in place.prepared.rglob("*")}
    prepare(point, place)
    assert {file: file.stat().st_mtime_ns for file in place.prepared.rglob("*")} == before
    # The principal axes are those of the training images alone.
    assert np.abs(material.X[:6].mean(axis=0)).max() < 1e-5
    other = point._replace(features={**features, "dtype": "float32"})
    prepare(other, place)
    assert load(other, None, place).X.dtype == np.float32
    assert len(list(place.prepared.iterdir())) == 2
