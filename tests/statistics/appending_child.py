"""Appends numbered records to a file until it is killed, or there are enough; run as a script of its own."""

import resource
import sys
from pathlib import Path

from filtercov.errors import CheckpointError
from filtercov.statistics import records


def body(number: int) -> bytes:
    """A record that can be told from every other and from every part of one."""
    return f"{number} ".encode() * (500 + number % 7)


def main(path: Path, enough: int, largest: int) -> None:
    """Continue the file from its last whole record; `largest` is a limit on its size, as a full disk sets one."""
    bodies, _ = records.read(path, "test 1", called="test", advice="")
    size = records.shorten(path, "test 1", len(bodies))
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    for number in range(len(bodies), enough):
        try:
            size = records.append(path, body(number), size)
        except CheckpointError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
