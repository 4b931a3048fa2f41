"""Files: atomic writes, locks, checksums, and limits on the memory that reading a file may take."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import safetensors

from filtercov.errors import CheckpointError
from filtercov.printable import show_bytes

MIB = 2**20

# Reading and measuring a file takes at most MEMORY on top of Python and PyTorch, whatever the file claims. The other
# limits add up to less: numbers in a checkpoint are mapped, and read when their layer is measured.
MEMORY = 2048 * MIB
DESCRIPTION = 8 * MIB  # what describes tensors: a pickle, a JSON header, an index, the directory of an archive
NAME = 1024  # characters in the name of a tensor
MEASURED = 512 * MIB  # filters and covariances of all layers of a network in float64


def cache_directory() -> Path:
    """$FILTERCOV_CACHE, or ~/.cache/filtercov; it need not exist."""
    return Path(os.environ.get("FILTERCOV_CACHE") or "~/.cache/filtercov").expanduser()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- Atomic writes ---


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write to, which then replaces `path`, or vanishes if anything was raised.

    After any interruption `path` has its old contents or the new, never a mixture. The file has the permissions of the
    user's umask. Of a symbolic link the target is replaced.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "greeting") as file:
    ...         _ = file.write_text("hello")
    ...     [path.name for path in Path(folder).iterdir()]
    ['greeting']
    """
    if path.exists() and not path.is_file():  # a device must not be replaced by a file
        code = errno.EISDIR if path.is_dir() else errno.EINVAL
        raise OSError(code, os.strerror(code), str(path))
    target = path.resolve() if path.is_symlink() else path
    # Names may have 255 bytes; run directories clean up by this pattern.
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.tmp")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        flush(temporary)
        temporary.replace(target)
        if hasattr(os, "O_DIRECTORY"):  # so that the new name survives a power cut; Windows cannot flush directories
            flush(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def flush(path: Path, flags: int = os.O_RDWR) -> None:
    """Wait until a file's contents are on the disk."""
    handle = os.open(path, flags)  # Windows flushes only what may be written to
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- Locks ---


class Lock:
    """A lock file with one owner at a time among threads, processes and hosts, in a directory that exists.

    The lock is the operating system's and ends with its owner, however that dies; the file stays. Where a filesystem
    has no locks, `acquire` raises `OSError`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     first, second = Lock(Path(folder) / "lock"), Lock(Path(folder) / "lock")
    ...     print(first.acquire(), second.acquire())
    ...     first.release()
    ...     print(second.acquire())
    ...     second.release()
    True False
    True
    """

    def __init__(self, path: Path) -> None:
        from filelock import FileLock  # comes with the laboratory; the library needs no lock

        self.path = path
        self._lock = FileLock(
            path,
            thread_local=False,  # whoever has this object may release it
            fallback_to_soft=False,  # a lock that goes by a file's existence outlives a killed owner
            preserve_lock_file=True,
            on_acquired=_sign,
        )

    def acquire(self, *, timeout: float = 0.0) -> bool:
        """Take the lock; False if it is not free within so many seconds."""
        from filelock import Timeout

        try:
            self._lock.acquire(timeout=timeout)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Let go, if it is held."""
        self._lock.release()

    def owner(self) -> str:
        """The present or last owner of the lock; empty if there was none or the file cannot be read."""
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(1)  # Windows keeps others from reading the first byte, which is locked
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""


def _sign(handle: int) -> None:
    owner = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
    text = f" {owner}\n".encode()
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, text)
    os.ftruncate(handle, len(text))


# --- Checksummed safetensors ---
#
# The header's metadata has one entry, `filtercov`, a JSON text with format, schema version, sha256 and the caller's
# description; one, because safetensors writes several in any order, and the same contents shall make the same file. The
# checksum is of the whole file with the checksum's own 64 digits written as zeros. Any safetensors reader reads them.

METADATA = "filtercov"
BLANK = "0" * 64


@dataclass(frozen=True)
class Kind:
    """A kind of checksummed file: its name in files and in errors, its version, what to do without one, its limit."""

    format: str
    schema: int
    called: str
    advice: str
    largest: int | None = None  # bytes of tensors that are read


def write_checksummed(
    path: Path, kind: Kind, serialise: Callable[[dict[str, str]], bytes], description: Mapping[str, Any]
) -> str:
    """Write a file whole or not at all, and return its checksum; raise `OSError` where it cannot be written.

    `serialise` turns metadata into the bytes of a safetensors file, so that no framework is needed here.
    """
    about = {"format": kind.format, "schema": kind.schema, "sha256": BLANK, **description}
    blank = memoryview(serialise({METADATA: json.dumps(about, allow_nan=False)}))
    length = 8 + int.from_bytes(blank[:8], "little")
    checksum = hashlib.sha256(blank).hexdigest()
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(bytes(blank[:length]).replace(BLANK.encode(), checksum.encode(), 1))
        file.write(blank[length:])
    return checksum


@contextmanager
def open_checksummed(path: Path, kind: Kind, framework: Literal["numpy", "pt"]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield safetensors' reader and the description of a file that is whole, of this kind and of a known version.

    Whatever goes wrong, also while the caller takes tensors out, is a `CheckpointError`.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError("a directory, a device or a pipe")
        description = _check(path, kind)
        with safetensors.safe_open(path, framework=framework) as tensors:
            yield tensors, description
    except CheckpointError:
        raise
    except Exception as error:  # whatever a foreign writer put in
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path}: cannot be read ({reason}); {kind.advice}") from None


def read_description(path: Path) -> dict[str, Any]:
    """The unchecked description in a file of filtercov's; empty for other files."""
    try:
        with path.open("rb") as file:
            return _read_header(file)[1]
    except OSError:
        return {}


def _check(path: Path, kind: Kind) -> dict[str, Any]:
    """The description of a file of this kind whose every byte is as it was written."""
    size = path.stat().st_size
    if kind.largest is not None and size > kind.largest + DESCRIPTION:
        raise CheckpointError(
            f"{path}: needed a {kind.called} of at most {show_bytes(kind.largest)}, got one of {show_bytes(size)}"
        )
    with path.open("rb") as file:
        header, about = _read_header(file)
        schema, checksum = about.get("schema"), str(about.get("sha256"))
        if about.get("format") != kind.format or not isinstance(schema, int) or len(checksum) != len(BLANK):
            raise CheckpointError(
                f"{path}: not a filtercov {kind.called} of this version, or damaged beyond recognition; {kind.advice}"
            )
        if schema > kind.schema:
            raise CheckpointError(
                f"{path}: written with schema {schema}, this filtercov reads up to {kind.schema}; update filtercov"
            )
        digest = hashlib.sha256(header.replace(checksum.encode(), BLANK.encode(), 1))
        while piece := file.read(MIB):
            digest.update(piece)
    if digest.hexdigest() != checksum:
        raise CheckpointError(f"{path}: its contents do not match its checksum, it is damaged; {kind.advice}")
    return about


def _read_header(file: BinaryIO) -> tuple[bytes, dict[str, Any]]:
    """Safetensors' header, the length of a JSON text in 8 bytes and the text, and filtercov's description in it."""
    length = file.read(8)
    text = file.read(min(int.from_bytes(length, "little"), DESCRIPTION))
    try:
        about = json.loads(json.loads(text)["__metadata__"][METADATA])
    except (KeyError, TypeError, ValueError, RecursionError):
        about = {}
    return length + text, about if isinstance(about, dict) else {}
