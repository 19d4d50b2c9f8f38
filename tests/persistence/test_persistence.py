"""Model files: the same bits come back, and nothing but what was written does."""

import io
import json
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, FactorAnalysis, FastICA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils.validation import check_is_fitted

import pskem
from pskem import SharedKernelClassifier, SharedKernelDensity
from pskem.persistence import (
    ModelFileError,
    check_model_place,
    load_with_header,
    read_header,
    types,
)
from pskem.preprocessing import (
    Deskew,
    Downsample,
    ImageNormalizer,
    IndependentComponents,
    paper_features,
)
from pskem.workflow import Predictor
from reference import COVARIANCE_TYPES


def round_trip(model, tmp_path):
    pskem.save(model, tmp_path / "model.pskem")
    return pskem.load(tmp_path / "model.pskem")


def same(a, b):
    """Whether two values are the same, bit by bit, through all attributes."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.strides == b.strides or a.dtype == object
        if a.dtype == object:
            return all(map(same, a.ravel(), b.ravel()))
        return a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    if isinstance(a, float) and a != a:
        return b != b
    if hasattr(a, "get_state"):
        return same(a.get_state(legacy=True), b.get_state(legacy=True))
    if hasattr(a, "__dict__") and not isinstance(a, type | np.dtype):
        return same(vars(a), vars(b))
    return a == b


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_classifier_comes_back_bit_by_bit(labelled, tmp_path, covariance_type, dtype):
    X, y = labelled[0].astype(dtype), np.array(["no", "yes", "perhaps"])[labelled[1]]
    model = SharedKernelClassifier(
        n_components=[3, 4],
        n_blocks=2,
        covariance_type=covariance_type,
        early_stopping=True,
        random_state=np.random.RandomState(3),
    ).fit(X, y)
    loaded = round_trip(model, tmp_path)
    assert same(model, loaded)
    for method in ("predict", "predict_proba", "class_log_likelihood", "score_samples"):
        a, b = getattr(model, method)(X), getattr(loaded, method)(X)
        assert a.tobytes() == b.tobytes()
    assert same(model.fit(X, y), loaded.fit(X, y))


def test_a_density_comes_back_bit_by_bit(labelled, tmp_path):
    model = SharedKernelDensity(n_components=3, random_state=0).fit(labelled[0])
    loaded = round_trip(model, tmp_path)
    assert model.score_samples(labelled[0]).tobytes() == loaded.score_samples(labelled[0]).tobytes()


def test_the_papers_pipeline_comes_back_bit_by_bit(tmp_path):
    X, y = load_digits(return_X_y=True)
    model = make_pipeline(
        paper_features(12), SharedKernelClassifier(n_components=10, n_blocks=2, max_iter=5, tol=0.0)
    ).fit(X, y)
    loaded = round_trip(model, tmp_path)
    assert model.predict_proba(X).tobytes() == loaded.predict_proba(X).tobytes()


# Kernels may well hold one category only, and have no variance there.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_encoded_table_comes_back_bit_by_bit(tmp_path):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "length": np.where(rng.random(200) < 0.1, np.nan, rng.standard_normal(200)),
            "width": rng.standard_normal(200),
            "colour": rng.choice(["red", "green", "blué"], 200),
            "size": rng.choice(["S", "M"], 200),
        }
    )
    y = np.where(frame["width"] > 0, "wide", "narrow")
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = ColumnTransformer(
        [
            ("numbers", numbers, ["length", "width"]),
            ("colour", OneHotEncoder(drop="first", sparse_output=False), ["colour"]),
            ("size", OrdinalEncoder(), ["size"]),
        ],
        remainder="drop",
    )
    model = make_pipeline(encoder, SharedKernelClassifier(n_components=2, covariance_type="tied"))
    model.fit(frame, y)
    loaded = round_trip(model, tmp_path)
    assert model.predict_proba(frame).tobytes() == loaded.predict_proba(frame).tobytes()
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    assert (loaded[:-1].get_feature_names_out() == model[:-1].get_feature_names_out()).all()


STEPS = [
    Deskew(shape=(1, -1)),
    Downsample(factor=1, shape=(1, -1)),
    ImageNormalizer(standardize="pixel"),
    FactorAnalysis(2, random_state=0),
    FastICA(2, random_state=0),
    FunctionTransformer(),
    IndependentComponents(random_state=0),
    FeatureUnion([("pca", PCA(2)), ("scale", StandardScaler())]),
    KBinsDiscretizer(3, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
    LinearDiscriminantAnalysis(n_components=2),
    MaxAbsScaler(),
    MinMaxScaler(),
    MissingIndicator(features="all"),
    Normalizer(),
    OneHotEncoder(sparse_output=False, handle_unknown="ignore"),
    OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    PCA(3),
    PCA(3, svd_solver="covariance_eigh"),
    Pipeline([("nothing", "passthrough"), ("scale", StandardScaler())]),
    PolynomialFeatures(2),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=20),
    RobustScaler(),
    SimpleImputer(strategy="median"),
    StandardScaler(),
    TruncatedSVD(3, random_state=0),
    VarianceThreshold(),
    ColumnTransformer([("scale", StandardScaler(), [0, 2]), ("rest", "passthrough", [1])]),
]


def test_the_steps_are_all_that_a_model_file_may_hold():
    models = {
        "PartitionEnsemble",
        "SharedKernelClassifier",
        "SharedKernelClassifierCV",
        "SharedKernelDensity",
    }
    assert {type(step).__name__ for step in STEPS} | models == set(types._HOME)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_scikit_learns_steps_come_back_bit_by_bit(labelled, tmp_path, step):
    X, y = labelled
    step.fit(X, y)
    loaded = round_trip(step, tmp_path)
    assert same(step, loaded)
    assert np.asarray(step.transform(X)).tobytes() == np.asarray(loaded.transform(X)).tobytes()
    for row in X[:100, None]:  # products of one row take other paths through BLAS
        a, b = np.asarray(step.transform(row)), np.asarray(loaded.transform(row))
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, :5],
        lambda a: a[::2, ::3],
        lambda a: a.T[1:4],
        lambda a: a[::-1],
        lambda a: a[::-2, ::-1],
        lambda a: a.reshape(4, 5, 6).transpose(1, 2, 0)[:, 1:],
        lambda a: np.asfortranarray(a),
        lambda a: a[3, 3:4],
        lambda a: np.where(a > 1.0, np.nan, a)[1:, 1:],
    ],
)
def test_views_come_back_with_their_layout(rng, tmp_path, view):
    scaler = StandardScaler()
    scaler.mean_ = view(rng.standard_normal((12, 10)))
    loaded = round_trip(scaler, tmp_path)
    np.testing.assert_array_equal(loaded.mean_, scaler.mean_)
    assert loaded.mean_.strides == scaler.mean_.strides
    assert loaded.mean_.flags.writeable


def test_views_that_overlap_themselves_are_taken_by_their_values(tmp_path):
    scaler = StandardScaler()
    scaler.mean_ = np.broadcast_to(np.array([[0.0], [-0.0]]), (2, 3))
    loaded = round_trip(scaler, tmp_path)
    assert loaded.mean_.tobytes() == scaler.mean_.tobytes()
    assert loaded.mean_.strides == (24, 8)


def test_a_column_of_a_huge_array_is_stored_alone(tmp_path):
    scaler = StandardScaler()
    scaler.mean_ = np.zeros((100, 10_000))[:, 3]
    assert round_trip(scaler, tmp_path).mean_.strides == (8,)
    assert (tmp_path / "model.pskem").stat().st_size < 10_000


def test_an_unfitted_model_stays_unfitted(tmp_path):
    loaded = round_trip(SharedKernelClassifier(n_components=7, tol=float("inf")), tmp_path)
    assert loaded.n_components == 7
    assert loaded.tol == float("inf")
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(loaded)


def test_the_kind_of_model_can_be_asked_for(fitted, tmp_path):
    bare, piped = tmp_path / "bare.pskem", tmp_path / "piped.pskem"
    pskem.save(fitted, bare)
    pskem.save(make_pipeline(StandardScaler(), fitted), piped)
    assert type(pskem.load(bare, SharedKernelClassifier)) is SharedKernelClassifier
    assert type(pskem.load(piped, Pipeline)[-1]) is SharedKernelClassifier
    with pytest.raises(ModelFileError, match="holds a SharedKernelClassifier, not a SharedKernelD"):
        pskem.load(bare, SharedKernelDensity)
    ends = "holds a Pipeline that ends in a SharedKernelClassifier, not a SharedKernelClassifier"
    with pytest.raises(ModelFileError, match=ends):
        pskem.load(piped, kind=SharedKernelClassifier)


def test_metadata_and_versions_can_be_read_without_the_model(fitted, tmp_path):
    path = tmp_path / "model.pskem"
    pskem.save(fitted, path, metadata={"source": "flowers.csv", "rows": 3})
    header = read_header(path)
    assert header.metadata == {"source": "flowers.csv", "rows": 3}
    assert header.versions["pskem"] == pskem.__version__
    assert set(header.versions) == {"pskem", "scikit-learn", "numpy", "python"}
    assert header.format_version == 1


def test_one_reading_gives_the_model_and_its_header(fitted, labelled, tmp_path, monkeypatch):
    path = tmp_path / "model.pskem"
    pskem.save(fitted, path, metadata={"rows": 3})
    readings = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: readings.append(self) or original(self))
    model, header = load_with_header(path)
    assert readings == [path]
    assert header == read_header(path)
    assert model.predict_proba(labelled[0]).tobytes() == fitted.predict_proba(labelled[0]).tobytes()
    readings.clear()
    Predictor.load(path)
    assert readings == [path]


def test_the_same_model_gives_the_same_file(fitted, tmp_path):
    pskem.save(fitted, tmp_path / "a")
    pskem.save(fitted, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_file_is_an_ordinary_zip_archive_of_text_and_arrays(fitted, tmp_path):
    pskem.save(fitted, tmp_path / "model.pskem")
    with zipfile.ZipFile(tmp_path / "model.pskem") as archive:
        assert archive.testzip() is None
        first, *others = archive.namelist()
        assert first == "pskem-model.json"
        json.loads(archive.read(first))
        for name in others:
            np.load(io.BytesIO(archive.read(name)), allow_pickle=False)


# What cannot be saved


class Mine(StandardScaler):
    pass


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (FunctionTransformer(np.log), r"model\.func is a numpy\.ufunc"),
        (Mine(), "Mine"),
        (CalibratedClassifierCV(), "CalibratedClassifierCV"),
        (SharedKernelClassifier(n_jobs=print), r"model\.n_jobs is a builtins\.builtin_function"),
        (make_pipeline(StandardScaler(), Mine()), r"model\.steps\[1\]\[1\] is a"),
        (Pipeline([("scale", StandardScaler())], memory="/tmp/x"), "memory"),
        (StandardScaler(copy=np.array(["2020-01-01"], dtype="datetime64[D]")), "ndarray"),
        (3 + 4j, "complex"),
        (5, "holds an estimator, not a int"),
        (StandardScaler(copy="\ud800"), r"model\.copy holds a text that is no valid Unicode"),
    ],
)
def test_what_would_need_code_is_refused_with_its_place(tmp_path, model, match):
    with pytest.raises(ValueError, match=match):
        pskem.save(model, tmp_path / "model.pskem")
    assert not list(tmp_path.iterdir())


def test_a_model_that_refers_to_itself_is_refused(tmp_path):
    model = StandardScaler()
    model.copy = [model]
    with pytest.raises(ValueError, match="refers to itself"):
        pskem.save(model, tmp_path / "model.pskem")


def test_metadata_must_be_plain(fitted, tmp_path):
    with pytest.raises(ValueError, match="metadata"):
        pskem.save(fitted, tmp_path / "model.pskem", metadata={"when": object()})


def test_only_model_files_are_replaced(fitted, tmp_path):
    """Earlier models, also damaged ones, and empty files; never a user's data."""
    path, table = tmp_path / "model.pskem", tmp_path / "table.csv"
    pskem.save(fitted, path)
    content = path.read_bytes()
    for earlier in (content, content[:-7], b""):
        path.write_bytes(earlier)
        check_model_place(path)
        pskem.save(fitted, path)
        assert path.read_bytes() == content
    for other in (b"a,b\n1,2\n", b"PK", content[1:]):
        table.write_bytes(other)
        for attempt in (check_model_place, lambda place: pskem.save(fitted, place)):
            with pytest.raises(FileExistsError, match=r"csv exists and is not a model.*overwrite="):
                attempt(table)
        assert table.read_bytes() == other
    check_model_place(table, overwrite=True)
    pskem.save(fitted, table, overwrite=True)
    assert table.read_bytes() == content


