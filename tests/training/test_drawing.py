"""Samples that stand for many: which these are; and that it does not matter where all lie."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pskem import SharedKernelClassifier
from pskem.engine import ArrayPieces, Mapped, Piece, serial_map, workers
from pskem.estimators import _classifier
from pskem.training import Settings, Split, _drawing, _surveying, row_keys, stand_in, survey
from pskem.training._surveying import Drawn, Frequent, _frequent, draw, split_by_lot
from reference import distance

N, M, L = 24_000, 5, 3


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(0)
    y = rng.integers(L, size=N)
    centres = rng.standard_normal((L, 2, M)) * 1.5
    return centres[y, rng.integers(2, size=N)] + rng.standard_normal((N, M)), y


def in_pieces(X, labels, weights=None):
    return Mapped(ArrayPieces((X, labels, weights)), as_piece)


def as_piece(arrays):
    return Piece(*arrays)


def rows_of(X):
    return {row.tobytes() for row in X}


def test_lots_are_uniform_and_independent(many):
    """By the Kolmogorov-Smirnov statistic, and the correlation of both lots of a row."""
    X, _ = many
    one = row_keys(X, 0) / 2.0**64
    for lots in (one, _surveying.other_lots(row_keys(X, 0)) / 2.0**64):
        steps = np.abs(np.sort(lots) - (np.arange(N) + 0.5) / N)
        assert steps.max() < 1.95 / np.sqrt(N)  # at the level of a thousandth
    others = [row_keys(X, 1) / 2.0**64, _surveying.other_lots(row_keys(X, 0)) / 2.0**64]
    for lots in others:
        assert abs(np.corrcoef(one, lots)[0, 1]) < 4.0 / np.sqrt(N)


def test_a_lot_hangs_on_values_but_not_on_their_last_bits(many):
    X, _ = many
    noisy = X * (1.0 + 1e-15 * np.random.default_rng(1).standard_normal(X.shape))
    assert (row_keys(noisy, 0) == row_keys(X, 0)).mean() > 0.9999
    assert len(np.unique(row_keys(X, 0))) == N
    assert len(np.unique(row_keys(X[:, :1], 0))) > 0.999 * N, "one feature needs more digits"


@pytest.mark.parametrize("heaviest", [0.3, 0.002])
def test_rows_that_are_many_are_found_exactly(heaviest, monkeypatch):
    """All that have more than their share, whatever the order; against counting all of them."""
    monkeypatch.setattr(_surveying, "CANDIDATES", 2000)
    rng = np.random.default_rng(2)
    shares = np.array([heaviest, heaviest / 2, 0.0015, 0.0005, 0.0003])
    keys = rng.choice(6, p=[*shares, 1.0 - shares.sum()], size=60_000)
    rows = np.where(keys < 5, keys, 10 + rng.permutation(60_000)).astype(np.float64)[:, None]
    labels = np.zeros(len(rows), dtype=np.intp)
    expected = [k for k in range(5) if (keys == k).sum() > 60.0]
    for order in (np.arange(60_000), np.argsort(rows[:, 0]), rng.permutation(60_000)):
        pieces = in_pieces(rows[order], labels)
        found = survey(pieces, 1, 1, 0, serial_map)
        split = split_by_lot(pieces, found, 0.1, serial_map)
        heavy = np.sort(row_keys(np.array(expected, dtype=float)[:, None], 0))
        np.testing.assert_array_equal(split.heavy, heavy)
        share = split.share(rows, labels)
        assert (share[np.isin(keys, expected)] == split.fraction).all()
        assert set(share[~np.isin(keys, expected)]) <= {0.0, 1.0}
        assert abs(share.mean() - split.fraction) < 0.01


@pytest.mark.parametrize("offset", [1e3, 1e5, 1e7])
def test_features_may_lie_far_from_zero(many, offset):
    """Rows that differ have lots of their own, so that none is held out and trained on."""
    X, y = many
    order = np.random.default_rng(3).permutation(N)
    found = [survey(in_pieces(Z, y), L, 9, 0, serial_map) for Z in (X + offset, X)]
    assert [one.lots.fine for one in found] == [offset > 1e3, False]
    split = split_by_lot(in_pieces(X + offset, y), found[0], 0.1, serial_map)
    share = split.share(X + offset, y)
    assert not len(split.heavy)
    assert set(share) == {0.0, 1.0}
    assert abs(share.mean() - 0.1) < 0.01
    drawn = draw(in_pieces(X + offset, y), found[0], split, serial_map)
    assert len(drawn.labels) <= _surveying.DRAWN + 0.11 * N
    shuffled = in_pieces(X[order] + offset, y[order])
    again = survey(shuffled, L, 9, 0, serial_map)
    np.testing.assert_array_equal(again.everyone[0], found[0].everyone[0])
    repeated = np.repeat(X + offset, 2, axis=0)
    twice = survey(in_pieces(repeated, np.repeat(y, 2)), L, 9, 0, serial_map)
    assert twice.lots == found[0].lots, "copies share their lots as they should"


def test_frequent_keys_are_never_lost():
    """The guarantee of Misra and Gries, on streams that are merged in another order."""
    rng = np.random.default_rng(3)
    keys = rng.zipf(1.3, size=200_000).astype(np.uint64)
    parts = [_frequent(part, np.ones(len(part))) for part in np.array_split(keys, 37)]
    for order in (range(37), rng.permutation(37)):
        total: Frequent | None = None
        for i in order:
            total = parts[i] if total is None else total.merge(parts[i])
        assert len(total.keys) <= _surveying.CANDIDATES
        assert total.error <= len(keys) / _surveying.CANDIDATES
        true = dict(zip(*np.unique(keys, return_counts=True), strict=True))
        for key, mass in zip(total.keys, total.masses, strict=True):
            assert mass <= true[key] <= mass + total.error
        kept = set(total.keys)
        assert all(key in kept for key, n in true.items() if n > total.error)


def test_samples_are_drawn_whatever_the_order_and_the_copies(many, monkeypatch):
    monkeypatch.setattr(_surveying, "DRAWN", 1000)
    X, y = many
    X, y = np.vstack([X, X[:500]]), np.append(y, y[:500])  # copies are one, that counts as two
    y = np.where(np.arange(len(y)) % 7 == 0, -1, y)
    y[N:] = y[:500]
    found = []
    for order in (np.arange(len(X)), np.random.default_rng(4).permutation(len(X))):
        pieces = in_pieces(X[order], y[order])
        seen = survey(pieces, L, 1, 5, serial_map)
        piece = draw(pieces, seen, None, serial_map)
        np.testing.assert_array_equal(seen.counts, np.bincount(np.where(y < 0, L, y)))
        assert abs(seen.n_different / (y[:N] >= 0).sum() - 1.0) < 4.0 / np.sqrt(1000)
        found.append(piece)
        known = piece.labels >= 0
        assert len(rows_of(piece.X[known])) == len(rows_of(piece.X[~known])) == 1000
        shares = np.bincount(piece.labels[known]) / known.sum()
        np.testing.assert_allclose(shares, np.bincount(y[y >= 0]) / (y >= 0).sum(), atol=0.06)
        copies = np.isin(piece.X[:, 0], X[:500, 0])
        assert piece.counted[copies].sum() == 2 * len(rows_of(piece.X[copies]))
    assert rows_of(found[0].X) == rows_of(found[1].X)


def test_rows_that_repeat_are_drawn_once_however_many_there_are():
    """All of few different rows are drawn; each counts as often as it stands there."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(2, size=(400_000, 8)).astype(float), rng.integers(2, size=400_000)
    pieces = in_pieces(X, y)
    found = survey(pieces, 2, 10, 0, serial_map)
    made = []
    pieces = Mapped(pieces, lambda piece: made.append(len(piece.labels)) or piece)
    drawn = draw(pieces, found, None, serial_map)
    rows, counts = np.unique(np.column_stack([X, y]), axis=0, return_counts=True)
    assert len(made) > 20
    order = np.lexsort(np.column_stack([drawn.X, drawn.labels]).T[::-1])
    assert_array_equal(np.column_stack([drawn.X, drawn.labels])[order], rows)
    assert_array_equal(drawn.counted[order], counts)


