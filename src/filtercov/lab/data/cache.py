"""Small images are decoded once into a memory map, which lies beside a manifest of what went into it.

The pair appears under its final name only when complete, so an interrupted decoding leaves nothing that could be
mistaken for data; its name is a fingerprint of the source, so a changed source is decoded anew.
"""

import json
import logging
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from filtercov.errors import DataError
from filtercov.files import Lock, cache_directory, flush
from filtercov.lab.data.arrays import ImageArrays
from filtercov.lab.data.decode import UndecodableError, fit_square, open_image
from filtercov.lab.data.layout import ImageFile
from filtercov.lab.data.scan import BadFile, BadFiles, read
from filtercov.lab.data.tree import Tree

_LOG = logging.getLogger("filtercov.lab.data")
_VERSION = 3  # of what is kept and how: part of the fingerprint
_PATIENCE = 10.0  # seconds, for a process that looks whether a lock just made is free


def cached_arrays(tree: Tree, *, size: int, channels: int, bad_limit: int) -> dict[str, ImageArrays]:
    """Return the images of a tree's splits, size × size, decoding them if that was not done before."""
    name = tree.fingerprint(_VERSION, size, channels)
    homes = [tree.path.parent / f"{tree.path.name}.filtercov", cache_directory() / "folders"]
    for home in homes:
        if (home / name / "manifest.json").is_file():
            return _open(home / name, tree, BadFiles(bad_limit))
    for home in homes:
        if _marked_read_only(home.parent):
            continue
        try:
            working, lock = _begin(home)
        except OSError:  # not ours, or a read-only filesystem: the next place
            continue
        try:
            _decode(tree, working, size=size, channels=channels, bad=BadFiles(bad_limit))
            _publish(working, home / name)
        except OSError as error:
            raise DataError(f"the decoded images of {tree.path} cannot be written to {home}: {error}") from error
        finally:
            _clear(working, lock)
        return _open(home / name, tree, BadFiles(bad_limit))
    raise DataError(
        f"no place to keep the decoded images of {tree.path}: neither {homes[0]} nor {homes[1]} can be written; "
        "set FILTERCOV_CACHE to a directory that can"
    )


def _begin(home: Path) -> tuple[Path, Lock]:
    """Return a new directory to decode into and the lock beside it, which ends with this process however that dies.

    Directories whose lock is free are of processes that were killed, and removed.
    """
    home.mkdir(parents=True, exist_ok=True)
    for path in home.glob(".decoding-*.lock"):
        abandoned = Lock(path)
        with suppress(OSError):
            if abandoned.acquire():
                _clear(path.with_suffix(""), abandoned)
    working = home / f".decoding-{os.getpid()}-{secrets.token_hex(4)}"
    lock = Lock(working.with_suffix(".lock"))
    with suppress(OSError):  # a filesystem without locks, where nobody removes anything either
        lock.acquire(timeout=_PATIENCE)
    try:
        working.mkdir()  # with the user's umask, unlike tempfile's
    except OSError:
        _clear(working, lock)
        raise
    return working, lock


def _clear(working: Path, lock: Lock) -> None:
    shutil.rmtree(working, ignore_errors=True)
    lock.release()  # first, as Windows removes no file that is open
    with suppress(OSError):
        lock.path.unlink()


def _marked_read_only(directory: Path) -> bool:
    """Return whether nobody may write here: a mark that binds us even as root, whom the system would let through."""
    return directory.is_dir() and not directory.stat().st_mode & 0o222


def _decode(tree: Tree, directory: Path, *, size: int, channels: int, bad: BadFiles) -> None:
    """Write images.bytes, the pixels of all readable images, and manifest.json, their paths, splits and labels."""
    numbers = {label: number for number, label in enumerate(tree.classes)}
    kept: list[ImageFile] = []
    # Written, not mapped: a full disk is then an error and not a signal that ends the process.
    with (directory / "images.bytes").open("wb") as images:
        for file in tree.files:
            try:
                image = open_image(read(tree, file.path), channels=channels)
            except UndecodableError as error:
                bad.add(BadFile(file.path, str(error)))
                continue
            images.write(fit_square(image, size).tobytes())
            kept.append(file)
    manifest = {
        "source": str(tree.path),
        "shape": [len(kept), size, size, channels],
        "paths": [file.path for file in kept],
        "splits": [file.split for file in kept],
        "labels": [numbers[file.label] for file in kept],
        "bad": [asdict(file) for file in bad.found.values()],
    }
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def _publish(working: Path, final: Path) -> None:
    """Give the finished pair its name; if another process was faster, its pair is as good."""
    for path in working.iterdir():
        flush(path)
    try:
        working.rename(final)
    except OSError:
        if not (final / "manifest.json").is_file():
            raise


def _open(directory: Path, tree: Tree, bad: BadFiles) -> dict[str, ImageArrays]:
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        images = np.memmap(directory / "images.bytes", np.uint8, mode="r", shape=tuple(manifest["shape"]))
        labels = np.array(manifest["labels"], dtype=np.int64)
        splits = np.array(manifest["splits"])
        found = [BadFile(**entry) for entry in manifest["bad"]]
        arrays = {split: _rows(images, labels, splits == split, tree.classes) for split in tree.splits}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"the decoded images in {directory} are damaged ({error}); delete that directory") from error
    for file in found:
        _LOG.warning("skipped %s", file)
        bad.add(file)
    return arrays


def _rows(images: np.ndarray, labels: np.ndarray, chosen: np.ndarray, classes: tuple[str, ...]) -> ImageArrays:
    """Return the chosen rows; files are sorted by split, so they are one stretch of the map and nothing is copied."""
    rows = np.flatnonzero(chosen)
    stretch = slice(rows[0], rows[-1] + 1) if len(rows) else slice(0, 0)
    if len(rows) == stretch.stop - stretch.start:
        return ImageArrays(images[stretch], labels[stretch], classes)
    return ImageArrays(images[rows], labels[rows], classes)
