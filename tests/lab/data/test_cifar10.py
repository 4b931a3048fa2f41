"""CIFAR-10's archive: found, fetched, checked, and refused when it is not what it should be."""

import hashlib
import io
import pickle
import re
import tarfile
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


def test_a_download_arrives_is_checked_and_is_used_again(tmp_path: Path) -> None:
    images, digest = write_archive(tmp_path / "served")
    root, url = tmp_path / "deep" / "root", (tmp_path / "served" / ARCHIVE).as_uri()
    data = load_cifar10(root, download=True, url=url, sha256=digest)
    np.testing.assert_array_equal(data.train.images, images[:100])
    np.testing.assert_array_equal(data.test.images, images[100:])
    assert data.train.labels.tolist() == list(range(10)) * 10
    assert (data.num_classes, data.in_channels, data.image_size) == (10, 3, 32)
    (tmp_path / "served" / ARCHIVE).unlink()
    again = load_cifar10(root, url=url, sha256=digest)
    np.testing.assert_array_equal(again.train.images, data.train.images)
    assert [path.name for path in root.iterdir()] == [ARCHIVE]


@pytest.mark.parametrize("sent", ["wrong file", "part", "nothing"])
def test_a_download_that_is_wrong_cut_short_or_missing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    _, digest = write_archive(tmp_path / "served")
    archive = tmp_path / "served" / ARCHIVE
    monkeypatch.setattr(pickle, "load", lambda *_, **__: pytest.fail("unpickled before it was checked"))
    if sent == "part":
        archive.write_bytes(archive.read_bytes()[:1000])
    elif sent == "nothing":
        archive.unlink()
    expected = cifar10.SHA256 if sent == "wrong file" else digest
    with pytest.raises(DataError):
        load_cifar10(tmp_path / "root", download=True, url=archive.as_uri(), sha256=expected)
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
