"""Layers as PNG sheets for papers, slides and READMEs; those of a watched run become the frames of an animation."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from filtercov.lab.report.inspect_numbers import LayerNumbers, show, shown_filters
from filtercov.lab.report.inspect_target import Target
from filtercov.lab.report.pictures import Picture, covariance_picture, filters_picture
from filtercov.printable import shortened

ACROSS = 8  # layers in a row of a sheet, and in a frame of an animation
SMALL, LARGE = 97, 280  # widths of pictures
GAP, EDGE, LINE, LETTER = 10, 12, 20, 7
PAPER, INK, QUIET, BAR, TRACK = (255, 255, 255), (27, 31, 36), (90, 100, 112), (31, 95, 168), (217, 222, 228)


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


def layer_sheets(target: Target, layers: Sequence[LayerNumbers]) -> dict[str, bytes]:
    """PNGs by file name: all covariances and filters by depth, and the pictures of each layer."""
    rng = np.random.default_rng(0)
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
