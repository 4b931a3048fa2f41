"""The figures of experiments that show schedules, covariances and filters rather than accuracies."""

import base64
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from filtercov.lab.experiments.records import DrawingRecord
from filtercov.lab.report import style
from filtercov.lab.report.charts import Series, line_chart
from filtercov.lab.report.figures import covariances_figure, filters_figure
from filtercov.lab.report.figures_construction import construction_figure
from filtercov.lab.report.inspect_target import Target
from filtercov.lab.report.page import text
from filtercov.lab.training import load_checkpoint
from filtercov.schedule import PRESETS, SawtoothSchedule, Schedule, relative_depth
from filtercov.statistics.filter_statistics import FilterStatistics

STAGES = (2, 2, 6, 2)  # of ConvNeXt-Atto


def draw(drawing: DrawingRecord) -> str | None:
    """Return the figure as HTML, None if it shows a run that is missing."""
    if drawing.needs_run and drawing.directory is None:
        return None
    if drawing.kind == "sawtooth":
        return sawtooth_chart()
    target = run_target(drawing.directory) if drawing.directory else None
    with style.styled():
        figure = _FIGURES[drawing.kind](target)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, bbox_inches="tight", pad_inches=0.03)
    data = base64.b64encode(stream.getvalue()).decode()
    image = f'<img class="drawing" src="data:image/svg+xml;base64,{data}" alt="{text(drawing.title)}">'
    return f'<div class="scroll" tabindex="0">{image}</div>'


def run_target(directory: Path) -> Target:
    """Return the filters and statistics of a finished run's depthwise layers, which its statistics name."""
    statistics = FilterStatistics.load(directory / "statistics.safetensors")
    tensors, _ = load_checkpoint(directory / "checkpoint.safetensors")
    filters = {layer.name: tensors[f"{layer.name}.weight"].double().numpy()[:, 0] for layer in statistics.layers}
    return Target(directory.name, "run", statistics, filters)


def sawtooth_chart() -> str:
    """Return σ by layer of a ConvNeXt, with the quadratic schedule and with its sawtooth."""
    quadratic = PRESETS["cifar-p1"]
    layers = sum(STAGES)
    schedules: dict[str, Schedule] = {"quadratic": quadratic, "sawtooth": SawtoothSchedule(quadratic, STAGES)}
    series = [
        Series(name, [(i + 1, schedule(relative_depth(i, layers))) for i in range(layers)], dashed=n > 0, colour=n)
        for n, (name, schedule) in enumerate(schedules.items())
    ]
    return line_chart(series, label="σ by layer", x_label="depthwise layer", y_label="σ", low=0.0)


_FIGURES: Mapping[str, Callable[[Target | None], Figure]] = {
    "construction": lambda _: construction_figure(7, math.pi / 2),
    "schedule": lambda _: covariances_figure(None),
    "covariances": covariances_figure,
    "filters": filters_figure,
}
