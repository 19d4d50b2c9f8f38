"""merge and branch: streams that went apart, against one that has seen all."""

import copy

import numpy as np
import pytest

from pskem import SharedKernelClassifier
from reference import COVARIANCE_TYPES
from streams import assert_same_bits, bits, gaussians, in_parts


def shards(model, X, y, size=300):
    """Two copies of a model after the first part, each after every second of the others."""
    model.partial_fit(X[:size], y[:size], classes=np.unique(y))
    copies = [copy.deepcopy(model) for _ in range(2)]
    for i, low in enumerate(range(size, len(X), size)):
        copies[i % 2].partial_fit(X[low : low + size], y[low : low + size])
    return copies


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_merged_gaussians_are_those_of_all_rows(labelled, covariance_type):
    """One kernel a class: responsibilities are frozen, and sums of shards those of the whole."""
    X, y = labelled
    one, two = shards(gaussians(covariance_type=covariance_type), X, y, 100)
    whole = in_parts(gaussians(covariance_type=covariance_type), X, y, 100)
    for merged in (one.merge(two), two.merge(one)):
        np.testing.assert_allclose(merged.class_count_, np.bincount(y), rtol=1e-12)
        (block,), (expected,) = merged.blocks_, whole.blocks_
        np.testing.assert_allclose(block.weights, expected.weights, atol=1e-12)
        np.testing.assert_allclose(block.means, expected.means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(block.covariances, expected.covariances, rtol=1e-8, atol=1e-9)
        assert merged.stream_.seen == 600.0
        assert merged.stream_.n_parts == 6


def test_three_shards_merge_in_any_order(labelled):
    X, y = labelled
    start = gaussians().partial_fit(X[:150], y[:150])
    one, two, three = (
        copy.deepcopy(start).partial_fit(X[low : low + 150], y[low : low + 150])
        for low in (150, 300, 450)
    )
    found = [one.merge(two).merge(three), three.merge(one.merge(two))]
    whole = in_parts(gaussians(), X, y, 150)
    for merged in found:
        np.testing.assert_allclose(merged.predict_proba(X), whole.predict_proba(X), rtol=1e-6)


def test_merged_sums_are_those_of_both(overlapping):
    """Also if each shard has split kernels of its own: in each class they sum up to the same."""
    X, y, _, _ = overlapping
    one, two = shards(SharedKernelClassifier(random_state=0, discriminative_iter=0), X, y)
    assert len(one.blocks_[0].means) > 3
    merged = one.merge(two)
    scale, shift = one.blocks_[0].scale, one.blocks_[0].shift
    for j in range(3):
        own = (X[y == j] - shift) / scale
        (running,) = merged.stream_.statistics
        kernels = merged.blocks_[0].allowed[j]
        masses, first, _, frame = running.moments
        total = (first + masses[:, None] * frame.origins)[kernels].sum(axis=0)
        np.testing.assert_allclose(total, own.sum(axis=0), rtol=1e-6, atol=1e-6)
        assert running.masses[j].sum() == pytest.approx(len(own))


def test_a_merged_model_is_as_good_as_one_that_has_seen_all(overlapping):
    X, y, X_new, y_new = overlapping
    one, two = shards(SharedKernelClassifier(random_state=0), X, y)
    before = [bits(one), bits(two)]
    merged = one.merge(two)
    whole = in_parts(SharedKernelClassifier(random_state=0), X, y, 300)
    assert merged.score(X_new, y_new) > whole.score(X_new, y_new) - 0.02
    assert_same_bits(bits(one), before[0])
    assert_same_bits(bits(two), before[1])
    merged.partial_fit(X[:300], y[:300])
    assert merged.stream_.seen == 3300.0


def test_classes_that_one_shard_alone_has_seen(overlapping):
    X, y, X_new, y_new = overlapping
    start = SharedKernelClassifier(random_state=0)
    start.partial_fit(X[:300][y[:300] == 0], y[:300][y[:300] == 0], classes=[0, 1, 2])
    one, two = copy.deepcopy(start), copy.deepcopy(start)
    for low in range(300, 3000, 300):
        part, labels = X[low : low + 300], y[low : low + 300]
        one.partial_fit(part[labels < 2], labels[labels < 2])
        two.partial_fit(part[labels != 1], labels[labels != 1])
    for merged in (one.merge(two), two.merge(one)):
        assert (merged.class_prior_ > 0.0).all()
        assert merged.score(X_new, y_new) > 0.75


def test_copies_may_part_in_the_middle_of_a_stream(labelled):
    """From a branch on; what they had learnt before counts once."""
    X, y = labelled
    parts = [(X[low : low + 100], y[low : low + 100]) for low in range(0, 600, 100)]
    model = gaussians().partial_fit(*parts[0]).partial_fit(*parts[1])
    one, two = (copy.deepcopy(model).partial_fit(*part) for part in parts[2:4])
    with pytest.raises(ValueError, match=r"learnt from the same part .* branch\(\) gives"):
        one.merge(two)
    branch = model.branch()
    one, two, three = (copy.deepcopy(branch).partial_fit(*part) for part in parts[2:5])
    merged = one.merge(two).merge(three.partial_fit(*parts[5]))
    whole = in_parts(gaussians(), X, y, 100)
    np.testing.assert_allclose(merged.class_count_, np.bincount(y), rtol=1e-12)
    np.testing.assert_allclose(merged.predict_proba(X), whole.predict_proba(X), rtol=1e-6)
    assert (merged.stream_.seen, merged.stream_.n_parts) == (600.0, 6)
    with pytest.raises(ValueError, match="learnt from the same part"):
        merged.merge(two)
    np.testing.assert_array_equal(branch.predict_proba(X), model.predict_proba(X))


def test_models_that_began_otherwise_are_not_merged(labelled):
    X, y = labelled
    one = SharedKernelClassifier(random_state=0).partial_fit(X[:300], y[:300])
    two = SharedKernelClassifier(random_state=0).partial_fit(X[300:], y[300:])
    with pytest.raises(ValueError, match="they began otherwise"):
        one.merge(two)
    with pytest.raises(ValueError, match="Models are merged that partial_fit has trained"):
        one.merge(SharedKernelClassifier(early_stopping=False).fit(X, y))
