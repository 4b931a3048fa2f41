"""Storage that fails: a real directory behind fsspec, whose calls can be refused, cut short or deadly."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem


class UnreliableFileSystem(LocalFileSystem):
    """`before` is told of every call that writes, reads or lists, and may raise.

    At the writing call number `deadly` half a file is written and the process killed.
    """

    protocol = "unreliable"
    before: ClassVar[Callable[[str, str], None] | None] = None
    deadly: ClassVar[int] = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return LocalFileSystem._strip_protocol(str(path).removeprefix("unreliable://"))

    def put_file(self, lpath: str, rpath: str, *args: Any, **kwargs: Any) -> None:
        self._note("put", rpath, Path(lpath).read_bytes())
        super().put_file(lpath, rpath, *args, **kwargs)

    def pipe_file(self, path: str, value: bytes, *args: Any, **kwargs: Any) -> None:
        self._note("put", path, value)
        super().pipe_file(path, value, *args, **kwargs)

    def get_file(self, rpath: str, lpath: str, *args: Any, **kwargs: Any) -> None:
        self._note("get", rpath)
        super().get_file(rpath, lpath, *args, **kwargs)

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> bytes:
        self._note("get", path)
        return super().cat_file(path, *args, **kwargs)

    def ls(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._note("ls", path)
        return super().ls(path, *args, **kwargs)

    def _note(self, kind: str, path: str, value: bytes = b"") -> None:
        cls = type(self)
        if cls.before is not None:
            cls.before(kind, path)
        if kind == "put" and cls.deadly:
            cls.deadly -= 1
            if cls.deadly == 0:
                Path(self._strip_protocol(path)).write_bytes(value[: len(value) // 2])
                os.kill(os.getpid(), signal.SIGKILL)


fsspec.register_implementation("unreliable", UnreliableFileSystem, clobber=True)


def push_and_die(local: Path, bucket: Path, key: str, call: int) -> None:
    """Copy a run and be killed while the `call`-th file is half written; exit with 4 if there are fewer."""
    from filtercov.lab.experiments.mirror import Mirror

    UnreliableFileSystem.deadly = call
    Mirror(f"unreliable://{bucket}", local).push(key)
    raise SystemExit(4)
