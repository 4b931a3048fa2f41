"""Writing a file so that a reader, after any interruption, finds the old contents or the new, never a mixture."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write to; at the end that file takes its place, or vanishes if anything was raised.

    It has the permissions that the user's umask gives to new files, whoever wrote it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "greeting") as file:
    ...         _ = file.write_text("hello")
    ...     [path.name for path in Path(folder).iterdir()]
    ['greeting']
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        if temporary.stat().st_mode != mode:  # safetensors, for one, makes a new file that its owner alone can read
            temporary.chmod(stat.S_IMODE(mode))
        flush(temporary)
        temporary.replace(path)
        _flush_names(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def flush(path: Path) -> None:
    """Make sure that a file's contents are on the disk."""
    _sync(path, os.O_RDWR)  # Windows flushes only what may be written to


def _flush_names(directory: Path) -> None:
    """Make sure that a renaming survives a power cut, where directories can be flushed: not on Windows."""
    if hasattr(os, "O_DIRECTORY"):
        _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
