"""Hypothesis looks for data that break a fit: shapes, scales, duplicates, degenerate features."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pskem import SharedKernelClassifier
from pskem.starts import ClassKMeans, KMeans, Start, Uniform
from reference import COVARIANCE_TYPES, plain

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@st.composite
def problems(draw):
    """Data with 1 to 40 samples, 1 to 5 features, 1 to 4 classes, and something odd about them."""
    N, M, L = draw(st.integers(1, 40)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((N, M))
    y = rng.integers(L, size=N)
    oddity = draw(
        st.sampled_from(
            ["none", "scales", "offset", "duplicates", "constant", "copies", "integers", "outlier"]
        )
    )
    if oddity == "scales":
        X = X * 10.0 ** rng.integers(-12, 13, size=M)
    elif oddity == "offset":
        X = X + 10.0 ** rng.integers(0, 9, size=M)
    elif oddity == "duplicates":
        X = X[rng.integers(max(1, N // 4), size=N)]
    elif oddity == "constant":
        X[:, rng.integers(M)] = rng.choice([0.0, 1.0, -1e9, 1e-9])
    elif oddity == "copies":
        X = np.repeat(X[:, :1], M, axis=1)
    elif oddity == "integers":
        X = np.round(X)
    elif oddity == "outlier":
        X[0] = 1e8
    return X.astype(draw(st.sampled_from([np.float64, np.float32]))), y


#: What the names stand for in a training by EM alone.
ALONE = {
    "class-kmeans": ClassKMeans(own_mass=0.9, reseed=False),
    "k-means++": KMeans(refine=False, reseed=False),
    "kmeans": KMeans(reseed=False),
    "random": Uniform(reseed=False),
}

parameters = st.fixed_dictionaries(
    {
        "n_components": st.integers(1, 12),
        "covariance_type": st.sampled_from(COVARIANCE_TYPES),
        "init": st.sampled_from(list(ALONE)),
        "reg_covar": st.sampled_from([0.0, 1e-6, 1e-2]),
        "max_iter": st.integers(1, 15),
        "tol": st.sampled_from([0.0, 1e-3]),
        "random_state": st.integers(0, 5),
    }
)


def standardised(block):
    return block.dense_covariances / np.outer(block.scale, block.scale)


@settings(max_examples=200)
@given(problems(), parameters, st.data())
def test_any_fit_gives_a_valid_model(problem, parameters, data):
    X, y = problem
    n_blocks = data.draw(st.integers(1, X.shape[1]))
    make = data.draw(st.sampled_from([plain, SharedKernelClassifier]))
    init = ALONE[parameters["init"]] if make is plain else parameters["init"]
    model = make(n_blocks=n_blocks, **{**parameters, "init": init}).fit(X, y)

    for block in model.blocks_:
        assert np.isfinite(block.means).all()
        np.testing.assert_allclose(block.weights.sum(axis=1), 1.0)
        assert (block.weights >= 0.0).all()
        assert (np.linalg.eigvalsh(standardised(block)) > 0.0).all()
    trace = model.log_likelihoods_
    assert np.isfinite(trace).all()
    # float32 arithmetic has seven digits; the promise to rounding is for float64. It is for EM
    # alone: with shrinkage the posterior grows, not the likelihood.
    if X.dtype == np.float64 and make is plain:
        # A covariance whose smallest eigenvalue is held at the floor carries that eigenvalue to
        # a relative error of eps / floor only, which moves log|P| by as much for every sample.
        floor = max(parameters["reg_covar"], 1e-10)
        lowest = min(np.linalg.eigvalsh(standardised(block)).min() for block in model.blocks_)
        held = X.size * np.finfo(float).eps / floor if lowest < 2.0 * floor else 0.0
        assert (np.diff(trace, axis=0) >= -1e-10 * np.abs(trace[1:]) - 4.0 * held).all()

    proba = model.predict_proba(X)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert set(model.predict(X)) <= set(y)


@settings(max_examples=25)
@given(st.integers(3, 300), st.integers(2, 60), st.integers(0, 100))
def test_many_small_classes(per_class, L, seed):
    """Chunks with one, some or many classes give what one class at a time gives."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, per_class + 1, size=L)
    y = np.repeat(np.arange(L), sizes)
    X = rng.standard_normal((len(y), 2))
    weights = rng.dirichlet(np.ones(3), size=L)
    weights[rng.random((L, 3)) < 0.2] = 0.0
    weights[weights.sum(axis=1) == 0.0] = 1.0
    weights[0] = 1.0  # no kernel is closed to all
    weights /= weights.sum(axis=1, keepdims=True)
    start = rng.standard_normal((3, 2))
    init = Start(weights, start, [np.eye(2)] * 3, reseed=False)
    model = plain(n_components=3, n_blocks=1, init=init, max_iter=1, tol=0).fit(X, y)
    (block,) = model.blocks_
    np.testing.assert_array_equal(block.weights[weights == 0.0], 0.0)
    squares = ((X[:, None] - start) ** 2).sum(axis=2)
    terms = weights[y] * np.exp(-0.5 * squares)
    w = terms / terms.sum(axis=1, keepdims=True)
    expected = np.array([w[y == j].mean(axis=0) for j in range(L)])
    np.testing.assert_allclose(block.weights, expected, rtol=1e-9, atol=1e-12)
    means = (w.T @ X) / w.sum(axis=0)[:, None]
    np.testing.assert_allclose(block.means, means, rtol=1e-7, atol=1e-9)
