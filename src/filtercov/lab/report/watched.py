"""A watched run in numbers and words: every layer at every moment, and since when its structure is beyond chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from filtercov.covariance.forms import Array, show_size
from filtercov.errors import SourceError
from filtercov.files import Source, files_sha256
from filtercov.lab.report.inspect_numbers import show
from filtercov.lab.report.inspect_target import run_label
from filtercov.printable import counted
from filtercov.statistics.watched import START, Moment, Watched
from filtercov.structure import Structure, spectrum

# What may be beyond chance: likeness to the closed form, and every number of a layer's structure.
JUDGED = ("likeness", *(f.name for f in fields(Structure) if f.name != "types"))
_OF_THE_LAYER = ("name", "kernel_size", "filters", "depth")


@dataclass(frozen=True, eq=False)
class LayerHistory:
    """One layer: its record (see `Watched.to_records`) and its spectrum at each moment."""

    index: int
    kernel_size: tuple[int, ...]
    records: tuple[dict[str, Any], ...]
    spectra: tuple[Array, ...]

    @property
    def name(self) -> str:
        """Its name in the model."""
        return str(self.records[0]["name"])

    @property
    def title(self) -> str:
        """Its number and name."""
        return f"{self.index + 1}. {self.name}"

    @property
    def depth(self) -> float:
        """Its place in the network, from 0 to 1."""
        return float(self.records[0]["depth"])

    @property
    def size(self) -> str:
        """The size of its filters in words."""
        return show_size(self.kernel_size).replace("x", "×")

    def values(self, key: str, *, beyond_chance: bool = False) -> list[float]:
        """Return a number at each moment, nan where there is none, or none that is `beyond_chance` if that is asked."""
        kept = [record[key] is not None for record in self.records]
        if beyond_chance:
            judged = "likeness" if key == "sigma" else key
            kept = [bool(record[f"{judged}_beyond_chance"]) for record in self.records]
        return [float(r[key]) if keep else math.nan for r, keep in zip(self.records, kept, strict=True)]

    def appeared(self, key: str = "likeness") -> int | None:
        """Return the step since when a number is beyond chance at every moment to the last; None if it is not.

        A number that left chance and came back shows nothing yet: among many moments some always stray.
        """
        since = None
        for record in reversed(self.records):
            if not record[f"{key}_beyond_chance"]:
                break
            since = int(record["step"])
        return since

    def since(self, key: str = "likeness") -> str:
        """Return the same in words: a step, the start, or a dash."""
        step = self.appeared(key)
        if step is None:
            return "–"
        return "start" if step == self.records[0]["step"] else str(step)


@dataclass(frozen=True, eq=False)
class History:
    """A watched run, measured at some of its moments."""

    label: str
    watched: Watched
    moments: tuple[Moment, ...]
    layers: tuple[LayerHistory, ...]

    @property
    def steps(self) -> list[int]:
        """The steps of the moments."""
        return [moment.step for moment in self.moments]

    def as_json(self) -> dict[str, Any]:
        """Every number, moment by moment, as plain data."""
        layers = [
            {
                **{key: layer.records[0][key] for key in _OF_THE_LAYER},
                "beyond_chance_since": {key: layer.appeared(key) for key in JUDGED},
            }
            for layer in self.layers
        ]
        return {
            "target": self.label,
            "kind": "watched run",
            "model": self.watched.source,
            "notes": list(self.watched.notes),
            "began": self.watched.began,
            "layers": layers,
            "moments": [{"step": step, "layers": self._moment(place)} for place, step in enumerate(self.steps)],
        }

    def table(self) -> list[list[str]]:
        """σ and likeness at the first and last moment, drift, and since when there is structure; heading first.

        σ stands in brackets where it says nothing: chance would have one too.
        """
        head = ["layer", "size", "filters", "σ", "likeness", "by chance", "moved", "structure since"]
        return [head, *map(_row, self.layers)]

    def findings(self) -> list[str]:
        """Return findings, a sentence each: only what chance would not show too."""
        return [*_structure(self), *_movement(self), *_thinned(self)]

    def _moment(self, place: int) -> list[dict[str, Any]]:
        left_out = {"step", *_OF_THE_LAYER} - {"name"}
        return [
            {key: value for key, value in layer.records[place].items() if key not in left_out}
            | {"eigenvalues": layer.spectra[place].tolist()}
            for layer in self.layers
        ]


@dataclass(frozen=True, eq=False)
class WatchedRun:
    """A watched run, its name on a page, and the directory it was read from."""

    label: str
    watched: Watched
    source: Source


def read_watched(path: Path) -> WatchedRun:
    """Read a watched run with at least one moment, whether or not it is over."""
    watched = Watched.load(path)
    checksum = files_sha256(path, [path / START, *(moment.path for moment in watched)])
    if not len(watched):
        raise SourceError(f"{path}: needed a watched run with a moment in it, it has just begun; look again later")
    return WatchedRun(run_label(path), watched, Source(str(path), checksum))


def measure_run(run: WatchedRun, moments: Sequence[Moment]) -> History:
    """Measure every layer at these moments."""
    records = [moment.to_records() for moment in moments]
    spectra = [[spectrum(layer.covariance) for layer in moment.statistics.layers] for moment in moments]
    layers = tuple(
        LayerHistory(index, layer.kernel_size, tuple(r[index] for r in records), tuple(s[index] for s in spectra))
        for index, layer in enumerate(moments[0].statistics.layers)
    )
    return History(run.label, run.watched, tuple(moments), layers)


def _row(layer: LayerHistory) -> list[str]:
    first, last = layer.records[0], layer.records[-1]

    def sigma(record: dict[str, Any]) -> str:
        shown = show(record["sigma"])
        return shown if record["sigma"] is None or record["likeness_beyond_chance"] else f"({shown})"

    return [
        layer.title,
        layer.size,
        str(first["filters"]),
        f"{sigma(first)} → {sigma(last)}",
        f"{show(first['likeness'])} → {show(last['likeness'])}",
        show(last["likeness_chance"]),
        show(last["relative_distance"]),
        layer.since(),
    ]


def _structure(history: History) -> list[str]:
    steps = history.steps
    judged = [layer for layer in history.layers if layer.records[-1]["likeness"] is not None]
    if not judged:
        return ["No layer has filters that a closed form could be like."]
    early, late = (sum(bool(layer.records[place]["likeness_beyond_chance"]) for layer in judged) for place in (0, -1))
    of = counted(len(judged), "layer")
    more = "more like the closed form than independent filters are"
    if len(steps) == 1:
        return [f"{late or 'none'} of {of} {'is' if late == 1 else 'are'} {more}."]
    said = [f"{early or 'None'} of {of} {'was' if early == 1 else 'were'} {more} at step {steps[0]}, "
            f"{late or 'none'} at step {steps[-1]}."]  # fmt: skip
    appeared = ((layer.appeared(), layer.index + 1) for layer in judged)
    grown = sorted((step, number) for step, number in appeared if step is not None and step > steps[0])
    if grown:
        (first, one), (last, other) = grown[0], grown[-1]
        ending = f", and last in layer {other}, by step {last}." if len(grown) > 1 else "."
        said.append(f"Structure that stayed appeared first in layer {one}, by step {first}{ending}")
    return said


def _movement(history: History) -> list[str]:
    drift = [(layer.values("relative_distance")[-1], layer.index + 1) for layer in history.layers]
    moved = [each for each in drift if math.isfinite(each[0])]
    if not moved or len(history.steps) == 1:
        return []
    (least, one), (most, other) = min(moved), max(moved)
    if most == 0:
        return ["No filter moved."]
    return [f"Filters moved by {least:.2g} (layer {one}) to {most:.2g} (layer {other}) of their size at the start."]


def _thinned(history: History) -> list[str]:
    shown, there = len(history.moments), len(history.watched)
    if shown == there:
        return []
    return [f"Looked at {shown} of {there} moments, evenly spaced; --json has all."]
