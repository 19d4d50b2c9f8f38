"""The files of each data set, their publishers' addresses and their checksums."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CATALOGUE", "Dataset"]


class File(NamedTuple):
    """One file of a data set.

    path : its place in the data set's folder; a ``.gz`` file may also be there unpacked
    url : address at its publisher, or at the mirror that took over
    rows : number of samples
    checksum : ``algorithm:digest`` of the content, unpacked if the file is a ``.gz``
    member : its name inside the archive, if the address is an archive
    archive : ``algorithm:digest`` of that archive, if its publisher gives one
    """

    path: str
    url: str
    rows: int
    checksum: str | None
    member: str | None = None
    archive: str | None = None


class Dataset(NamedTuple):
    """Description of a data set."""

    name: str
    title: str
    shape: str
    size: str
    licence: str
    homepage: str
    reference: str
    files: tuple[File, ...]


def _idx(base: str, checksums: dict[str, str]) -> tuple[File, ...]:
    return tuple(
        File(name, f"{base}/{name}", 60_000 if name.startswith("train") else 10_000, checksum)
        for name, checksum in checksums.items()
    )


_CIFAR_ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_CIFAR_FOLDER = "cifar-10-batches-bin"
_CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")

_ALL = (
    Dataset(
        name="rice",
        title="Rice (Cammeo and Osmancik)",
        shape="3,810 x 7, 2 classes",
        size="0.2 MB",
        licence="CC BY 4.0",
        homepage="https://archive.ics.uci.edu/dataset/545",
        reference=(
            "I. Cinar and M. Koklu, Classification of rice varieties using artificial"
            " intelligence methods, IJISAE 7(3), 2019"
        ),
        files=(
            File(
                "Rice_Cammeo_Osmancik.arff",
                "https://archive.ics.uci.edu/static/public/545/rice+cammeo+and+osmancik.zip",
                3810,
                "sha256:5475be95c1f908e6f4ac0e586ffa78a4291a691c5b444a10a9cda019ddc7ec86",
                member="Rice_Cammeo_Osmancik.arff",
            ),
        ),
    ),
    Dataset(
        name="ionosphere",
        title="Ionosphere radar returns",
        shape="351 x 34, 2 classes",
        size="0.1 MB",
        licence="CC BY 4.0",
        homepage="https://archive.ics.uci.edu/dataset/52",
        reference=(
            "V. G. Sigillito, S. P. Wing, L. V. Hutton and K. B. Baker, Classification of radar"
            " returns from the ionosphere using neural networks, Johns Hopkins APL Technical"
            " Digest 10, 1989"
        ),
        files=(
            File(
                "ionosphere.data",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/ionosphere/ionosphere.data",
                351,
                "sha256:46d52186b84e20be52918adb93e8fb9926b34795ff7504c24350ae0616a04bbd",
            ),
        ),
    ),
    Dataset(
        name="mnist",
        title="MNIST handwritten digits",
        shape="60,000 + 10,000 of 28 x 28, 10 classes",
        size="12 MB",
        licence="CC BY-SA 3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        reference=(
            "Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, Gradient-based learning applied to"
            " document recognition, Proceedings of the IEEE 86(11), 1998"
        ),
        files=_idx(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            {
                "train-images-idx3-ubyte.gz": "md5:6bbc9ace898e44ae57da46a324031adb",
                "train-labels-idx1-ubyte.gz": "md5:a25bea736e30d166cdddb491f175f624",
                "t10k-images-idx3-ubyte.gz": "md5:2646ac647ad5339dbf082846283269ea",
                "t10k-labels-idx1-ubyte.gz": "md5:27ae3e4e09519cfbb04c329615203637",
            },
        ),
    ),
    Dataset(
        name="fashion-mnist",
        title="Fashion-MNIST articles of clothing",
        shape="60,000 + 10,000 of 28 x 28, 10 classes",
        size="30 MB",
        licence="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        reference=(
            "H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST: a novel image dataset for"
            " benchmarking machine learning algorithms, arXiv:1708.07747, 2017"
        ),
        files=_idx(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            {
                "train-images-idx3-ubyte.gz": "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
                "train-labels-idx1-ubyte.gz": "md5:9018921c3c673c538a1fc5bad174d6f9",
                "t10k-images-idx3-ubyte.gz": "md5:8181f5470baa50b63fa0f6fddb340f0a",
                "t10k-labels-idx1-ubyte.gz": "md5:15d484375f8d13e6eb1aabb0c3f46965",
            },
        ),
    ),
    Dataset(
        name="cifar-10",
        title="CIFAR-10 natural images",
        shape="50,000 + 10,000 of 32 x 32 x 3, 10 classes",
        size="170 MB",
        licence="none stated",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        reference=(
            "A. Krizhevsky, Learning multiple layers of features from tiny images, University of"
            " Toronto, 2009"
        ),
        files=tuple(
            File(
                f"{_CIFAR_FOLDER}/{name}",
                _CIFAR_ARCHIVE,
                10_000,
                None,
                member=f"{_CIFAR_FOLDER}/{name}",
                archive="md5:c32a1d4ab5d03f1284b67883e8d87530",
            )
            for name in _CIFAR_FILES
        ),
    ),
)

CATALOGUE: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}
