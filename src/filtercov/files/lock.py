"""A lock file: one owner at a time, among threads, processes and hosts, until the owner lets go or dies.

The lock is the operating system's (flock, on Windows LockFileEx) and not the file's existence: it ends with its owner,
however that dies, so there is no stale lock to recover from, and the file stays where it is. filelock's SoftFileLock,
which goes by existence, is never used, not even where a filesystem has no locks: there `acquire` raises `OSError`.

The file says who holds it, from its second byte on: Windows keeps others from reading the first, which is locked.
"""

import errno
import os
import socket
import time
from pathlib import Path

from filelock import FileLock, Timeout

# What filesystems answer that have no locks.
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})


class Lock:
    """The lock of one file, which must lie in a directory that exists.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     first, second = Lock(Path(folder) / "lock"), Lock(Path(folder) / "lock")
    ...     print(first.acquire(), second.acquire(), second.held_here())
    ...     first.release()
    ...     print(second.acquire())
    ...     second.release()
    True False True
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: FileLock | None = None

    def acquire(self, *, timeout: float = 0.0) -> bool:
        """Take the lock and return True, or False if it is not free within so many seconds."""
        if self._held is not None:
            return False
        # Not per thread: whoever has this object may release it.
        lock = FileLock(
            self.path,
            timeout=timeout,
            thread_local=False,
            fallback_to_soft=False,
            preserve_lock_file=True,
            on_acquired=_sign,
        )
        try:
            lock.acquire()
        except Timeout:
            return False
        self._held = lock
        return True

    def release(self) -> None:
        """Let go, if it is held."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def owner(self) -> str:
        """Return who holds, or last held, the lock; empty if nobody ever did or it cannot be read."""
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(1)
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def held_here(self) -> bool:
        """Return whether the owner is this process, for messages: a lock changes hands a moment before its text."""
        return self.owner().startswith(f"{_signature()} since")


def _signature() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _sign(handle: int) -> None:
    text = f" {_signature()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode()
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, text)
    os.ftruncate(handle, len(text))
