"""A watched run on the terminal: a row for each layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from filtercov.lab.report.inspect_numbers import show
from filtercov.lab.report.watched_compare import LayerPair
from filtercov.lab.report.watched_numbers import History, LayerHistory
from filtercov.lab.report.watched_words import since


def table_of_run(history: History) -> list[list[str]]:
    """Return σ and likeness at the first and the last moment, how far filters moved, and since when there is structure.

    σ stands in brackets where it says nothing: chance would have one too.
    """
    head = ["layer", "size", "filters", "σ", "likeness", "by chance", "moved", "structure since"]
    return [head, *(_row(layer) for layer in history.layers)]


def table_of_pairs(histories: Sequence[History], pairs: Sequence[LayerPair]) -> list[list[str]]:
    """Return how far each run moved, how alike the two are at the first and the last moment, and whether they met."""
    head = ["layer", *(f"moved, {history.run.label}" for history in histories), "cosine", "of one covariance", "end"]
    rows = []
    for pair in pairs:
        moved = [h.layers[pair.layer.index].values("relative_distance")[-1] for h in histories]
        chance = math.nan if pair.last.chance is None else pair.last.chance
        end = "–" if pair.last.value is None else "apart" if pair.apart else "not told apart"
        rows.append(
            [
                f"{pair.layer.index + 1}. {pair.layer.name}",
                *(show(distance, digits=2) for distance in moved),
                f"{show(pair.cosines[0], digits=2)} → {show(pair.cosines[-1], digits=2)}",
                show(chance, digits=2),
                end,
            ]
        )
    return [head, *rows]


def _row(layer: LayerHistory) -> list[str]:
    first, last = layer.records[0], layer.records[-1]
    likeness = [show(layer.values("likeness")[place], digits=2) for place in (0, -1)]
    return [
        f"{layer.index + 1}. {layer.name}",
        layer.size,
        str(layer.count),
        " → ".join(_sigma(record) for record in (first, last)),
        " → ".join(likeness),
        show(layer.values("likeness_chance")[-1], digits=2),
        show(layer.values("relative_distance")[-1], digits=2),
        since(layer),
    ]


def _sigma(record: dict[str, object]) -> str:
    sigma = record["sigma"]
    if not isinstance(sigma, float):
        return "–"
    return f"{sigma:.2f}" if record["likeness_beyond_chance"] else f"({sigma:.2f})"
