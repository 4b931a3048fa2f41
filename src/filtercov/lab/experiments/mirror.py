"""Runs in storage that is not a filesystem: done on a worker's disk, copied to and from an fsspec address (s3://, gs://).

Objects have no locks, so one sweep at a time may work on such an address. While a run trains, its last checkpoint is
copied now and then, for whoever takes it over if the worker is lost. What is copied is set aside when the checkpoint
is complete, so that its files are always of one step.
"""

import hashlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filtercov.errors import ConfigError, StorageError
from filtercov.lab.experiments.generations import RESULT, Generations, run_files
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.training.rundir import storage_error

COPY_INTERVAL = 30.0  # seconds between copies of a running run


def is_address(root: str) -> bool:
    """Return whether a runs root is an fsspec address rather than a path.

    >>> is_address("s3://bucket/runs"), is_address("/data/runs")
    (True, False)
    """
    return "://" in root


class Mirror:
    """A local copy of some of the runs at an address."""

    def __init__(self, address: str, local: Path | None = None) -> None:
        try:
            import fsspec  # type: ignore[import-untyped]
        except ImportError as error:
            raise ConfigError(f"runs at {address} need fsspec; pip install 'filtercov[ray]'") from error
        self._generations = Generations(*fsspec.core.url_to_fs(address.rstrip("/")))
        name = hashlib.sha256(address.encode()).hexdigest()[:12]
        self.local = local or Path(tempfile.gettempdir()) / f"filtercov-runs-{name}"

    def pull(self, key: str) -> None:
        """Copy a run that is at the address and not finished here, all of it or nothing."""
        target = self.local / key
        if (target / RESULT).exists():
            return
        self.local.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".fetched-{key}-", dir=self.local) as folder:
            fetched, replaced = Path(folder) / "new", Path(folder) / "old"
            fetched.mkdir()
            if self._generations.fetch(key, fetched) and not (target / RESULT).exists():
                with suppress(FileNotFoundError):
                    target.rename(replaced)  # what an earlier worker left here
                with suppress(OSError):  # another process was faster, and its copy is as good
                    fetched.rename(target)

    def push(self, key: str, folder: Path | None = None) -> None:
        """Copy a run's folder, or one that stands for it, to the address. Nobody may be writing to it."""
        self._generations.publish(key, folder or self.local / key)


class Copier:
    """Copies a run to its address while it trains; `keep` is to be called at its checkpoints, by whoever writes them.

    Failures of the storage are said once and tried again with the next checkpoint; only the last copy must succeed.
    """

    def __init__(self, mirror: Mirror, key: str, *, say: Callable[[str], None] = print) -> None:
        self._mirror, self._key, self._say, self._said = mirror, key, say, False
        self._kept: Path | None = None  # the last checkpoint that has not been copied
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._copy_now_and_then, daemon=True)
        self._prefix = f".checkpoint-{key}-"
        for stale in mirror.local.glob(f"{self._prefix}*"):  # of a worker that was killed
            _discard(stale)

    def start(self) -> None:
        """Begin to copy now and then."""
        self._thread.start()

    def keep(self, run_dir: Path) -> None:
        """Set aside the files of a checkpoint that has just been completed."""
        try:
            kept = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self._mirror.local))
            for path in run_files(run_dir):
                _link_or_copy(path, kept / path.name)
        except OSError as error:
            raise storage_error(self._mirror.local, error) from error
        with self._lock:
            stale, self._kept = self._kept, kept
        _discard(stale)

    def end(self) -> None:
        """Stop, and bring the address up to date: with the finished run, or else with its last checkpoint."""
        self._ended.set()
        self._thread.join()
        folder = self._mirror.local / self._key
        try:
            if (folder / RESULT).exists():
                self._mirror.push(self._key, folder)
            elif self._kept:
                self._mirror.push(self._key, self._kept)
        except StorageError as error:
            raise StorageError(f"run {self._key} is on {socket.gethostname()} in {folder}, but {error}") from error
        finally:
            _discard(self._kept)

    def _copy_now_and_then(self) -> None:
        while not self._ended.wait(COPY_INTERVAL):
            with self._lock:
                taken, self._kept = self._kept, None
            if taken is None:
                continue
            try:
                self._mirror.push(self._key, taken)
            except Exception as error:  # this thread must outlive whatever happens to one copy
                if not self._said:
                    self._say(f"a checkpoint of run {self._key} could not be copied and will be tried again: {error}")
                    self._said = True
                with self._lock:
                    if self._kept is None:
                        self._kept, taken = taken, None
            _discard(taken)


@contextmanager
def mounted(
    root: str, key: str, references: Sequence[str] = (), *, say: Callable[[str], None] = print
) -> Iterator[Runs]:
    """Yield the runs at `root` as a directory in which the run `key` can be done, and bring back what came of it."""
    if not is_address(root):
        yield Runs(root)
        return
    mirror = Mirror(root)
    for wanted in (*references, key):
        mirror.pull(wanted)
    copier = Copier(mirror, key, say=say)
    copier.start()
    try:
        yield Runs(mirror.local, on_checkpoint=copier.keep)
    except BaseException as error:
        try:
            copier.end()
        except StorageError as also:  # what happened first is what is to be told
            error.add_note(str(also))
        raise
    copier.end()


def _link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name. All but the metrics are replaced when they change, so what has a name stays."""
    if source.suffix != ".jsonl":
        with suppress(OSError):  # a filesystem without links
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _discard(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
