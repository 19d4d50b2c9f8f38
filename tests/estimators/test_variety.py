"""What makes the members of an ensemble differ, and how they are weighed."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.metrics import log_loss

import pskem
from pskem import PartitionEnsemble, SharedKernelClassifier
from pskem.model import multiply
from pskem.training import Lots, draw_lots, fit_exponents, fit_left_out, make_lots

MEMBER = SharedKernelClassifier(n_components=4, n_blocks=2, tol=0.01)
VARIED = {"bootstrap": True, "max_features": 0.8, "weights": "fit", "n_components": [3, 6]}


@pytest.fixture
def varied(labelled):
    return PartitionEnsemble(MEMBER, 4, random_state=0, **VARIED).fit(*labelled)


@pytest.fixture
def table(rng):
    """200 rows with two columns of numbers and two of categories, in turn."""
    y = rng.integers(2, size=200)
    X = rng.standard_normal((200, 2)) + y[:, None]
    colours = np.array(["red", "green", "blue"])[(rng.integers(3, size=200) + y) % 3]
    sizes = np.array(["s", "l"])[rng.integers(2, size=200)]
    return pd.DataFrame({"c": colours, "a": X[:, 0], "s": sizes, "b": X[:, 1]}), y


def lots_of(X, y, weights=None):
    return make_lots(X, np.unique(y, return_inverse=True)[1], weights)


def drawn_for(member, lots):
    return draw_lots(lots, np.random.default_rng([member.random_state, 6]))


def test_what_is_drawn_are_whole_numbers_with_the_right_frequencies(labelled):
    X, y = labelled
    lots = lots_of(X, y)
    counts = [draw_lots(lots, np.random.default_rng(i)) for i in range(50)]
    weights = np.array([lots.sample_weight(drawn, len(X)) for drawn in counts])
    assert (weights == np.round(weights)).all()
    assert (weights.sum(axis=1) == len(X)).all()
    # Of so many rows, each of a chance 1/N, a share of 1/e is not drawn.
    assert abs((weights == 0).mean() - np.exp(-1.0)) < 0.005
    assert abs(weights.var() - 1.0) < 0.03


def test_a_weight_of_three_is_drawn_like_three_rows_and_order_does_not_matter(rng, labelled):
    X, y = labelled[0][:60], labelled[1][:60]
    times = rng.integers(0, 4, size=60)
    weighted, repeated = (
        lots_of(X, y, times * 1.0),
        lots_of(np.repeat(X, times, 0), y.repeat(times)),
    )
    order = rng.permutation(60)
    shuffled = lots_of(X[order], y[order], times[order] * 1.0)
    drawn = draw_lots(weighted, np.random.default_rng(3))
    rows = {}
    for name, lots, data in [
        ("weighted", weighted, X),
        ("repeated", repeated, np.repeat(X, times, axis=0)),
        ("shuffled", shuffled, X[order]),
    ]:
        np.testing.assert_array_equal(draw_lots(lots, np.random.default_rng(3)), drawn)
        found = lots.sample_weight(drawn, len(data))
        seen = np.column_stack([data, found])[found > 0]
        rows[name] = seen[np.lexsort(seen.T)]
        assert found.sum() == times.sum()
    np.testing.assert_array_equal(rows["weighted"], rows["repeated"])
    np.testing.assert_array_equal(rows["weighted"], rows["shuffled"])


def test_fractions_multiply_what_is_drawn_and_many_lots_are_few(labelled):
    X, y = labelled[0][:4], np.array([0, 0, 1, 1])
    lots = lots_of(X, y, np.array([0.5, 2.5, 1000.0, 0.0]))
    weights = {place: lots.weights[lots.places == place].tolist() for place in range(4)}
    assert weights[0] == [0.5]
    np.testing.assert_allclose(weights[1], [2.5 / 3] * 3)
    assert weights[2] == [10.0] * 100
    assert weights[3] == []


def test_every_class_keeps_a_row():
    labels = np.array([-1] * 5 + [0] * 500 + [1, 2])
    lots = Lots(np.arange(507), labels, np.ones(507))
    for seed in range(20):
        drawn = draw_lots(lots, np.random.default_rng(seed))
        assert set(labels[drawn > 0]) >= {0, 1, 2}


@pytest.mark.parametrize("given", [None, "whole", "real"])
def test_a_member_is_the_classifier_with_its_weights(rng, labelled, given):
    X, y = labelled
    weights = {"whole": rng.integers(0, 3, size=len(X)) * 1.0, "real": rng.random(len(X)) + 0.5}
    ensemble = PartitionEnsemble(MEMBER, 2, bootstrap=True, random_state=0)
    ensemble.fit(X, y, weights.get(given))
    lots = lots_of(X, y, weights.get(given))
    for member in ensemble.estimators_:
        counts = lots.sample_weight(drawn_for(member, lots), len(X))
        alone = clone(MEMBER).set_params(partition="random", random_state=member.random_state)
        alone.fit(X, y, counts)
        assert alone.predict_log_proba(X).tobytes() == member.predict_log_proba(X).tobytes()


def test_a_member_of_some_columns_is_the_classifier_of_these(labelled):
    X, y = labelled
    ensemble = PartitionEnsemble(MEMBER, 3, max_features=3, random_state=0).fit(X, y)
    assert [len(columns) for columns in ensemble.estimators_features_] == [3, 3, 3]
    assert len({tuple(columns) for columns in ensemble.estimators_features_}) > 1
    for member, columns in zip(ensemble.estimators_, ensemble.estimators_features_, strict=True):
        alone = clone(MEMBER).set_params(partition="random", random_state=member.random_state)
        alone.fit(X[:, columns], y)
        found = member.predict_log_proba(X[:, columns])
        assert alone.predict_log_proba(X[:, columns]).tobytes() == found.tobytes()


def test_columns_are_counted_as_scikit_learn_does(labelled):
    X, y = labelled
    for max_features in (0.01, 0.5, 0.8, 1.0, 1, 4):
        ours = PartitionEnsemble(
            SharedKernelClassifier(n_components=3), 1, max_features=max_features, random_state=0
        ).fit(X, y)
        theirs = BaggingClassifier(n_estimators=1, max_features=max_features).fit(X, y)
        assert len(ours.estimators_features_[0]) == len(theirs.estimators_features_[0])


@pytest.mark.parametrize("kind", ["pandas", "polars", "rows"])
def test_columns_of_categories_are_drawn_whole(table, kind):
    X, y = table
    member = SharedKernelClassifier(n_components=2)
    if kind == "rows":
        member.set_params(categorical_features=[0, 2])
    elif kind == "polars":
        polars = pytest.importorskip("polars")
    given = {
        "pandas": lambda: X,
        "polars": lambda: polars.from_pandas(X),
        "rows": X.to_numpy().tolist,
    }[kind]()
    ensemble = PartitionEnsemble(
        member, 6, max_features=2, bootstrap=True, weights="fit", random_state=0
    ).fit(given, y)
    assert len({tuple(columns) for columns in ensemble.estimators_features_}) > 2
    logs = []
    for one, columns in zip(ensemble.estimators_, ensemble.estimators_features_, strict=True):
        part = X.iloc[:, columns]
        alone = SharedKernelClassifier(
            n_components=2, partition="random", random_state=one.random_state
        )
        lots = lots_of(ensemble.columns_.encode(X), y)
        alone.fit(part, y, lots.sample_weight(drawn_for(one, lots), len(X)))
        logs.append(alone.predict_log_proba(part))
    expected = np.tensordot(ensemble.weights_ / ensemble.temperature_, logs, axes=1)
    np.testing.assert_allclose(
        ensemble.predict_log_proba(given), log_softmax(expected, axis=1), rtol=1e-10, atol=1e-10
    )
    assert ensemble.is_outlier(given).shape == (200,)
    ensemble.set_reference(given)


def test_it_is_one_model_whose_log_likelihoods_add_up(labelled, varied):
    X, _ = labelled
    pairs = list(zip(varied.estimators_, varied.estimators_features_, strict=True))
    logs = [member.predict_log_proba(X[:, columns]) for member, columns in pairs]
    product = np.tensordot(varied.weights_ / varied.temperature_, logs, axes=1)
    found = varied.predict_log_proba(X)
    np.testing.assert_allclose(found, log_softmax(product, axis=1), rtol=1e-10, atol=1e-10)

    model = varied.model_
    assert len(model.blocks) == sum(len(member.blocks_) for member in varied.estimators_)
    parts = zip(model.blocks, (b for member, _ in pairs for b in member.blocks_), strict=True)
    owners = np.repeat(np.arange(4), [len(member.blocks_) for member, _ in pairs])
    for (block, own), i in zip(parts, owners, strict=True):
        np.testing.assert_array_equal(block.features, pairs[i][1][own.features])
    log_q = model.shared().log_likelihood(X)  # with the shares in the weights of the kernels
    score = (model.block_weights[:, None] * log_q).sum(axis=1) + np.log(model.priors)
    added = log_softmax(score / model.temperature, axis=1)
    np.testing.assert_allclose(found, added, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(varied.block_log_likelihood(X), model.log_likelihood(X))
    np.testing.assert_allclose(
        varied.predict_proba(X),
        softmax(model.joint(model.log_likelihood(X)) / model.temperature, 1),
    )


def test_views_are_counted_through_all_members(labelled):
    X, y = labelled[0][:150], labelled[1][:150]
    member = SharedKernelClassifier(n_views=2)
    ensemble = PartitionEnsemble(member, 2, partition=None, bootstrap=True, random_state=0).fit(
        X, y
    )
    first, second = (one.model_ for one in ensemble.estimators_)
    own = [model.views or (0,) * len(model.blocks) for model in (first, second)]
    assert max(own[0]) > 0
    expected = (*own[0], *(1 + max(own[0]) + view for view in own[1]))
    assert ensemble.model_.views == expected
    density = ensemble.model_.first_view.log_likelihood(X)
    np.testing.assert_array_equal(density, first.first_view.log_likelihood(X))
    mean = (first.log_posterior(X) + second.log_posterior(X)) / 2
    np.testing.assert_allclose(
        ensemble.predict_log_proba(X), log_softmax(mean, axis=1), rtol=1e-10, atol=1e-10
    )


def test_weights_are_those_of_rows_that_were_left_out(labelled, varied):
    X, y = labelled
    lots = lots_of(X, y)
    logs, out = [], []
    for member, columns in zip(varied.estimators_, varied.estimators_features_, strict=True):
        logs.append(member.predict_log_proba(X[:, columns])[lots.places])
        out.append(drawn_for(member, lots) == 0)
    logs, out, labels = np.array(logs), np.array(out), y[lots.places]
    heard = out.any(axis=0)
    assert 0 < heard.sum() < len(heard)
    terms = np.array(
        [
            [
                logs[i, n] if out[i, n] else logs[out[:, n], n].mean(axis=0)
                for n in np.flatnonzero(heard)
            ]
            for i in range(4)
        ]
    )
    ones = np.ones(heard.sum())
    a = fit_exponents(terms, labels[heard], np.full(3, 1 / 3), ones)
    np.testing.assert_allclose(varied.weights_, a / a.sum(), rtol=1e-5)
    np.testing.assert_allclose(varied.temperature_, 1.0 / a.sum(), rtol=1e-5)

    def loss(a):  # but for one row in n + 2, of which nobody knows what it is
        log_p = log_softmax(np.tensordot(a, terms, axes=1), axis=1)
        doubt = 1.0 / (len(ones) + 2.0)
        own = log_p[np.arange(len(ones)), labels[heard]]
        told = (1.0 - doubt) * own + doubt * log_p.mean(axis=1)
        pull = min(0.1, 30.0 / len(ones))  # of 30 rows, toward equal exponents
        return -told.mean() + pull * ((a - 0.25) ** 2).sum()

    best = minimize(loss, np.full(4, 0.25), method="SLSQP", bounds=[(0, None)] * 4, tol=1e-12).x
    np.testing.assert_allclose(varied.weights_ / varied.temperature_, best, atol=1e-3)
    assert abs(varied.weights_.sum() - 1.0) < 1e-12


def test_rows_that_nobody_left_out_do_not_count(rng):
    logs = log_softmax(rng.standard_normal((2, 6, 3)), axis=2)
    out = np.array([[1, 1, 0, 0, 0, 1], [1, 0, 1, 0, 0, 1]], dtype=bool)
    labels, priors, counted = np.array([0, 1, 2, 0, 1, 2]), np.full(3, 1 / 3), np.ones(6)
    found = fit_left_out(logs, out, labels, priors, counted)
    others = logs.copy()
    others[:, 3:5] = np.nan
    others[~out] = np.nan
    np.testing.assert_array_equal(fit_left_out(others, out, labels, priors, counted), found)
    nobody = fit_left_out(logs, np.zeros((2, 6), dtype=bool), labels, priors, counted)
    np.testing.assert_array_equal(nobody, [0.5, 0.5])


def test_a_member_that_knows_nothing_counts_less(labelled):
    X, y = labelled
    rng = np.random.default_rng(0)
    noise = np.column_stack([X[:, :1], rng.standard_normal((len(X), 3))])
    ensemble = PartitionEnsemble(
        SharedKernelClassifier(n_components=6),
        6,
        bootstrap=True,
        max_features=1,
        weights="fit",
        random_state=1,
    ).fit(noise, y)
    knows = np.array([columns[0] == 0 for columns in ensemble.estimators_features_])
    assert 0 < knows.sum() < 6
    assert ensemble.weights_[knows].min() > ensemble.weights_[~knows].max()


@pytest.mark.usefixtures("threaded")
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_threads_and_the_order_of_rows_do_not_matter(rng, labelled, varied, n_jobs):
    X, y = labelled
    order = rng.permutation(len(X))
    other = PartitionEnsemble(MEMBER, 4, random_state=0, n_jobs=n_jobs, **VARIED)
    other.fit(X[order], y[order])
    assert other.weights_.tobytes() == varied.weights_.tobytes()
    assert other.predict_log_proba(X).tobytes() == varied.predict_log_proba(X).tobytes()


def test_rows_three_times_and_weights_of_three_are_the_same(rng, labelled):
    X, y = labelled[0][:200], labelled[1][:200]
    times = rng.integers(0, 4, size=200)
    model = PartitionEnsemble(MEMBER, 3, random_state=0, bootstrap=True, weights="fit")
    weighted = clone(model).fit(X, y, times)
    repeated = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    found = weighted.predict_log_proba(X), repeated.predict_log_proba(X)
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-8)


def test_members_have_other_numbers_of_kernels(labelled):
    ensemble = PartitionEnsemble(MEMBER, 3, n_components=[3, [6, 4]], random_state=0).fit(*labelled)
    found = [[len(b.means) for b in member.blocks_] for member in ensemble.estimators_]
    assert found == [[3, 3], [6, 4], [3, 3]]
    ensemble.set_params(n_components=5).fit(*labelled)
    assert {len(b.means) for b in ensemble.model_.blocks} == {5}


def test_priors_that_differ_and_change(labelled, varied):
    X, _ = labelled
    priors = np.array([member.class_prior_ for member in varied.estimators_])
    assert not np.allclose(priors, priors[0])
    changed = varied.with_priors([0.7, 0.2, 0.1])
    np.testing.assert_allclose(changed.class_prior_, [0.7, 0.2, 0.1])
    # As Bayes has it: by the ratio of the new priors to the old ones, once.
    ratio = np.log([0.7, 0.2, 0.1]) - np.log(varied.class_prior_)
    expected = log_softmax(varied.predict_log_proba(X) + ratio, axis=1)
    np.testing.assert_allclose(changed.predict_log_proba(X), expected, rtol=1e-9, atol=1e-9)
    back = changed.with_priors(varied.class_prior_)
    np.testing.assert_allclose(
        back.predict_log_proba(X), varied.predict_log_proba(X), rtol=1e-9, atol=1e-9
    )


def test_parts_of_a_product_keep_the_pools_of_their_models(labelled, varied):
    X, _ = labelled
    model = varied.model_
    assert model.sharing is not None
    assert model.sharing.priors.shape == (len(model.blocks), 3)
    np.testing.assert_allclose(
        model.shared().log_posterior(X), model.log_posterior(X), rtol=1e-9, atol=1e-9
    )
    some = np.unique(np.concatenate([block.features for block in model.blocks]))
    np.testing.assert_array_equal(model.marginal(some).log_posterior(X), model.log_posterior(X))
    first = model.first_view
    assert first.sharing.priors.shape == (len(first.blocks), 3)
    # Products of products are products.
    single = [
        one.model_
        for one in PartitionEnsemble(MEMBER, 3, random_state=1).fit(*labelled).estimators_
    ]
    nested = multiply([multiply(single[:2], [0.5, 0.7]), single[2]], [0.6, 0.9])
    flat = multiply(single, [0.3, 0.42, 0.9])
    np.testing.assert_allclose(nested.log_posterior(X), flat.log_posterior(X), rtol=1e-9, atol=1e-9)
    assert nested.views == flat.views


def test_model_files_hold_it_bit_by_bit(labelled, varied, table, tmp_path):
    X, _ = labelled
    pskem.save(varied, tmp_path / "model.pskem")
    loaded = pskem.load(tmp_path / "model.pskem", PartitionEnsemble)
    assert loaded.get_params().keys() == varied.get_params().keys()
    assert loaded.weights_.tobytes() == varied.weights_.tobytes()
    assert loaded.temperature_ == varied.temperature_
    pairs = zip(loaded.estimators_features_, varied.estimators_features_, strict=True)
    assert all(one.tobytes() == two.tobytes() for one, two in pairs)
    assert loaded.predict_log_proba(X).tobytes() == varied.predict_log_proba(X).tobytes()
    pskem.save(varied.model_, tmp_path / "product.pskem")
    product = pskem.load(tmp_path / "product.pskem", pskem.Model)
    assert product.log_posterior(X).tobytes() == varied.model_.log_posterior(X).tobytes()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": "fit"}, "bootstrap=False trains all members on all rows. Set bootstrap=True"),
        ({"weights": "fitted"}, "weights='fitted' is not known. Accepted: 'fit' or None"),
        ({"bootstrap": "yes"}, "bootstrap='yes' must be True or False"),
        ({"max_features": 0.0}, "max_features=0.0 must be a share above 0.0 .* from 1 to the 5"),
        ({"max_features": 1.5}, "max_features=1.5 must be"),
        ({"max_features": 6}, "max_features=6 must be"),
        ({"max_features": 0}, "max_features=0 must be"),
        ({"max_features": True}, "max_features=True must be"),
        ({"max_features": "all"}, "max_features='all' must be"),
        ({"n_components": []}, "holds nothing. Give a sequence of alternatives"),
        ({"n_components": [0]}, "n_components"),
        ({"max_features": 2, "partition": [[0, 1], [2, 3, 4]]}, "partition lists columns of X"),
        (
            {"max_features": 1, "estimator": MEMBER},
            r"n_blocks=2 is more than the 1 column\(s\) of numbers that max_features=1 gives",
        ),
    ],
)
def test_bad_settings_are_refused(labelled, settings, message):
    with pytest.raises(ValueError, match=message):
        PartitionEnsemble(**settings).fit(*labelled)


def test_weights_of_nothing_are_refused(labelled):
    X, y = labelled
    with pytest.raises(ValueError, match="sample_weight is zero for all samples"):
        PartitionEnsemble(MEMBER, 2, bootstrap=True).fit(X, y, np.zeros(len(X)))


def test_classes_that_nobody_knows(labelled, rng):
    X, y = labelled
    some = np.where(rng.random(len(X)) < 0.5, y, -1)
    member = clone(MEMBER).set_params(unlabelled=-1, unlabelled_weight=1.0)
    ensemble = PartitionEnsemble(
        member, 3, bootstrap=True, max_features=4, weights="fit", random_state=0
    ).fit(X, some)
    np.testing.assert_array_equal(ensemble.classes_, [0, 1, 2])
    assert ensemble.score(X, y) > 0.7


def planted(seed, N=300, M=60):
    """Two classes that differ in 5 directions, seen through M noisy columns."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=N + 1000)
    latent = rng.standard_normal((len(y), 5)) * (1.0 + 0.4 * y[:, None]) + 0.5 * y[:, None]
    noise = rng.standard_normal((len(y), M)) * np.exp(0.3 * rng.standard_normal(M))
    X = latent @ rng.standard_normal((5, M)) + 2.0 * noise
    return X[:N], y[:N], X[N:], y[N:]


@pytest.mark.filterwarnings("ignore:All . members have the same kernels:UserWarning")
def test_variety_pays():
    forms = ({}, {"bootstrap": True, "max_features": 0.3}, {"max_features": 0.3})
    losses = np.zeros((4, len(forms)))
    for seed, row in enumerate(losses):
        X, y, others, truth = planted(seed)
        for i, form in enumerate(forms):
            model = PartitionEnsemble(random_state=seed, **form).fit(X, y)
            row[i] = log_loss(truth, model.predict_proba(others))
    default, both, columns = losses.mean(axis=0)
    assert both < default
    assert columns < default - 0.01
