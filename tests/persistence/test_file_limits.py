"""What a forged model file can ask for: ten times its size in memory, and time to match."""

import io
import json
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import StandardScaler

import pskem
from pskem.persistence import ModelFileError, container
from pskem.persistence.arrays import to_bytes
from pskem.persistence.limits import FREE

pytestmark = pytest.mark.plumbing

#: The numbers that collide in a dictionary: all have the hash 0.
MODULUS = 2**61 - 1
QUOTE = '"'


def forge(path, tree, arrays=(), metadata="{}"):
    """A file with any text of JSON for a model, and a checksum that is right."""
    versions = json.dumps(container._versions())
    text = f'{{"format_version":1,"versions":{versions},"metadata":{metadata},"model":{tree}}}'
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = b"0" * container.DIGEST_LENGTH
        archive.writestr(container.MANIFEST, text)
        for i, array in enumerate(arrays):
            archive.writestr(f"arrays/{i}.npy", to_bytes(array))
    sign(path, buffer.getvalue()[: -container.DIGEST_LENGTH])


def sign(path, body):
    path.write_bytes(body + container._digest(body))


def scaler(part):
    return f'{{"estimator":"StandardScaler","state":{{"copy":{part},"with_mean":true}}}}'


def many(part, size=2_000_000):
    return f"[{','.join([part] * (size // (len(part) + 1)))}]"


def pairs(form, n=150_000):
    return ",".join(form.format(i) for i in range(n))


def block(**parts):
    """A block of the first seven arrays, but for some parts."""
    means = '"means":{"array":2},"covariances":{"array":6}'
    fields = {
        "features": '{"array":0}',
        "kernels": f'{{"Kernels":{{"weights":{{"array":1}},{means}}}}}',
        "coordinates": '{"Coordinates":{"shift":{"array":3},"scale":{"array":4}}}',
        "structure": "1",
        "allowed": '{"array":5}',
        "reading": "null",
    }
    inner = ",".join(f'"{name}":{part}' for name, part in (fields | parts).items())
    return scaler(f'{{"Block":{{{inner}}}}}')


TREES = {
    "empty lists": scaler(many("[]")),
    "nested lists": scaler(many("[[[]]]")),
    "pairs": scaler(many("[1,1]")),
    "numbers": scaler(many("1.5")),
    "texts": scaler(many('"ab"')),
    "texts in other letters": scaler(many('"Ā"')),
    "one text in other letters": scaler(f'"{"a" * 9_000_000}\\n\N{GRINNING FACE}"'),
    "one text in numbers": scaler(f'"{"a" * 9_000_000}\\ud83d\\ude00"'),
    "other letters alone": scaler(QUOTE + "\N{GRINNING FACE}" * 4_000_000 + QUOTE),
    "tuples": scaler(many('{"tuple":[]}')),
    "dictionaries": scaler(many('{"dict":[[1,1]]}')),
    "types": scaler(many('{"dtype":"<U7"}')),
    "objects": scaler(f'{{"objects":{many("1.5")},"shape":[-1]}}'),
    "estimators": scaler(many('{"estimator":"SharedKernelClassifier","state":{}}')),
    "steps": scaler(many(scaler("1"))),
    "margins": scaler(many('{"Margins":{"maps":{"tuple":[]}}}')),
    "keys": scaler(f'{{"dict":[{pairs("[{},1]")}]}}'),
    "attributes": scaler(f'1,{pairs(QUOTE + "{}" + QUOTE + ":1")}'),
    "an array of a list of texts": block(features=f'["{"a" * 100}",{many(QUOTE * 2)[1:]}'),
    "kernels of a list": block(kernels=many("1")),
    "kernels of texts": block(
        kernels=f'{{"Kernels":{{"weights":["{"a" * 100}",{many(QUOTE * 2)[1:]},'
        '"means":{"array":2},"covariances":{"array":6}}}'
    ),
    "maps of a text": scaler(f'{{"Margins":{{"maps":"{"a" * 2_000_000}"}}}}'),
}  # fmt: skip


def load_within_limits(path):
    """Load, or be refused, and compare the peak of memory with the size of the file."""
    tracemalloc.start()
    try:
        return pskem.load(path)
    except ModelFileError as error:
        return None if len(str(error)) < 1000 else pytest.fail("a long message")
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 10 * path.stat().st_size + FREE


@pytest.mark.parametrize("case", TREES)
def test_a_text_cannot_grow_beyond_ten_times_the_file(tmp_path, case):
    forge(tmp_path / "model.pskem", TREES[case], [np.zeros(1)] * 7)
    load_within_limits(tmp_path / "model.pskem")


def test_a_table_of_many_columns_with_short_names_is_no_forgery(tmp_path):
    """Names of columns stand in several places, and take more than the numbers beside them."""
    names = [f"x{i}" for i in range(150_000)]
    scaler = StandardScaler()
    scaler.feature_names_in_ = np.array(names, dtype=object)
    scaler.mean_, scaler.scale_, scaler.var_ = np.zeros((3, len(names)))
    transformer = ColumnTransformer([("numbers", scaler, names)])
    transformer.feature_names_in_ = scaler.feature_names_in_
    path = tmp_path / "model.pskem"
    pskem.save(transformer, path, metadata={"table": {"numeric": names}})
    assert path.stat().st_size > FREE / 2
    loaded = load_within_limits(path)
    assert loaded.feature_names_in_.tolist() == names


