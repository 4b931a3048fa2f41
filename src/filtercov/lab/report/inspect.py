"""`filtercov inspect` as a function: look at anything with depthwise filters, and write down what is seen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filtercov.errors import TargetError
from filtercov.files.source import Source
from filtercov.lab.report.inspect_compare import LayerComparison, compare
from filtercov.lab.report.inspect_numbers import Inspection, field_json, measure_target
from filtercov.lab.report.inspect_page import inspection_page
from filtercov.lab.report.inspect_png import layer_sheet, overview_sheet
from filtercov.lab.report.inspect_target import Target, named_target, read_target
from filtercov.lab.report.page import Origin, write_output
from filtercov.lab.report.watched import WatchedReport, look_at_watched
from filtercov.lab.report.watched_run import watched_path
from filtercov.statistics.receptive_field import ReceptiveField


@dataclass(frozen=True, eq=False)
class Report:
    """What was seen, ready to be written as a page, as pictures or as numbers."""

    inspection: Inspection
    against: str = ""
    comparisons: Sequence[LayerComparison] = ()
    against_sources: tuple[Source, ...] = ()
    other_field: ReceptiveField | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about what was looked at."""
        return self.inspection.target.notes

    def page(self, *, command: str = "") -> str:
        """Return the HTML page, which ends with what was looked at and the `command` that did it."""
        return inspection_page(
            self.inspection,
            against=self.against,
            comparisons=self.comparisons,
            other_field=self.other_field,
            origin=Origin((*self.inspection.target.sources, *self.against_sources), command),
        )

    def as_json(self) -> dict[str, Any]:
        """Return every number of the page."""
        numbers = self.inspection.as_json()
        if self.comparisons:
            numbers["against"] = self.against
            numbers["against_receptive_field"] = None if self.other_field is None else field_json(self.other_field)
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
    inspection = measure_target(targets[0])
    if against is None:
        return Report(inspection)
    other = targets[1]
    return Report(inspection, other.label, compare(inspection, other), other.sources, other.field)


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
