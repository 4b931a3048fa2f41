"""What experiments take, counted beforehand: `reproduce --list`, without torch.

Counting runs and operations takes seconds and depends on the code alone: `costs.csv` is written by
`python -m tools.write_listing`, and a test compares it with the catalogue.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from filtercov.errors import ConfigError

FILE = Path(__file__).with_suffix(".csv")
SCALES = ("paper", "small", "smoke")
YARDSTICK = "convmixer_256_8_k9_p2"  # throughput is given for this network on CIFAR-10's images
SECONDS_PER_RUN = 2.0  # start, set-up and files, whatever the network


class Entry(NamedTuple):
    """One experiment at one scale: what its runs and all they start from take, evaluations left out but for time."""

    name: str
    place: str  # in the paper, as in "Table 10, Fig. 3"
    shows: str
    runs: int
    epochs: int
    images: int  # that the yardstick network would train on in the same time
    petaflops: float  # of training, 10^15 operations, a multiply-add counted as two
    megabytes: float  # of checkpoints and statistics of finished runs

    def seconds(self, images_per_second: float) -> float:
        """How long that takes on one worker that trains so many images of the yardstick a second."""
        return SECONDS_PER_RUN * self.runs + self.images / images_per_second


COLUMNS = Entry._fields[3:]  # of the file, for each scale


def matching(patterns: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The names that match any of the patterns, as shells have them; each must match one."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"no experiment is called {pattern!r}; filtercov reproduce --list shows all{hint}")
    return tuple(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))


def entries(patterns: Sequence[str] = ("*",), *, scale: str) -> list[Entry]:
    """The experiments that match any of the patterns, in the catalogue's order.

    >>> first = entries(scale="paper")[0]
    >>> first.name, first.place, first.runs
    ('cifar-convmixer-256-8-p2', 'Table 10, Fig. 3', 368)
    """
    if scale not in SCALES:
        raise ConfigError(f"unknown scale {scale!r}; choose one of {', '.join(SCALES)}")
    with FILE.open(newline="", encoding="utf-8") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    found = []
    for name in matching(patterns, list(rows)):
        runs, epochs, images, petaflops, megabytes = (rows[name][f"{scale}_{column}"] for column in COLUMNS)
        numbers = int(runs), int(epochs), int(images), float(petaflops), float(megabytes)
        found.append(Entry(name, rows[name]["place"], rows[name]["shows"], *numbers))
    return found
