"""The data that comes with the package: 10,000 + 2,000 images of Fashion-MNIST (Xiao et al., arXiv 1708.07747).

`tools/make_embedded.py` makes the file from the originals; its licence (MIT) lies beside it.
"""

import hashlib
import io
from importlib import resources

import numpy as np

from filtercov.errors import DataError
from filtercov.lab.data.arrays import Dataset, ImageArrays

FILE = "fashion_mnist.npz"
SHA256 = "efefbe05b9d7eaf04f28ae39025070e3f555b25bf705ff9319bf8a7a4784fc6b"
CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
MEAN, STD = (0.28668,), (0.35401,)  # of the 10,000 training images


def load_embedded() -> Dataset:
    """Return the embedded dataset: 28×28 grey images in ten classes of equal size.

    >>> data = load_embedded()
    >>> data.train.images.shape, data.test.images.shape
    ((10000, 28, 28, 1), (2000, 28, 28, 1))
    """
    raw = resources.files("filtercov.lab.data").joinpath(FILE).read_bytes()
    if hashlib.sha256(raw).hexdigest() != SHA256:
        raise DataError(f"the embedded data {FILE} is damaged (its sha256 is not {SHA256}); reinstall filtercov")
    with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
        splits = {
            split: ImageArrays(
                arrays[f"{split}_images"][..., None], arrays[f"{split}_labels"].astype(np.int64), CLASSES
            )
            for split in ("train", "test")
        }
    return Dataset("embedded", splits["train"], splits["test"], in_channels=1, image_size=28, mean=MEAN, std=STD)
