"""The loaders: every format as its publisher describes it, and what is wrong with wrong files."""

import gzip
import hashlib

import numpy as np
import pytest

from pskem.datasets import (
    CATALOGUE,
    LOADERS,
    DatasetError,
    load_cifar10,
    load_fashion_mnist,
    load_ionosphere,
    load_mnist,
    load_rice,
)
from pskem.datasets.readers import read_bytes
from published import idx

pytestmark = pytest.mark.plumbing

IMAGE_LOADERS = [load_mnist, load_fashion_mnist, load_cifar10]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_packed_or_not_hold_what_was_written(tiny, name):
    load = LOADERS[name]
    home, made = tiny
    (train, train_labels), (test, test_labels) = made[name, "train"], made[name, "t10k"]
    bunch = load(data_home=home)
    np.testing.assert_array_equal(bunch.images, train)
    np.testing.assert_array_equal(bunch.data, train.reshape(6, -1))
    np.testing.assert_array_equal(bunch.target, train_labels)
    assert bunch.data.dtype == np.uint8
    assert len(bunch.feature_names) == 784
    assert len(bunch.target_names) == 10
    np.testing.assert_array_equal(load(data_home=home, subset="test").images, test)
    X, y = load(data_home=home, subset="all", return_X_y=True)
    np.testing.assert_array_equal(X, np.concatenate([train, test]).reshape(10, -1))
    np.testing.assert_array_equal(y, np.concatenate([train_labels, test_labels]))


def test_cifar_images_are_the_planes_with_colours_last(tiny):
    home, made = tiny
    bunch = load_cifar10(data_home=home, subset="all")
    parts = [made["cifar-10", f"data_batch_{i}.bin"] for i in range(1, 6)]
    parts.append(made["cifar-10", "test_batch.bin"])
    planes = np.concatenate([planes for planes, _ in parts])
    np.testing.assert_array_equal(bunch.data, planes.reshape(12, -1))
    np.testing.assert_array_equal(bunch.images, np.moveaxis(planes, 1, -1))
    np.testing.assert_array_equal(bunch.target, np.concatenate([labels for _, labels in parts]))
    assert len(load_cifar10(data_home=home).data) == 10
    np.testing.assert_array_equal(
        load_cifar10(data_home=home, subset="test").target, made["cifar-10", "test_batch.bin"][1]
    )


def test_tables_hold_what_was_written(tiny):
    home, made = tiny
    rice = load_rice(data_home=home)
    np.testing.assert_array_equal(rice.data, [[1.5, 2.0], [-3.0, 4.0]])
    assert rice.feature_names == ["a", "b"]
    assert rice.target_names[rice.target].tolist() == ["Osmancik", "Cammeo"]
    ionosphere = load_ionosphere(data_home=home)
    np.testing.assert_array_equal(ionosphere.data, made["ionosphere"])
    assert ionosphere.target_names[ionosphere.target].tolist() == ["g", "b", "g"]
    assert "Sigillito" in ionosphere.DESCR


@pytest.mark.parametrize("load", LOADERS.values(), ids=list(LOADERS))
def test_as_frame_gives_pandas(tiny, load):
    pd = pytest.importorskip("pandas")
    home, _ = tiny
    plain, bunch = load(data_home=home), load(data_home=home, as_frame=True)
    assert isinstance(bunch.data, pd.DataFrame)
    assert isinstance(bunch.target, pd.Series)
    assert bunch.frame.columns.tolist() == [*plain.feature_names, "target"]
    np.testing.assert_array_equal(bunch.data, plain.data)
    X, y = load(data_home=home, as_frame=True, return_X_y=True)
    assert X.equals(bunch.data)
    assert y.equals(bunch.target)
    assert plain.frame is None


@pytest.mark.parametrize("load", IMAGE_LOADERS)
def test_unknown_subset_is_named(tiny, load):
    with pytest.raises(ValueError, match=r"subset='val' is not known. Accepted: 'train', 'test'"):
        load(data_home=tiny[0], subset="val")


