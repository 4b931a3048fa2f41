"""`load`: a dataset from its name."""

import difflib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from filtercov.errors import DataError
from filtercov.lab.data.arrays import Dataset, hold_out, stratified_order
from filtercov.lab.data.cifar10 import load_cifar10
from filtercov.lab.data.embedded import load_embedded
from filtercov.lab.data.folder import load_folder


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
    """Return the dataset that `spec` names: `embedded`, `cifar10`, or `folder:PATH` of a directory or a zip.

    `root` is where archives are looked for and, with `download`, put. `image_size` scales a folder's images. `limit`
    keeps that many training images, the classes in proportion; a smaller limit's images are among a larger one's.
    `validation` sees to it that there are validation images: a folder's `val/` beside its `test/`, else a tenth of each
    class, the same whatever the limit, taken from the training images (of which a limit near all of them then gets
    fewer). `bad_limit` damaged images of a folder are skipped, more are an error. `workers` decode large images.

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
        path = _folder(spec.removeprefix("folder:"))
        data = load_folder(path, image_size=image_size, bad_limit=bad_limit, workers=workers)
    if image_size is not None and image_size != data.image_size:
        raise DataError(f"{spec} has images of {data.image_size} pixels, not {image_size}; only folders are scaled")
    if limit is not None and not 1 <= limit <= len(data.train):
        raise DataError(f"limit must lie in 1..{len(data.train)}, the training images of {data.name}, got {limit}")
    split_off = validation and data.validation is None
    return data if limit is None and not split_off else _chosen(data, limit, split_off=split_off)


def check_name(spec: str) -> None:
    """Raise `DataError` unless `load` could know a dataset of that name; nothing is looked for."""
    if spec in ("embedded", "cifar10") or (spec.startswith("folder:") and spec != "folder:"):
        return
    near = difflib.get_close_matches(spec.lower(), ("embedded", "cifar10"), n=1, cutoff=0.8)
    if spec and _is_there(spec):
        near = [f"folder:{spec}"]
    hint = f"; did you mean {near[0]}?" if near else ""
    raise DataError(f"unknown data {spec!r}, choose embedded, cifar10 or folder:PATH{hint}")


def _folder(text: str) -> Path:
    """Return the path that a name stands for, such that it has a name itself: what is decoded is kept beside it."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:  # of a user whom nobody knows
        raise DataError(f"folder:{text} leads nowhere ({error}); write the path without ~") from None
    return path.resolve() if path.name == ".." else path


def _is_there(text: str) -> bool:
    with suppress(OSError, RuntimeError):  # what cannot be looked at is not what was meant
        return Path(text).expanduser().exists()
    return False


def _chosen(data: Dataset, limit: int | None, *, split_off: bool) -> Dataset:
    order = stratified_order(data.train.labels)
    if split_off:
        # It is the end of the order, so a limit that does not reach it picks the same training images with and without.
        order, aside = hold_out(order, data.train.labels)
        if not len(aside):
            raise DataError(
                f"{data.name} has one training image of each class, none to validate with; add more or val/"
            )
        data = replace(data, validation=data.train.subset(np.sort(aside)))
    return replace(data, train=data.train.subset(np.sort(order) if limit is None else order[:limit]))
