"""Products of models over several partitions."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import pskem
from pskem import PartitionEnsemble, SharedKernelClassifier

MEMBER = SharedKernelClassifier(n_components=4, n_blocks=2, max_iter=20)


@pytest.mark.filterwarnings("ignore:All . members have the same kernels:UserWarning")
# The checks fit many kernels to a handful of samples: kernels do run empty and collapse there.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        PartitionEnsemble(n_estimators=2),
        PartitionEnsemble(n_estimators=2, bootstrap=True, max_features=0.9, weights="fit"),
    ]
)
def test_estimator_contract(estimator, check):
    check(estimator)


@pytest.fixture
def ensemble(labelled):
    return PartitionEnsemble(MEMBER, 3, random_state=0).fit(*labelled)


def partitions(ensemble):
    return {
        tuple(tuple(block.features.tolist()) for block in member.blocks_)
        for member in ensemble.estimators_
    }


@pytest.mark.parametrize("partition", ["random", "dependence"])
def test_it_is_the_product_of_its_members(labelled, partition):
    X, y = labelled
    ensemble = PartitionEnsemble(MEMBER, 3, partition=partition, random_state=0).fit(X, y)
    product = np.prod([member.predict_proba(X) for member in ensemble.estimators_], axis=0)
    mean = np.cbrt(product)
    expected = mean / mean.sum(axis=1, keepdims=True)
    # Where the product of small probabilities keeps its digits.
    np.testing.assert_allclose(ensemble.predict_proba(X), expected, rtol=1e-7, atol=1e-90)
    np.testing.assert_allclose(np.exp(ensemble.predict_log_proba(X)), expected, atol=1e-12)
    np.testing.assert_array_equal(ensemble.predict(X), ensemble.classes_[product.argmax(axis=1)])
    np.testing.assert_array_equal(ensemble.decision_function(X), ensemble.predict_log_proba(X))


def test_log_odds_are_the_mean_of_those_of_the_members(labelled):
    X, y = labelled
    ensemble = PartitionEnsemble(MEMBER, 3, random_state=0).fit(X, y == 1)
    expected = np.mean([member.decision_function(X) for member in ensemble.estimators_], axis=0)
    assert expected.shape == (len(X),)
    np.testing.assert_allclose(ensemble.decision_function(X), expected, rtol=1e-9, atol=1e-9)


def test_one_member_is_that_member(labelled):
    X, y = labelled
    ensemble = PartitionEnsemble(MEMBER, 1, random_state=0).fit(X, y)
    (member,) = ensemble.estimators_
    np.testing.assert_allclose(
        ensemble.predict_log_proba(X), member.predict_log_proba(X), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_array_equal(ensemble.predict(X), member.predict(X))
    alone = clone(MEMBER).set_params(partition="random", random_state=member.random_state)
    np.testing.assert_array_equal(alone.fit(X, y).predict_proba(X), member.predict_proba(X))


def test_members_have_different_partitions(labelled, ensemble):
    assert len(partitions(ensemble)) == 3
    same = PartitionEnsemble(MEMBER, 3, partition=None, random_state=0).fit(*labelled)
    assert partitions(same) == {((0, 1, 2), (3, 4))}
    means = [member.blocks_[0].means for member in same.estimators_]
    assert not np.allclose(means[0], means[1])
    assert not hasattr(MEMBER, "blocks_")


def test_an_explicit_partition_may_have_names(labelled):
    X, y = labelled
    table = pd.DataFrame(X, columns=list("abcde"))
    ensemble = PartitionEnsemble(
        MEMBER, 2, partition=[["b", "d"], ["a", "c", "e"]], random_state=0
    ).fit(table, y)
    assert partitions(ensemble) == {((1, 3), (0, 2, 4))}
    np.testing.assert_array_equal(ensemble.feature_names_in_, table.columns)
    ensemble.predict(table)  # and no warning
    ensemble.set_params(partition="random").fit(X, y)
    assert not hasattr(ensemble, "feature_names_in_")


@pytest.mark.usefixtures("threaded")
def test_a_seed_decides_whatever_the_threads(labelled):
    X, y = labelled
    answers = [
        PartitionEnsemble(MEMBER, 3, random_state=seed, n_jobs=n_jobs).fit(X, y).predict_proba(X)
        for seed, n_jobs in [(0, None), (0, 1), (0, 3), (1, 1)]
    ]
    for other in answers[1:3]:
        np.testing.assert_array_equal(answers[0], other)
    assert not np.allclose(answers[0], answers[3])


def test_settings_are_passed_on(labelled, capsys):
    member = clone(MEMBER).set_params(n_jobs=2)
    ensemble = PartitionEnsemble(member, 2, random_state=0).fit(*labelled)
    assert [fitted.n_jobs for fitted in ensemble.estimators_] == [2, 2]
    assert capsys.readouterr().err == ""
    ensemble.set_params(n_jobs=1, verbose=1).fit(*labelled)
    assert [fitted.n_jobs for fitted in ensemble.estimators_] == [1, 1]
    assert capsys.readouterr().err


def test_validation_data_reach_the_members(labelled):
    X, y = labelled
    member = clone(MEMBER).set_params(discriminative_iter=0, block_weights=None)
    ensemble = PartitionEnsemble(member, 2, random_state=0)
    ensemble.fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:])
    for fitted in ensemble.estimators_:
        assert len(fitted.validation_scores_) == fitted.n_iter_
    with pytest.raises(ValueError, match="X_val and y_val go together"):
        ensemble.fit(X, y, X_val=X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_estimators": 0}, "n_estimators=0 must be an integer of at least 1"),
        ({"estimator": LogisticRegression()}, "must be a SharedKernelClassifier or None. Put"),
        ({"estimator": SharedKernelClassifier}, "must be a SharedKernelClassifier or None"),
        ({"partition": "odd"}, "partition='odd' is not known. Accepted: 'sequential'"),
        ({"n_jobs": 0}, "n_jobs=0 must be"),
        ({"verbose": -1}, "verbose=-1 must be"),
        ({"random_state": "x"}, "random_state='x' is not accepted"),
    ],
)
def test_bad_settings_are_refused(labelled, settings, message):
    with pytest.raises(ValueError, match=message):
        PartitionEnsemble(**settings).fit(*labelled)


def test_it_has_to_be_fitted(labelled):
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(PartitionEnsemble(), method)(labelled[0])


def test_a_failed_fit_leaves_the_last_one(labelled, ensemble):
    X = labelled[0]
    before = ensemble.predict_proba(X)
    with pytest.raises(ValueError, match="infinity"):
        ensemble.fit(np.full((10, 3), np.inf), np.repeat([0, 1], 5))
    np.testing.assert_array_equal(ensemble.predict_proba(X), before)


def test_model_files_and_pickles_hold_it_bit_by_bit(labelled, ensemble, tmp_path):
    X, _ = labelled
    pskem.save(ensemble, tmp_path / "model.pskem")
    for loaded in (pskem.load(tmp_path / "model.pskem"), pickle.loads(pickle.dumps(ensemble))):
        assert loaded.get_params().keys() == ensemble.get_params().keys()
        assert partitions(loaded) == partitions(ensemble)
        assert loaded.predict_log_proba(X).tobytes() == ensemble.predict_log_proba(X).tobytes()


def test_members_that_are_all_the_same_are_told(rng):
    X, y = rng.standard_normal((60, 3)), np.arange(60) % 2
    X += y[:, None]
    with pytest.warns(
        UserWarning, match=r"All 3 members have the same kernels.* Use bootstrap=True"
    ):
        PartitionEnsemble(n_estimators=3, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PartitionEnsemble(SharedKernelClassifier(n_blocks=2), 3, random_state=0).fit(X, y)
        PartitionEnsemble(n_estimators=1, random_state=0).fit(X, y)
        PartitionEnsemble(n_estimators=3, bootstrap=True, random_state=0).fit(X, y)
        PartitionEnsemble(n_estimators=3, max_features=2, random_state=0).fit(X, y)
