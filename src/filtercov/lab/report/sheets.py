"""Layers as PNG sheets, and the moments of a watched run as an animation, for papers, slides and READMEs."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from filtercov.lab.report.inspect_numbers import Inspection, LayerNumbers, show, shown_filters
from filtercov.lab.report.pictures import Picture, covariance_picture, filters_picture, palette
from filtercov.lab.report.watched import History
from filtercov.printable import shortened

ACROSS = 8  # layers in a row of a sheet, and in a frame of an animation
FRAMES = 36  # at most
EACH, AT_END = 150, 2000  # milliseconds
SMALL, LARGE = 97, 280  # widths of pictures
GAP, EDGE, LINE, LETTER = 10, 12, 20, 7
PAPER, INK, QUIET, BAR, TRACK = (255, 255, 255), (27, 31, 36), (90, 100, 112), (31, 95, 168), (217, 222, 228)
COLOURS, GREYS = 21, 8  # of an animation: more cannot be told apart, and take more room


class Column(NamedTuple):
    """Pictures one below the other, and lines of text below them."""

    pictures: Sequence[Picture]
    words: Sequence[str]


def sheet(title: str, columns: Sequence[Column], *, done: float | None = None) -> Image.Image:
    """Columns side by side under a title, in as many rows as they need; `done` from 0 to 1 is a bar under the title."""
    rows = [columns[i : i + ACROSS] for i in range(0, len(columns), ACROSS)]
    widths = [picture.levels.shape[1] for column in columns for picture in column.pictures]
    wide = max(SMALL, *widths)  # the same in every frame, as pictures may be cut to their middle
    highs = [
        [max(column.pictures[i].levels.shape[0] for column in row) for i in range(len(row[0].pictures))] for row in rows
    ]
    below = LINE * max(len(column.words) for column in columns) + GAP
    top = EDGE + LINE + (LINE if done is not None else GAP)
    width = max(2 * EDGE + len(rows[0]) * (wide + GAP) - GAP, 320)
    drawn = Image.new("RGB", (width, top + sum(sum(high) + GAP * len(high) + below for high in highs)), PAPER)
    pen = ImageDraw.Draw(drawn)
    pen.text((EDGE, EDGE - 4), shortened(title, (width - 2 * EDGE) // LETTER), INK, _font())
    if done is not None:
        pen.rectangle((EDGE, EDGE + LINE, width - EDGE, EDGE + LINE + 3), TRACK)
        pen.rectangle((EDGE, EDGE + LINE, EDGE + math.floor(done * (width - 2 * EDGE)), EDGE + LINE + 3), BAR)
    for row, high in zip(rows, highs, strict=True):
        for place, column in enumerate(row):
            left, down = EDGE + place * (wide + GAP), top
            for picture, height in zip(column.pictures, high, strict=True):
                image = Image.fromarray(picture.rgba(), "RGBA")
                drawn.paste(image, (left, down), image)
                down += height + GAP
            for line, words in enumerate(column.words):
                pen.text((left, down - 4 + line * (LINE - 3)), shortened(words, wide // LETTER), QUIET, _font())
        top += sum(high) + GAP * len(high) + below
    return drawn


def layer_sheets(inspection: Inspection) -> dict[str, bytes]:
    """PNGs by file name: all covariances and filters by depth, and the pictures of each layer."""
    layers, target, rng = inspection.layers, inspection.target, np.random.default_rng(0)
    filters = {layer.index: shown_filters(layer, target, rng)[1] for layer in layers}
    overview = [
        Column(
            [_covariance(layer, SMALL), filters_picture(filters[layer.index], size=SMALL)],
            [f"layer {layer.index + 1}", f"σ {show(layer.sigma)}" if layer.above_chance else "chance"],
        )
        for layer in layers
    ]
    sheets = {"overview.png": png(sheet(target.label, overview))}
    digits = max(2, len(str(len(layers))))
    for layer in layers:
        columns = [
            Column([_covariance(layer, LARGE)], ["covariance"]),
            Column(
                [covariance_picture(layer.closed_form, layer.kernel_size, size=LARGE)],
                [f"closed form, σ = {show(layer.sigma)}"],
            ),
            Column([filters_picture(filters[layer.index], size=LARGE)], ["filters"]),
        ]
        title = f"{layer.index + 1}. {layer.name}, {layer.size}, {layer.statistics.count} filters"
        sheets[f"layer-{layer.index + 1:0{digits}}.png"] = png(sheet(title, columns))
    return sheets


def frame(history: History, place: int) -> Image.Image:
    """One moment: covariances and filters of layers by depth, below them σ, and above the step."""
    count = len(history.layers)
    moment, steps = history.moments[place], history.steps
    columns = []
    for index in np.unique(np.linspace(0, count - 1, min(count, ACROSS)).round().astype(int)):
        layer = history.layers[index]
        record = layer.records[place]
        cov = moment.statistics[layer.name].covariance
        pictures = [
            covariance_picture(cov, layer.kernel_size, size=SMALL),
            filters_picture(moment.filters[layer.name], size=SMALL),
        ]
        sigma = f"σ {show(record['sigma'])}" if record["likeness_beyond_chance"] else "chance"
        columns.append(Column(pictures, [f"layer {index + 1}", "σ –" if record["sigma"] is None else sigma]))
    done = (steps[place] - steps[0]) / ((steps[-1] - steps[0]) or 1)
    return sheet(f"{history.label}, step {steps[place]} of {steps[-1]}", columns, done=done)


def animation(history: History, *, gif: bool = False) -> bytes:
    """The moments, at most `FRAMES` of them, as an animated PNG or a GIF that repeats."""
    last = len(history.moments) - 1
    places = np.unique(np.linspace(0, last, min(last + 1, FRAMES)).round().astype(int))
    drawn = [frame(history, int(place)) for place in places]
    size = tuple(max(each.size[axis] for each in drawn) for axis in (0, 1))  # as pictures cut to their middle may vary
    colours = _palette()
    frames = []
    for each in drawn:
        whole = Image.new("RGB", (size[0], size[1]), PAPER)
        whole.paste(each)
        frames.append(whole.quantize(palette=colours, dither=Image.Dither.NONE))
    times = [EACH] * (len(frames) - 1) + [AT_END]
    stream = io.BytesIO()
    kind = "GIF" if gif else "PNG"
    frames[0].save(stream, kind, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)
    return stream.getvalue()


def png(picture: Image.Image) -> bytes:
    """A picture as a PNG."""
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _covariance(layer: LayerNumbers, size: int) -> Picture:
    return covariance_picture(layer.statistics.covariance, layer.kernel_size, size=size)


@cache
def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 13)


def _palette() -> Image.Image:
    """An image whose palette has the colours of numbers, of the bar, and from ink to paper."""
    numbers = palette()[np.linspace(0, len(palette()) - 1, COLOURS).round().astype(int)]
    greys = np.linspace(INK, PAPER, GREYS).round().astype(np.uint8)
    held = Image.new("P", (1, 1))
    held.putpalette(np.vstack([numbers, greys, [BAR, TRACK]]).astype(np.uint8).ravel().tolist())
    return held
