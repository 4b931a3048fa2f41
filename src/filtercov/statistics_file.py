"""The file format of filter statistics: safetensors, with a description and a checksum over every byte.

The header's metadata has one entry, a JSON text: format, schema version, sha256, and what the caller describes. The
checksum is of the whole file with the checksum's own 64 digits written as zeros, so that no byte can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from filtercov.covariance.forms import Array
from filtercov.errors import CheckpointError
from filtercov.replacing import replacing

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
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    about = _description(path, data)
    expected = str(about["sha256"])
    if hashlib.sha256(data.replace(expected.encode(), BLANK.encode(), 1)).hexdigest() != expected:
        raise CheckpointError(f"{path}: its contents do not match its checksum; it is damaged, get it again")
    try:
        tensors = safetensors.numpy.load(data)
        pairs = [
            (_float64(tensors[f"layer.{i}.mean"]), _float64(tensors[f"layer.{i}.covariance"]))
            for i in range(len(about["layers"]))
        ]
        return pairs, {key: about[key] for key in ("source", "notes", "layers")}
    except Exception as error:  # whatever a foreign writer put in, the reader's answer is the same sentence
        raise CheckpointError(f"{path}: its tensors cannot be read ({type(error).__name__}: {error})") from None


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
