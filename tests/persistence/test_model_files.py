"""Model files that are damaged, foreign, forged or newer give one clear error and run nothing."""

import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import pskem
from pskem import SharedKernelClassifier
from pskem.persistence import ModelFileError, container, read_header
from pskem.persistence.types import known_type

pytestmark = pytest.mark.plumbing


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


def forge(path, change=lambda manifest: None, arrays=None, compression=zipfile.ZIP_STORED):
    """Write a file with another manifest or other arrays, and a checksum that is right."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(parts["pskem-model.json"])
    change(manifest)
    parts["pskem-model.json"] = json.dumps(manifest).encode()
    parts |= arrays or {}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
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
    forge(saved, lambda manifest: manifest.pop("versions"))  # whatever else it may have become
    with pytest.raises(ModelFileError, match="Upgrade pskem"):
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
    "a type outside the list": {"estimator": "LogisticRegression", "state": {}},
    "a function": {"estimator": "FunctionTransformer", "state": {"func": {"function": "x"}}},
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
    "a block of parts": {"Block": {"features": 1}},
    "a cache of pickles": {"estimator": "Pipeline", "state": {"steps": [], "memory": "/tmp"}},
    "objects of a wrong shape": {"objects": [1, 2], "shape": [3]},
    "a state that is a list": {"estimator": "PCA", "state": [1]},
    "a random state of nonsense": {"random_state": [0, 1, 2, 3]},
    "a missing part": {"objects": [1]},
    "a slice of five": {"slice": [1, 2, 3, 4, 5]},
    "an unhashable key": {"dict": [[[], 1]]},
    "no estimator": 5,
    "nothing": None,
    "a pipeline without steps": {"estimator": "Pipeline", "state": {}},
    "strides of texts": {"array": 0, "strides": ["8"]},
    "strides of another shape": {"array": 0, "strides": [8, 8, 8, 8, 8]},
    "strides that overlap": {"array": 0, "strides": [0]},
    "a random state beyond": {"random_state": [0, 10**9, 0, 0.0]},
    "strides to the moon": {"array": 0, "strides": [10**15]},
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_file_gives_one_clear_error(saved, case):
    forge(saved, replace_model(FORGERIES[case]))
    with pytest.raises(ModelFileError, match="is not a valid model file"):
        pskem.load(saved)


MANIFESTS = {
    "no metadata": lambda m: m.pop("metadata"),
    "metadata that are a list": lambda m: m.update(metadata=[1]),
    "no versions": lambda m: m.pop("versions"),
    "versions that are numbers": lambda m: m.update(versions={"scikit-learn": 1}),
    "one part more": lambda m: m.update(extra=1),
    "a version below one": lambda m: m.update(format_version=-3),
    "a version that is true": lambda m: m.update(format_version=True),
    "a version that is text": lambda m: m.update(format_version="1"),
}


@pytest.mark.parametrize("case", MANIFESTS)
@pytest.mark.parametrize("read", [pskem.load, read_header])
def test_a_forged_manifest_gives_one_clear_error(saved, case, read):
    forge(saved, MANIFESTS[case])
    with pytest.raises(ModelFileError, match="is not a valid model file"):
        read(saved)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_would_grow_when_read_is_not_read(saved, compression, monkeypatch):
    forge(saved, lambda m: m.update(metadata={"x": " " * 10**7}), compression=compression)
    assert saved.stat().st_size < 10**6

    def reading(*arguments):
        raise AssertionError("it was read")

    monkeypatch.setattr(zipfile.ZipFile, "open", reading)
    with pytest.raises(ModelFileError, match=r"pskem-model\.json is compressed"):
        read_header(saved)


@pytest.mark.parametrize("name", ["arrays/99.npy", "../evil", "arrays/0.npy/x", "other.json"])
def test_other_members_are_refused(saved, name):
    forge(saved, arrays={name: b"x"})
    with pytest.raises(ModelFileError, match="other members"):
        pskem.load(saved)


def test_an_array_is_there_once(saved):
    state = {"copy": {"array": 0}, "with_mean": True}
    forge(saved, replace_model({"estimator": "StandardScaler", "state": state}))
    assert isinstance(pskem.load(saved), StandardScaler)
    state["with_mean"] = {"array": 0}  # and a file could ask for any amount of memory
    forge(saved, replace_model({"estimator": "StandardScaler", "state": state}))
    with pytest.raises(ModelFileError, match="refers to array 0 twice"):
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
        npy(np.zeros(3)).replace(b"(3,), }", b"(" + b" " * 5 + b"}"),
        npy(np.zeros(0, dtype="U0")).replace(b"<U1", b"<U0").replace(b"(0,), }", b"(9,), }"),
        npy(np.zeros(3, dtype=[("a", "f8")])),
        npy(np.zeros(3, dtype="M8[D]")),
    ],
    ids=[
        "pickle",
        "short",
        "huge",
        "version",
        "foreign",
        "empty",
        "header",
        "nothings",
        "records",
        "dates",
    ],
)
def test_a_forged_array_gives_one_clear_error(saved, content):
    forge(saved, arrays={"arrays/0.npy": content})
    with pytest.raises(ModelFileError, match="is not a valid model file"):
        pskem.load(saved)


def test_the_list_of_types_is_closed():
    assert known_type("SharedKernelClassifier") is SharedKernelClassifier
    for name in ("LogisticRegression", "os", "print", "Pipeline.__init__", "_HOME", ""):
        assert known_type(name) is None
