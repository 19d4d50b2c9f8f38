"""The data folder: where it is, what is in it, and how to fill it."""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pskem.checks import check_choice
from pskem.datasets.catalogue import CATALOGUE, Dataset, File
from pskem.datasets.readers import FormatError
from pskem.files import atomic_write

__all__ = ["DatasetError", "data_folder", "fetch", "is_present"]

ENVIRONMENT = "PSKEM_DATA"


class DatasetError(OSError):
    """A data set is missing and could not be fetched, or its files are wrong."""


def data_folder(data_home: Any = None) -> Path:
    """Data folder: the argument, else ``$PSKEM_DATA``, else the user's cache. It may not exist."""
    if data_home is not None:
        return Path(data_home).expanduser()
    if os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT]).expanduser()
    pooch = _pooch("where the cache of the user is")
    return Path(pooch.os_cache("pskem"))


def find(folder: Path, dataset: Dataset, file: File) -> Path | None:
    """The file, packed or unpacked, if it is in the folder."""
    # MNIST and Fashion-MNIST name their files alike: only a folder of its own tells them apart.
    bases = [folder / dataset.name, *([folder] if "/" in file.path else [])]
    names = dict.fromkeys([file.path, file.path.removesuffix(".gz")])
    paths = [base / name for base in bases for name in names]
    return next((path for path in paths if path.is_file()), None)


def is_present(name: str, data_home: Any = None) -> bool:
    """Whether all files of a data set are in the data folder."""
    check_choice("name", name, list(CATALOGUE))
    folder, dataset = data_folder(data_home), CATALOGUE[name]
    return all(find(folder, dataset, file) is not None for file in dataset.files)


def fetch(name: str, data_home: Any = None, progress: bool | None = None) -> list[Path]:
    """Download a data set if necessary, and return the paths of its files, as in ``CATALOGUE``.

    Parameters
    ----------
    name : str
        A name in ``CATALOGUE``.
    data_home : path-like or None, default=None
        Data folder. None uses ``$PSKEM_DATA``, or else the user's cache.
    progress : bool or None, default=None
        Whether to show a progress bar on stderr. None shows it if stderr is a terminal.
    """
    check_choice("name", name, list(CATALOGUE))
    dataset = CATALOGUE[name]
    folder = data_folder(data_home)
    missing = [file for file in dataset.files if find(folder, dataset, file) is None]
    if missing:
        target = folder / dataset.name
        shown = sys.stderr.isatty() if progress is None else progress
        try:
            _download(dataset, missing, target, shown)
        except (OSError, ValueError, EOFError, zlib.error) as error:
            names = ", ".join(file.path for file in missing)
            sources = ", ".join(dict.fromkeys(file.url for file in missing))
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DatasetError(
                f"{dataset.title} is not in {target} and could not be downloaded. Put {names} there"
                f" (from {sources}), or name a folder that has them: data_home=..., or the"
                f" environment variable {ENVIRONMENT}. The download failed: {reason}"
            ) from error
    paths = [find(folder, dataset, file) for file in dataset.files]
    return [path for path in paths if path is not None]


def _download(dataset: Dataset, files: list[File], target: Path, progress: bool) -> None:
    """Download files and check them before they are put in place."""
    pooch = _pooch(f"downloading {dataset.name}")
    # Otherwise it logs the checksum of every file.
    pooch.get_logger().setLevel("WARNING")
    for url in dict.fromkeys(file.url for file in files):
        wanted = [file for file in files if file.url == url]
        with TemporaryDirectory(prefix="pskem-") as scratch:
            got = Path(
                pooch.retrieve(
                    url,
                    known_hash=wanted[0].archive,
                    fname="download",
                    path=scratch,
                    progressbar=progress and find_spec("tqdm") is not None,
                )
            )
            for file, content in _contents(got, wanted):
                packed = file.path.endswith(".gz")
                check_digest(gzip.decompress(content) if packed else content, file)
                (target / file.path).parent.mkdir(parents=True, exist_ok=True)
                atomic_write(target / file.path, content)


def _contents(got: Path, files: list[File]) -> Iterator[tuple[File, bytes]]:
    """Contents of the download: one file, or files of a zip or tar archive, read in memory."""
    if files[0].member is None:
        yield files[0], got.read_bytes()
        return
    by_member = {str(file.member): file for file in files}
    try:
        if zipfile.is_zipfile(got):
            with zipfile.ZipFile(got) as zipped:
                for member in by_member.keys() & set(zipped.namelist()):
                    yield by_member.pop(member), zipped.read(member)
        else:
            with tarfile.open(got) as tarred:
                for entry in tarred:  # in their order: a compressed archive is read once
                    stream = tarred.extractfile(entry) if entry.name in by_member else None
                    if stream is not None:
                        yield by_member.pop(entry.name), stream.read()
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise FormatError(f"what came is no archive that can be read ({error})") from None
    if by_member:
        raise FormatError(f"the archive does not hold {', '.join(by_member)}")


def check_digest(content: bytes, file: File) -> None:
    """Compare the content of a file, unpacked, with the published checksum, if there is one."""
    if file.checksum is None:
        return
    algorithm, digest = file.checksum.split(":")
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != digest:
        raise FormatError(f"{file.path} has {algorithm} {found}, not {digest}")


def _pooch(purpose: str) -> Any:
    try:
        import pooch
    except ImportError:
        raise DatasetError(
            f"pooch is needed for {purpose}: pip install 'pskem[data]'. Or name a folder that has"
            f" the files: data_home=..., or the environment variable {ENVIRONMENT}."
        ) from None
    return pooch
