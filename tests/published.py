"""Small files in the formats of the publishers."""

import gzip
import struct

import numpy as np


def idx(array):
    """An IDX file as its publisher describes it: a magic number, big-endian sizes, the bytes."""
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def publish(home):
    """Fill a data folder with small files of every kind; returns what is in them."""
    rng = np.random.default_rng(0)
    made = {}
    for name, pack in (("mnist", gzip.compress), ("fashion-mnist", bytes)):
        folder = home / name
        folder.mkdir(parents=True)
        for part, n in (("train", 6), ("t10k", 4)):
            images = rng.integers(256, size=(n, 28, 28))
            labels = rng.permutation(np.arange(n) % 2) + 4
            made[name, part] = images, labels
            suffix = ".gz" if pack is gzip.compress else ""
            (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(images)))
            (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(labels)))
    folder = home / "cifar-10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for file in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        planes, labels = rng.integers(256, size=(2, 3, 32, 32)), rng.integers(10, size=2)
        made["cifar-10", file] = planes, labels
        rows = np.column_stack([labels, planes.reshape(2, -1)]).astype(np.uint8)
        (folder / file).write_bytes(rows.tobytes())
    (home / "rice").mkdir()
    (home / "rice" / "Rice_Cammeo_Osmancik.arff").write_text(
        "@RELATION r\n@ATTRIBUTE a Real\n@ATTRIBUTE b Integer\n"
        "@ATTRIBUTE Class {Cammeo, Osmancik}\n@DATA\n1.5,2,Osmancik\n-3,4,Cammeo\n"
    )
    (home / "ionosphere").mkdir()
    numbers = rng.standard_normal((3, 34))
    made["ionosphere"] = numbers
    (home / "ionosphere" / "ionosphere.data").write_text(
        "".join(
            ",".join(map(repr, row)) + f",{c}\n"
            for row, c in zip(numbers.tolist(), "gbg", strict=True)
        )
    )
    return made
