"""CIFAR-10 (Krizhevsky, 2009) from its Python archive, which is checked by SHA-256 before anything in it is read."""

import http.client
import pickle
import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from filtercov.errors import DataError
from filtercov.files import atomic_write, cache_directory, file_sha256
from filtercov.lab.data.dataset import Dataset, ImageArrays

ARCHIVE = "cifar-10-python.tar.gz"
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def load_cifar10(root: Path | None = None, *, download: bool = False, url: str = URL, sha256: str = SHA256) -> Dataset:
    """Load CIFAR-10 from the archive in `root` (by default the cache directory), downloading it if asked to."""
    path = (root or cache_directory()) / ARCHIVE
    try:
        if not path.is_file():
            if not download:
                raise DataError(
                    f"CIFAR-10 is not at {path}; put {ARCHIVE} there, or allow the download with --download "
                    "(in Python download=True)"
                )
            _download(url, path, sha256)
        elif (found := file_sha256(path)) != sha256:
            raise DataError(
                f"{path} is not the CIFAR-10 archive: sha256 {found}, not {sha256}; delete it and fetch it anew"
            )
        with tarfile.open(path, "r:gz") as archive:
            train = _read(archive, [f"data_batch_{number}" for number in range(1, 6)])
            test = _read(archive, ["test_batch"])
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}; make it readable or name another data root") from error
    return Dataset("cifar10", train, test, in_channels=3, image_size=32, mean=MEAN, std=STD)


def _read(archive: tarfile.TarFile, names: list[str]) -> ImageArrays:
    images, labels = [], []
    for name in names:
        file = archive.extractfile(f"cifar-10-batches-py/{name}")
        assert file is not None
        batch = pickle.load(file, encoding="bytes")  # a pickle can run code; the checksum says whose this one is
        images.append(batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(np.array(batch[b"labels"], dtype=np.int64))
    return ImageArrays(np.ascontiguousarray(np.concatenate(images)), np.concatenate(labels), CLASSES)


def _download(url: str, path: Path, sha256: str) -> None:
    """Fetch url to path; the name appears only when all of it has arrived and its checksum is right."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            with temporary.open("wb") as file, urllib.request.urlopen(url, timeout=60) as response:
                shutil.copyfileobj(response, file)
            if (found := file_sha256(temporary)) != sha256:
                raise DataError(f"{url} sent another file than CIFAR-10: sha256 {found}, not {sha256}; try again later")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise DataError(f"{url} could not be fetched to {path}: {error}; put the archive there by hand") from error
