"""The file format of a watched run: its first record has the filters it began with, each other one a moment.

A body is a line of JSON followed by little-endian numbers. Mean and covariance are kept in float32, the covariance as
its upper triangle, both of filters divided by 2^exponent, so that filters of any size keep seven digits; the filters
at the start are kept in float32 where that is exact, else in float64. A few filters of each layer are followed from
moment to moment, so that one can see what becomes of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.errors import CheckpointError
from filtercov.statistics import records

FORMAT = "filtercov-watched 2"
FOLLOWED = 12  # filters of a layer
ADVICE = "make one with filtercov.watch(model, path), or `filtercov train --watch`"


@dataclass(frozen=True)
class Body:
    """A record: what its line of JSON says, and the numbers after it, taken in the order they were written."""

    about: dict[str, Any]
    data: memoryview

    def __reduce__(self) -> tuple[Any, ...]:
        return _body, (self.about, bytes(self.data))  # a memoryview cannot be pickled


def _body(about: dict[str, Any], data: bytes) -> Body:
    return Body(about, memoryview(data))


def pack(about: Mapping[str, Any], arrays: Iterable[Array]) -> bytes:
    """Return the body of a record; the arrays have the types they are kept in."""
    line = json.dumps(about, allow_nan=False).encode()
    return b"".join([line, b"\n", *(array.tobytes() for array in arrays)])


def unpack(path: Path, body: bytes) -> Body:
    """Return what a record holds."""
    line, _, _ = body.partition(b"\n")
    try:
        about = json.loads(line)
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise CheckpointError(f"{path}: a record of it cannot be read; {ADVICE}")
    return Body(about, memoryview(body)[len(line) + 1 :])


def read(path: Path) -> tuple[list[Body], int]:
    """Return the records of a watched run, and how many bytes of one that is not whole follow them."""
    bodies, torn = records.read(path, FORMAT, called="record of a watched run", advice=ADVICE)
    if not bodies:
        raise CheckpointError(f"{path}: its first record is missing, it is damaged; {ADVICE}")
    return [unpack(path, body) for body in bodies], torn


def exponent_of(filters: Array) -> int:
    """Return the power of two that the largest weight is below."""
    return math.frexp(float(np.abs(filters).max(initial=0.0)))[1]


def followed(count: int) -> list[int]:
    """Return which of so many filters are followed: a few, evenly spaced, the same in every run.

    >>> followed(3), followed(64)
    ([0, 1, 2], [0, 6, 11, 17, 23, 29, 34, 40, 46, 52, 57, 63])
    """
    return [int(place) for place in np.linspace(0, count - 1, min(count, FOLLOWED)).round()]


def packed_filters(filters: Array, exponent: int) -> Array:
    """Return filters divided by 2^exponent, in float32."""
    return np.ldexp(filters, -exponent).astype("<f4")


def packed_moments(mean: Array, covariance: Array, exponent: int) -> list[Array]:
    """Return mean (n,) and upper triangle (n(n+1)/2,) in float32, of filters divided by 2^exponent.

    >>> mean, triangle = packed_moments(np.array([2.0, 4.0]), np.array([[4.0, 8.0], [8.0, 16.0]]), 1)
    >>> mean.tolist(), triangle.tolist()
    ([1.0, 2.0], [1.0, 2.0, 4.0])
    """
    triangle = covariance[np.triu_indices(len(mean))]
    return [packed_filters(mean, exponent), packed_filters(triangle, 2 * exponent)]


class Numbers:
    """Takes the arrays of a body, in order; that they are all there, and no more, is checked at the end."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path, self.data, self.place = path, data, 0

    def take(self, count: int, kind: str) -> Array:
        """Return the next numbers, in float64."""
        size = count * np.dtype(kind).itemsize
        piece = self.data[self.place : self.place + size]
        if len(piece) < size:
            raise self._wrong()
        self.place += size
        return np.frombuffer(piece, kind).astype(np.float64)

    def moments(self, n: int, exponent: int) -> tuple[Array, Array]:
        """Return the mean (n,) and covariance (n, n) that come next."""
        mean, triangle = self.take(n, "<f4"), self.take(n * (n + 1) // 2, "<f4")
        covariance = np.zeros((n, n))
        covariance[np.triu_indices(n)] = np.ldexp(triangle, 2 * exponent)
        return np.ldexp(mean, exponent), covariance + np.triu(covariance, 1).T

    def filters(self, count: int, size: tuple[int, ...], exponent: int) -> Array:
        """Return the filters (count, *size) that come next."""
        return np.ldexp(self.take(count * math.prod(size), "<f4"), exponent).reshape(count, *size)

    def end(self) -> None:
        """Raise if something is left."""
        if self.place != len(self.data):
            raise self._wrong()

    def _wrong(self) -> CheckpointError:
        return CheckpointError(f"{self.path}: a record of it has other numbers than it describes; {ADVICE}")
