"""A watched run in numbers: every layer at every moment, and since when its structure is beyond chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from filtercov.covariance.forms import Array, show_size
from filtercov.lab.report.watched_run import WatchedRun
from filtercov.statistics.watched import Moment
from filtercov.structure import Structure, spectrum

# What may be beyond chance: likeness to the closed form, and every number of a layer's structure.
JUDGED = ("likeness", *(f.name for f in fields(Structure) if f.name not in ("offset", "types")))
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
    def count(self) -> int:
        """How many filters it has."""
        return int(self.records[0]["filters"])

    @property
    def depth(self) -> float:
        """Where it is in the network, from 0 to 1."""
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


@dataclass(frozen=True, eq=False)
class History:
    """A watched run, measured at some of its moments."""

    run: WatchedRun
    moments: tuple[Moment, ...]
    layers: tuple[LayerHistory, ...]

    @property
    def steps(self) -> list[int]:
        """The steps of the moments."""
        return [moment.step for moment in self.moments]

    def as_json(self) -> dict[str, Any]:
        """Return every number, moment by moment, as plain data."""
        watched = self.run.watched
        layers = [
            {
                **{key: layer.records[0][key] for key in _OF_THE_LAYER},
                "beyond_chance_since": {key: layer.appeared(key) for key in JUDGED},
            }
            for layer in self.layers
        ]
        return {
            "target": self.run.label,
            "kind": "watched run",
            "model": watched.source,
            "notes": list(watched.notes),
            "began": watched.began,
            "layers": layers,
            "moments": [{"step": step, "layers": self._moment(place)} for place, step in enumerate(self.steps)],
        }

    def _moment(self, place: int) -> list[dict[str, Any]]:
        left_out = {"step", *_OF_THE_LAYER} - {"name"}
        return [
            {key: value for key, value in layer.records[place].items() if key not in left_out}
            | {"eigenvalues": layer.spectra[place].tolist()}
            for layer in self.layers
        ]


def measure_run(run: WatchedRun, moments: Sequence[Moment]) -> History:
    """Measure every layer at these moments."""
    records = [moment.to_records() for moment in moments]
    spectra = [[spectrum(layer.covariance) for layer in moment.statistics.layers] for moment in moments]
    layers = tuple(
        LayerHistory(index, layer.kernel_size, tuple(r[index] for r in records), tuple(s[index] for s in spectra))
        for index, layer in enumerate(moments[0].statistics.layers)
    )
    return History(run, tuple(moments), layers)
