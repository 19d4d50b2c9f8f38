"""Bad input: an error that names the parameter, what was given and what is accepted."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from pskem import SharedKernelClassifier, SharedKernelDensity, Shrinkage
from pskem.starts import ClassKMeans, KDTree, KMeans, Start, Uniform, UnsupervisedEM

X = np.random.default_rng(0).standard_normal((60, 4))
y = np.arange(60) % 3
EYE = np.array([np.eye(4)] * 2)


def start(weights=None, means=None, covariances=None, **others):
    return {
        "n_components": 2,
        "n_blocks": 1,
        "init": Start(weights, means, covariances),
        **others,
    }


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components=0 must be an integer of at least 1"),
        ({"n_components": 2.5}, "n_components=2.5 must be an integer"),
        ({"n_components": "ten"}, "n_components='ten' must be an integer of at least 1 or 'auto'"),
        ({"n_components": None}, "n_components=None must be an integer"),
        ({"n_components": True, "n_blocks": 2}, "n_components=True must be an integer"),
        ({"n_components": [2, 3], "n_blocks": 3}, "2 entries for 3 block"),
        ({"n_components": [2, 0], "n_blocks": 2}, r"n_components\[1\]=0 must be"),
        ({"n_blocks": 5}, "n_blocks=5 is more than the 4 feature"),
        ({"partition": [[0, 1], [1]]}, "more than once"),
        ({"partition": [[0, 4]]}, "holds 4, but X has 4"),
        (
            {"covariance_type": "round"},
            "covariance_type='round' is not known. Accepted: 'auto', 'full'",
        ),
        ({"init": "best"}, "init='best' is not known. Accepted: 'class-kmeans', 'k-m"),
        ({"init": None}, r"init=None is not known\. Accepted: .* or a value of pskem\.starts"),
        ({"init": KDTree}, r"init=<class .*KDTree'> is not known\. .* such as ClassKMeans\("),
        ({"shrinkage": -1}, "shrinkage=-1 must be a finite number of at least 0 or 'auto'"),
        ({"shrinkage": "some"}, "shrinkage='some' must be a finite number"),
        ({"n_init": 0}, "n_init=0 must be an integer of at least 1"),
        ({"reg_covar": -1}, "reg_covar=-1 must be a finite number of at least 0"),
        ({"reg_covar": np.nan}, "reg_covar=nan must be"),
        ({"max_iter": 0}, "max_iter=0 must be an integer of at least 1"),
        ({"tol": -1e-3}, "tol=-0.001 must be"),
        ({"tol": "small"}, "tol='small' must be"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0 must be .* above 0 and below 1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change=0 must be .* at least 1 or None"),
        ({"n_jobs": 0}, "n_jobs=0 must be None"),
        ({"n_jobs": "2"}, "n_jobs='2' must be None"),
        ({"verbose": "yes"}, "verbose='yes' must be an integer"),
        ({"verbose": None}, "verbose=None must be an integer"),
        ({"random_state": "abc"}, "random_state='abc' is not accepted"),
        ({"random_state": -1}, "random_state=-1 is not accepted: give None, an integer"),
        ({"early_stopping": "False"}, "early_stopping='False' must be True, False or 'auto'"),
        ({"warm_start": "yes"}, "warm_start='yes' must be True or False"),
        (
            {"priors": "equal"},
            "priors='equal' is not known. Accepted: 'uniform'",
        ),
        ({"priors": [0.5, 0.5]}, r"priors has shape \(2,\). Accepted.*or 3 numbers"),
        ({"priors": [0.5, 0.4, 0.2]}, r"sums to 1.1. Accepted.*sum to 1"),
        ({"priors": [1.5, -0.5, 0.0]}, "holds negative values. Accepted"),
        (start(weights=np.ones((3, 2))), "every row must sum to 1, but row 0 sums to 2"),
        (start(weights=[[0.5, 0.5], [0, 0], [1, 0]]), "class.es. 1 .* no kernel at all"),
        (start(weights=[[1.5, -0.5]] * 3), "negative values"),
        (
            start(weights=np.ones((2, 2)) / 2),
            r"shape \(2, 2\); accepted here: \(3, 2\), \(n_classes, n_comp",
        ),
        (
            start(means=np.zeros((3, 4))),
            r"^Start\.means has shape \(3, 4\); accepted here: \(2, 4\)",
        ),
        (start(means=np.full((2, 4), np.nan)), r"^Start\.means holds NaN"),
        (start(means=np.full((2, 4), 1e160)), r"^Start\.means puts a kernel .*Start within the"),
        (
            {"init": Uniform(1e160, 2e160)},
            r"range of the uniform start, 1e\+160 to 2e\+160, puts a kernel .*Start within the",
        ),
        ({"init": Uniform(-1e308, 1e308)}, r"uniform start, -1e\+308 to 1e\+308, puts a kernel"),
        ({"init": Uniform(scale=1e200)}, r"uniform start's scale of 1e\+200 makes a kernel with"),
        (start(covariances=[np.eye(4) * 1e200] * 2), r"^Start\.covariances makes a kernel with"),
        (start(means=[["a"] * 4] * 2), "must be an array of numbers"),
        (start(means=[[1, 2], [3]]), "rows of equal length"),
        (start(means=[[[1, 2], [3]]]), r"^Start\.means=.*rows of equal length"),
        (start(covariances=np.eye(3)), r"accepted here: \(2, 4, 4\)"),
        (start(covariances=-EYE), r"not positive definite \(kernel 0\)"),
        (start(covariances=EYE + np.triu(np.ones((4, 4)), 1)), "must be symmetric"),
        (
            start(covariances=EYE * [[[1]], [[2]]], covariance_type="tied"),
            r"not of covariance_type='tied'. Give .* of shape \(4, 4\)",
        ),
        (
            start(covariances=EYE + 0.1, covariance_type="diag"),
            r"not of covariance_type='diag'",
        ),
        (start(means=np.zeros((2, 2)), n_blocks=2), r"^Start\.means must be a list with one array"),
        (
            start(weights=[np.ones((3, 2)) / 2], n_blocks=2),
            "each of the 2 blocks, got 1 entries",
        ),
        (
            start(means=[np.zeros((2, 2)), np.zeros((2, 3))], n_blocks=2),
            r"^Start\.means \(block 1\) has shape \(2, 3\)",
        ),
    ],
)
def test_bad_parameters(parameters, message):
    model = SharedKernelClassifier(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "blocks_")
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (Uniform, {"low": 1, "high": 1}, "^low=1 must be less than high=1"),
        (Uniform, {"low": 3}, r"^low=3 must be less than high=2\.0"),
        (Uniform, {"low": None}, "^low=None must be a finite number"),
        (Uniform, {"high": np.inf}, "^high=inf must be a finite number"),
        (Uniform, {"scale": 0}, "^scale=0 must be a finite number above 0"),
        (ClassKMeans, {"own_mass": 1.5}, r"^own_mass=1\.5 must be .* at least 0 and at most 1"),
        (ClassKMeans, {"own_mass": "all"}, "^own_mass='all' must be"),
        (KMeans, {"refine": "yes"}, "^refine='yes' must be True or False"),
        (UnsupervisedEM, {"passes": 0}, "^passes=0 must be an integer of at least 1"),
        (Start, {"otherwise": "best"}, "^otherwise='best' is not known. Accepted: 'class-kmeans'"),
        (Start, {"otherwise": Start()}, "^otherwise=Start.* is not known"),
        *(
            (kind, {"reseed": "no"}, "^reseed='no' must be True or False")
            for kind in (KMeans, ClassKMeans, KDTree, UnsupervisedEM, Uniform, Start)
        ),
        (Shrinkage, {"samples": -1.0}, r"=-1\.0 must be a finite number of at least 0 or 'auto'"),
        (
            Shrinkage,
            {"target": "round"},
            "^target='round' is not known. Accepted: 'pooled', 'diag'",
        ),
    ],
)
def test_bad_values_are_refused_where_they_are_made(kind, parameters, message):
    with pytest.raises(ValueError, match=message):
        kind(**parameters)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_values_that_are_infinite(bad):
    broken = X.copy()
    broken[3, 1] = bad
    told = rf"infinity: column 1 holds {bad} in row 3"
    with pytest.raises(ValueError, match=told):
        SharedKernelClassifier(n_components=2).fit(broken, y)
    frame = pd.DataFrame(broken).rename(columns=lambda place: f"c{place}").assign(text="a")
    with pytest.raises(ValueError, match=told.replace("column 1", "column 'c1'")):
        SharedKernelClassifier(n_components=2).fit(frame, y)
    model = SharedKernelClassifier(n_components=2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="infinity"):
        model.predict(broken)
    with pytest.raises(ValueError, match="infinity"):
        SharedKernelDensity(n_components=2).fit(broken)


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (X[0], y, "Expected 2D array, got 1D"),
        (X[:0], y[:0], "Found array with 0 sample"),
        (X[:, :0], y, "0 feature"),
        (X, y[:-1], "inconsistent numbers of samples"),
        (X, np.linspace(0, 1, 60), "Unknown label type"),
        (X, None, "requires y to be passed"),
        ([["a", "b"]] * 60, y, "Column 0 of X holds 'a', which is no number"),
    ],
)
def test_bad_data(data, labels, message):
    with pytest.raises(ValueError, match=message):
        SharedKernelClassifier(n_components=2).fit(data, labels)


@pytest.mark.parametrize("estimator", [SharedKernelClassifier, SharedKernelDensity])
def test_a_failed_or_interrupted_fit_keeps_the_last_model(estimator, monkeypatch):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = estimator(n_components=2, init="kdtree").fit(frame, y)
    before = model.score_samples(frame)
    other = frame.assign(e=1.0)[list("edcba")]
    with pytest.raises(ValueError, match=r"Start\.means has shape"):
        model.set_params(init=Start(means=np.zeros((2, 1)))).fit(other, y)
    np.testing.assert_array_equal(model.score_samples(frame), before)

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("pskem.training._loop.em_pass", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(init="kdtree", verbose=1).fit(other, y)
    np.testing.assert_array_equal(model.score_samples(frame), before)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcd"))
    with pytest.raises(ValueError, match="feature names"):
        model.score_samples(other)
    fresh = estimator(n_components=2)
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    assert not hasattr(fresh, "n_features_in_")


@pytest.mark.parametrize("factor", [1e155, 1e-162, 1e-310])
def test_values_whose_squares_are_out_of_range(factor):
    with pytest.raises(ValueError, match=r"feature.s. 0, 1, 2, 3 vary by .* rescale"):
        SharedKernelClassifier(n_components=2).fit(X * factor, y)


@pytest.mark.parametrize("factor", [1e120, 1e-120])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_values_that_are_nearly_out_of_range(factor, covariance_type):
    settings = {"n_components": 2, "covariance_type": covariance_type, "random_state": 0}
    model = SharedKernelClassifier(**settings).fit(X * factor, y)
    proba = model.predict_proba(X * factor)
    assert np.isfinite(proba).all()
    assert np.isfinite(model.sample(5, random_state=0)[0]).all()


def test_bad_arguments_of_methods():
    model = SharedKernelClassifier(n_components=2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match=r"y holds class.es. \[7\] .* It knows \[0, 1, 2\]"):
        model.bic(X, np.where(y == 0, 7, y))
    with pytest.raises(ValueError, match="X has 60 samples and y has 59"):
        model.aic(X, y[:-1])
    with pytest.raises(ValueError, match="y is missing"):
        model.bic(X, None)
    with pytest.raises(ValueError, match=r"classes holds class.es. \['rose'\]"):
        model.sample(2, classes="rose")
    with pytest.raises(ValueError, match="one for each of the n_samples=2"):
        model.sample(2, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="n_samples=0 must be"):
        model.sample(0)
    with pytest.raises(ValueError, match="threshold=0 must be"):
        model.shared_proportion(threshold=0)
    with pytest.raises(ValueError, match="y holds class"):
        model.responsibilities(X, y + 1)


def test_bad_validation_data():
    model = SharedKernelClassifier(n_components=2, early_stopping=True)
    with pytest.raises(ValueError, match="y_val is missing"):
        model.fit(X, y, X_val=X)
    with pytest.raises(ValueError, match="X_val is missing"):
        model.fit(X, y, y_val=y)
    with pytest.raises(ValueError, match=r"y_val holds class.es. \[3\]"):
        model.fit(X, y, X_val=X, y_val=y + 1)
    with pytest.raises(ValueError, match=r"X_val and y_val are not accepted.*expecting 4 features"):
        model.fit(X, y, X_val=X[:, :2], y_val=y)
    with pytest.raises(ValueError, match=r"X_val and y_val are not accepted.*contains infinity"):
        model.fit(X, y, X_val=np.full_like(X, np.inf), y_val=y)
    with pytest.raises(ValueError, match="leaves none to validate on"):
        model.fit(X[:4], y[:4])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components=0 must be"),
        ({"n_components": [3]}, r"n_components=\[3\] must be"),
        ({"init": Start([0.5, 0.6])}, r"^Start\.weights: every row must sum to 1, .* to 1\.1"),
        (
            {"init": Start([[0.5, 0.5]])},
            r"^Start\.weights has shape \(1, 2\); accepted here: \(2,\)",
        ),
        ({"init": Start(covariances=-EYE)}, r"^Start\.covariances is not positive definite"),
    ],
)
def test_bad_parameters_of_the_density(parameters, message):
    with pytest.raises(ValueError, match=message):
        SharedKernelDensity(**{"n_components": 2, **parameters}).fit(X)


def test_density_warm_start_with_other_settings():
    model = SharedKernelDensity(n_components=2, init="kdtree", warm_start=True).fit(X)
    with pytest.raises(ValueError, match="n_components of the last fit"):
        model.set_params(n_components=3).fit(X)


@pytest.mark.parametrize("path", ["rows.parquet", Path("rows.csv")])
def test_paths_are_not_rows(path):
    with pytest.raises(ValueError, match=rf"X is the path '{path}'.*open_table"):
        SharedKernelClassifier().fit(path)
    model = SharedKernelClassifier(n_components=3).fit(X, y)
    for method in (model.predict, model.predict_proba, model.score_samples):
        with pytest.raises(ValueError, match=rf"X is the path '{path}'. Give the rows themselves"):
            method(path)
