"""A run at an fsspec address: whole generations, of which a reader takes the newest that is complete.

KEY/generation-00000003-5f2a90c1/   the files of one checkpoint, or of the finished run, never written again
    config.json, metrics.jsonl, …
    manifest.json                   their names and checksums, written last: without it there is no generation

Nothing here needs storage that can rename or write a file at once: what was cut short fails its checksum, and the
generation before it, which is kept, is as good as ever.
"""

import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from filtercov.errors import StorageError
from filtercov.files import file_sha256

RETRY_DELAYS = (0.5, 2.0, 5.0, 10.0)  # seconds to wait after each failure before it counts
MANIFEST, RESULT = "manifest.json", "result.json"
_PREFIX = "generation-"
_ERROR = object()  # what is not there is an error

Manifest = dict[str, str]  # file names and their SHA-256


class Generations:
    """The generations of all runs below one address."""

    def __init__(self, files: Any, base: str) -> None:
        self._files, self._base = files, base  # an fsspec filesystem and a path in it

    def publish(self, key: str, folder: Path) -> None:
        """Copy the files of a folder as the newest generation of a run, unless they are that already.

        A finished run is not hidden by a checkpoint of someone who did not know that it is.
        """
        manifest = {path.name: file_sha256(path) for path in run_files(folder)}
        others = self._names(key)
        previous = next(((name, found) for name in others if (found := self._manifest(key, name))), None)
        if previous and (manifest == previous[1] or (RESULT in previous[1] and RESULT not in manifest)):
            return
        number = max((_number(name) for name in others), default=0) + 1
        mine = f"{_PREFIX}{number:08}-{secrets.token_hex(4)}"
        place = f"{self._base}/{key}/{mine}"
        self._persistently(self._files.makedirs, place, True)
        for name in manifest:
            self._persistently(self._files.put_file, str(folder / name), f"{place}/{name}")
        self._persistently(self._files.pipe_file, f"{place}/{MANIFEST}", json.dumps(manifest).encode())
        for name in others:
            if not previous or name != previous[0]:
                with suppress(Exception):  # it is in nobody's way
                    self._files.rm(f"{self._base}/{key}/{name}", recursive=True)

    def fetch(self, key: str, folder: Path) -> bool:
        """Fill an empty folder with the newest complete generation of a run; return whether there is one."""
        for _ in range(3):  # whoever works on the run may remove old generations while we look
            names = self._names(key)
            for name in names:
                manifest = self._manifest(key, name)
                if manifest is not None and self._copied(f"{self._base}/{key}/{name}", manifest, folder):
                    return True
            if names == self._names(key):
                break
        return False

    def _names(self, key: str) -> list[str]:
        """Return the generations of a run, complete or not, newest first."""
        place = f"{self._base}/{key}"

        def listed() -> list[str]:
            self._files.invalidate_cache()
            return [str(path).rstrip("/").rsplit("/", 1)[-1] for path in self._files.ls(place, detail=False)]

        found = [name for name in self._persistently(listed, absent=[]) if name.startswith(_PREFIX)]
        return sorted(found, key=lambda name: (_number(name), name), reverse=True)

    def _manifest(self, key: str, name: str) -> Manifest | None:
        """Return the manifest of a generation, None if it is not complete."""
        text = self._persistently(self._files.cat_file, f"{self._base}/{key}/{name}/{MANIFEST}", absent=b"")
        with suppress(ValueError):
            found = json.loads(text)
            return found if isinstance(found, dict) else None
        return None

    def _copied(self, place: str, manifest: Manifest, folder: Path) -> bool:
        """Copy a generation's files; return whether they are what its manifest says."""
        for name, checksum in manifest.items():
            path = folder / Path(name).name
            path.unlink(missing_ok=True)  # of a generation that turned out to be damaged
            self._persistently(self._files.get_file, f"{place}/{name}", str(path), absent=None)
            if not path.exists() or file_sha256(path) != checksum:
                return False
        for path in folder.iterdir():
            if path.name not in manifest:
                path.unlink()
        return True

    def _persistently(self, action: Callable[..., Any], *arguments: Any, absent: Any = _ERROR) -> Any:
        """Return what an action on the storage returns, if need be after some tries; `absent` for what is not there."""
        for delay in (*RETRY_DELAYS, None):
            try:
                return action(*arguments)
            except Exception as error:  # every kind of storage has its own errors
                if absent is not _ERROR and isinstance(error, FileNotFoundError):
                    return absent
                if delay is None:
                    raise StorageError(
                        f"cannot reach the runs at {self._base} ({type(error).__name__}: {error}); check that storage, "
                        "then run the same command again"
                    ) from error
                time.sleep(delay)
        raise AssertionError("unreachable")


def run_files(folder: Path) -> list[Path]:
    """Return the files of a run that are worth copying; its lock must not even be opened, which could release it."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name != "lock" and path.suffix != ".tmp")


def _number(name: str) -> int:
    digits = name.removeprefix(_PREFIX).partition("-")[0]
    return int(digits) if digits.isdecimal() else 0