MNIST = "mnist/train-images-idx3-ubyte.gz"
FASHION = "fashion-mnist/t10k-images-idx3-ubyte"
LABELS = "fashion-mnist/t10k-labels-idx1-ubyte"
CIFAR = "cifar-10/cifar-10-batches-bin/test_batch.bin"
RICE = "rice/Rice_Cammeo_Osmancik.arff"
RADAR = "ionosphere/ionosphere.data"
NO_CLASS = b"@RELATION r\n@ATTRIBUTE a Real\n@DATA\n1\n"

DAMAGE = {
    "truncated gzip": (MNIST, lambda b: b[:-9], "gzip"),
    "no gzip": (MNIST, lambda b: b"hello", "gzip"),
    "other dimensions": (MNIST, lambda b: gzip.compress(idx(np.zeros((4, 1)))), "IDX file"),
    "truncated idx": (FASHION, lambda b: b[:-1], "promises"),
    "longer idx": (FASHION, lambda b: b + b"x", "promises"),
    "empty idx": (FASHION, lambda b: b"", "nothing"),
    "other size": (FASHION, lambda b: idx(np.zeros((4, 8, 8))), r"\(28, 28\)"),
    "train for test": (FASHION, lambda b: idx(np.zeros((6, 28, 28))), "6 rows; there should be 4"),
    "other labels": (LABELS, lambda b: idx(np.full(4, 26)), "up to 26"),
    "half a row": (CIFAR, lambda b: b[:-5], "3,073"),
    "a row less": (CIFAR, lambda b: b[:-3073], "1 rows"),
    "no cifar": (CIFAR, lambda b: b"\xff" * len(b), "up to 255"),
    "no arff": (RICE, lambda b: b"a,b\n1,2\n", "ARFF"),
    "binary arff": (RICE, lambda b: bytes(range(256)), "ARFF"),
    "arff without class": (RICE, lambda b: NO_CLASS, "nominal class"),
    "arff with gaps": (RICE, lambda b: b.replace(b"1.5", b"?"), "missing"),
    "arff cut at a line": (RICE, lambda b: b[: b.rindex(b"-3")], "1 rows"),
    "csv cut in a row": (RADAR, lambda b: b[:-40], "row 3"),
    "csv cut at a line": (RADAR, lambda b: b[: b.index(b"\n")], "1 rows"),
    "csv with a word": (RADAR, lambda b: b"x" + b, "row 1"),
    "other csv": (RADAR, lambda b: b"a,b\n1,2\n", "34 numbers"),
    "empty csv": (RADAR, lambda b: b"", "empty"),
    "binary csv": (RADAR, lambda b: bytes(range(256)), "text"),
}


@pytest.mark.parametrize("name", [MNIST, FASHION, RICE, RADAR])
def test_a_file_that_is_not_the_published_one_is_refused(tiny, monkeypatch, name):
    home, _ = tiny
    dataset, file_name = name.split("/")
    content = read_bytes(home / name)
    entry = CATALOGUE[dataset]

    def expect(content):
        digest = hashlib.md5(content).hexdigest()
        files = tuple(
            file._replace(checksum=f"md5:{digest}") if file_name in file.path else file
            for file in entry.files
        )
        monkeypatch.setitem(CATALOGUE, dataset, entry._replace(files=files))

    options = {"subset": "all"} if "mnist" in dataset else {}
    expect(content)
    LOADERS[dataset](data_home=home, **options)
    expect(content + b"x")
    with pytest.raises(DatasetError, match="is not the published file"):
        LOADERS[dataset](data_home=home, **options)


@pytest.mark.parametrize("case", DAMAGE)
def test_a_wrong_file_is_named_with_what_to_do(tiny, case):
    name, damage, match = DAMAGE[case]
    path = tiny[0] / name
    load = LOADERS[path.relative_to(tiny[0]).parts[0]]
    options = {} if load in (load_rice, load_ionosphere) else {"subset": "all"}
    load(data_home=tiny[0], **options)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match=match) as error:
        load(data_home=tiny[0], **options)
    assert str(path) in str(error.value)
    assert "Remove the file" in str(error.value)
    assert "\n" not in str(error.value)