def test_what_is_drawn_does_not_pile_up_on_the_way():
    few = Drawn((Piece(np.arange(10.0)[:, None], np.zeros(10, dtype=np.intp)),)).joined()
    total, longest = few, 0
    for _ in range(5000):
        total = total.merge(few)
        longest = max(longest, sum(len(part.labels) for part in total.parts))
    assert longest <= _surveying.DRAWN + 2 * 10
    assert_array_equal(total.joined().piece.weights, np.full(10, 5001.0))


def test_every_class_is_seen_and_keeps_samples_to_train_on(many):
    X, _ = many
    y = np.zeros(N, dtype=np.intp)
    y[:40], y[40:43], y[43:44] = 1, 2, 3
    pieces = in_pieces(X, y)
    found = survey(pieces, 4, 1, 0, serial_map)
    split = split_by_lot(pieces, found, 0.8, serial_map)
    share = split.share(X, y)
    for j, n in enumerate(np.bincount(y)):
        assert (share[y == j] < 1.0).any()
        assert n < 30 or abs(share[y == j].mean() - 0.8) < 4.0 * np.sqrt(0.16 / n)
    drawn = draw(pieces, found, None, serial_map)
    assert np.bincount(drawn.labels)[1:].tolist() == [40, 3, 1]


def test_no_more_samples_are_held_out_than_are_needed(many, monkeypatch):
    monkeypatch.setattr(_surveying, "MOST_HELD_OUT", 600)
    X, y = many
    pieces = in_pieces(X, y)
    split = split_by_lot(pieces, survey(pieces, L, 1, 0, serial_map), 0.1, serial_map)
    assert abs(split.share(X, y).sum() - 600) < 100


