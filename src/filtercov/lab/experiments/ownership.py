"""Who does a run: a lock per run, so that any number of processes and users on one sweep directory share the work.

A claim ends with its owner, however that dies. Where the filesystem has no locks it is refused with a sentence instead
of being granted to everybody.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filtercov.errors import SweepError
from filtercov.files import NO_LOCKS, Lock
from filtercov.lab.training.rundir import storage_error


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Try to take the lock file `path` and yield whether it was free; it is given back on leaving.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, claim(Path(folder) / "a") as first, claim(Path(folder) / "a") as second:
    ...     first, second
    (True, False)
    """
    lock = Lock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mine = lock.acquire()
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise storage_error(path, error) from error
        raise SweepError(
            f"cannot lock {path} ({error.strerror}); put the runs on a filesystem with file locks, or let only one "
            "process work on them"
        ) from error
    try:
        yield mine
    finally:
        lock.release()
