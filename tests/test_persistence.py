"""Model files: the same bits come back, and nothing but what was written does."""

import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
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
from pskem.persistence import ModelFileError, container, read_header
from pskem.persistence.types import known_type
from pskem.preprocessing import paper_features
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


@pytest.mark.parametrize(
    "step",
    [
        MinMaxScaler(),
        RobustScaler(),
        PowerTransformer(),
        QuantileTransformer(n_quantiles=20),
        KBinsDiscretizer(3, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
        PolynomialFeatures(2),
        FactorAnalysis(2),
        FeatureUnion([("pca", PCA(2)), ("scale", StandardScaler())]),
        Pipeline([("nothing", "passthrough"), ("scale", StandardScaler())]),
    ],
    ids=lambda step: type(step).__name__,
)
def test_scikit_learns_steps_come_back_bit_by_bit(labelled, tmp_path, step):
    X, y = labelled
    step.fit(X, y)
    loaded = round_trip(step, tmp_path)
    assert same(step, loaded)
    assert step.transform(X).tobytes() == loaded.transform(X).tobytes()


def test_an_unfitted_model_stays_unfitted(tmp_path):
    loaded = round_trip(SharedKernelClassifier(n_components=7, tol=float("inf")), tmp_path)
    assert loaded.n_components == 7
    assert loaded.tol == float("inf")
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(loaded)


def test_metadata_and_versions_can_be_read_without_the_model(fitted, tmp_path):
    path = tmp_path / "model.pskem"
    pskem.save(fitted, path, metadata={"source": "flowers.csv", "rows": 3})
    header = read_header(path)
    assert header.metadata == {"source": "flowers.csv", "rows": 3}
    assert header.versions["pskem"] == pskem.__version__
    assert set(header.versions) == {"pskem", "scikit-learn", "numpy", "python"}
    assert header.format_version == 1


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
        (FunctionTransformer(np.log), "FunctionTransformer"),
        (Mine(), "Mine"),
        (CalibratedClassifierCV(), "CalibratedClassifierCV"),
        (SharedKernelClassifier(n_jobs=print), r"model\.n_jobs is a builtins\.builtin_function"),
        (make_pipeline(StandardScaler(), Mine()), r"model\.steps\[1\]\[1\] is a"),
        (Pipeline([("scale", StandardScaler())], memory="/tmp/x"), "memory"),
        (StandardScaler(copy=np.array(["2020-01-01"], dtype="datetime64[D]")), "ndarray"),
        (3 + 4j, "complex"),
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


def test_a_failed_save_leaves_the_old_file(fitted, tmp_path, monkeypatch):
    path = tmp_path / "model.pskem"
    pskem.save(fitted, path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        pskem.save(StandardScaler(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_rights_of_any_new_file(fitted, tmp_path):
    pskem.save(fitted, tmp_path / "model.pskem")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "model.pskem").stat().st_mode == (tmp_path / "other").stat().st_mode


# What cannot be loaded


@pytest.fixture
def saved(labelled, tmp_path):
    X, y = labelled
    settings = {"covariance_type": "diag", "max_iter": 2, "tol": 0.0}
    model = SharedKernelClassifier(n_components=2, **settings).fit(X, y)
    pskem.save(model, tmp_path / "model.pskem")
    return tmp_path / "model.pskem"


def test_every_changed_byte_is_noticed(saved):
    content = saved.read_bytes()
    for i in range(0, len(content), max(1, len(content) // 400)):
        saved.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
        with pytest.raises(ModelFileError, match=r"damaged|not a model file"):
            pskem.load(saved)


def test_every_truncation_is_noticed(saved):
    content = saved.read_bytes()
    for i in [*range(0, len(content), max(1, len(content) // 200)), len(content) - 1]:
        saved.write_bytes(content[:i])
        with pytest.raises(ModelFileError, match=r"damaged|not a model file"):
            pskem.load(saved)
    saved.write_bytes(content + b"x")
    with pytest.raises(ModelFileError, match="damaged"):
        pskem.load(saved)


def test_foreign_files_are_refused_and_never_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    path = tmp_path / "foreign"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as other:
        other.writestr("schema.json", "{}")
    for content in (b"", b"PK", pickle.dumps(Bomb()), b"a,b\n1,2\n", archive.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="is not a model file of pskem"):
            pskem.load(path)
    assert not (tmp_path / "exploded").exists()
    with pytest.raises(FileNotFoundError):
        pskem.load(tmp_path / "nowhere")


def forge(path, change=lambda manifest: None, arrays=None):
    """Write a file with another manifest or other arrays, and a checksum that is right."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(parts["pskem-model.json"])
    change(manifest)
    parts["pskem-model.json"] = json.dumps(manifest).encode()
    parts |= arrays or {}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = b"0" * container.DIGEST_LENGTH
        for name, content in parts.items():
            archive.writestr(name, content)
    body = buffer.getvalue()[: -container.DIGEST_LENGTH]
    path.write_bytes(body + container._digest(body))


def test_a_forgery_without_changes_loads(saved):
    forge(saved)
    assert isinstance(pskem.load(saved), SharedKernelClassifier)


def test_a_newer_format_says_to_upgrade(saved):
    forge(saved, lambda manifest: manifest.update(format_version=2))
    with pytest.raises(ModelFileError, match=r"format version 2.*Upgrade pskem"):
        pskem.load(saved)


def test_another_scikit_learn_is_told(saved):
    forge(saved, lambda manifest: manifest["versions"].update({"scikit-learn": "0.24.1"}))
    with pytest.warns(UserWarning, match=r"saved with scikit-learn 0\.24\.1") as told:
        pskem.load(saved)
    assert told[0].filename == __file__


def replace_model(tree):
    return lambda manifest: manifest.update(model=tree)


FORGERIES = {
    "another type": {"estimator": "os.system", "state": {}},
    "a type with a path": {"estimator": "sklearn.preprocessing.FunctionTransformer", "state": {}},
    "a type outside the list": {"estimator": "FunctionTransformer", "state": {}},
    "no name": {"estimator": ["x"], "state": {}},
    "an unknown tag": {"reduce": ["os.system", "true"]},
    "an empty tag": {},
    "a far array": {"array": 10**6},
    "a negative array": {"array": -1},
    "an array by name": {"array": "0"},
    "a strange number": {"float": "1e400"},
    "a type of numbers": {"type": "eval"},
    "a type of dates": {"dtype": "<M8[D]"},
    "a type of records": {"dtype": "f8,O"},
    "a block of parts": {"block": {"features": 1}},
    "a cache of pickles": {"estimator": "Pipeline", "state": {"steps": [], "memory": "/tmp"}},
    "objects of a wrong shape": {"objects": [1, 2], "shape": [3]},
    "a state that is a list": {"estimator": "PCA", "state": [1]},
    "a random state of nonsense": {"random_state": [0, 1, 2, 3]},
    "a missing part": {"objects": [1]},
    "a slice of five": {"slice": [1, 2, 3, 4, 5]},
    "an unhashable key": {"dict": [[[], 1]]},
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_file_gives_one_clear_error(saved, case):
    forge(saved, replace_model(FORGERIES[case]))
    with pytest.raises(ModelFileError, match="is not a valid model file"):
        pskem.load(saved)


def test_depth_is_limited(saved):
    tree = 1
    for _ in range(200):
        tree = [tree]
    forge(saved, replace_model(tree))
    with pytest.raises(ModelFileError, match="nested too deeply"):
        pskem.load(saved)


def npy(array, **options):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        npy(np.array([print], dtype=object), allow_pickle=True),
        npy(np.zeros(3)).replace(b"(3,)", b"(9,)"),
        npy(np.zeros(3)).replace(b"(3,), }", b"(9999999999999999,), }").ljust(152, b" "),
        npy(np.zeros(3), version=(2, 0)),
        b"not an array",
        b"",
    ],
    ids=["pickle", "short", "huge", "other version", "foreign", "empty"],
)
def test_a_forged_array_gives_one_clear_error(saved, content):
    forge(saved, arrays={"arrays/0.npy": content})
    with pytest.raises(ModelFileError, match="is not a valid model file"):
        pskem.load(saved)


def test_the_list_of_types_is_closed():
    assert known_type("SharedKernelClassifier") is SharedKernelClassifier
    for name in ("FunctionTransformer", "os", "print", "Pipeline.__init__", "_HOME", ""):
        assert known_type(name) is None