def test_what_is_folded_can_travel(many):
    X, y = many
    pieces = in_pieces(X, y)
    split = split_by_lot(pieces, survey(pieces, L, 1, 0, serial_map), 0.1, serial_map)
    same = pickle.loads(pickle.dumps(split))
    assert isinstance(same, Split)
    np.testing.assert_array_equal(same.share(X, y), split.share(X, y))


def outside_memory(monkeypatch):
    """As if the samples were not in memory: they are read anew in every pass."""

    def elsewhere(*given):
        return stand_in(*given)._replace(memory=None)

    monkeypatch.setattr(_classifier, "stand_in", elsewhere)


GIVEN = {
    "defaults": {},
    "shared": {"n_components": 10, "n_blocks": 2, "init": "kmeans"},
    "tied": {"n_components": 12, "covariance_type": "tied", "init": "em", "n_init": 2},
    "watched": {
        "early_stopping": True,
        "tol": 0.0,
        "covariance_type": "diag",
        "partition": "dependence",
    },
    "mapped": {"margins": True, "n_blocks": 2, "shrinkage": 3.0},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("kind", ["plain", "gaps", "weights", "unlabelled", "single"])
def test_it_does_not_matter_where_samples_lie(many, monkeypatch, given, kind):
    """The oracle of every source: the array source, to 1e-9."""
    X, y = many
    rng, weights = np.random.default_rng(6), None
    if kind == "gaps":
        X = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    if kind == "weights":
        weights = rng.choice([0.0, 0.5, 1.0, 2.0], size=N)
    if kind == "unlabelled":
        y = np.where(rng.random(N) < 0.5, None, y)
    if kind == "single":
        X = X.astype(np.float32)
    model = SharedKernelClassifier(
        **{"max_iter": 8, "discriminative_iter": 3, "random_state": 0, **given}
    )
    if kind == "unlabelled":
        model.set_params(unlabelled_weight=0.5)
    with_ = pickle.loads(pickle.dumps(model)).fit(X, y, weights)
    outside_memory(monkeypatch)
    without = model.fit(X, y, weights)
    single = kind == "single"  # sums of single precision are in another order
    assert distance(with_, without) < (1e-3 if single else 1e-9)
    decided = [np.r_[m.block_weights_, m.temperature_, m.shares_] for m in (with_, without)]
    np.testing.assert_allclose(*decided, rtol=1e-2 if single else 1e-6)
    np.testing.assert_allclose(
        with_.log_likelihoods_, without.log_likelihoods_, rtol=1e-5 if single else 1e-12
    )
    assert with_.class_prior_ == pytest.approx(without.class_prior_, abs=1e-12)


def test_samples_read_anew_have_the_same_bits_for_all_numbers_of_threads(many, monkeypatch):
    X, y = many
    outside_memory(monkeypatch)
    one, two = (
        SharedKernelClassifier(n_components=9, max_iter=5, random_state=0, n_jobs=n).fit(X, y)
        for n in (1, 3)
    )
    assert distance(one, two) == 0.0
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_the_order_of_the_file_does_not_matter(many, monkeypatch):
    X, y = many
    outside_memory(monkeypatch)
    order = np.random.default_rng(7).permutation(N)
    model = SharedKernelClassifier(n_components=9, max_iter=5, random_state=0)
    one = pickle.loads(pickle.dumps(model)).fit(X, y)
    assert distance(one, model.fit(X[order], y[order])) < 1e-9


def test_unlabelled_samples_that_do_harm_are_left_out(many, monkeypatch):
    """What they count is chosen by samples that stand for all, wherever all are."""
    X, y = many
    rng = np.random.default_rng(8)
    few = np.where(rng.random(N) < 0.02, y, None)
    model = SharedKernelClassifier(n_components=6, max_iter=5, random_state=0)
    with_ = pickle.loads(pickle.dumps(model)).fit(X, few)
    outside_memory(monkeypatch)
    model.fit(X, few)
    assert model.unlabelled_weight_ == with_.unlabelled_weight_
    assert distance(with_, model) < 1e-9


def test_few_samples_are_simply_read(many):
    X, y = (part[:5000] for part in many)
    settings = Settings.parse(SharedKernelClassifier().get_params())
    samples = _drawing.Samples(X, y, np.arange(L), np.full(L, 1 / L))
    assert stand_in(settings, samples, 0) is samples
    bare = samples._replace(X=X[:0], labels=y[:0])
    with workers(2) as parallel_map:
        found = _drawing.represent(settings, bare, in_pieces(X, y), 0, parallel_map)
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.labels, y)
    assert found.whole is None
