"""`filtercov inspect` as functions: look at anything with depthwise filters, and write down what is seen."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from filtercov.errors import SourceError
from filtercov.files import Source, files_sha256
from filtercov.lab.report.inspect_numbers import Inspection, measure_target
from filtercov.lab.report.inspect_page import inspection_page
from filtercov.lab.report.inspect_target import (
    RUN_FILES,
    find_target,
    load_watched,
    model_target,
    run_label,
    watched_path,
)
from filtercov.lab.report.page import Origin, write_output
from filtercov.lab.report.sheets import animation, frame, layer_sheets, png
from filtercov.lab.report.watched import History, measure_run
from filtercov.lab.report.watched_page import most_moments, watched_page
from filtercov.statistics.watched import START, Watched


@dataclass(frozen=True, eq=False)
class Report:
    """A measured target, alone or beside another, ready to be written as a page, as pictures or as numbers."""

    inspection: Inspection

    def __repr__(self) -> str:
        return f"<Report of {self.inspection.target.statistics!r}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the target, and on the one it is compared with."""
        return self.inspection.notes

    def page(self, *, command: str = "") -> str:
        """The HTML page, which ends with its sources and the `command` that made it."""
        target, against = self.inspection.target, self.inspection.against
        sources = target.sources + (() if against is None else against.sources)
        return inspection_page(self.inspection, origin=Origin(sources, command))

    def as_json(self) -> dict[str, Any]:
        """Every number of the page."""
        return self.inspection.as_json()

    def write_pngs(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write overview.png and a sheet per layer, layer-01.png and so on; return their paths."""
        sheets = layer_sheets(self.inspection)
        return [write_output(Path(directory) / name, png) for name, png in sheets.items()]


@dataclass(frozen=True, eq=False)
class WatchedReport:
    """A watched run, ready to be written as a page, pictures, numbers or a table."""

    label: str
    watched: Watched
    source: Source

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the files."""
        return self.watched.notes

    @cached_property
    def history(self) -> History:
        """The run at as many of its moments as fit on a page, evenly spaced."""
        watched = self.watched
        places = np.linspace(0, len(watched) - 1, min(len(watched), most_moments(watched))).round().astype(int)
        return measure_run(self.label, watched, [watched[int(place)] for place in places])

    def page(self, *, command: str = "") -> str:
        """The HTML page, which ends with its source and the `command` that made it."""
        return watched_page(self.history, origin=Origin((self.source,), command))

    def as_json(self) -> dict[str, Any]:
        """Every number at every moment, also of those that a page has no room for."""
        return measure_run(self.label, self.watched, list(self.watched)).as_json()

    def table(self) -> tuple[list[list[str]], list[str]]:
        """A row for each layer, below a heading, and sentences to stand under them."""
        return self.history.table(), self.history.findings()

    def write_pngs(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write the first, the middle and the last moment, step-0.png and so on; return their paths."""
        return [
            write_output(Path(directory) / f"step-{self.history.steps[place]}.png", png(frame(self.history, place)))
            for place in self.history.stills
        ]

    def write_animation(self, path: str | os.PathLike[str]) -> Path:
        """Write the moments one after another: a GIF if the path ends in .gif, else an animated PNG."""
        return write_output(path, animation(self.history, gif=Path(path).suffix.lower() == ".gif"))


def look(
    target: str,
    *,
    against: str | None = None,
    untrained: bool = False,
    example: tuple[int, ...] = (),
    animate: bool = False,
) -> Report | WatchedReport:
    """Measure a target, and compare it with another, each a path or the name of a model.

    A watched run is shown over time; with `against` the ends of the two are compared. A run's directory stands for its
    weights where it has some, or for what was watched of it if it is to `animate`. `example` is the size
    (channels, *size) of random inputs for the effective receptive field of those that are models.

    >>> report = look("convmixer_16_2_k5_p2")
    >>> [layer["kernel_size"] for layer in report.as_json()["layers"]]
    [[5, 5], [5, 5]]
    """
    path = Path(target)
    folder = watched_path(path)
    has_weights = any((path / name).exists() for name in RUN_FILES)
    if folder is not None and against is None and not example and (animate or not has_weights):
        watched = load_watched(folder)
        checksum = files_sha256(folder, [folder / START, *(moment.path for moment in watched)])
        return WatchedReport(run_label(folder), watched, Source(str(folder), checksum))
    if animate:
        raise SourceError(f"{target}: needed one watched run to animate, or a run that has filters.watched in it")
    own = find_target(target, untrained=untrained, example=example)
    other = None if against is None else find_target(against, untrained=untrained, example=example)
    if example and all(found is None or found.kind != "model" for found in (own, other)):
        raise SourceError(
            f"{target}: needed a model by its name for an example input, got a {own.kind}, which does not say "
            "how its layers are put together"
        )
    if other is not None and own.label == other.label:  # files of one name are told apart as they were typed
        own, other = replace(own, label=target), replace(other, label=str(against))
    return Report(measure_target(own, other))


def inspect(
    model: nn.Module,
    *,
    label: str = "",
    against: nn.Module | None = None,
    example_input: Any = None,
    out: str | os.PathLike[str] | None = None,
) -> Report:
    """Look at the depthwise filters of a model in memory; with `out`, also write the page there.

    `against` is another model to set beside it. `example_input` traces the order in which layers run and, if it is a
    tensor of images, shows the effective receptive field.

    >>> report = inspect(nn.Sequential(nn.Conv2d(16, 16, 7, groups=16)), label="mine")
    >>> "mine" in report.page()
    True
    """
    name = label or type(model).__name__
    own, other = model_target(model, name, example_input=example_input), None
    if against is not None:
        theirs = type(against).__name__
        other = model_target(against, f"{theirs} beside" if theirs == name else theirs, example_input=example_input)
    report = Report(measure_target(own, other))
    if out is not None:
        write_output(out, report.page())
    return report
