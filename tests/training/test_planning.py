"""Settings that are left to the data, against the rules as documented."""

from typing import get_args

import numpy as np
import pytest

from pskem import SharedKernelClassifier, Shrinkage
from pskem.blocks import ARRANGEMENTS
from pskem.starts import STARTS, Start, StartName
from pskem.structures import STRUCTURES
from pskem.training import (
    Arrangement,
    CovarianceType,
    Samples,
    Settings,
    make_plan,
    suggest_n_components,
)


@pytest.mark.parametrize(
    ("counts", "m", "expected"),
    [
        ([50, 50, 50], 4, 3),  # one each at least
        ([1, 1], 16, 2),
        ([119, 120], 2, 1 + 2),  # one for every 30 m samples
        ([899, 900, 901], 10, 2 + 3 + 3),
        ([10**6, 300], 5, 20 + 2),  # 20 at most
        ([10**6] * 10, 1, 200),
    ],
)
def test_kernels_by_the_sizes_of_the_classes(counts, m, expected):
    K = suggest_n_components(np.array(counts), m)
    assert K == expected == sum(min(20, max(1, n // (30 * m))) for n in counts)
    assert isinstance(K, int)


@pytest.mark.parametrize("m", [1, 4, 16])
def test_shrinkage_makes_any_covariance_regular(m, rng):
    """m + 1 pseudo-samples: as many as it takes to span m features."""
    sample = rng.standard_normal(m)  # a kernel with a single other sample, shrunk to unit variances
    nu = Shrinkage().amount(STRUCTURES["full"], m)
    shrunk = (np.outer(sample, sample) + nu * np.eye(m)) / (1.0 + nu)
    assert np.linalg.cond(shrunk) < 1.0 + sample @ sample
    assert nu == m + 1
    n = 30 * m  # and a kernel that has the samples for it keeps most of its own
    assert n / (n + Shrinkage().amount(STRUCTURES["full"], m)) > 0.9


def test_kernels_of_blocks_follow_their_sizes(labelled):
    X, y = labelled
    model = SharedKernelClassifier(partition=[[0], [1, 2, 3, 4]], discriminative_iter=0)
    blocks = model.fit(X, y).blocks_
    expected = [sum(min(20, max(1, n // (30 * m))) for n in np.bincount(y)) for m in (1, 4)]
    assert [len(block.means) for block in blocks] == expected
    assert expected[0] > expected[1]


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_the_automatic_shrinkage_is_one_more_than_the_features_of_a_block(
    labelled, covariance_type
):
    X, y = labelled
    settings = {
        "n_components": 5,
        "partition": [[0, 1], [2, 3, 4]],
        "covariance_type": covariance_type,
        "discriminative_iter": 0,
        "random_state": 0,
    }
    left = SharedKernelClassifier(**settings).fit(X, y)
    for r, amount in enumerate([3.0, 4.0]):
        given = SharedKernelClassifier(shrinkage=amount, **settings).fit(X, y)
        np.testing.assert_array_equal(left.blocks_[r].covariances, given.blocks_[r].covariances)
        other = SharedKernelClassifier(shrinkage=amount + 1.0, **settings).fit(X, y)
        assert not np.allclose(left.blocks_[r].covariances, other.blocks_[r].covariances)


def written_out(weights, passes, early_stopping, n, validated):
    """Whether to fit the weights, how many passes, whether to choose; a table in words.

    Validation chooses if it is asked for, or if that is left to the data and there are validation
    data or 1000 samples; then 20 passes are made, else 5. Weights are fitted if that is asked for,
    or if it is left to the data and validation chooses among passes anyway.
    """
    decides = early_stopping is True or (early_stopping == "auto" and (validated or n >= 1000))
    made = {True: 20, False: 5}[decides] if passes == "auto" else passes
    choose = decides and made > 0
    return weights == "fit" or (weights == "auto" and choose), made, choose


@pytest.mark.parametrize("validated", [True, False])
@pytest.mark.parametrize("n", [999, 1000])
@pytest.mark.parametrize("early_stopping", [True, False, "auto"])
@pytest.mark.parametrize("passes", ["auto", 0, 7])
@pytest.mark.parametrize("weights", ["auto", "fit", None])
def test_what_follows_em_depends_on_settings_and_samples(
    rng, weights, passes, early_stopping, n, validated
):
    model = SharedKernelClassifier(
        block_weights=weights, discriminative_iter=passes, early_stopping=early_stopping
    )
    X, labels = rng.standard_normal((n, 2)), np.arange(n) % 2
    validation = (X[:10], labels[:10], None) if validated else None
    samples = Samples(X, labels, np.arange(2), np.full(2, 0.5), validation)
    plan = make_plan(Settings.parse(model.get_params(deep=False)), samples, None, 0)
    expected = written_out(weights, passes, early_stopping, n, validated)
    assert (plan.refinement.fit_weights, plan.refinement.passes, plan.refinement.choose) == expected
    # Whoever needs validation data that are not given has a tenth of the samples held out.
    fit, _, choose = expected
    needed = not validated and (early_stopping is True or fit or choose)
    assert plan.held_out.size == (100 if needed else 0)
    everyone = np.sort([*plan.rows.places, *plan.held_out.places])
    np.testing.assert_array_equal(everyone, np.arange(n))
    # EM's own passes are chosen among only if that is asked for in so many words.
    assert plan.early_stopping == (early_stopping is True)


@pytest.mark.parametrize(("n", "scored"), [(19_999, False), (20_000, True)])
def test_so_many_samples_are_enough_to_hold_some_out(rng, n, scored):
    """Fewer are asked about in turn, and then all of them are trained on."""
    y = (np.arange(n) % 3 == 0).astype(int)
    X = rng.standard_normal((n, 2)) + y[:, None]
    model = SharedKernelClassifier(n_components=2, max_iter=3, tol=0, random_state=0).fit(X, y)
    assert bool(len(model.discriminative_scores_)) == scored
    assert bool(model.trials_) != scored
    assert model.block_weights_.shape == (1,)
    assert abs(model.block_weights_[0] - 1.0) > 1e-3
    assert (model.shares_ > 0.0).all()
    assert len(model.reference_log_densities_) > 500


def test_where_nothing_can_be_held_out_nobody_watches(rng):
    """As many passes as without validation, not as many as validation would choose from."""
    X, labels = rng.standard_normal((1200, 2)), np.arange(1200) % 2
    model = SharedKernelClassifier(validation_fraction=1e-4)
    samples = Samples(X, labels, np.arange(2), np.full(2, 0.5))
    plan = make_plan(Settings.parse(model.get_params(deep=False)), samples, None, 0)
    assert not plan.held_out.size
    assert (plan.refinement.passes, plan.refinement.choose) == (5, False)


def test_what_type_checkers_know_is_what_there_is():
    assert set(get_args(CovarianceType)) == set(STRUCTURES)
    assert set(get_args(StartName)) == set(STARTS)
    assert set(get_args(Arrangement)) == set(ARRANGEMENTS)


@pytest.mark.parametrize("given", ["means", "weights", "both"])
def test_a_start_says_how_many_kernels_there_are(labelled, given):
    X, y = labelled
    weights = [np.full((3, 2), 0.5), np.full((3, 4), 0.25)]
    means = [X[:2, :3], X[:4, 3:]]
    start = Start(
        weights=weights if given != "means" else None, means=means if given != "weights" else None
    )
    settings = {"n_blocks": 2, "discriminative_iter": 0, "max_iter": 2, "tol": 0}
    model = SharedKernelClassifier(init=start, random_state=0, **settings).fit(X, y)
    assert [len(block.means) for block in model.blocks_] == [2, 4]
    alone = SharedKernelClassifier(init=Start(means=X[:4]), discriminative_iter=0, random_state=0)
    assert len(alone.fit(X, y).blocks_[0].means) == 4
