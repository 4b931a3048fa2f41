"""Writing a file so that a reader, after any interruption, finds the old contents or the new, never a mixture."""

import errno
import os
from pathlib import Path

from filtercov.errors import StorageError

_ADVICE = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your quota on that disk",
    errno.EROFS: "choose a run directory on a writable filesystem",
    errno.EACCES: "make it writable or choose another run directory",
    errno.EPERM: "make it writable or choose another run directory",
    errno.ENOTDIR: "choose a path whose parents are directories",
    errno.EEXIST: "choose a path that is not a file",
}


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to a temporary name, flush it to the disk, rename it to `path` and flush the directory."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from error


def sync_directory(path: Path) -> None:
    """Flush a directory, so that a rename in it survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporaries(directory: Path) -> None:
    """Delete what writers that were killed left behind."""
    for leftover in directory.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def storage_error(path: Path, error: OSError) -> StorageError:
    """Say which file could not be written, why, and what to do about it."""
    advice = _ADVICE.get(error.errno or 0, "check that disk")
    return StorageError(
        f"cannot write {path}: {error.strerror or error}; {advice}, then run the same command again to continue "
        "from the last checkpoint"
    )
