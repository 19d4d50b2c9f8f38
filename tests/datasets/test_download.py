"""The data folder, and how it is filled: from a server that each test starts on this machine."""

import gc
import gzip
import hashlib
import sys
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from pskem.datasets import (
    CATALOGUE,
    DatasetError,
    data_folder,
    fetch,
    is_present,
    load_cifar10,
    load_rice,
)

pytestmark = [
    pytest.mark.plumbing,
    # Sockets that urllib leaves open where there is no network.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _no_socket_is_left():
    """requests leaves one to the garbage collector when pooch refuses what came."""
    yield
    gc.collect()


def test_data_folder_is_the_argument_else_the_variable_else_a_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PSKEM_DATA", str(tmp_path))
    assert data_folder("/elsewhere") == Path("/elsewhere")
    assert data_folder() == tmp_path
    monkeypatch.delenv("PSKEM_DATA")
    cache = data_folder()
    assert cache.name == "pskem"
    assert cache.is_absolute()


def test_unknown_data_sets_are_named():
    for function in (fetch, is_present):
        with pytest.raises(ValueError, match=r"name='cats' is not known\. Accepted: 'rice', 'iono"):
            function("cats")


def test_without_pooch_the_error_says_how_to_go_on(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DatasetError, match=r"pip install 'pskem\[data\]'"):
        load_rice(data_home=tmp_path)
    monkeypatch.delenv("PSKEM_DATA", raising=False)
    with pytest.raises(DatasetError, match=r"pip install 'pskem\[data\]'"):
        load_rice()


@pytest.fixture
def publisher(tmp_path):
    """A server of files on this machine; returns its address and its folder."""
    folder = tmp_path / "published"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def republish(monkeypatch, name, base, checksum=None, archive=None, address="file"):
    """Let the catalogue's entry point at the local server."""
    entry = CATALOGUE[name]
    files = tuple(
        file._replace(
            url=f"{base}/{address}",
            checksum=checksum,
            archive=archive,
        )
        for file in entry.files
    )
    monkeypatch.setitem(CATALOGUE, name, entry._replace(files=files))


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def rice_zip(tiny, publisher, monkeypatch):
    """The rice data, published as a zip archive on a server here, and gone from the data folder."""
    home, _ = tiny
    base, folder = publisher
    path = home / "rice" / "Rice_Cammeo_Osmancik.arff"
    content = path.read_bytes()
    with zipfile.ZipFile(folder / "file", "w") as archive:
        archive.writestr("Rice_Cammeo_Osmancik.arff", content)
        archive.writestr("../evil.txt", "not asked for")
    path.unlink()
    republish(monkeypatch, "rice", base, sha256(content))
    return home, folder / "file", path


def test_what_is_missing_is_downloaded_once_and_checked(rice_zip):
    home, published, path = rice_zip
    assert not is_present("rice", home)
    assert len(load_rice(data_home=home).data) == 2
    assert is_present("rice", home)
    published.unlink()
    assert fetch("rice", home) == [path]
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert not list(home.rglob("evil*"))


def test_a_download_with_another_checksum_is_not_kept(rice_zip):
    home, published, path = rice_zip
    with zipfile.ZipFile(published, "w") as archive:
        archive.writestr("Rice_Cammeo_Osmancik.arff", "something else")
    with pytest.raises(DatasetError, match="has sha256"):
        load_rice(data_home=home)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("content", [b"no archive", b"PK\x03\x04 broken"])
def test_a_download_that_is_no_archive_is_not_kept(rice_zip, content):
    home, published, path = rice_zip
    published.write_bytes(content)
    with pytest.raises(DatasetError, match="could not be downloaded"):
        load_rice(data_home=home)
    assert not list(path.parent.iterdir())


def test_without_a_network_the_error_says_which_files_to_put_where(rice_zip):
    home, published, path = rice_zip
    published.unlink()  # 404
    with pytest.raises(DatasetError) as error:
        load_rice(data_home=home)
    text = str(error.value)
    for part in (path.name, str(path.parent), "http://127.0.0.1", "PSKEM_DATA", "data_home", "404"):
        assert part in text
    assert "\n" not in text


def test_a_tar_archive_is_read_once_for_all_its_files(tiny, publisher, monkeypatch):
    home, made = tiny
    base, folder = publisher
    source = home / "cifar-10" / "cifar-10-batches-bin"
    with tarfile.open(folder / "file", "w:gz") as archive:
        for path in sorted(source.iterdir(), reverse=True):
            archive.add(path, f"cifar-10-batches-bin/{path.name}")
            path.unlink()
    digest = hashlib.md5((folder / "file").read_bytes()).hexdigest()
    republish(monkeypatch, "cifar-10", base, archive=f"md5:{digest}")
    bunch = load_cifar10(data_home=home, subset="test")
    np.testing.assert_array_equal(bunch.target, made["cifar-10", "test_batch.bin"][1])
    assert len(list(source.iterdir())) == 6

    for path in source.iterdir():
        path.unlink()
    republish(monkeypatch, "cifar-10", base, archive="md5:" + "0" * 32)
    with pytest.raises(DatasetError, match="hash"):
        load_cifar10(data_home=home)


def test_gzip_checksums_are_of_what_is_packed(tiny, publisher, monkeypatch):
    home, _ = tiny
    base, folder = publisher
    path = home / "mnist" / "train-labels-idx1-ubyte.gz"
    inner = gzip.decompress(path.read_bytes())
    path.unlink()
    (folder / "file").write_bytes(gzip.compress(inner, compresslevel=1))
    republish(monkeypatch, "mnist", base, f"md5:{hashlib.md5(inner).hexdigest()}")
    fetch("mnist", home)
    assert gzip.decompress(path.read_bytes()) == inner


def test_download_shows_a_bar_on_stderr_only(rice_zip, capsys):
    home, _, path = rice_zip
    fetch("rice", home, progress=True)
    shown = capsys.readouterr()
    assert "100%" in shown.err
    assert shown.out == ""
    path.unlink()
    fetch("rice", home, progress=False)
    assert capsys.readouterr().err == ""
