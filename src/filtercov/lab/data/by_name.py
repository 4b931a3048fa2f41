"""`load`: a dataset from its name, and the images that come with the package."""

import hashlib
import io
import os
from importlib import resources
from pathlib import Path

import numpy as np

from filtercov.errors import DataError
from filtercov.lab.data.cifar10 import load_cifar10
from filtercov.lab.data.dataset import Dataset, ImageArrays
from filtercov.lab.data.folder import load_folder

EMBEDDED = "fashion_mnist.npz"
EMBEDDED_SHA256 = "efefbe05b9d7eaf04f28ae39025070e3f555b25bf705ff9319bf8a7a4784fc6b"
_FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def load(
    spec: str,
    *,
    root: Path | None = None,
    download: bool = False,
    image_size: int | None = None,
    limit: int | None = None,
    validation: bool = False,
    bad_limit: int = 100,
    workers: int | None = None,
) -> Dataset:
    """Load the dataset that `spec` names: `embedded`, `cifar10`, or `folder:PATH` of a directory or a zip.

    `root` is where archives are looked for and, with `download`, put. `image_size` scales a folder's images. `limit`
    keeps that many training images, the classes in proportion; a smaller limit's images are among a larger one's.
    `validation` asks for validation images: a folder's `val/` beside its `test/`, else a tenth of each class of the
    training images, the same tenth whatever the limit. Up to `bad_limit` damaged images of a folder are skipped, more
    are an error. `workers` is the number of processes that decode large images.

    >>> load("embedded", limit=100).train.labels.shape
    (100,)
    >>> data = load("embedded", validation=True)
    >>> len(data.train), len(data.validation), len(data.test)
    (9000, 1000, 2000)
    """
    check_name(spec)
    if workers is not None and workers < 0:
        raise DataError(f"workers must be at least 0, got {workers}; 0 decodes in this process")
    if spec == "embedded":
        data = load_embedded()
    elif spec == "cifar10":
        data = load_cifar10(root, download=download)
    else:
        # Decoded images are kept beside it, under its name: `.` and `..` need one.
        path = Path(os.path.abspath(_expanded(spec.removeprefix("folder:"))))  # noqa: PTH100 (resolve follows links)
        data = load_folder(path, image_size=image_size, bad_limit=bad_limit, workers=workers)
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
    is_path = bool(spec) and os.path.exists(_expanded(spec))  # noqa: PTH110 (Path.exists can raise)
    hint = f"; did you mean folder:{spec}?" if is_path else ""
    raise DataError(f"unknown data {spec!r}, choose embedded, cifar10 or folder:PATH{hint}")


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 (Path.expanduser raises for an unknown user)


def load_embedded() -> Dataset:
    """10,000 + 2,000 images of Fashion-MNIST (Xiao et al., arXiv 1708.07747): 28×28, grey, ten classes of equal size.

    `tools/make_embedded.py` makes the file from the originals; its licence (MIT) lies beside it.
    """
    raw = resources.files("filtercov.lab.data").joinpath(EMBEDDED).read_bytes()
    if hashlib.sha256(raw).hexdigest() != EMBEDDED_SHA256:
        raise DataError(f"the embedded data {EMBEDDED} is damaged (wrong sha256); reinstall filtercov")
    with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
        train, test = (
            ImageArrays(arrays[f"{split}_images"][..., None], arrays[f"{split}_labels"].astype(np.int64), _FASHION)
            for split in ("train", "test")
        )
    # Mean and standard deviation of the training images.
    return Dataset("embedded", train, test, in_channels=1, image_size=28, mean=(0.28668,), std=(0.35401,))
