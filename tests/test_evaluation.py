"""Figures of predictions against scikit-learn, and a calibration error worked out by hand."""

import numpy as np
import pytest
from sklearn import metrics

from pskem.evaluation import BINS, Tally, calibration_error, evaluate


@pytest.fixture
def judged(rng):
    proba = rng.dirichlet(np.ones(4), size=500)
    labels = np.where(rng.random(500) < 0.7, proba.argmax(axis=1), rng.integers(4, size=500))
    return labels, proba


def test_figures_are_scikit_learns(judged):
    labels, proba = judged
    predicted = proba.argmax(axis=1)
    result = evaluate(labels, proba, list("abcd"))
    assert result.n_samples == 500
    assert result.accuracy == metrics.accuracy_score(labels, predicted)
    balanced = metrics.balanced_accuracy_score(labels, predicted)
    assert result.balanced_accuracy == pytest.approx(balanced)
    assert result.log_loss == pytest.approx(metrics.log_loss(labels, proba))
    brier = metrics.brier_score_loss(labels, proba, scale_by_half=False)
    assert result.brier == pytest.approx(brier)
    np.testing.assert_array_equal(result.confusion, metrics.confusion_matrix(labels, predicted))
    report = metrics.classification_report(
        labels, predicted, target_names=list("abcd"), output_dict=True
    )
    for scores in result.classes:
        expected = report[scores.name]
        assert scores.precision == pytest.approx(expected["precision"])
        assert scores.recall == pytest.approx(expected["recall"])
        assert scores.f1 == pytest.approx(expected["f1-score"])
        assert scores.support == expected["support"]


def test_parts_add_up(judged):
    labels, proba = judged
    whole, total = evaluate(labels, proba, list("abcd")), Tally.empty(4)
    for rows in np.split(np.arange(500), [0, 1, 200, 200]):
        total = total.merge(Tally.of(labels[rows], proba[rows]))
    found = total.evaluation(list("abcd"))
    for name in ("accuracy", "log_loss", "brier", "calibration_error", "balanced_accuracy"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=1e-12)
    np.testing.assert_array_equal(found.confusion, whole.confusion)


def test_classes_that_do_not_occur_count_for_nothing():
    proba = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.6, 0.4, 0.0]])
    result = evaluate(np.array([0, 1, 1]), proba, ["a", "b", "c"])
    assert result.balanced_accuracy == pytest.approx(0.75)
    assert result.classes[2].support == 0
    assert result.confusion.shape == (3, 3)
    assert np.isfinite(evaluate(np.array([2]), proba[2:], ["a", "b", "c"]).log_loss)


def test_calibration_error_by_hand():
    # Ten predictions at 0.95 of which 7 are right, ten at 0.62 of which 8 are.
    proba = np.repeat([[0.95, 0.05], [0.38, 0.62]], 10, axis=0)
    labels = np.array([0] * 7 + [1] * 3 + [1] * 8 + [0] * 2)
    assert calibration_error(labels, proba) == pytest.approx(0.5 * 0.25 + 0.5 * 0.18)


def test_calibration_error_is_the_sum_over_bins(judged):
    labels, proba = judged
    confidence, right = proba.max(axis=1), proba.argmax(axis=1) == labels
    total = 0.0
    for low in np.arange(BINS) / BINS:
        inside = (confidence >= low) & (confidence < low + 1 / BINS)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert calibration_error(labels, proba) == pytest.approx(total)


def test_certain_and_right_is_perfect():
    result = evaluate(np.array([0, 1]), np.eye(2), ["a", "b"])
    assert result.accuracy == result.balanced_accuracy == 1.0
    assert result.brier == result.calibration_error == 0.0
    assert result.log_loss == pytest.approx(0.0, abs=1e-12)
