"""Writing a file so that a reader, after any interruption, finds the old contents or the new, never a mixture."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

SHOWN = 40  # characters of a file's name in that of the temporary one: a name may be as long as names can be


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name to write to; at the end that file takes the place of `path`, or vanishes if anything was raised.

    It has the permissions that the user's umask gives to new files, whoever wrote it. Where `path` is a symbolic link,
    the file it leads to is replaced. A device or a pipe stays what it is, and gets what was written at the end.

    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "greeting") as file:
    ...         _ = file.write_text("hello")
    ...     [path.name for path in Path(folder).iterdir()]
    ['greeting']
    """
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if mode and not stat.S_ISREG(mode):
        writing = _copied_into(path)
    else:
        writing = _in_place_of(path.resolve() if path.is_symlink() else path)
    with writing as temporary:
        yield temporary


def _mode(path: Path) -> int:
    """Return what kind of thing a path leads to, 0 if there is nothing."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from None


@contextlib.contextmanager
def _copied_into(path: Path) -> Iterator[Path]:
    """Yield a name to write to, of a file whose contents are then written to a device or a pipe."""
    with TemporaryDirectory(prefix="filtercov-") as folder:
        temporary = Path(folder) / "output.tmp"
        temporary.touch()
        yield temporary
        with temporary.open("rb") as written, path.open("wb") as device:
            shutil.copyfileobj(written, device)


@contextlib.contextmanager
def _in_place_of(path: Path) -> Iterator[Path]:
    """Yield a name beside `path`, one that no other writer has, and move the file there over it."""
    temporary = path.with_name(f".{path.name[:SHOWN]}.{secrets.token_hex(4)}.tmp")
    temporary.touch(exist_ok=False)
    try:
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
