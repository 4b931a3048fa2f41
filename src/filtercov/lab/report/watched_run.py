"""Watched runs as `filtercov inspect` finds them: a directory of `filtercov.watch`, or a run that has only that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from filtercov.errors import TargetError
from filtercov.files import Source, files_sha256
from filtercov.lab.report.inspect_target import RUN_FILES, WATCHED, ends_apart
from filtercov.statistics.watched import START, Moment, Watched, is_watched_run


@dataclass(frozen=True, eq=False)
class WatchedRun:
    """A watched run, what it is called on a page, and the directory it was read from."""

    label: str
    watched: Watched
    source: Source

    def at(self, step: int) -> Moment:
        """Return the last moment until a step, or the first where nothing was watched before."""
        return self.watched.at(max(step, self.watched.steps[0]))


def watched_path(target: str) -> Path | None:
    """Return the watched run that a target stands for, None if it is something else.

    A run's directory stands for its weights where it has some: what training made of the network goes before how.
    """
    path = Path(target)
    if is_watched_run(path) or (path.suffix == ".watched" and path.exists()):
        return path
    weights = any((path / name).exists() for name in RUN_FILES)
    return None if weights else _inside(path)


def read_watched(path: Path) -> WatchedRun:
    """Read a watched run with at least one moment, whether or not it is over."""
    watched = Watched.load(path)
    checksum = files_sha256(path, [path / START, *(moment.path for moment in watched)])
    if not len(watched):
        raise TargetError(
            f"{path}: needed a watched run with a moment in it, it has just begun; look again in a moment"
        )
    label = path.resolve().parent.name if path.name == WATCHED else path.name
    return WatchedRun(label or str(path), watched, Source(str(path), checksum))


def read_other(target: str, run: WatchedRun) -> WatchedRun:
    """Read the run to compare with, which must be of the same layers; a run's directory stands for its watched one."""
    path = watched_path(target) or _inside(Path(target))
    if path is None:
        raise TargetError(
            f"{target}: needed another watched run to compare {run.label} with, found none; name its directory"
        )
    other = read_watched(path)
    mine, theirs = ({n: f.shape for n, f in each.watched.start.items()} for each in (run, other))
    if mine != theirs:
        raise TargetError(
            f"{target}: needed a run of the same {len(mine)} depthwise layers to compare with {run.label}, got "
            f"{len(theirs)} of {other.watched.source}; inspect them one at a time"
        )
    if other.label == run.label:
        _, label = ends_apart(Path(run.source.name), path)
        return replace(other, label=label)
    return other


def chosen_moments(run: WatchedRun, most: int) -> tuple[Moment, ...]:
    """Return all moments, or `most` of them evenly spaced where there are more, the first and the last among them."""
    count = len(run.watched)
    places = np.linspace(0, count - 1, min(count, most)).round().astype(int)
    return tuple(run.watched[int(place)] for place in places)


def _inside(path: Path) -> Path | None:
    return path / WATCHED if (path / WATCHED).exists() else None
