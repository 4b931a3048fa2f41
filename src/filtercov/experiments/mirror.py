"""Runs in storage that is not a filesystem: done on a worker's disk, copied to and from an fsspec address (s3://, gs://).

Objects have no locks, so one sweep at a time may work on such an address. A run's files are copied with `result.json`
last, so that whoever sees it sees the rest; while the run trains, its checkpoint is copied now and then, for whoever
takes it over if the worker is lost.
"""

import hashlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filtercov.errors import ConfigError
from filtercov.experiments.runs import Runs

COPY_INTERVAL = 30.0  # seconds between copies of a running run
RESULT = "result.json"


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
        self._files, self._base = fsspec.core.url_to_fs(address.rstrip("/"))
        name = hashlib.sha256(address.encode()).hexdigest()[:12]
        self.local = local or Path(tempfile.gettempdir()) / f"filtercov-runs-{name}"
        self._sent: dict[Path, tuple[int, int]] = {}

    def pull(self, key: str) -> None:
        """Copy a run that is at the address and not finished here."""
        target, source = self.local / key, f"{self._base}/{key}"
        if (target / RESULT).exists() or not self._files.exists(source):
            return
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._files.ls(source, detail=False), key=lambda path: path.endswith(RESULT)):
            self._files.get_file(path, str(target / path.rsplit("/", 1)[-1]))

    def push(self, key: str) -> None:
        """Copy what has changed of a run since the last time, its result last."""
        folder = self.local / key
        files = [path for path in folder.iterdir() if path.is_file() and path.name != "lock" and path.suffix != ".tmp"]
        self._files.makedirs(f"{self._base}/{key}", exist_ok=True)
        for path in sorted(files, key=lambda path: path.name == RESULT):
            about = path.stat()
            version = (about.st_mtime_ns, about.st_size)
            if self._sent.get(path) != version:
                self._files.put_file(str(path), f"{self._base}/{key}/{path.name}")
                self._sent[path] = version


@contextmanager
def mounted(root: str, key: str, references: Sequence[str] = ()) -> Iterator[Runs]:
    """Yield the runs at `root` as a directory in which the run `key` can be done, and bring back what came of it."""
    if not is_address(root):
        yield Runs(root)
        return
    mirror = Mirror(root)
    for wanted in (*references, key):
        mirror.pull(wanted)
    ended = threading.Event()
    copier = threading.Thread(target=_copy_now_and_then, args=(mirror, key, ended), daemon=True)
    copier.start()
    try:
        yield Runs(mirror.local)
    finally:
        ended.set()
        copier.join()
        if (mirror.local / key).exists():
            mirror.push(key)


def _copy_now_and_then(mirror: Mirror, key: str, ended: threading.Event) -> None:
    while not ended.wait(COPY_INTERVAL):
        # A file may be renamed while it is copied: the next round gets it.
        with suppress(FileNotFoundError):
            mirror.push(key)
