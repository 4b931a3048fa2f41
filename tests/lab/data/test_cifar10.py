"""CIFAR-10's archive: found, fetched, checked, and refused when it is not what it should be."""

import contextlib
import functools
import hashlib
import http.server
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data import cifar10, load
from filtercov.lab.data.cifar10 import load_cifar10
from tests.lab.data import python2_pickle


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


class CutShort(QuietHandler):
    """Promises the whole file and hangs up half way."""

    def copyfile(self, source: object, outputfile: object) -> None:
        outputfile.write(source.read(1000))  # type: ignore[attr-defined]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Yield a directory and the address it is served at."""
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(folder, QuietHandler) as url:
        yield folder, url


@contextlib.contextmanager
def serving(folder: Path, handler: type[QuietHandler]) -> Iterator[str]:
    """Serve a folder; yield the archive's address in it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/{cifar10.ARCHIVE}"
        finally:
            server.shutdown()
            thread.join()


def test_a_download_arrives_is_checked_and_is_used_again(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = served
    images = python2_pickle.write_archive(folder / cifar10.ARCHIVE)
    digest = sha256(folder / cifar10.ARCHIVE)
    root = tmp_path / "deep" / "root"
    data = load_cifar10(root, download=True, url=url, sha256=digest)
    np.testing.assert_array_equal(data.train.images, images[:100])
    np.testing.assert_array_equal(data.test.images, images[100:])
    assert data.train.labels.tolist() == list(range(10)) * 10
    assert (data.num_classes, data.in_channels, data.image_size) == (10, 3, 32)

    (folder / cifar10.ARCHIVE).unlink()  # from now on only the local copy can serve
    again = load_cifar10(root, url=url, sha256=digest)
    np.testing.assert_array_equal(again.train.images, data.train.images)
    assert [path.name for path in root.iterdir()] == [cifar10.ARCHIVE]


def test_a_download_with_the_wrong_hash_is_thrown_away_unread(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = served
    python2_pickle.write_archive(folder / cifar10.ARCHIVE)
    monkeypatch.setattr(cifar10, "read_array_pickle", lambda _: pytest.fail("unpickled before it was checked"))
    root = tmp_path / "root"
    with pytest.raises(DataError, match=f"not {cifar10.SHA256}"):
        load_cifar10(root, download=True, url=url)
    assert list(root.iterdir()) == []


def test_a_local_file_with_the_wrong_hash_is_left_unread_and_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python2_pickle.write_archive(tmp_path / cifar10.ARCHIVE)
    before = sha256(tmp_path / cifar10.ARCHIVE)
    monkeypatch.setattr(cifar10, "read_array_pickle", lambda _: pytest.fail("unpickled before it was checked"))
    with pytest.raises(DataError, match="delete it and fetch it anew"):
        load("cifar10", root=tmp_path, download=True)
    assert sha256(tmp_path / cifar10.ARCHIVE) == before


def test_a_connection_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    served, root = tmp_path / "served", tmp_path / "root"
    served.mkdir()
    python2_pickle.write_archive(served / cifar10.ARCHIVE)
    digest = sha256(served / cifar10.ARCHIVE)
    with serving(served, CutShort) as url, pytest.raises(DataError, match=r"put the archive there|sent something else"):
        load_cifar10(root, download=True, url=url, sha256=digest)
    assert list(root.iterdir()) == []


def test_a_missing_file_on_the_server_is_an_error_that_names_it(served: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="404"):
        load_cifar10(tmp_path / "root", download=True, url=served[1])


def test_a_missing_archive_says_where_it_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"put {cifar10.ARCHIVE} there, or allow the download"):
        load("cifar10", root=tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        pickle.dumps([]),
        python2_pickle.dictionary({}),
        python2_pickle.dictionary({b"data": python2_pickle.array(np.zeros((2, 5), np.uint8)), b"labels": b"]"}),
        python2_pickle.batch(np.zeros((2, 32, 32, 3), np.uint8), [0]),
        python2_pickle.batch(np.zeros((2, 32, 32, 3), np.uint8), [0, 10]),
    ],
)
def test_an_archive_with_the_right_hash_and_wrong_content_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / cifar10.ARCHIVE
    python2_pickle.write_archive(path, damage={"data_batch_3": content})
    with pytest.raises(DataError):
        load_cifar10(tmp_path, sha256=sha256(path))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / cifar10.ARCHIVE
    path.write_bytes(b"\x1f\x8b not really")
    with pytest.raises(DataError, match="cannot be read"):
        load_cifar10(tmp_path, sha256=sha256(path))


def test_an_archive_that_cannot_be_looked_at_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"File name too long: .*; mend it or name another data root"):
        load_cifar10(tmp_path / ("x" * 300))
    (tmp_path / cifar10.ARCHIVE).symlink_to("/proc/self/mem")  # a file that cannot be read, even by root
    with pytest.raises(DataError, match="Input/output error; mend it or name another data root"):
        load_cifar10(tmp_path)