def test_texts_in_all_letters_come_back(tmp_path):
    text = 'é日本\N{GRINNING FACE}"\\\n\x7f\u2028' + "ß" * 3000
    pskem.save(StandardScaler(copy=text), tmp_path / "model.pskem")
    assert pskem.load(tmp_path / "model.pskem").copy == text
    content = (tmp_path / "model.pskem").read_bytes()[: -container.DIGEST_LENGTH]
    for wrong in (b"\xff\xfe", b"\x80\x80", b"\xc3\x28"):
        altered = content.replace("é".encode(), wrong)
        sign(tmp_path / "wrong.pskem", altered)
        with pytest.raises(ModelFileError, match="is not a valid model file"):
            pskem.load(tmp_path / "wrong.pskem")


def test_metadata_cannot_grow_either(tmp_path):
    forge(tmp_path / "model.pskem", scaler("1"), metadata=f'{{"a":{many("[]")}}}')
    load_within_limits(tmp_path / "model.pskem")


@pytest.mark.parametrize("sparse", [3, 20, 63])
def test_an_array_cannot_grow_by_its_strides(tmp_path, sparse):
    values = np.arange(300_000.0)
    tree = scaler(f'{{"array":0,"strides":[{-8 * sparse}]}}')
    forge(tmp_path / "model.pskem", tree, [values])
    loaded = load_within_limits(tmp_path / "model.pskem")
    np.testing.assert_array_equal(loaded.copy, values)


def test_sparse_views_of_earlier_files_keep_the_order_of_their_axes(tmp_path):
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        view = np.zeros([3, 4, 10_000, 20])[..., 0].transpose(order)
        values = np.arange(120_000.0).reshape(view.shape)
        strides = list(view.strides)
        forge(tmp_path / "a", scaler(f'{{"array":0,"strides":{strides}}}'), [values])
        loaded = load_within_limits(tmp_path / "a").copy
        np.testing.assert_array_equal(loaded, values)
        assert loaded.strides == np.copy(view, order="K").strides
        model = StandardScaler(copy=view)
        view[...] = values
        pskem.save(model, tmp_path / "b", overwrite=True)
        again = load_within_limits(tmp_path / "b").copy
        np.testing.assert_array_equal(again, values)
        assert again.strides == loaded.strides


def test_coordinates_cannot_grow_by_their_type(tmp_path):
    small = [np.zeros(1, dtype=np.int8)] * 7
    small[3] = small[4] = np.zeros(2_000_000, dtype=np.int8)
    forge(tmp_path / "model.pskem", block(), small)
    load_within_limits(tmp_path / "model.pskem")


def overlapping(path, n, size):
    """A file of n members that are all the same bytes."""
    forge(path, scaler("1"), [np.zeros(size, dtype=np.uint8)])
    body = path.read_bytes()[: -container.DIGEST_LENGTH]
    start = body.index(b"PK\x01\x02")
    first, second = (b"PK\x01\x02" + entry for entry in body[start:-22].split(b"PK\x01\x02")[1:])
    entries = [first, *(second.replace(b"arrays/0.npy", b"arrays/%d.npy" % i) for i in range(n))]
    entries = [entry[:28] + struct.pack("<H", len(entry) - 46) + entry[30:] for entry in entries]
    directory = b"".join(entries)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, n + 1, n + 1, len(directory), start, 64)
    sign(path, body[:start] + directory + end)


def test_members_do_not_overlap(tmp_path):
    path = tmp_path / "model.pskem"
    overlapping(path, 9, 1_000_000)
    assert path.stat().st_size < 1_100_000
    with pytest.raises(ModelFileError, match=r"arrays/1\.npy overlaps another member"):
        pskem.load(path)
    load_within_limits(path)
    overlapping(path, 60_000, 1)
    with pytest.raises(ModelFileError, match="more members than a file of its size"):
        pskem.load(path)
    load_within_limits(path)


COLLIDING = {
    "whole numbers": lambda i: f"{i * MODULUS}",
    "numbers": lambda i: f"{float(2**i) * MODULUS!r}",
    "tuples": lambda i: f'{{"tuple":[{i * MODULUS}]}}',
}


@pytest.mark.parametrize(("case", "n"), [(case, 900) for case in COLLIDING] + [("tuples", 9000)])
def test_keys_that_collide_are_refused(tmp_path, case, n):
    keys = ",".join(f"[{COLLIDING[case](i)},1]" for i in range(1, n))
    forge(tmp_path / "model.pskem", scaler(f'{{"dict":[{keys}]}}'))
    with pytest.raises(ModelFileError, match="a dictionary has many keys of one hash"):
        pskem.load(tmp_path / "model.pskem")


def test_many_keys_are_refused_before_they_can_collide(tmp_path):
    keys = ",".join(f"[{i * MODULUS},1]" for i in range(1, 40_000))
    forge(tmp_path / "model.pskem", scaler(f'{{"dict":[{keys}]}}'))
    with pytest.raises(ModelFileError, match="39,999 keys that are not texts; 10,000 are accepted"):
        pskem.load(tmp_path / "model.pskem")


def test_keys_that_one_would_use_are_kept(tmp_path):
    weights = {i: 1.0 / (i + 1) for i in range(2000)} | {f"class {i}": 1.0 for i in range(20_000)}
    pskem.save(StandardScaler(copy=weights), tmp_path / "model.pskem")
    assert pskem.load(tmp_path / "model.pskem").copy == weights
    with pytest.raises(ValueError, match=r"20,000 keys that are not texts; 10,000 are accepted"):
        pskem.save(StandardScaler(copy=dict.fromkeys(range(20_000))), tmp_path / "other.pskem")


@pytest.mark.skipif(os.name == "nt", reason="devices are for Unix")
def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.pskem")
    for path in ("/dev/zero", tmp_path / "pipe.pskem"):
        with pytest.raises(ModelFileError, match="is a device or a pipe, not a model file"):
            pskem.load(path)
