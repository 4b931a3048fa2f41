"""`filtercov inspect` as a function: look at anything with depthwise filters, and write down what is seen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filtercov.errors import TargetError
from filtercov.lab.report.inspect_compare import LayerComparison, compare
from filtercov.lab.report.inspect_numbers import Inspection, field_json, measure_target
from filtercov.lab.report.inspect_page import inspection_page
from filtercov.lab.report.inspect_png import layer_sheet, overview_sheet
from filtercov.lab.report.inspect_target import Target, ends_apart, named_target, read_target
from filtercov.lab.report.page import Origin, write_output
from filtercov.lab.report.watched import WatchedReport, look_at_watched
from filtercov.lab.report.watched_run import watched_path


@dataclass(frozen=True, eq=False)
class Report:
    """What was seen, and what it is compared with, ready to be written as a page, as pictures or as numbers."""

    inspection: Inspection
    against: Target | None = None
    comparisons: Sequence[LayerComparison] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about what was looked at, and about what it is compared with."""
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
        """Return every number of the page."""
        numbers = {**self.inspection.as_json(), "notes": list(self.notes)}
        if self.against is not None:
            field = self.against.field
            numbers["against"] = self.against.label
            numbers["against_receptive_field"] = None if field is None else field_json(field)
            for layer, comparison in zip(numbers["layers"], self.comparisons, strict=True):
                layer["comparison"] = comparison.as_json()
        return numbers

    def write_pngs(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write one sheet per layer, layer-01.png and so on, and overview.png; return their paths."""
        folder = Path(directory)
        digits = max(2, len(str(len(self.inspection.layers))))
        written = [write_output(folder / "overview.png", overview_sheet(self.inspection))]
        for layer in self.inspection.layers:
            sheet = layer_sheet(self.inspection, layer)
            written.append(write_output(folder / f"layer-{layer.index + 1:0{digits}}.png", sheet))
        return written


def look(
    target: str, *, against: str | None = None, untrained: bool = False, example: tuple[int, ...] = ()
) -> Report | WatchedReport:
    """Measure a target, and compare it with another, each a path or the name of a model; or do so with watched runs.

    `example` is the size (channels, *size) of random inputs for the effective receptive field of those that are models.

    >>> report = look("convmixer_16_2_k5_p2")
    >>> [layer["kernel_size"] for layer in report.as_json()["layers"]]
    [[5, 5], [5, 5]]
    """
    if (watched := watched_path(target)) is not None:
        if example:
            raise TargetError(f"{target}: needed a model by its name for an example input, got a watched run")
        return look_at_watched(watched, against=against)
    targets = [
        find_target(name, untrained=untrained, example=example) for name in (target, against) if name is not None
    ]
    if example and all(found.kind != "model" for found in targets):
        raise TargetError(
            f"{target}: needed a model by its name for an example input, got a {targets[0].kind}, which does not say "
            "how its layers are put together"
        )
    if against is None:
        return Report(measure_target(targets[0]))
    own, other = targets
    if own.label == other.label:
        ends = ends_apart(Path(target), Path(against))
        own, other = (replace(found, label=end) for found, end in zip(targets, ends, strict=True))
    inspection = measure_target(own)
    return Report(inspection, other, compare(inspection, other))


def find_target(target: str, *, untrained: bool = False, example: tuple[int, ...] = ()) -> Target:
    """Return what a path or a name stands for; a path that exists goes first."""
    path = Path(target)
    if (watched := watched_path(target)) is not None:
        raise TargetError(
            f"{target}: needed one network, got a watched run; look at it with filtercov inspect {watched}"
        )
    if path.exists():
        return read_target(path)
    if (path.suffix or len(path.parts) > 1) and not target.startswith("timm:"):
        raise TargetError(f"{target}: needed a checkpoint, a statistics file or the directory of a run, found nothing")
    return named_target(target, untrained=untrained, example=example)
