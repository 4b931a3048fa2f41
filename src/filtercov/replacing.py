"""Writing a file so that a reader, after any interruption, finds the old contents or the new, never a mixture."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write to; at the end that file takes its place, or vanishes if anything was raised.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "greeting") as file:
    ...         _ = file.write_text("hello")
    ...     [path.name for path in Path(folder).iterdir()]
    ['greeting']
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        flush(temporary)
        temporary.replace(path)
        flush(path.parent)  # so that the renaming, too, survives a power cut
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def flush(path: Path) -> None:
    """Make sure that a file's contents, or a directory's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
