"""Who does a run: a lock per run, so that any number of processes and users on one sweep directory share the work.

The lock is the operating system's (POSIX record locks, as NFS 4 supports them between hosts): it ends with its owner,
however that dies, so there is no stale claim to recover from. Where the filesystem has no locks a claim is refused
with a sentence instead of being granted to everybody.
"""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filtercov.errors import SweepError

# A process is granted a record lock it already has, and closing any handle of the file drops it.
_mine: set[Path] = set()


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Try to take the lock file `path` and yield whether it was free; it is given back on leaving.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, claim(Path(folder) / "a") as first, claim(Path(folder) / "a") as second:
    ...     first, second
    (True, False)
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path in _mine:
        yield False
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _locked(handle, path):
            yield False
            return
        _mine.add(path)
        try:
            _sign(handle)
            yield True
        finally:
            _mine.discard(path)
    finally:
        os.close(handle)


def owner(path: Path) -> str:
    """Return who holds, or last held, the lock file; empty if nobody ever did."""
    # Another process may be writing; a reader gets what is there. Ours are not opened: closing would drop the lock.
    if path.absolute() in _mine or not path.exists():
        return ""
    return path.read_text().strip()


def _locked(handle: int, path: Path) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise SweepError(
            f"cannot lock {path} ({error.strerror}); put the runs on a filesystem with POSIX locks, or let only one "
            "process work on them"
        ) from error
    return True


def _sign(handle: int) -> None:
    text = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)
