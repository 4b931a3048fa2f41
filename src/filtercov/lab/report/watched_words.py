"""What a watched run shows, in words: only what chance would not show too."""

from __future__ import annotations

import math
from collections.abc import Sequence

from filtercov.lab.report.inspect_numbers import show
from filtercov.lab.report.watched_compare import LayerPair
from filtercov.lab.report.watched_numbers import History, LayerHistory
from filtercov.printable import counted


def describe_run(history: History) -> str:
    """Return what was watched in a few words."""
    watched, layers = history.run.watched, history.layers
    sizes = " and ".join(dict.fromkeys(layer.size for layer in layers))
    span = f"step {watched.steps[0]} to {watched.steps[-1]}" if len(watched) > 1 else f"step {watched.steps[0]}"
    what = f"{counted(len(layers), 'depthwise layer')} of {sizes} filters"
    return f"{watched.source} while it trained: {what}, {counted(len(watched), 'moment')} from {span}"


def findings(history: History) -> list[str]:
    """Return what the moments show, a sentence each."""
    return [*_structure(history), *_movement(history)]


def since(layer: LayerHistory, key: str = "likeness") -> str:
    """Return since when a number is beyond chance: a step, the start, or a dash."""
    step = layer.appeared(key)
    if step is None:
        return "–"
    return "start" if step == layer.records[0]["step"] else str(step)


def meeting(histories: Sequence[History], pairs: Sequence[LayerPair]) -> str:
    """Return whether two runs end in one place, in a sentence; if the second goes on, whether they are in one then."""
    (label, other), last_step = (history.run.label for history in histories), histories[0].steps[-1]
    end = f"are at step {last_step}" if histories[1].run.watched.steps[-1] > last_step else "end"
    judged = [pair for pair in pairs if pair.last.value is not None]
    apart = sum(pair.apart for pair in judged)
    if not judged:
        return f"Nothing can be said of whether {label} and {other} {end} in one place."
    first, last = (sum(pair.cosines[place] for pair in judged) / len(judged) for place in (0, -1))
    alike = sum(pair.last.chance or 0.0 for pair in judged) / len(judged)
    numbers = f"cosine {show(first, digits=2)} at the first moment, {show(last, digits=2)} at the last"
    one = f"two samples of one covariance have {show(alike, digits=2)}"
    if not apart:
        return (
            f"{label} and {other} {end} in one place as far as so many filters can tell ({numbers}; {one}, on average)."
        )
    which = "all layers" if apart == len(judged) else f"{apart} of {counted(len(judged), 'layer')}"
    return f"{label} and {other} {end} in different places in {which} ({numbers}; {one}, on average)."


def thinned(history: History) -> list[str]:
    """Return that not every moment was looked at, in a sentence, where that is so."""
    shown, there = len(history.moments), len(history.run.watched)
    if shown == there:
        return []
    return [
        f"Looked at {shown} of {there} moments, evenly spaced: what strayed between them is not seen; --json has all."
    ]


def _structure(history: History) -> list[str]:
    layers, steps = history.layers, history.steps
    judged = [layer for layer in layers if layer.records[-1]["likeness"] is not None]
    if not judged:
        return ["No layer has filters that a closed form could be like."]
    early, late = (sum(bool(layer.records[place]["likeness_beyond_chance"]) for layer in judged) for place in (0, -1))
    more = "more like the closed form than independent filters are"
    if len(steps) == 1:
        return [f"{_of(late, len(judged))} {more}."]
    said = [f"{_of(early, len(judged))} {more} at step {steps[0]}, {late if late else 'none'} at step {steps[-1]}."]
    grown = sorted(
        (step, layer.index) for layer in judged if (step := layer.appeared()) is not None and step > steps[0]
    )
    if grown:
        (first, one), (last, other) = grown[0], grown[-1]
        said.append(
            f"Structure that stayed appeared first in layer {one + 1}, by step {first}"
            + (f", and last in layer {other + 1}, by step {last}." if len(grown) > 1 else ".")
        )
    return said


def _movement(history: History) -> list[str]:
    moved = [(layer.values("relative_distance")[-1], layer.index + 1) for layer in history.layers]
    moved = [each for each in moved if math.isfinite(each[0])]
    if not moved or len(history.steps) == 1:
        return []
    (least, one), (most, other) = min(moved), max(moved)
    if most == 0:
        return ["No filter moved."]
    if len(moved) == 1:
        return [f"The filters moved by {most:.2g} of their size at the start."]
    return [f"Filters moved by {least:.2g} (layer {one}) to {most:.2g} (layer {other}) of their size at the start."]


def _of(number: int, total: int) -> str:
    if not number:
        return "No layer was"
    return f"{number} of {counted(total, 'layer')} {'was' if number == 1 else 'were'}"
