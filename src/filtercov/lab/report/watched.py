"""A watched run in numbers and words: every layer at every moment, and since when its structure is beyond chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from filtercov.covariance.forms import Array, show_size
from filtercov.lab.report.inspect_numbers import show
from filtercov.printable import counted
from filtercov.statistics.watched import Moment, Watched
from filtercov.structure import Structure, spectrum

# What may be beyond chance: likeness to the closed form, and every number of a layer's structure.
JUDGED = ("likeness", *(field.name for field in fields(Structure)))
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
    def depth(self) -> float:
        """Its place in the network, from 0 to 1."""
        return float(self.records[0]["depth"])

    @property
    def size(self) -> str:
        """The size of its filters in words."""
        return show_size(self.kernel_size).replace("x", "×")

    def values(self, key: str, *, structured: bool = False) -> list[float]:
        """A number at each moment, nan where there is none; or only where the layer is `structured` beyond chance."""
        kept = [r["likeness_beyond_chance"] if structured else r[key] is not None for r in self.records]
        return [float(r[key]) if keep else math.nan for r, keep in zip(self.records, kept, strict=True)]

    def appeared(self, key: str = "likeness") -> int | None:
        """The step since when a number is beyond chance at every moment to the last; None if it is not.

        A number that left chance and came back shows nothing yet: among many moments some always stray.
        """
        since = None
        for record in reversed(self.records):
            if not record[f"{key}_beyond_chance"]:
                break
            since = int(record["step"])
        return since

    def row(self) -> list[str]:
        """σ and likeness at the first and last moment, drift, and since when there is structure.

        σ is in brackets where it says nothing: chance would have one too.
        """
        first, last = self.records[0], self.records[-1]
        sigmas = [
            show(r["sigma"]) if r["sigma"] is None or r["likeness_beyond_chance"] else f"({show(r['sigma'])})"
            for r in (first, last)
        ]
        since = self.appeared()
        return [
            f"{self.index + 1}. {self.name}",
            self.size,
            str(first["filters"]),
            " → ".join(sigmas),
            f"{show(first['likeness'])} → {show(last['likeness'])}",
            show(last["likeness_chance"]),
            show(last["relative_distance"]),
            "–" if since is None else "start" if since == first["step"] else str(since),
        ]


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

    @property
    def stills(self) -> list[int]:
        """The places of the first, the middle and the last moment."""
        last = len(self.moments) - 1
        return sorted({0, last // 2, last})

    def as_json(self) -> dict[str, Any]:
        """Every number, moment by moment, as plain data."""
        layers = [
            {
                **{key: layer.records[0][key] for key in _OF_THE_LAYER},
                "beyond_chance_since": {key: layer.appeared(key) for key in JUDGED},
            }
            for layer in self.layers
        ]
        left_out = {"step", *_OF_THE_LAYER} - {"name"}
        moments = [
            [
                {key: value for key, value in layer.records[place].items() if key not in left_out}
                | {"eigenvalues": layer.spectra[place].tolist()}
                for layer in self.layers
            ]
            for place in range(len(self.moments))
        ]
        return {
            "target": self.label,
            "kind": "watched run",
            "model": self.watched.source,
            "notes": list(self.watched.notes),
            "began": self.watched.began,
            "layers": layers,
            "moments": [{"step": step, "layers": each} for step, each in zip(self.steps, moments, strict=True)],
        }

    def table(self) -> list[list[str]]:
        """A row for each layer, below a heading."""
        head = ["layer", "size", "filters", "σ", "likeness", "by chance", "moved", "structure since"]
        return [head, *(layer.row() for layer in self.layers)]

    def findings(self) -> list[str]:
        """Findings, a sentence each: only what chance would not show too."""
        shown, there = len(self.moments), len(self.watched)
        thinned = f"Looked at {shown} of {there} moments, evenly spaced; --json has all."
        return [*self._structure(), *self._movement(), *([thinned] if shown < there else [])]

    def _structure(self) -> list[str]:
        steps = self.steps
        judged = [layer for layer in self.layers if layer.records[-1]["likeness"] is not None]
        if not judged:
            return ["No layer has filters that a closed form could be like."]
        early, late = (sum(bool(layer.records[i]["likeness_beyond_chance"]) for layer in judged) for i in (0, -1))
        said = [
            f"{late or 'None'} of {counted(len(judged), 'layer')} {'is' if late == 1 else 'are'} more like the closed "
            f"form than independent filters are at step {steps[-1]}"
            + (f", {early or 'none'} at step {steps[0]}." if len(steps) > 1 else ".")
        ]
        appeared = ((layer.appeared(), layer.index + 1) for layer in judged)
        grown = sorted((step, number) for step, number in appeared if step is not None and step > steps[0])
        if grown:
            (first, one), (last, other) = grown[0], grown[-1]
            ending = f", and last in layer {other}, by step {last}." if len(grown) > 1 else "."
            said.append(f"Structure that stayed appeared first in layer {one}, by step {first}{ending}")
        return said

    def _movement(self) -> list[str]:
        drift = [(layer.values("relative_distance")[-1], layer.index + 1) for layer in self.layers]
        moved = [each for each in drift if math.isfinite(each[0])]
        if not moved or len(self.steps) == 1:
            return []
        (least, one), (most, other) = min(moved), max(moved)
        if most == 0:
            return ["No filter moved."]
        return [f"Filters moved by {least:.2g} (layer {one}) to {most:.2g} (layer {other}) of their size at the start."]


def measure_run(label: str, watched: Watched, moments: Sequence[Moment]) -> History:
    """Measure every layer of a watched run at these moments."""
    records = [moment.to_records() for moment in moments]
    spectra = [[spectrum(layer.covariance) for layer in moment.statistics.layers] for moment in moments]
    layers = tuple(
        LayerHistory(index, layer.kernel_size, tuple(r[index] for r in records), tuple(s[index] for s in spectra))
        for index, layer in enumerate(moments[0].statistics.layers)
    )
    return History(label, watched, tuple(moments), layers)
