"""Model files: a zip archive of one JSON text and plain arrays, with a checksum."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import platform
import re
import reprlib
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np
import sklearn
from numpy.typing import NDArray

from pskem.files import atomic_write, check_kind, check_place
from pskem.persistence.arrays import CodecError, from_bytes, to_bytes
from pskem.persistence.codec import Tree, decode, encode
from pskem.persistence.limits import check_count, check_members, check_text
from pskem.persistence.types import known_name, stands_alone
from pskem.training import Pages
from pskem.version import __version__

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from pskem import estimators

    #: What a model file may hold: an estimator of ours, or a pipeline or a step of scikit-learn's.
    Saved: TypeAlias = (
        estimators.PartitionEnsemble
        | estimators.SharedKernelClassifier
        | estimators.SharedKernelClassifierCV
        | estimators.SharedKernelDensity
        | BaseEstimator
    )

Kind = TypeVar("Kind")

__all__ = [
    "FORMAT_VERSION",
    "Header",
    "ModelFileError",
    "check_model_place",
    "load",
    "load_with_header",
    "read_header",
    "save",
]

FORMAT_VERSION = 1
MANIFEST = "pskem-model.json"
#: The archive's comment, its last bytes: the SHA-256 of all bytes before, in hexadecimal.
DIGEST_LENGTH = 64
#: Set in the flags of a member that is encrypted.
ENCRYPTED = 0x1
#: Some letters that are not ASCII, in UTF-8.
OTHERS = re.compile(rb"(?:[\xc0-\xff][\x80-\xbf]*){1,1000}")
#: Characters of what a message says of a file that is not valid: the file may have chosen them.
LONGEST_REASON = 300


class ModelFileError(ValueError):
    """The file is not a model file, is damaged, or needs another version of pskem."""


class Header(NamedTuple):
    """Header of a model file: what wrote it, and the metadata that :func:`save` was given."""

    format_version: int
    versions: dict[str, str]
    metadata: dict[str, Any]


def save(
    model: Any, path: Any, *, metadata: dict[str, Any] | None = None, overwrite: bool = False
) -> None:
    """Save a model, or a pipeline that ends in one, to a file that holds nothing but data.

    The file appears whole or not at all. It replaces a model file, so that a script can be run
    again, but no other file: a slip such as ``save(model, "data.csv")`` loses nothing. What comes
    back from :func:`load` predicts the same bits. Loading executes nothing: there is no pickle in
    the file, and types are looked up by name in a fixed list.

    Parameters
    ----------
    model : estimator
        One of pskem's, or one of scikit-learn's pipelines, column transformers, scalers, encoders,
        imputers and decompositions; also a bare :class:`Model`, or the state of a training.
    path : path-like
        By convention it ends in ``.pskem``.
    metadata : dict or None, default=None
        Plain values (JSON) to keep with the model; :func:`read_header` returns them.
    overwrite : bool, default=False
        Whether to replace also a file that is no model file.

    Raises
    ------
    FileExistsError
        If there is a file at the path that is neither a model file nor empty.
    ValueError
        If the model holds something that cannot be stored, such as a function.

    Examples
    --------
    >>> import tempfile, pathlib, pskem
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = pskem.SharedKernelClassifier(n_components=3, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "iris.pskem"
    ...     pskem.save(model, path)
    ...     same = pskem.load(path)
    >>> bool((same.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    check_model_place(path, overwrite)
    arrays: list[NDArray[Any]] = []
    tree = encode(model, arrays)
    if not stands_alone(model):
        raise CodecError(f"A model file holds an estimator, not a {type(model).__name__}.")
    parts = {"versions": _versions(), "metadata": metadata or {}, "model": tree}
    try:
        manifest = json.dumps(
            {"format_version": FORMAT_VERSION, **parts}, allow_nan=False, ensure_ascii=False
        )
    except (TypeError, ValueError) as error:
        raise CodecError(f"metadata must be plain values that JSON can hold: {error}.") from None
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = b"0" * DIGEST_LENGTH
        archive.writestr(_entry(MANIFEST), manifest)
        for i, array in enumerate(arrays):
            archive.writestr(_entry(_array_name(i)), to_bytes(array))
    body = buffer.getvalue()[:-DIGEST_LENGTH]
    atomic_write(path, body + _digest(body))


def check_model_place(path: Any, overwrite: bool = False) -> None:
    """Raise what :func:`save` would raise for this path, before work is done for it."""
    check_place(path)
    if not overwrite:
        check_kind(path, "a model file", lambda file: _is_model(file.open("rb")))


@overload
def load(path: Any) -> Saved: ...


@overload
def load(path: Any, kind: type[Kind]) -> Kind: ...


def load(path: Any, kind: type[Any] | None = None) -> Any:
    """Load a model that :func:`save` wrote. Nothing in the file is executed.

    Parameters
    ----------
    path : path-like
    kind : type or None, default=None
        What the file should hold, such as SharedKernelClassifier or Pipeline. It also tells type
        checkers and editors what is returned.

    Raises
    ------
    ModelFileError
        If the file is no model file, is truncated or altered, holds anything but the known types,
        or another one than `kind`, or was written by a version whose format this one does not know.

    Warns
    -----
    UserWarning
        If the file was saved with another minor version of scikit-learn.
    """
    model, _ = _read(path)
    if kind is None:
        return _estimator(path, model)
    if not isinstance(model, kind):
        last = f" that ends in a {type(model[-1]).__name__}" if hasattr(model, "steps") else ""
        raise ModelFileError(f"{path} holds a {type(model).__name__}{last}, not a {kind.__name__}.")
    return model


def load_with_header(path: Any) -> tuple[Saved, Header]:
    """What :func:`load` and :func:`read_header` return, from one reading of the file."""
    model, header = _read(path)
    return _estimator(path, model), header


def _estimator(path: Any, model: Any) -> Saved:
    """What a file holds, if it is an estimator."""
    if isinstance(model, Pages):
        raise ModelFileError(
            f"{path} is the checkpoint of a training, not a model. The same fit with this"
            " checkpoint goes on from it."
        )
    if known_name(model) is None:
        name = type(model).__name__
        raise ModelFileError(f"{path} holds a bare {name}. Load it as that: load(path, {name}).")
    return model


def _read(path: Any) -> tuple[Any, Header]:
    """Whatever a file holds, and what it says of itself."""
    header, tree, archive = _open(path)
    with archive, _refusing(path):
        names = archive.namelist()[1:]
        model = decode(tree, [from_bytes(archive.read(name), name) for name in names])
        if not stands_alone(model):
            raise CodecError("it holds no estimator")
    _warn_of_other_versions(path, header.versions)
    return model, header


def read_header(path: Any) -> Header:
    """Read the header of a model file, without loading the model."""
    header, _, archive = _open(path)
    archive.close()
    return header


def _open(path: Any) -> tuple[Header, Tree, zipfile.ZipFile]:
    """The header, the tree of the model and the archive of a file whose digest is right."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"There is no model file {path}.")
    if not file.is_file():  # a device may never end
        kind = "folder" if file.is_dir() else "device or a pipe"
        raise ModelFileError(f"{path} is a {kind}, not a model file.")
    if not _is_model(file.open("rb")):
        raise ModelFileError(f"{path} is not a model file of pskem.")
    content = file.read_bytes()
    body, digest = memoryview(content)[:-DIGEST_LENGTH], content[-DIGEST_LENGTH:]
    if _digest(body) != digest:
        raise ModelFileError(
            f"{path} is damaged: its checksum is wrong, so it was truncated or altered. Save the"
            " model again, or take another copy."
        )
    with _refusing(path):
        check_count(content)
        archive = zipfile.ZipFile(io.BytesIO(content))
        _check_members(archive)
        text = archive.read(MANIFEST).decode("ascii", "pskem.as_numbers")
        check_text(text, archive.getinfo(MANIFEST).file_size, len(content))
        manifest = json.loads(text)
        del text
        version = manifest["format_version"]
    if type(version) is int and version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version}; this pskem, {__version__}, reads up to version"
            f" {FORMAT_VERSION}. Upgrade pskem to load it."
        )
    with _refusing(path):
        _check_manifest(manifest)
    return Header(version, manifest["versions"], manifest["metadata"]), manifest["model"], archive


def _as_numbers(error: UnicodeError) -> tuple[str, int]:
    """Letters of a text of JSON that are not ASCII, as numbers, and where they end."""
    assert isinstance(error, UnicodeDecodeError)
    found = OTHERS.match(error.object, error.start)
    if found is None:
        raise error
    return json.dumps(found[0].decode())[1:-1], found.end()


#: One such letter would make the whole text take four bytes for each.
codecs.register_error("pskem.as_numbers", _as_numbers)


def _is_model(stream: BinaryIO) -> bool:
    """Whether a file begins as model files do, also those of other versions or damaged ones."""
    with stream:
        begin = stream.read(30 + len(MANIFEST))
    # A zip archive begins with the header of its first member, whose name stands at byte 30.
    return begin[:2] == b"PK" and begin[30:] == MANIFEST.encode()


def _check_members(archive: zipfile.ZipFile) -> None:
    """Refuse unexpected members, and compressed ones, which could grow without limit."""
    members = archive.infolist()
    expected = [MANIFEST, *map(_array_name, range(len(members) - 1))]
    if [member.filename for member in members] != expected:
        raise CodecError("it has other members than a model file")
    for member in members:
        stored = member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & ENCRYPTED
        if not stored or member.file_size != member.compress_size:
            raise CodecError(f"{member.filename} is compressed or encrypted")
    check_members(archive, members)


def _check_manifest(manifest: dict[str, Any]) -> None:
    if set(manifest) != {"format_version", "versions", "metadata", "model"}:
        raise CodecError(f"its manifest has the parts {reprlib.repr(sorted(manifest))}")
    version, versions = manifest["format_version"], manifest["versions"]
    if type(version) is not int or version < 1:
        raise CodecError(f"its format version is {reprlib.repr(version)}")
    texts = isinstance(versions, dict) and all(isinstance(v, str) for v in versions.values())
    if not texts or not isinstance(manifest["metadata"], dict):
        raise CodecError("its versions or its metadata are not what they should be")


@contextmanager
def _refusing(path: Any) -> Iterator[None]:
    """Turn any error in a file with a valid checksum into a ModelFileError."""
    try:
        yield
    except Exception as error:
        reason = str(error)[:LONGEST_REASON].rstrip(".")
        raise ModelFileError(f"{path} is not a valid model file: {reason}.") from None


def _digest(body: bytes | memoryview) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _array_name(i: int) -> str:
    return f"arrays/{i}.npy"


def _entry(name: str) -> zipfile.ZipInfo:
    """Zip entry with a fixed date, so that the same model gives the same file."""
    return zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))


def _versions() -> dict[str, str]:
    return {
        "pskem": __version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _warn_of_other_versions(path: Any, written: dict[str, str]) -> None:
    """Warn if the file was saved with another minor version of scikit-learn."""
    here = _versions()["scikit-learn"]
    there = str(written.get("scikit-learn"))
    if there.split(".")[:2] != here.split(".")[:2]:
        warnings.warn(
            f"{path} was saved with scikit-learn {there} and is loaded with {here}, which may read"
            " the attributes of its own estimators in another way. Check the predictions, or"
            " install the version that saved it.",
            UserWarning,
            stacklevel=4,  # the caller of load, or of what calls load_with_header
        )
