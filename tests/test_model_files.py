"""Model files that are damaged, foreign, forged or newer give one clear error and run nothing."""

import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest

import pskem
from pskem import SharedKernelClassifier
from pskem.persistence import ModelFileError, container
from pskem.persistence.types import known_type


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
