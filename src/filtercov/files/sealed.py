"""Safetensors files with a description and a seal: a checksum over every byte, so that none changes unnoticed.

The header's metadata has one entry, `filtercov`, a JSON text: format, schema version, sha256, and what the caller
describes. It is one because safetensors writes several in any order, and the same contents shall make the same file.
The checksum is of the whole file with the checksum's own 64 digits written as zeros.

Any reader of safetensors reads these files. Nothing here needs a framework: who writes says how tensors become bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import safetensors

from filtercov.errors import CheckpointError
from filtercov.files.limits import DESCRIPTION, MIB, show_bytes
from filtercov.files.replacing import replacing

METADATA = "filtercov"  # the entry of the header's metadata
BLANK = "0" * 64


@dataclass(frozen=True)
class Kind:
    """A kind of sealed file: its name in files and in errors, its version, what to do without one, and its limit."""

    format: str
    schema: int
    called: str
    advice: str
    largest: int | None = None  # bytes of tensors that are read


def write(path: Path, kind: Kind, serialise: Callable[[dict[str, str]], bytes], description: Mapping[str, Any]) -> str:
    """Write a file whole or not at all, and return its checksum.

    `serialise` returns the bytes of a safetensors file with the metadata it is given; the same tensors and description
    make the same file. Raises `OSError` where the file cannot be written.
    """
    about = {"format": kind.format, "schema": kind.schema, "sha256": BLANK, **description}
    blank = memoryview(serialise({METADATA: json.dumps(about, allow_nan=False)}))
    length = 8 + int.from_bytes(blank[:8], "little")
    if length > DESCRIPTION:
        raise CheckpointError(
            f"{path}: needed tensors that are described in at most {show_bytes(DESCRIPTION)}, got {show_bytes(length)} "
            "of names and shapes; write fewer"
        )
    seal = hashlib.sha256(blank).hexdigest()
    header = bytes(blank[:length]).replace(BLANK.encode(), seal.encode(), 1)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(header)
        file.write(blank[length:])
    return seal


@contextmanager
def opened(path: Path, kind: Kind, framework: Literal["numpy", "pt"]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield safetensors' reader of a file that is whole, of this kind and of a version we know, and its description.

    Whatever goes wrong, also while the caller takes tensors out, is a `CheckpointError`.
    """
    try:
        if path.exists() and not path.is_file():
            raise CheckpointError(
                f"{path}: cannot be read (a directory, a device or a pipe); needed a filtercov {kind.called}"
            )
        while True:
            with path.open("rb") as file:
                description = _checked(path, kind, file)
                with safetensors.safe_open(path, framework=framework) as tensors:
                    if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # and not replaced since it was checked
                        yield tensors, description
                        return
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error}); {kind.advice}") from None
    except Exception as error:  # whatever a foreign writer put in, the reader's answer is the same sentence
        raise CheckpointError(
            f"{path}: its tensors cannot be read ({type(error).__name__}: {error}); {kind.advice}"
        ) from None


def claimed(path: Path) -> dict[str, Any]:
    """Return what a file says of itself, format and order among it, unchecked; empty if it is none of ours."""
    try:
        with path.open("rb") as file:
            return _description(_start(file)[1])
    except OSError:
        return {}


def _checked(path: Path, kind: Kind, file: BinaryIO) -> dict[str, Any]:
    """Return what a file says of itself, if it is of the kind and no byte of it has changed."""
    size = os.fstat(file.fileno()).st_size
    if kind.largest is not None and size > kind.largest + DESCRIPTION:
        raise CheckpointError(
            f"{path}: needed a {kind.called} of at most {show_bytes(kind.largest)}, got one of {show_bytes(size)}"
        )
    length, header = _start(file)
    about = _of_kind(path, kind, _description(header))
    seal = str(about["sha256"])
    digest = hashlib.sha256(length)
    digest.update(header.replace(seal.encode(), BLANK.encode(), 1))
    while piece := file.read(MIB):
        digest.update(piece)
    if digest.hexdigest() != seal:
        raise CheckpointError(f"{path}: its contents do not match its checksum, it is damaged; {kind.advice}")
    return about


def _start(file: BinaryIO) -> tuple[bytes, bytes]:
    """Read the length of the header, and the header as far as it is looked at."""
    length = file.read(8)
    return length, file.read(min(int.from_bytes(length, "little"), DESCRIPTION))


def _description(header: bytes) -> dict[str, Any]:
    try:
        about = json.loads(json.loads(header.decode("utf-8"))["__metadata__"][METADATA])
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def _of_kind(path: Path, kind: Kind, about: dict[str, Any]) -> dict[str, Any]:
    """Return a description if it is of the kind, and of a version we know."""
    schema = about.get("schema")
    seal = str(about.get("sha256"))
    if about.get("format") != kind.format or not isinstance(schema, int) or len(seal) != len(BLANK):
        raise CheckpointError(
            f"{path}: not a filtercov {kind.called} of this version, or damaged beyond recognition; {kind.advice}"
        )
    if schema > kind.schema:
        raise CheckpointError(
            f"{path}: written with schema {schema}, this filtercov reads up to {kind.schema}; update filtercov"
        )
    return about