def test_places_for_no_file_are_told_before_and_after_work(fitted, tmp_path):
    for attempt in (check_model_place, lambda place: pskem.save(fitted, place, overwrite=True)):
        with pytest.raises(FileNotFoundError, match="There is no folder"):
            attempt(tmp_path / "nowhere" / "model.pskem")
        with pytest.raises(IsADirectoryError):
            attempt(tmp_path)


def test_a_failed_save_leaves_the_old_file(fitted, tmp_path, monkeypatch):
    path = tmp_path / "model.pskem"
    pskem.save(fitted, path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"no room for {re.escape(str(path))}: No space left"):
        pskem.save(StandardScaler(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_rights_of_any_new_file(fitted, tmp_path):
    pskem.save(fitted, tmp_path / "model.pskem")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "model.pskem").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_bare_model_is_loaded_by_its_type(tmp_path, fitted, labelled):
    pskem.save(fitted.model_, tmp_path / "model.pskem")
    with pytest.raises(ModelFileError, match=r"holds a bare Model. Load it as that"):
        pskem.load(tmp_path / "model.pskem")
    model = pskem.load(tmp_path / "model.pskem", pskem.Model)
    X, _ = labelled
    np.testing.assert_array_equal(model.log_posterior(X), fitted.predict_log_proba(X))
