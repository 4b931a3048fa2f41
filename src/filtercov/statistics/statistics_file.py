"""The file format of filter statistics: safetensors, with a description and a checksum over every byte.

The header's metadata has one entry, a JSON text: format, schema version, sha256, and what the caller describes. The
checksum is of the whole file with the checksum's own 64 digits written as zeros, so that no byte can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy

from filtercov.covariance.forms import Array
from filtercov.errors import CheckpointError
from filtercov.files.limits import DESCRIPTION, MEASURED, MIB, show_bytes
from filtercov.files.replacing import replacing

FORMAT = "filtercov-statistics"
SCHEMA = 1
BLANK = "0" * 64


def write(path: Path, layers: Sequence[tuple[Array, Array]], description: Mapping[str, Any]) -> None:
    """Write (mean, covariance) pairs and their description, all of it or nothing."""
    tensors = {}
    for i, (mean, covariance) in enumerate(layers):
        tensors[f"layer.{i}.mean"] = np.ascontiguousarray(mean, dtype=np.float64)
        tensors[f"layer.{i}.covariance"] = np.ascontiguousarray(covariance, dtype=np.float64)
    about = {"format": FORMAT, "schema": SCHEMA, "sha256": BLANK, **description}
    blank = safetensors.numpy.save(tensors, metadata={"filtercov": json.dumps(about)})
    data = blank.replace(BLANK.encode(), hashlib.sha256(blank).hexdigest().encode(), 1)
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error.strerror}); nothing was changed, choose another place"
        ) from None


def read(path: Path) -> tuple[list[tuple[Array, Array]], dict[str, Any]]:
    """Return the (mean, covariance) pairs and their description, after checking format, version and checksum."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path}: cannot be read (a directory, a device or a pipe; needed a statistics file)")
    try:
        with path.open("rb") as file:
            header = _header(path, file)
            about = _description(path, header)
            if _checksum(header, str(about["sha256"]), file) != about["sha256"]:
                raise CheckpointError(f"{path}: its contents do not match its checksum; it is damaged, get it again")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        with safetensors.safe_open(path, framework="numpy") as tensors:
            pairs = [
                (_float64(tensors.get_tensor(f"layer.{i}.mean")), _float64(tensors.get_tensor(f"layer.{i}.covariance")))
                for i in range(len(about["layers"]))
            ]
        described = {"source": str(about["source"]), "notes": [str(note) for note in about["notes"]]}
        return pairs, {**described, "layers": about["layers"]}
    except Exception as error:  # whatever a foreign writer put in, the reader's answer is the same sentence
        raise CheckpointError(f"{path}: its tensors cannot be read ({type(error).__name__}: {error})") from None


def _header(path: Path, file: BinaryIO) -> bytes:
    """Return the start of a file up to its tensors, if neither is longer than is read."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if size > MEASURED + DESCRIPTION:
        raise CheckpointError(
            f"{path}: needed a statistics file of at most {show_bytes(MEASURED)}, got one of {show_bytes(size)}"
        )
    return start + file.read(min(length, DESCRIPTION))


def _checksum(header: bytes, expected: str, file: BinaryIO) -> str:
    """Return the checksum of a header and of the rest of its file, with the checksum's own digits as zeros."""
    digest = hashlib.sha256(header.replace(expected.encode(), BLANK.encode(), 1))
    while piece := file.read(MIB):
        digest.update(piece)
    return digest.hexdigest()


def _description(path: Path, data: bytes) -> dict[str, Any]:
    """Parse the header far enough to know whether this is one of our files, and of a version we know."""
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
        about = json.loads(header["__metadata__"]["filtercov"])
        ours = about["format"] == FORMAT and isinstance(about["sha256"], str) and len(about["sha256"]) == len(BLANK)
        schema = int(about["schema"])
    except (KeyError, TypeError, ValueError, RecursionError):
        ours, schema, about = False, 0, {}
    if not ours:
        raise CheckpointError(
            f"{path}: not a filtercov statistics file, or damaged beyond recognition; make one from a checkpoint with "
            "`filtercov stats CHECKPOINT --out FILE`"
        )
    if schema > SCHEMA:
        raise CheckpointError(
            f"{path}: written with schema {schema}, this filtercov reads up to {SCHEMA}; update filtercov"
        )
    return dict(about)


def _float64(array: Any) -> Array:
    if array.dtype != np.float64:
        raise TypeError(f"needed float64, got {array.dtype}")
    return np.asarray(array)
