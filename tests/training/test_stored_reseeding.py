"""Kernels that run empty find new places also where samples are read piece by piece.

New places are looked for among samples that were drawn, and taken only where all samples gain.
"""

import numpy as np
import pandas as pd
import pytest

from pskem import SharedKernelClassifier, open_table
from pskem.engine import ArraySource, Kernels, keep_gains, serial_map
from pskem.starts import Start
from pskem.structures import STRUCTURES
from pskem.training import _loop
from pskem.training._piecewise import PieceSource
from reference import COVARIANCE_TYPES, distance, of_type, reference_log_likelihood

pytestmark = pytest.mark.plumbing

N = 21_000
FAR = 900.0
CORNERS = np.array([[[0.0, 0.0], [8.0, 0.0]], [[0.0, 8.0], [8.0, 8.0]]])


def far_start(**settings):
    """One kernel among the samples, three where there are none."""
    given = {"discriminative_iter": 0, "early_stopping": False, "block_weights": None, **settings}
    return SharedKernelClassifier(
        n_components=4,
        n_blocks=1,
        covariance_type="full",
        init=Start(
            weights=np.full((2, 4), 0.25),
            means=np.array([[0.0, 0.0], [FAR, 0.0], [0.0, FAR], [FAR, FAR]]),
            covariances=np.array([np.eye(2)] * 4),
            reseed=True,
        ),
        shrinkage=0.0,
        tol=0.0,
        max_iter=15,
        random_state=0,
        **given,
    )


@pytest.fixture(scope="module")
def groups():
    """Two classes of two groups each, in the corners of a square."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=N)
    return CORNERS[y, rng.integers(2, size=N)] + rng.standard_normal((N, 2)), y


@pytest.fixture
def mended(monkeypatch):
    """Of each time that kernels ran empty in a pass: the source, and which were moved."""
    calls = []

    def spy(structure, before, moved, source, block):
        found = keep_gains(structure, before, moved, source, block)
        calls.append((source, found[1]))
        return found

    monkeypatch.setattr(_loop, "keep_gains", spy)
    return calls


@pytest.mark.parametrize("kind", ["memmap", "parquet"])
def test_stored_samples_give_the_places_of_memory(groups, tmp_path, mended, kind):
    X, y = groups
    expected = far_start().fit(X, y)
    in_memory = list(mended)
    mended.clear()
    seen = []

    def watch(model):
        seen.append(model.blocks[0].means)

    if kind == "memmap":
        np.save(tmp_path / "X.npy", X)
        model = far_start().fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y, watch=watch)
    else:
        frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=y)
        frame.to_parquet(tmp_path / "table.parquet", row_group_size=7000)
        model = far_start().fit(open_table(tmp_path / "table.parquet", "kind"), watch=watch)
    # Three kernels ran empty in the first pass, of samples that were read, and all were moved.
    assert all(isinstance(source, PieceSource) for source, _ in mended)
    np.testing.assert_array_equal(mended[0][1], [False, True, True, True])
    assert (np.abs(seen[0]).max(axis=1) < 20.0).all()
    # In memory the same happened in the same passes.
    assert [moved.tolist() for _, moved in mended] == [moved.tolist() for _, moved in in_memory]
    assert distance(expected, model) < 1e-9
    # Truth: the four groups, a kernel each, and a likelihood that never falls.
    found = {tuple(8 * np.round(mean / 8).astype(int)) for mean in model.blocks_[0].means}
    assert found == {(0, 0), (8, 0), (0, 8), (8, 8)}
    trace = model.log_likelihoods_[:, 0]
    assert len(trace) == 15
    assert (np.diff(trace) >= -1e-12 * np.abs(trace[1:])).all()
    assert trace[-1] > trace[0] + N


def test_empty_kernels_stay_where_the_drawn_samples_mislead(groups, tmp_path, monkeypatch):
    """Kernels that were put where no samples are lower the likelihood, and are put back."""
    X, y = groups
    np.save(tmp_path / "X.npy", X)
    asked = []

    def mislead(structure, kernels, source, block, empty, allowed):
        asked.append(empty.copy())
        means, weights = kernels.means.copy(), kernels.weights.copy()
        means[empty] = 50.0
        weights *= 0.5
        weights[:, np.flatnonzero(empty)[0]] += 0.5
        return kernels._replace(means=means, weights=weights), np.zeros_like(empty)

    monkeypatch.setattr(_loop, "reseed", mislead)
    stored = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.warns(UserWarning, match="ran empty"):
        model = far_start().fit(stored, y)
    assert len(asked) == _loop.MOST_RESEEDINGS, "they were still empty, so it was tried again"
    np.testing.assert_array_equal(asked[-1], [False, True, True, True])
    trace = model.log_likelihoods_[:, 0]
    assert (np.diff(trace) >= -1e-12 * np.abs(trace[1:])).all()
    means = model.blocks_[0].means
    np.testing.assert_allclose(means[1:], [[FAR, 0.0], [0.0, FAR], [FAR, FAR]])
    np.testing.assert_allclose(means[0], X.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_only_classes_that_gain_keep_moved_kernels(rng, covariance_type):
    """Kernel 2 was moved to samples of the first class, kernel 3 away from those of the second."""
    structure = STRUCTURES[covariance_type]
    X = rng.standard_normal((60, 2))
    X[20:30] += [0.0, 9.0]
    X[30:] += [6.0, 0.0]
    labels = np.repeat([0, 1], 30)
    covariances = of_type(np.array([np.eye(2)] * 4), covariance_type)
    means = np.array([[0.0, 0.0], [6.0, 0.0], [300.0, 0.0], [0.0, 300.0]])
    weights = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    before = Kernels(weights, means, covariances)
    moved = Kernels(
        np.array([[0.7, 0.0, 0.3, 0.0], [0.0, 0.6, 0.0, 0.4]]),
        np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 9.0], [-40.0, 0.0]]),
        covariances,
    )
    counted = rng.uniform(0.5, 2.0, 60)
    source = ArraySource([np.ascontiguousarray(X.T)], np.array([0, 30, 60]), serial_map, counted)
    kept, used = keep_gains(structure, before, moved, source, 0)
    np.testing.assert_array_equal(used, [False, False, True, False])
    np.testing.assert_array_equal(kept.weights, [moved.weights[0], before.weights[1]])
    np.testing.assert_array_equal(kept.means, [*means[:2], moved.means[2], means[3]])

    def log_likelihood(kernels):
        dense = structure.storage.dense(kernels.covariances, 4, 2)
        log_q = reference_log_likelihood(X, kernels.weights, kernels.means, dense)
        return counted @ log_q[np.arange(60), labels]

    assert log_likelihood(kept) > max(log_likelihood(before), log_likelihood(moved)) + 1.0
    # Nothing to gain at all: everything is as before.
    same, used = keep_gains(structure, before, before, source, 0)
    assert not used.any()
    np.testing.assert_array_equal(same.weights, before.weights)
