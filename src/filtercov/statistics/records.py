"""A file of records that grows while others read it: each is whole and checksummed, or it is not there.

The file starts with a line that names its format. A record is the length of its body in 8 bytes, the CRC-32 of those
in 4, both little-endian, the SHA-256 of the body, and the body. Records are appended and flushed to the disk one at a
time, and what is in the file is never changed in place: taking back the last ones writes another file in its stead. So
a reader finds the records of some moment, and after them at most one that is not whole yet, or never will be because
its writer was killed. It is passed over, and the next writer takes it away.

A length, or a record with others behind it, that does not match its checksum is damage, and an error: without a
checksum of its own, a changed length would look like a record cut short, and all behind it be passed over.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path

from filtercov.errors import CheckpointError
from filtercov.files import atomic_write

_LENGTH = struct.Struct("<QI")
_HEAD = struct.Struct("<QI32s")


def framed(body: bytes) -> bytes:
    """Return a record as it stands in a file."""
    return _HEAD.pack(len(body), _check_of(len(body)), hashlib.sha256(body).digest()) + body


def create(path: Path, format_name: str, bodies: list[bytes]) -> int:
    """Write a file of these records, in place of any that is there, whole or not at all; return its size."""
    data = _first_line(format_name) + b"".join(map(framed, bodies))
    try:
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise _unwritable(path, error) from None
    return len(data)


def append(path: Path, body: bytes, size: int) -> int:
    """Add a record to a file of `size` bytes and wait until it is on the disk; return the new size.

    A file that has another size has another writer, and is left alone.
    """
    record = framed(body)
    try:
        # O_BINARY is Windows', which would otherwise turn every \n into two bytes.
        file = os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0))
        try:
            found = os.fstat(file).st_size
            if found != size:
                raise CheckpointError(
                    f"{path}: needed the file as it was left, of {size} bytes, got {found}; someone else writes to it, "
                    "give each run a file of its own"
                )
            try:
                _write_all(file, record, size)
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)
    except OSError as error:
        raise _unwritable(path, error) from None
    return size + len(record)


def read(path: Path, format_name: str, *, called: str, advice: str) -> tuple[list[bytes], int]:
    """Return the bodies of the records that are whole, and how many bytes of one that is not follow them."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error}); {advice}") from None
    line = _first_line(format_name)
    if not data.startswith(line):
        raise CheckpointError(f"{path}: not a filtercov {called} of this version; {advice}")
    bodies: list[bytes] = []
    place = len(line)
    while place + _HEAD.size <= len(data):
        length, check, digest = _HEAD.unpack_from(data, place)
        start = place + _HEAD.size
        body = data[start : start + length]
        if check != _check_of(length):
            # After a power cut a file may end in zeros that nobody wrote.
            damaged = any(data[place + _LENGTH.size :])
        elif len(body) < length or hashlib.sha256(body).digest() != digest:
            damaged = start + length < len(data)
        else:
            bodies.append(body)
            place = start + length
            continue
        if damaged:
            raise CheckpointError(
                f"{path}: its record {len(bodies)} does not match its checksum, the file is damaged; {advice}"
            )
        break
    return bodies, len(data) - place


def shorten(path: Path, format_name: str, count: int) -> int:
    """Take back all but the first records, and what is not whole; return the size of the file."""
    bodies, torn = read(path, format_name, called="file of records", advice="choose another")
    kept = bodies[:count]
    if torn or len(kept) < len(bodies):
        return create(path, format_name, kept)
    return len(_first_line(format_name)) + sum(_HEAD.size + len(body) for body in kept)


def is_of(path: Path, format_name: str) -> bool:
    """Tell whether a file says that it is of this format."""
    line = _first_line(format_name)
    try:
        with path.open("rb") as file:
            return file.read(len(line)) == line
    except OSError:
        return False


def _check_of(length: int) -> int:
    return zlib.crc32(struct.pack("<Q", length))


def _first_line(format_name: str) -> bytes:
    return f"{format_name}\n".encode()


def _write_all(file: int, data: bytes, place: int) -> None:
    os.lseek(file, place, os.SEEK_SET)
    written = 0
    while written < len(data):  # a disk that fills up takes part of a record before it says so
        written += os.write(file, data[written:])


def _unwritable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path}: cannot be written ({error.strerror or error}); choose another place, or make room")
