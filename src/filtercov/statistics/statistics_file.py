"""The file format of filter statistics: a sealed file of the layers' means and covariances.

They are float64, or float32 where size matters more: either way float64 is what is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from filtercov.covariance.forms import PIXELS, Array
from filtercov.errors import CheckpointError
from filtercov.files import MEASURED, Kind, open_checksummed, write_checksummed
from filtercov.printable import show_bytes

KIND = Kind(
    format="filtercov-statistics",
    schema=1,
    called="statistics file",
    advice="make one from a checkpoint with `filtercov stats CHECKPOINT --out FILE`",
    largest=MEASURED,
)


def write(
    path: Path,
    layers: Sequence[tuple[Array, Array]],
    description: Mapping[str, Any],
    *,
    dtype: type[np.float64] | type[np.float32] = np.float64,
) -> None:
    """Write (mean, covariance) pairs and their description, all of it or nothing; only what `read` takes."""
    taken = np.dtype(dtype).itemsize * sum(mean.size + covariance.size for mean, covariance in layers)
    pixels = max((mean.size for mean, _ in layers), default=0)
    if taken > MEASURED or pixels > PIXELS:
        raise CheckpointError(
            f"{path}: needed statistics of at most {show_bytes(MEASURED)} and {PIXELS} pixels a filter, which can be "
            f"read again, got {show_bytes(taken)} and {pixels}; save fewer layers, or a smaller kernel size"
        )
    tensors = {}
    for i, (mean, covariance) in enumerate(layers):
        tensors[f"layer.{i}.mean"] = np.ascontiguousarray(mean, dtype=dtype)
        tensors[f"layer.{i}.covariance"] = np.ascontiguousarray(covariance, dtype=dtype)
    try:
        write_checksummed(path, KIND, partial(safetensors.numpy.save, tensors), description)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error.strerror}); nothing was changed, choose another place"
        ) from None


def read(path: Path) -> tuple[list[tuple[Array, Array]], dict[str, Any]]:
    """Return the (mean, covariance) pairs and their description, after checking format, version and checksum."""
    with open_checksummed(path, KIND, "numpy") as (tensors, about):
        pairs = [
            (_float64(tensors.get_tensor(f"layer.{i}.mean")), _float64(tensors.get_tensor(f"layer.{i}.covariance")))
            for i in range(len(about["layers"]))
        ]
        described = {"source": str(about["source"]), "notes": [str(note) for note in about["notes"]]}
        return pairs, {**described, "layers": about["layers"]}


def _float64(array: Any) -> Array:
    if array.dtype not in (np.float64, np.float32):
        raise TypeError(f"needed float64 or float32, got {array.dtype}")
    return np.asarray(array, dtype=np.float64)
