"""`filtercov inspect` of a watched run: look at it, alone or beside another, and write down what is seen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filtercov.lab.report.page import Origin, write_output
from filtercov.lab.report.watched_animation import animation, frame, png
from filtercov.lab.report.watched_compare import LayerPair, compare_runs
from filtercov.lab.report.watched_data import most_moments
from filtercov.lab.report.watched_numbers import History, measure_run
from filtercov.lab.report.watched_page import watched_page
from filtercov.lab.report.watched_run import WatchedRun, chosen_moments, read_other, read_watched
from filtercov.lab.report.watched_text import table_of_pairs, table_of_run
from filtercov.lab.report.watched_words import findings, meeting, thinned


@dataclass(frozen=True, eq=False)
class WatchedReport:
    """A watched run, and another to compare it with, ready to be written as a page, pictures, numbers or a table."""

    run: WatchedRun
    other: WatchedRun | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the files."""
        return tuple(note for run in self._runs for note in run.watched.notes)

    def page(self, *, command: str = "") -> str:
        """Return the HTML page, which ends with what was looked at and the `command` that did it."""
        origin = Origin(tuple(run.source for run in self._runs), command)
        return watched_page(self._histories, pairs=self._pairs, origin=origin)

    def as_json(self) -> dict[str, Any]:
        """Return every number at every moment, also of those that a page has no room for."""
        history = measure_run(self.run, self.run.watched.moments)
        numbers = history.as_json()
        if self.other is not None:
            numbers["against"] = measure_run(self.other, self.other.watched.moments).as_json()
            numbers["comparison"] = [pair.as_json() for pair in compare_runs(history, self.other)]
        return numbers

    def table(self) -> tuple[list[list[str]], list[str]]:
        """Return a row for each layer, below a heading, and sentences to stand under them."""
        first = self._histories[0]
        if self.other is None:
            return table_of_run(first), [*findings(first), *thinned(first)]
        return table_of_pairs(self._histories, self._pairs), [meeting(self._histories, self._pairs)]

    def write_pngs(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write the first, the middle and the last moment, step-0.png and so on; return their paths."""
        last = len(self._histories[0].moments) - 1
        return [
            write_output(
                Path(directory) / f"step-{self._histories[0].steps[place]}.png", png(frame(self._histories, place))
            )
            for place in dict.fromkeys((0, last // 2, last))
        ]

    def write_animation(self, path: str | os.PathLike[str]) -> Path:
        """Write the moments one after another: a GIF if the path ends in .gif, else an animated PNG."""
        return write_output(path, animation(self._histories, gif=Path(path).suffix.lower() == ".gif"))

    @property
    def _runs(self) -> list[WatchedRun]:
        return [self.run] if self.other is None else [self.run, self.other]

    @cached_property
    def _histories(self) -> list[History]:
        moments = chosen_moments(self.run, most_moments(self.run, runs=len(self._runs)))
        history = measure_run(self.run, moments)
        if self.other is None:
            return [history]
        return [history, measure_run(self.other, [self.other.at(step) for step in history.steps])]

    @cached_property
    def _pairs(self) -> tuple[LayerPair, ...]:
        return () if self.other is None else compare_runs(self._histories[0], self.other)


def look_at_watched(path: Path, *, against: str | None = None) -> WatchedReport:
    """Read a watched run, and another to compare it with."""
    run = read_watched(path)
    return WatchedReport(run, None if against is None else read_other(against, run))
