"""`content_digest`: a checksum of what a dataset holds, so that other images under an old name are noticed.

Images in memory are hashed as they are used. Files that are streamed are hashed by name, size and CRC, which a zip
lists and a directory has to be read for, once: the outcome is kept until a file's size, times or inode change. How they
are cut belongs to what is seen of them.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Iterable
from functools import singledispatch
from pathlib import Path
from weakref import WeakKeyDictionary

from filtercov.files import atomic_write, cache_directory
from filtercov.lab.data.arrays import Dataset, ImageArrays
from filtercov.lab.data.decode import UndecodableError
from filtercov.lab.data.scan import read
from filtercov.lab.data.source import ImageSource
from filtercov.lab.data.streaming import CENTRE_SHARE, StreamedImages
from filtercov.lab.data.tree import Tree, ZipTree

_ROWS = 4096  # images hashed at a time: a memory map need not be read whole
_known: WeakKeyDictionary[Dataset, str] = WeakKeyDictionary()


def content_digest(data: Dataset) -> str:
    """Return a hash of all of a dataset's images, its labels, classes and normalisation; not of its name.

    >>> from filtercov.lab.data import load
    >>> content_digest(load("embedded", limit=100)) == content_digest(load("embedded", limit=101))
    False
    """
    if data not in _known:
        digest = hashlib.sha256()
        for source in filter(None, (data.train, data.validation, data.test)):
            digest.update(repr(source.classes).encode())
            digest.update(source.labels.tobytes())
            digest.update(_images(source).encode())
        digest.update(repr((data.in_channels, data.image_size, data.mean, data.std)).encode())
        _known[data] = digest.hexdigest()
    return _known[data]


@singledispatch
def _images(source: ImageSource) -> str:
    """Return a hash of a source's images; of a source we did not make, only its kind can be told."""
    return f"{type(source).__module__}.{type(source).__qualname__}"


@_images.register
def _of_arrays(source: ImageArrays) -> str:
    digest = hashlib.sha256(repr(source.images.shape).encode())
    for start in range(0, len(source), _ROWS):
        digest.update(source.images[start : start + _ROWS].tobytes())
    return digest.hexdigest()


@_images.register
def _of_stream(source: StreamedImages) -> str:
    return f"{_files(source)} centre {CENTRE_SHARE}"


def _files(source: StreamedImages) -> str:
    stamps = {file.path: file.stamp for file in source.tree.files}
    stamped = hashlib.sha256("\n".join(f"{path}\0{stamps[path]}" for path in source.paths).encode(errors="replace"))
    if isinstance(source.tree, ZipTree):
        return stamped.hexdigest()
    stamped.update(str(source.tree.path.absolute()).encode(errors="replace"))
    kept = cache_directory() / "contents" / stamped.hexdigest()
    with contextlib.suppress(OSError):
        return kept.read_text(encoding="utf-8")
    found = _read_all(source.tree, source.paths)
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not correctness
        _keep(kept, found)
    return found


def _read_all(tree: Tree, paths: Iterable[str]) -> str:
    """Return what a zip of these files would give: every name, size and CRC."""
    lines = []
    for path in paths:
        try:
            content = read(tree, path)
            lines.append(f"{path}\0{len(content)} {zlib.crc32(content)}")
        except UndecodableError:
            lines.append(f"{path}\0unreadable")
    return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
