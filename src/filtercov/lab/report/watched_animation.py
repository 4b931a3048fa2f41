"""The moments of a watched run as pictures, and one after another as an animation, for papers, slides and READMEs."""

from __future__ import annotations

import io
import math
from functools import cache

import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from filtercov.lab.report import style
from filtercov.lab.report.inspect_pictures import Picture, covariance_picture, filters_picture
from filtercov.lab.report.watched_numbers import History, LayerHistory
from filtercov.printable import shortened

ACROSS = 8  # layers at most
FRAMES = 36  # at most
EACH, AT_END = 150, 2000  # milliseconds
SIZE = 97  # of a picture
GAP, EDGE, LINE = 10, 12, 20
LONGEST = 60  # letters of a label
PAPER, INK, QUIET, BAR = (255, 255, 255), (27, 31, 36), (90, 100, 112), (31, 95, 168)
COLOURS, GREYS = 21, 8  # of an animation: more cannot be told apart, and take more room


def animation(histories: list[History], *, gif: bool = False) -> bytes:
    """Return the moments, at most `FRAMES` of them, as an animated PNG or a GIF that repeats."""
    last = len(histories[0].moments) - 1
    places = np.unique(np.linspace(0, last, min(last + 1, FRAMES)).round().astype(int))
    palette = _palette()
    frames = [frame(histories, int(place)).quantize(palette=palette, dither=Image.Dither.NONE) for place in places]
    times = [EACH] * (len(frames) - 1) + [AT_END]
    stream = io.BytesIO()
    kind = "GIF" if gif else "PNG"
    frames[0].save(stream, kind, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)
    return stream.getvalue()


def frame(histories: list[History], place: int) -> Image.Image:
    """Return a picture of one moment: covariances and filters of layers by depth, below them σ, and above the step."""
    first = histories[0]
    chosen = np.unique(np.linspace(0, len(first.layers) - 1, min(len(first.layers), ACROSS)).round().astype(int))
    columns = [[_pictures(history, history.layers[i], place) for i in chosen] for history in histories]
    width = max(picture.levels.shape[1] for row in columns for pair in row for picture in pair)
    heights = [[max(pair[kind].levels.shape[0] for pair in row) for kind in (0, 1)] for row in columns]
    named = LINE if len(histories) > 1 else 0
    tall = EDGE + 2 * LINE + sum(named + sum(high) + GAP + 2 * LINE for high in heights) + EDGE
    wide = max(2 * EDGE + len(chosen) * (width + GAP) - GAP, 320)
    sheet = Image.new("RGB", (wide, tall), PAPER)
    pen = ImageDraw.Draw(sheet)
    _heading(pen, first, place, wide)
    top = EDGE + 2 * LINE
    for history, row, high in zip(histories, columns, heights, strict=True):
        if named:
            pen.text((EDGE, top), _fitted(pen, history.run.label, wide - 2 * EDGE), INK, _font())
            top += named
        for column, (index, pair) in enumerate(zip(chosen, row, strict=True)):
            left = EDGE + column * (width + GAP)
            _paste(sheet, pair[0], (left, top))
            _paste(sheet, pair[1], (left, top + high[0] + GAP))
            record = history.layers[index].records[place]
            pen.text((left, top + sum(high) + GAP + 4), f"layer {index + 1}", QUIET, _font())
            pen.text((left, top + sum(high) + GAP + 4 + LINE - 3), _sigma(record), INK, _font())
        top += sum(high) + GAP + 2 * LINE
    return sheet


def png(picture: Image.Image) -> bytes:
    """Return a picture as a PNG."""
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _pictures(history: History, layer: LayerHistory, place: int) -> tuple[Picture, Picture]:
    moment = history.moments[place]
    cov = moment.statistics[layer.name].covariance
    return (
        covariance_picture(cov, layer.kernel_size, limit=style.covariance_limit(cov), size=SIZE),
        filters_picture(moment.filters[layer.name], columns=4, size=SIZE),
    )


def _heading(pen: ImageDraw.ImageDraw, history: History, place: int, wide: int) -> None:
    steps = history.steps
    step, end = steps[place], steps[-1]
    said = f", step {step} of {end}"
    label = _fitted(pen, history.run.label, wide - 2 * EDGE - pen.textlength(said, _font()))
    pen.text((EDGE, EDGE - 4), label + said, INK, _font())
    done = (step - steps[0]) / ((end - steps[0]) or 1)
    top = EDGE + LINE
    pen.rectangle((EDGE, top, wide - EDGE, top + 3), (217, 222, 228))
    pen.rectangle((EDGE, top, EDGE + math.floor(done * (wide - 2 * EDGE)), top + 3), BAR)


def _fitted(pen: ImageDraw.ImageDraw, label: str, room: float) -> str:
    """Return as much of a label as there is room for, its middle left out, an ellipsis at least."""
    lengths = range(min(len(label), LONGEST), 1, -1)
    shorter = (shortened(label, length) for length in lengths)
    return next((words for words in shorter if pen.textlength(words, _font()) <= room), "…")


def _sigma(record: dict[str, object]) -> str:
    sigma = record["sigma"]
    if not isinstance(sigma, float):
        return "σ –"
    return f"σ {sigma:.2f}" if record["likeness_beyond_chance"] else "chance"


def _paste(sheet: Image.Image, picture: Picture, at: tuple[int, int]) -> None:
    drawn = Image.fromarray(picture.rgba(), "RGBA")
    sheet.paste(drawn, at, drawn)


@cache
def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 13)


def _palette() -> Image.Image:
    """Return an image whose palette has the colours of numbers, of the bar, and from ink to paper."""
    numbers = style.palette()[np.linspace(0, len(style.palette()) - 1, COLOURS).round().astype(int)]
    greys = np.linspace(INK, PAPER, GREYS).round().astype(np.uint8)
    colours = np.vstack([numbers, greys, [BAR, (217, 222, 228)]]).astype(np.uint8)
    held = Image.new("P", (1, 1))
    held.putpalette(colours.ravel().tolist())
    return held
