"""`filtercov inspect` as functions: look at anything with depthwise filters, and write down what is seen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from filtercov.errors import SourceError
from filtercov.lab.report.inspect_numbers import (
    Inspection,
    LayerComparison,
    compare_targets,
    field_json,
    measure_target,
)
from filtercov.lab.report.inspect_page import inspection_page
from filtercov.lab.report.inspect_target import (
    RUN_FILES,
    Target,
    ends_apart,
    find_target,
    model_target,
    watched_path,
)
from filtercov.lab.report.page import Origin, write_output
from filtercov.lab.report.sheets import animation, frame, layer_sheets, png
from filtercov.lab.report.watched import History, WatchedRun, measure_run, read_watched
from filtercov.lab.report.watched_page import most_moments, watched_page


@dataclass(frozen=True, eq=False)
class Report:
    """What was seen, and what it is compared with, ready to be written as a page, as pictures or as numbers."""

    inspection: Inspection
    against: Target | None = None
    comparisons: Sequence[LayerComparison] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the target, and on the one it is compared with."""
        theirs = () if self.against is None else (f"{self.against.label}: {note}" for note in self.against.notes)
        return (*self.inspection.target.notes, *theirs)

    def page(self, *, command: str = "") -> str:
        """Return the HTML page, which ends with what was looked at and the `command` that did it."""
        sources = self.inspection.target.sources + (() if self.against is None else self.against.sources)
        return inspection_page(
            self.inspection,
            against=self.against,
            comparisons=self.comparisons,
            notes=self.notes,
            origin=Origin(sources, command),
        )

    def as_json(self) -> dict[str, Any]:
        """Every number of the page."""
        numbers = {**self.inspection.as_json(), "notes": list(self.notes)}
        if self.against is not None:
            numbers["against"] = self.against.label
            numbers["against_receptive_field"] = field_json(self.against.field)
            for layer, comparison in zip(numbers["layers"], self.comparisons, strict=True):
                layer["comparison"] = comparison.as_json()
        return numbers

    def write_pngs(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write overview.png and a sheet per layer, layer-01.png and so on; return their paths."""
        sheets = layer_sheets(self.inspection)
        return [write_output(Path(directory) / name, png) for name, png in sheets.items()]


@dataclass(frozen=True, eq=False)
class WatchedReport:
    """A watched run, ready to be written as a page, pictures, numbers or a table."""

    run: WatchedRun

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the files."""
        return self.run.watched.notes

    def page(self, *, command: str = "") -> str:
        """Return the HTML page, which ends with what was looked at and the `command` that did it."""
        return watched_page(self.history, origin=Origin((self.run.source,), command))

    def as_json(self) -> dict[str, Any]:
        """Every number at every moment, also of those that a page has no room for."""
        return measure_run(self.run, list(self.run.watched)).as_json()

    def table(self) -> tuple[list[list[str]], list[str]]:
        """Return a row for each layer, below a heading, and sentences to stand under them."""
        return self.history.table(), self.history.findings()

    def write_pngs(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write the first, the middle and the last moment, step-0.png and so on; return their paths."""
        steps, last = self.history.steps, len(self.history.moments) - 1
        return [
            write_output(Path(directory) / f"step-{steps[place]}.png", png(frame(self.history, place)))
            for place in dict.fromkeys((0, last // 2, last))
        ]

    def write_animation(self, path: str | os.PathLike[str]) -> Path:
        """Write the moments one after another: a GIF if the path ends in .gif, else an animated PNG."""
        return write_output(path, animation(self.history, gif=Path(path).suffix.lower() == ".gif"))

    @cached_property
    def history(self) -> History:
        """The run at as many of its moments as fit on a page, evenly spaced."""
        watched = self.run.watched
        places = np.linspace(0, len(watched) - 1, min(len(watched), most_moments(watched))).round().astype(int)
        return measure_run(self.run, [watched[int(place)] for place in places])


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
    watched = watched_path(path)
    has_weights = any((path / name).exists() for name in RUN_FILES)
    if watched is not None and against is None and (animate or not has_weights):
        if example:
            raise SourceError(f"{target}: needed a model by its name for an example input, got a watched run")
        return WatchedReport(read_watched(watched))
    if animate:
        raise SourceError(f"{target}: needed one watched run to animate, or a run that has filters.watched in it")
    names = [name for name in (target, against) if name is not None]
    targets = [find_target(name, untrained=untrained, example=example) for name in names]
    if example and all(found.kind != "model" for found in targets):
        raise SourceError(
            f"{target}: needed a model by its name for an example input, got a {targets[0].kind}, which does not say "
            "how its layers are put together"
        )
    if against is None:
        return Report(measure_target(targets[0]))
    own, other = targets
    if own.label == other.label:
        ends = ends_apart(path, Path(against))
        own, other = (replace(found, label=end) for found, end in zip(targets, ends, strict=True))
    inspection = measure_target(own)
    return Report(inspection, other, compare_targets(inspection, other))


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
    inspection = measure_target(model_target(model, name, example_input=example_input))
    report = Report(inspection)
    if against is not None:
        other = type(against).__name__
        target = model_target(against, f"{other} beside" if other == name else other, example_input=example_input)
        report = Report(inspection, target, compare_targets(inspection, target))
    if out is not None:
        write_output(out, report.page())
    return report
