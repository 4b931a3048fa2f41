"""How the processes of a group fail: together, and with the error of whichever was the first.

A process that fails between two exchanges leaves the others waiting for it inside one, where nothing can be said to
them any more. So the first error is put into the group's store, beside the exchanges; a thread of every process looks
there, and a process leaves only when all have seen it.
"""

import base64
import itertools
import os
import pickle
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:  # a PyTorch without torch.distributed has no such class
    from torch._C._distributed_c10d import Store

LOOK_INTERVAL = 0.2  # seconds between looks for another process's error
PATIENCE = 10.0  # seconds for the others to see an error, and for this process to come out of an exchange after one

_entered = itertools.count()  # a store may outlive a group: each has a name of its own


def portable(error: Exception) -> Exception:
    """Return an error that another process can be given: itself where it can be pickled, else its words.

    >>> portable(ValueError("no"))
    ValueError('no')
    """
    with suppress(Exception):  # whatever an unusual exception's own methods raise
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    words = RuntimeError(f"{type(error).__name__}: {error}")
    words.__cause__ = error  # for whoever reads the traceback here
    return words


class FailTogether:
    """While entered by all processes of a group: an exception that leaves it in one leaves it in all.

    Those that wait for the failed process come out when it has ended; one that still does not is ended.
    """

    def __init__(self, store: "Store", size: int) -> None:
        # A connection of our own, because a shared one is held by whoever waits; PyTorch's stubs lack the method.
        self._store: Store = store.clone()  # type: ignore[attr-defined]
        self._size = size
        name = f"filtercov/{next(_entered)}"
        self._key, self._seen_key = f"{name}/error", f"{name}/seen"
        self._first: Exception | None = None
        self._left = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._watcher.join()
        if not isinstance(error, Exception):
            self._note_seen()  # nobody need wait for us
            return
        first = self._settle(error)
        self._wait_for_the_others()
        if first is not error:
            raise first from error

    def _settle(self, error: Exception) -> Exception:
        """Return the first error of any process, which may be this one's."""
        if self._first is not None:
            return self._first
        mine = base64.b64encode(pickle.dumps(portable(error))).decode()
        try:
            found = self._store.compare_set(self._key, "", mine)
        except RuntimeError:  # the store ended with the process that kept it
            return error
        self._note_seen()
        return error if found == mine.encode() else _decoded(found)

    def _note_seen(self) -> None:
        with suppress(RuntimeError):
            self._store.add(self._seen_key, 1)

    def _watch(self) -> None:
        while self._first is None:
            if self._left.wait(LOOK_INTERVAL):
                return
            try:
                if self._store.check([self._key]):
                    self._first = _decoded(self._store.get(self._key))
            except RuntimeError:  # the store ended with the process that kept it
                return
        self._note_seen()
        if not self._left.wait(2 * PATIENCE):
            print(f"ended while waiting for a process that failed: {self._first}", file=sys.stderr, flush=True)
            os._exit(1)

    def _wait_for_the_others(self) -> None:
        """Leave when everyone knows: the end of this process may end the store, and a launcher then ends the rest."""
        deadline = time.monotonic() + PATIENCE
        with suppress(RuntimeError):
            while self._store.add(self._seen_key, 0) < self._size and time.monotonic() < deadline:
                time.sleep(LOOK_INTERVAL / 4)


def _decoded(found: bytes) -> Exception:
    error = pickle.loads(base64.b64decode(found))
    assert isinstance(error, Exception)
    return error
