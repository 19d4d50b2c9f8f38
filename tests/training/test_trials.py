"""Trials, exponents and products: what is asked about once, and what is multiplied."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_classification

import pskem
from pskem import SharedKernelClassifier
from pskem.engine import serial_map
from pskem.margins import Margins
from pskem.model import multiply
from pskem.training import Samples, Settings, _forms
from pskem.training._exponents import fit_exponents
from pskem.training._forms import forms
from pskem.training._holdout import ENOUGH, reference_log_densities, to_compare
from pskem.training._order import Rows
from pskem.training._racing import _Run, race
from pskem.training._splitting import cross, split_rows
from pskem.training._trials import make_trials


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X, y, SharedKernelClassifier(random_state=0).fit(X, y)


# -------------------------------------------------------------------------------------- parts


def test_every_time_of_every_row_is_asked_about_once(rng):
    labels = np.repeat([0, 1, 2], [30, 5, 1])
    rows = Rows(np.arange(36), rng.integers(1, 5, 36).astype(float))
    asked = np.zeros(36)
    for kept, part in cross(rows, labels, 3, 3, rng):
        together = np.zeros(36)
        together[kept.places] += kept.weights
        together[part.places] += part.weights
        np.testing.assert_allclose(together, rows.weights)
        assert set(labels[kept.places]) == {0, 1, 2}
        asked[part.places] += part.weights
    several = rows.weights.copy()
    if rows.weights[35] == 1.0:  # the only sample of its class is never missed in the training
        several[35] = 0.0
    np.testing.assert_allclose(asked, several)


def test_a_row_that_stands_there_once_is_never_on_both_sides(rng):
    """Whatever its weight is, and that of its class."""
    labels = np.repeat([0, 1], [100, 20])
    class_weights = np.array([0.6, 3.0])
    rows = Rows(np.arange(120), class_weights[labels] * rng.uniform(0.5, 1.9, 120))
    for kept, part in cross(rows, labels, 2, 3, rng, class_weights):
        assert not set(kept.places) & set(part.places)
        assert (np.bincount(labels[part.places], minlength=2) > 0).all()


@pytest.mark.parametrize("weights", [2.0, 10.0, "real"])
def test_weights_do_not_show_a_model_what_it_is_asked_about(weights):
    """Constant weights change nothing, and others do not make rows repeat."""
    X, y = make_classification(300, 6, flip_y=0.3, random_state=1)
    plain = SharedKernelClassifier(random_state=0).fit(X[:200], y[:200])
    rng = np.random.default_rng(0)
    given = rng.uniform(1.0, 5.0, 200) if weights == "real" else np.full(200, weights)
    model = SharedKernelClassifier(random_state=0).fit(X[:200], y[:200], given)
    best = [min(trial["log_loss"] for trial in each.trials_) for each in (plain, model)]
    assert best[1] > 0.85 * best[0]


def test_held_out_rows_are_not_trained_on_whatever_classes_count(rng):
    labels = np.repeat([0, 1], [900, 100])
    class_weights = np.array([0.56, 5.0])
    rows = Rows(np.arange(1000), class_weights[labels])
    kept, held_out = split_rows(rows, labels, 0.1, 2, 0, class_weights)
    assert not set(kept.places) & set(held_out.places)
    assert held_out.size == 100


def test_parts_have_the_classes_in_proportion(rng):
    labels = np.repeat([0, 1], [60, 30])
    for kept, part in cross(Rows(np.arange(90), None), labels, 2, 3, rng):
        np.testing.assert_array_equal(np.bincount(labels[part.places]), [20, 10])
        assert kept.weights is None


# ----------------------------------------------------------------------------------- products


def test_a_product_is_the_product(labelled):
    X, y = labelled
    settings = {"early_stopping": False, "random_state": 0}
    models = [
        SharedKernelClassifier(n_components=6, n_blocks=2, **settings)
        .fit(X, y)
        .model_.weighed(np.array([0.5, 1.1]), 1.4, np.array([0.02, 0.1])),
        SharedKernelClassifier(covariance_type="tied", **settings).fit(X, y).model_,
    ]
    product = multiply(models, [0.7, 0.4])
    joint = 0.7 * models[0].log_posterior(X) + 0.4 * models[1].log_posterior(X)
    np.testing.assert_allclose(product.log_posterior(X), log_softmax(joint, axis=1), atol=1e-10)
    assert product.views == (0, 0, 1)
    # It adds up over blocks, on which explanations rest.
    log_q = product.sharing.apply(product.log_likelihood(X))
    by_block = log_q * product.block_weights[:, None] / product.temperature
    total = by_block.sum(axis=1) + product.log_priors / product.temperature
    np.testing.assert_allclose(log_softmax(total, axis=1), product.log_posterior(X), atol=1e-10)
    # The density is that of the first, and so are draws.
    np.testing.assert_allclose(product.log_density(X), models[0].log_density(X), rtol=1e-12)
    drawn, kernels = product.draw(y, X.shape[1], np.random.default_rng(0))
    assert np.isfinite(drawn).all()
    assert kernels.shape == (len(y), 2)
    assert multiply(models[:1], [1.0]) is models[0]


@pytest.mark.parametrize(("size", "pull"), [(100, 0.1), (400, 30.0 / 500.0)])
def test_exponents_are_those_of_another_optimiser(rng, size, pull):
    labels, priors = rng.integers(3, size=size), np.array([0.5, 0.3, 0.2])
    noise = rng.standard_normal((4, size, 3)) * np.array([0.5, 1.0, 2.0, 4.0])[:, None, None]
    logs = log_softmax(2.0 * np.eye(3)[labels] + noise, axis=2)
    counted = rng.uniform(0.5, 2.0, size)
    counted *= 1.25 * size / counted.sum()
    found = fit_exponents(logs, labels, priors, counted)
    n = counted.sum()
    doubt = 1.0 / (n + 2.0)

    def objective(a):
        log_p = log_softmax(np.einsum("v,vnj->nj", a, logs), axis=1)
        own = log_p[np.arange(size), labels]
        loss = -(counted @ ((1.0 - doubt) * own + doubt * log_p.mean(axis=1))) / n
        return loss + pull * ((a - 0.25) ** 2).sum()

    theirs = minimize(objective, np.full(4, 0.5), method="SLSQP", bounds=[(0.0, None)] * 4)
    assert objective(found) == pytest.approx(theirs.fun, abs=1e-6)
    np.testing.assert_allclose(found, theirs.x, atol=2e-3)
    assert found[0] == found.max()


def test_many_samples_may_leave_one_model_alone(rng):
    """One model knows, and the others hardly do: their product is hardly worse than it alone."""
    n = 5000
    labels, priors = rng.integers(2, size=n), np.full(2, 0.5)
    sure = np.array([6.0, 0.3, 0.3, 0.3, 0.3, 0.3])[:, None, None]
    logs = log_softmax(sure * np.eye(2)[labels] + rng.standard_normal((6, n, 2)), axis=2)
    exponents = fit_exponents(logs, labels, priors, np.ones(n))
    product = log_softmax(np.einsum("v,vnj->nj", exponents, logs), axis=1)
    losses = [-log_p[np.arange(n), labels].mean() for log_p in (product, logs[0])]
    assert losses[0] < 1.1 * losses[1]


# --------------------------------------------------------------------------------------- fits


def test_what_was_tried_is_told(wine):
    _, _, model = wine
    assert len(model.trials_) >= 5
    exponents = np.array([trial["exponent"] for trial in model.trials_])
    assert (exponents > 0.0).sum() == model.n_views_ <= 6
    losses = np.array([trial["log_loss"] for trial in model.trials_])
    assert losses[exponents > 0.0].max() <= losses[exponents == 0.0].min(initial=np.inf)
    kinds = {trial["covariance_type"] for trial in model.trials_}
    assert kinds == {"full", "tied", "diag", "spherical"}
    assert len(model.reference_log_densities_) == len(wine[0])


def test_every_block_is_of_the_form_of_its_view(wine):
    X, y, model = wine
    assert model.block_views_.tolist() == list(model.model_.views)
    trial_of = {trial["view"]: trial for trial in model.trials_ if trial["view"] is not None}
    assert set(trial_of) == set(range(model.n_views_)) == set(model.block_views_)
    for view, block in zip(model.block_views_, model.blocks_, strict=True):
        trial = trial_of[view]
        assert block.covariance_type == trial["covariance_type"]
        assert trial["exponent"] > 0.0
        assert (len(block.means) >= len(X)) == trial["local"]
        if not (trial["linear"] or trial["local"]):  # these read features in other ways too
            assert isinstance(block.reading, Margins) == trial["margins"]
    assert all(trial["exponent"] == 0.0 for trial in model.trials_ if trial["view"] is None)
    one = SharedKernelClassifier(n_blocks=2, random_state=0).fit(X, y)
    assert one.block_views_.tolist() == [0, 0]
    assert [trial["view"] for trial in one.trials_] == [0]


@pytest.mark.usefixtures("threaded")
def test_the_same_for_all_threads_and_orders(wine, rng):
    X, y, model = wine
    order = rng.permutation(len(y))
    for other in (
        clone(model).set_params(n_jobs=4).fit(X, y),
        clone(model).fit(X[order], y[order]),
    ):
        assert model.model_.same_kernels(other.model_)
        np.testing.assert_array_equal(model.block_weights_, other.block_weights_)


def test_the_same_for_all_orders_with_weights(rng):
    X, y = load_iris(return_X_y=True)
    weights, order = rng.uniform(0.2, 3.0, 150), rng.permutation(150)
    model = SharedKernelClassifier(random_state=0)
    one = clone(model).fit(X, y, weights).predict_proba(X)
    np.testing.assert_array_equal(
        clone(model).fit(X[order], y[order], weights[order]).predict_proba(X), one
    )


def test_a_watcher_ends_the_fit(wine):
    X, y, _ = wine
    seen = []
    model = SharedKernelClassifier(random_state=0).fit(
        X, y, watch=lambda now: seen.append(now) or 1
    )
    assert len(seen) == 1 == model.n_views_
    kept = [(trial["view"], trial["exponent"]) for trial in model.trials_ if trial["exponent"]]
    assert kept == [(0, 1.0)]


def test_a_saved_product_is_the_same(wine, tmp_path):
    X, _, model = wine
    pskem.save(model, tmp_path / "m")
    again = pskem.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.trials_ == model.trials_


def test_whoever_gives_a_form_gets_it(wine):
    X, y, _ = wine
    for settings in ({"covariance_type": "tied"}, {"n_components": 4}, {"shrinkage": 3.0}):
        model = SharedKernelClassifier(**settings, random_state=0).fit(X, y)
        assert model.n_views_ == 1 == len(model.trials_)
    one = SharedKernelClassifier(n_views=1, random_state=0).fit(X, y)
    assert one.n_views_ == 1 < len(one.trials_)
    densities = [trial for trial in one.trials_ if not (trial["linear"] or trial["local"])]
    best = min(densities, key=lambda trial: trial["log_loss"])
    assert best["exponent"] == 1.0
    assert one.blocks_[0].covariance_type == best["covariance_type"]
    with pytest.raises(ValueError, match=r"n_views=3 chooses.* is given: n_components=4"):
        SharedKernelClassifier(n_views=3, n_components=4).fit(X, y)
    with pytest.raises(ValueError, match="n_views=0"):
        SharedKernelClassifier(n_views=0).fit(X, y)
    with pytest.raises(ValueError, match="margins='yes'"):
        SharedKernelClassifier(margins="yes").fit(X, y)


def test_views_that_are_asked_for_and_not_tried_are_told_of(wine):
    X, y, _ = wine
    for settings in ({"early_stopping": True}, {"early_stopping": False}, {"block_weights": None}):
        model = SharedKernelClassifier(n_views=3, random_state=0, **settings)
        with pytest.warns(
            UserWarning, match=r"n_views=3 is not used: .*There is one model"
        ) as told:
            model.fit(X, y)
        assert told[0].filename == __file__
        assert model.n_views_ == 1


def test_nothing_is_tried_where_something_else_decides(wine):
    X, y, _ = wine
    assert SharedKernelClassifier(early_stopping=False).fit(X, y).trials_ == []
    assert SharedKernelClassifier(warm_start=True).fit(X, y).trials_ == []
    assert SharedKernelClassifier().fit(X[::2], y[::2], X_val=X[1::2], y_val=y[1::2]).trials_ == []
    assert SharedKernelClassifier(block_weights=None).fit(X, y).trials_ == []


def test_all_samples_are_trained_on(wine):
    """What was chosen by asking about samples is trained on all of them."""
    X, _, model = wine
    for block in model.model_.first_view.blocks:
        assert block.structure.standardised
        own = X[:, block.features]
        read = own if block.reading is None else block.reading.forward(own)
        np.testing.assert_allclose(block.shift, read.mean(axis=0), rtol=1e-9, atol=1e-12)


def test_the_product_is_better_than_one_model(rng):
    """On tables that come with scikit-learn, by cross-validation."""
    from sklearn.model_selection import cross_val_predict

    gained = []
    for load in (load_iris, load_wine):
        X, y = load(return_X_y=True)
        losses = []
        for settings in ({"early_stopping": False}, {}):
            model = SharedKernelClassifier(random_state=0, **settings)
            p = cross_val_predict(model, X, y, cv=5, method="predict_proba")
            losses.append(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-15)).mean())
        gained.append(losses[0] - losses[1])
    assert np.mean(gained) > 0.0


def test_forms_of_categories_and_numbers():
    settings = Settings.parse(SharedKernelClassifier().get_params(deep=False))
    X = np.zeros((10, 4))
    labels, classes, priors = np.zeros(10, dtype=np.intp), np.arange(2), np.full(2, 0.5)
    numbers = Samples(X, labels, classes, priors)
    mixed = numbers._replace(levels=(2,))
    alone = numbers._replace(levels=(2, 2))

    def tried(samples, size=1000, mapped=True, laborious=False, **given):
        return forms(settings._replace(**given), samples, size, mapped, laborious)

    assert not any(form.shape.categories_as_numbers for form in tried(numbers))
    assert any(form.shape.categories_as_numbers for form in tried(mixed))
    assert {form.margins for form in tried(mixed)} == {False, True}
    assert not any(form.margins for form in tried(mixed, mapped=False))
    gaussian = [form for form in tried(numbers, margins=True) if not form.shape.linear]
    assert all(form.margins for form in gaussian)
    for samples in (numbers, mixed, alone):
        assert tried(samples)[0].structure.name == "full"
        assert len(tried(samples, laborious=True)) < len(tried(samples))
        assert any(form.shape.fine for form in tried(samples))
        assert not any(form.shape.fine for form in tried(samples, size=400))
        assert any(form.shape.local for form in tried(samples, size=5000))
        assert not any(form.shape.local for form in tried(samples, size=5001))


def test_categories_may_depend_on_each_other(rng):
    """Only together two columns tell the class: naive Bayes cannot, and the product can."""
    a, b = rng.integers(2, size=(2, 800))
    frame = pd.DataFrame({"a": np.where(a, "x", "y"), "b": np.where(b, "u", "v")})
    y = np.where(rng.random(800) < 0.95, a ^ b, 1 - (a ^ b))
    model = SharedKernelClassifier(random_state=0).fit(frame[:400], y[:400])
    assert model.score(frame[400:], y[400:]) > 0.9


def test_rows_that_repeat_are_asked_about_as_they_come(rng):
    """Where rows repeat, a model that remembers them is the better one."""
    X = rng.integers(3, size=(40, 4)).astype(float)
    y = rng.integers(2, size=40)
    rows = rng.integers(40, size=900)
    model = SharedKernelClassifier(random_state=0).fit(X[rows[:600]], y[rows[:600]])
    best = min(trial["log_loss"] for trial in model.trials_)
    log_p = model.predict_log_proba(X[rows[600:]])
    measured = -log_p[np.arange(300), y[rows[600:]]].mean()
    assert measured == pytest.approx(best, abs=0.15)


def test_one_view_of_categories_is_a_density_of_categories(rng):
    a, b = rng.integers(2, size=(2, 300))
    frame = pd.DataFrame({"a": np.where(a, "x", "y"), "b": np.where(b, "u", "v")})
    y = a ^ b
    model = SharedKernelClassifier(n_views=1, random_state=0).fit(frame, y)
    assert [block.covariance_type for block in model.blocks_] == ["categorical"]
    drawn, _ = model.sample(50, random_state=0)
    assert set(drawn[:, 0]) == {"x", "y"}
    several = SharedKernelClassifier(random_state=0).fit(frame, y)
    drawn, _ = several.sample(50, random_state=0)
    assert set(drawn[:, 1]) == {"u", "v"}


def test_references_count_as_often_as_their_samples(rng):
    """Those of a part in which rows repeat are no more than those of another."""
    X = rng.standard_normal((300, 2))
    model = SharedKernelClassifier(
        n_components=2, early_stopping=False, discriminative_iter=0, random_state=0
    ).fit(X, np.arange(300) % 2)
    labels = np.zeros(50, dtype=np.intp)
    near, far = 0.1 * rng.standard_normal((50, 2)), 4.0 + rng.standard_normal((50, 2))
    parts = [(near, labels, np.full(50, 3.0)), (far, labels, None)]
    found = reference_log_densities([(model.model_, part) for part in parts], serial_map)
    together = np.concatenate([np.tile(near, (3, 1)), far])
    expected = np.quantile(model.score_samples(together), [0.1, 0.2, 0.5, 0.9])
    np.testing.assert_allclose(np.quantile(found, [0.1, 0.2, 0.5, 0.9]), expected, atol=0.2)
    assert (found < model.score_samples(near).min()).mean() == pytest.approx(0.25, abs=0.01)


def test_a_product_is_nothing_to_go_on_from(wine):
    X, y, model = wine
    again = clone(model).fit(X, y).set_params(warm_start=True)
    with pytest.raises(ValueError, match=r"a product of \d views. Set warm_start=True before the"):
        again.fit(X, y)
    assert clone(model).set_params(warm_start=True).fit(X, y).fit(X, y).score(X, y) > 0.95


# --------------------------------------------------------------------------------------- race


@pytest.fixture
def crossed(rng):
    """Samples whose classes differ in their correlations alone, in three parts."""
    y = rng.integers(2, size=300)
    X = rng.standard_normal((300, 2))
    X[:, 1] = 0.7 * X[:, 1] + np.where(y == 1, 0.7, -0.7) * X[:, 0]
    samples = Samples(X, y, np.arange(2), np.full(2, 0.5))
    return samples, list(make_trials(samples, 0, False))


def entrants(samples):
    settings = Settings.parse(SharedKernelClassifier().get_params(deep=False))
    return [form for form in forms(settings, samples, 300, False, True) if not form.shape.recoded]


@pytest.mark.parametrize("most", [1, 3])
def test_only_forms_that_can_be_kept_are_taken_further(crossed, monkeypatch, most):
    samples, trials = crossed
    taken = {}

    def watched(run, passes, original=_Run.taken_to):
        taken.setdefault(run.refiner.plan.structures[0].name, []).append(passes)
        return original(run, passes)

    monkeypatch.setattr(_Run, "taken_to", watched)
    candidates = entrants(samples)
    assert [form.structure.name for form in candidates] == ["full", "tied", "diag"]
    heard = []
    tried = race(candidates, trials, most, (0, 2, 4), 0, serial_map, lambda *n: heard.append(n))
    assert min(tried, key=lambda one: one.loss).settings.structure.name == "full"
    assert all(2 in passes for passes in taken.values()) == (most == 3)
    assert 2 in taken["full"]
    assert heard[0] == (0, 3)
    assert heard[-1] == (3, 3)


def test_a_form_keeps_its_best_pass(crossed):
    """What the race says of a form is what it answers after the passes that it names."""
    samples, trials = crossed
    for one in race(entrants(samples), trials, 3, (0, 1, 6), 0, serial_map, lambda *n: None):
        losses = {}
        for passes in (0, 1, 6):
            form = one.settings._replace(discriminative_iter=passes)
            (alone,) = race([form], trials, 1, (99,), 0, serial_map, lambda *n: None)
            losses[passes] = alone.loss
        assert one.loss == pytest.approx(losses[one.settings.discriminative_iter], rel=1e-12)
        assert one.loss <= losses[0]
        earlier = [p for p in losses if p <= one.settings.discriminative_iter]
        assert one.loss == pytest.approx(min(losses[p] for p in earlier), rel=1e-12)


def test_the_best_density_goes_on_though_others_are_better(rng, monkeypatch):
    """Whichever form wins, one has to be a density of X, and it is trained as it would be alone."""
    x = rng.uniform(-3.0, 3.0, (300, 2))
    y = (np.sin(4.0 * x[:, 0]) > 0.0).astype(np.intp)  # a matter of steps
    samples = Samples(x, y, np.arange(2), np.full(2, 0.5))
    trials = list(make_trials(samples, 0, False))
    settings = Settings.parse(SharedKernelClassifier().get_params(deep=False))
    found = forms(settings, samples, 300, False, True)
    (linear,) = (form for form in found if form.shape.linear)
    given = (trials, 1, (0, 2, 4), 0, serial_map, lambda *n: None)
    (alone,) = race(found[:1], *given)
    beside, best = race([found[0], linear], *given)
    assert best.loss < beside.loss
    assert beside.settings.discriminative_iter == alone.settings.discriminative_iter > 0
    assert beside.loss == alone.loss
    only = SharedKernelClassifier(n_views=1, random_state=0).fit(x, y)
    assert not any(trial["linear"] or trial["local"] for trial in only.trials_)
    kept = [trial for trial in only.trials_ if trial["view"] == 0]
    assert kept[0]["log_loss"] == min(trial["log_loss"] for trial in only.trials_)


def test_a_weight_is_a_repetition_where_forms_are_chosen(rng, monkeypatch):
    monkeypatch.setattr(_forms, "MOST_SAMPLES_FOR_LOCAL", 150)
    X, y = make_classification(100, 4, random_state=0)
    weights = np.where(np.arange(100) < 70, 2.0, 1.0)
    rows = np.repeat(np.arange(100), weights.astype(int))
    one = SharedKernelClassifier(random_state=0).fit(X, y, weights)
    other = SharedKernelClassifier(random_state=0).fit(X[rows], y[rows])
    assert not any(trial["local"] for trial in one.trials_)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_references_are_of_the_most_frequent_gaps(rng):
    X = rng.standard_normal((400, 3))
    y = np.arange(400) % 2
    X[:40, 0], X[40:300, 1], X[300:, 2] = np.nan, np.nan, np.nan
    model = SharedKernelClassifier(early_stopping=False, random_state=0).fit(X, y).model_
    assert set(to_compare(model, X, ENOUGH)) == set(range(40, 300))
    X[:60] = 0.0  # so few have no gaps, and come first
    assert set(to_compare(model, X, ENOUGH)) == {*range(60), *range(60, 300)}
