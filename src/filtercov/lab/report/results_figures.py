"""Which charts an experiment gets: dots by initialisation, lines over epochs, grids over (σ0, v), learning curves."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from filtercov.lab.experiments.records import CellRecord, ExperimentRecord, SpeedRecord
from filtercov.lab.report.page import figure, text
from filtercov.lab.report.results_charts import COLOURS, Dot, Series, dot_chart, heat_map, line_chart
from filtercov.lab.report.results_statistics import summarise
from filtercov.lab.report.results_words import show_seeds

Group = tuple[str, int]
MOST_CURVES = 12  # in one chart; those of a grid would hide one another


def charts(record: ExperimentRecord) -> list[str]:
    """Return an experiment's main charts as HTML figures; cells with runs missing are left out of them."""
    complete = [cell for cell in record.cells if cell.accuracies]
    if record.speeds:
        return [figure(speed_chart(record.speeds), "time of a training step by kernel size")]
    if not complete:
        return []
    kinds = {"bars": _dots, "lines": _lines, "grid": _grids}
    # The paper's accuracies are of another size of run unless this is its scale.
    return kinds[record.chart](complete, show_paper=record.scale == "paper")


def learning_curves(record: ExperimentRecord) -> list[str]:
    """Return test accuracy after each epoch, mean over seeds, a chart per row; one epoch makes no curve."""
    groups: dict[tuple[str, int, str], list[CellRecord]] = defaultdict(list)
    for cell in record.cells:
        if cell.curves and cell.trained_epochs > 1:
            groups[cell.row, cell.epochs, cell.filters].append(cell)
    return [
        figure(
            _curves(cells),
            f"{text(row)}, {cells[0].trained_epochs} epochs, {filters}: test accuracy in percent, "
            f"{show_seeds((len(cell.curves) for cell in cells), spread=False)}",
        )
        for (row, _, filters), cells in groups.items()
        if len(cells) <= MOST_CURVES
    ]


def speed_chart(speeds: Sequence[SpeedRecord]) -> str:
    """Return the seconds of a step over kernel size, thawed and frozen."""
    series = [
        Series("thawed", [(s.kernel_size, 1000 * s.thawed) for s in speeds], colour=0),
        Series("frozen", [(s.kernel_size, 1000 * s.frozen) for s in speeds], colour=1),
    ]
    return line_chart(series, label="step time", x_label="kernel size", y_label="milliseconds")


def _dots(cells: Sequence[CellRecord], *, show_paper: bool) -> list[str]:
    groups: dict[Group, dict[str, dict[str, Dot]]] = defaultdict(lambda: defaultdict(dict))
    counts: dict[Group, list[int]] = defaultdict(list)
    for cell in cells:
        summary = summarise(cell.accuracies)
        paper = cell.paper.mean if show_paper and cell.paper else None
        groups[cell.row, cell.epochs][cell.init][cell.filters] = Dot(summary.mean, summary.std, paper)
        counts[cell.row, cell.epochs].append(summary.n)
    ring = "; rings are the paper's" if show_paper else ""
    return [
        figure(
            dot_chart(rows, label=f"accuracy of {row} after {epochs} epochs by initialisation"),
            f"{text(row)}, the paper's {epochs} epochs: test accuracy in percent, "
            f"{show_seeds(counts[row, epochs])}{ring}",
        )
        for (row, epochs), rows in groups.items()
    ]


def _lines(cells: Sequence[CellRecord], *, show_paper: bool) -> list[str]:  # noqa: ARG001 - the paper has no numbers
    rows: dict[str, dict[str, list[CellRecord]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        rows[cell.row][cell.init].append(cell)
    drawn = []
    for row, inits in rows.items():
        series = []
        for colour, (init, points) in enumerate(inits.items()):
            summaries = [summarise(cell.accuracies) for cell in points]
            places = [(float(c.trained_epochs), s.mean) for c, s in zip(points, summaries, strict=True)]
            series.append(Series(init, places, [s.std for s in summaries], colour=colour))
        chart = line_chart(series, label=f"convergence of {row}", x_label="epochs", y_label="test accuracy")
        seeds = show_seeds(len(cell.accuracies) for points in inits.values() for cell in points)
        drawn.append(figure(chart, f"{text(row)}: test accuracy, each point a schedule of its own; {seeds}"))
    return drawn


def _grids(cells: Sequence[CellRecord], *, show_paper: bool) -> list[str]:  # noqa: ARG001 - the paper has no numbers
    means = {cell.init: summarise(cell.accuracies).mean for cell in cells}
    seeds = show_seeds((len(cell.accuracies) for cell in cells), spread=False)
    points = {
        tuple(init.removeprefix("closed-form ").removeprefix("sawtooth:").split()): mean
        for init, mean in means.items()
        if init.startswith("closed-form ")
    }
    if not points:
        return []
    limits = (min(points.values()), max(points.values()))
    uniform = f"; uniform reaches {means['uniform']:.2f}" if "uniform" in means else ""
    slices: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for (sigma0, v, a), mean in points.items():
        slices[a][sigma0, v] = mean
    return [
        figure(
            heat_map(values, label=f"accuracy by σ0 and v at a = {a}", x_label="σ0", y_label="v", limits=limits),
            f"a = {text(a)}: test accuracy in percent, {seeds}{uniform}",
        )
        for a, values in slices.items()
    ]


def _curves(cells: Sequence[CellRecord]) -> str:
    series = []
    for colour, cell in enumerate(cells):
        accuracies = np.asarray(cell.curves)  # (seeds, epochs)
        points = [(float(epoch + 1), float(mean)) for epoch, mean in enumerate(accuracies.mean(axis=0))]
        series.append(Series(cell.init, points, dashed=colour >= COLOURS, colour=colour))
    return line_chart(series, label=f"learning curves of {cells[0].row}", x_label="epoch", y_label="test accuracy")
