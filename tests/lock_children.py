"""What processes that hold locks in tests do; importable, so that a fork server can run it."""

import os
import time
from pathlib import Path

from filtercov.files import Lock


def hold(path: Path, pipe) -> None:
    """Take the lock, say so, and keep it until killed."""
    lock = Lock(path)
    assert lock.acquire()
    pipe.send(None)
    time.sleep(600)


def hold_with_a_forked_child(path: Path, pipe) -> None:
    """Take the lock, fork a process that outlives this one, and say which."""
    lock = Lock(path)
    assert lock.acquire()
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    pipe.send(child)
    time.sleep(600)
