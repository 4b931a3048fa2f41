"""Writing into a run directory: whole files, and errors that say what to do."""

import errno
from pathlib import Path

from filtercov.errors import StorageError
from filtercov.files import NO_LOCKS, atomic_write

_ADVICE = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your quota on that disk",
    errno.EROFS: "choose a run directory on a writable filesystem",
    errno.EACCES: "make it writable or choose another run directory",
    errno.EPERM: "make it writable or choose another run directory",
    errno.ENOTDIR: "choose a path whose parents are directories",
    errno.EEXIST: "choose a path that is not a file",
    **dict.fromkeys(NO_LOCKS, "choose a run directory on a filesystem with file locks"),
}


def write_atomic(path: Path, data: bytes) -> None:
    """Give `path` these contents, or leave it as it was."""
    try:
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise storage_error(path, error) from error


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
