"""`load`: a dataset from its name; the images that come with the package, and CIFAR-10."""

import http.client
import os
import pickle
import shutil
import tarfile
import urllib.request
from pathlib import Path

import numpy as np

from filtercov.errors import DataError
from filtercov.files import atomic_write, cache_directory, file_sha256
from filtercov.lab.data.dataset import Dataset, ImageArrays
from filtercov.lab.data.folder import load_folder

_FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")

CIFAR10 = "cifar-10-python.tar.gz"
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR10_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load(
    spec: str,
    *,
    root: Path | None = None,
    download: bool = False,
    image_size: int | None = None,
    limit: int | None = None,
    validation: bool = False,
    workers: int | None = None,
) -> Dataset:
    """Load the dataset that `spec` names: `embedded`, `cifar10`, or `folder:PATH` of a directory or a zip.

    `root` is where archives are looked for and, with `download`, put. `image_size` scales a folder's images. `limit`
    keeps that many training images, the classes in proportion; a smaller limit's images are among a larger one's.
    `validation` asks for validation images: a folder's `val/` beside its `test/`, else a tenth of each class of the
    training images, the same tenth whatever the limit. `workers` is the number of processes that decode large images.

    >>> load("embedded", limit=100).train.labels.shape
    (100,)
    >>> data = load("embedded", validation=True)
    >>> len(data.train), len(data.validation), len(data.test)
    (9000, 1000, 2000)
    """
    check_name(spec)
    if spec == "embedded":
        data = load_embedded()
    elif spec == "cifar10":
        data = load_cifar10(root, download=download)
    else:
        # Resolved, because the dataset has its name: `.` and `..` have none.
        path = Path(spec.removeprefix("folder:")).expanduser().resolve()
        data = load_folder(path, image_size=image_size, workers=workers)
    if image_size is not None and image_size != data.image_size:
        raise DataError(f"{spec} has images of {data.image_size} pixels, not {image_size}; only folders are scaled")
    if limit is not None and not 1 <= limit <= len(data.train):
        raise DataError(f"limit must lie in 1..{len(data.train)}, the training images of {data.name}, got {limit}")
    hold_out = validation and data.validation is None
    return data.reduced(limit=limit, hold_out_validation=hold_out) if limit is not None or hold_out else data


def check_name(spec: str) -> None:
    """Raise `DataError` unless `load` could know a dataset of that name; no file is opened."""
    if spec in ("embedded", "cifar10") or (spec.startswith("folder:") and spec != "folder:"):
        return
    hint = f"; did you mean folder:{spec}?" if os.path.exists(spec) else ""  # noqa: PTH110 (Path.exists can raise)
    raise DataError(f"unknown data {spec!r}, choose embedded, cifar10 or folder:PATH{hint}")


def load_embedded() -> Dataset:
    """10,000 + 2,000 images of Fashion-MNIST (Xiao et al., arXiv 1708.07747): 28×28, grey, ten classes of equal size.

    `tools/make_embedded.py` makes the file from the originals; its licence (MIT) lies beside it.
    """
    with np.load(Path(__file__).with_name("fashion_mnist.npz")) as arrays:
        train, test = (
            ImageArrays(arrays[f"{split}_images"][..., None], arrays[f"{split}_labels"].astype(np.int64), _FASHION)
            for split in ("train", "test")
        )
    # Mean and standard deviation of the training images.
    return Dataset("embedded", train, test, in_channels=1, image_size=28, mean=(0.28668,), std=(0.35401,))


def load_cifar10(root: Path | None = None, *, download: bool = False) -> Dataset:
    """CIFAR-10 (Krizhevsky, 2009) from the archive in `root`, by default the cache directory; downloaded if asked to.

    The archive is checked by SHA-256 before anything in it is read: a pickle can run code.
    """
    path = (root or cache_directory()) / CIFAR10
    try:
        if not path.exists():
            if not download:
                raise DataError(f"{path} is missing; put it there, or allow --download (in Python download=True)")
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                with temporary.open("wb") as file, urllib.request.urlopen(CIFAR10_URL, timeout=60) as response:
                    shutil.copyfileobj(response, file)
                _check_cifar10(temporary, called=f"what {CIFAR10_URL} sent")
        _check_cifar10(path, called=str(path))
        with tarfile.open(path, "r:gz") as archive:
            train = _read_cifar10(archive, [f"data_batch_{number}" for number in range(1, 6)])
            test = _read_cifar10(archive, ["test_batch"])
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"CIFAR-10 cannot be fetched to or read from {path}: {error}; put it there by hand") from error
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    return Dataset("cifar10", train, test, in_channels=3, image_size=32, mean=mean, std=std)


def _check_cifar10(path: Path, *, called: str) -> None:
    if (found := file_sha256(path)) != CIFAR10_SHA256:
        raise DataError(f"{called} is not the CIFAR-10 archive: sha256 {found}, not {CIFAR10_SHA256}; fetch it anew")


def _read_cifar10(archive: tarfile.TarFile, names: list[str]) -> ImageArrays:
    images, labels = [], []
    for name in names:
        file = archive.extractfile(f"cifar-10-batches-py/{name}")
        assert file is not None
        batch = pickle.load(file, encoding="bytes")
        images.append(batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(np.array(batch[b"labels"], dtype=np.int64))
    return ImageArrays(np.ascontiguousarray(np.concatenate(images)), np.concatenate(labels), _CIFAR10)
