"""CIFAR-10's archive: found, fetched, checked, and refused when it is not what it should be."""

import contextlib
import functools
import hashlib
import http.server
import io
import pickle
import re
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from filtercov.errors import DataError
from filtercov.lab.data import cifar10, load
from filtercov.lab.data.cifar10 import ARCHIVE, load_cifar10


def write_archive(folder: Path) -> tuple[np.ndarray, str]:
    """Write an archive like CIFAR-10's, of 20 images a batch; return its images, training first, and its SHA-256."""
    rng = np.random.default_rng(0)
    everything = rng.integers(0, 256, (6, 20, 32, 32, 3), dtype=np.uint8)
    folder.mkdir()
    with tarfile.open(folder / ARCHIVE, "w:gz") as archive:
        for name, images in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], everything, strict=True):
            rows = images.transpose(0, 3, 1, 2).reshape(20, 3072)
            content = pickle.dumps({b"data": rows, b"labels": [i % 10 for i in range(20)]}, protocol=2)
            # As NumPy 1 in Python 2 wrote it: the module's old name, and the dtype's flags as integers.
            content = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            content = re.sub(rb"(u1q.)\x89\x88", lambda match: match[1] + b"K\x00K\x01", content)
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return everything.reshape(120, 32, 32, 3), sha256(folder / ARCHIVE)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


class CutShort(Quiet):
    """Promises the whole file and hangs up half way."""

    def copyfile(self, source: object, outputfile: object) -> None:
        outputfile.write(source.read(1000))  # type: ignore[attr-defined]


@contextlib.contextmanager
def serving(folder: Path, handler: type[Quiet] = Quiet) -> Iterator[str]:
    """Serve a folder; yield the archive's address in it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/{ARCHIVE}"
        finally:
            server.shutdown()
            thread.join()


def test_a_download_arrives_is_checked_and_is_used_again(tmp_path: Path) -> None:
    images, digest = write_archive(tmp_path / "served")
    root = tmp_path / "deep" / "root"
    with serving(tmp_path / "served") as url:
        data = load_cifar10(root, download=True, url=url, sha256=digest)
    np.testing.assert_array_equal(data.train.images, images[:100])
    np.testing.assert_array_equal(data.test.images, images[100:])
    assert data.train.labels.tolist() == list(range(10)) * 10
    assert (data.num_classes, data.in_channels, data.image_size) == (10, 3, 32)
    again = load_cifar10(root, url=url, sha256=digest)  # nothing is served any more
    np.testing.assert_array_equal(again.train.images, data.train.images)
    assert [path.name for path in root.iterdir()] == [ARCHIVE]


@pytest.mark.parametrize(("handler", "sent"), [(Quiet, "wrong file"), (CutShort, "part"), (Quiet, "nothing")])
def test_a_download_that_is_wrong_cut_short_or_missing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: type[Quiet], sent: str
) -> None:
    _, digest = write_archive(tmp_path / "served")
    monkeypatch.setattr(pickle, "load", lambda *_, **__: pytest.fail("unpickled before it was checked"))
    if sent == "nothing":
        (tmp_path / "served" / ARCHIVE).unlink()
    with serving(tmp_path / "served", handler) as url, pytest.raises(DataError):
        load_cifar10(
            tmp_path / "root", download=True, url=url, sha256=cifar10.SHA256 if sent == "wrong file" else digest
        )
    assert list((tmp_path / "root").iterdir()) == []


def test_a_local_file_with_the_wrong_hash_is_left_unread_and_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, before = write_archive(tmp_path / "root")
    monkeypatch.setattr(pickle, "load", lambda *_, **__: pytest.fail("unpickled before it was checked"))
    with pytest.raises(DataError, match=before):
        load("cifar10", root=tmp_path / "root", download=True)
    assert sha256(tmp_path / "root" / ARCHIVE) == before


def test_an_archive_that_is_missing_or_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--download"):
        load("cifar10", root=tmp_path)
    (tmp_path / ARCHIVE).symlink_to("/proc/self/mem")  # a file that cannot be read, even by root
    with pytest.raises(DataError, match=str(tmp_path / ARCHIVE)):
        load("cifar10", root=tmp_path)
