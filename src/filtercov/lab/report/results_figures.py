"""Which charts an experiment gets: dots by initialisation, lines over epochs, grids over (σ0, v), learning curves.

The paper's numbers are beside ours wherever it has any. Its accuracies are of larger runs than those of a reduced
scale; its gains over uniform can be compared all the same, and have charts of their own.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from filtercov.lab.experiments.records import CellRecord, ExperimentRecord
from filtercov.lab.experiments.timings import SpeedRecord
from filtercov.lab.report.charts import COLOURS, Dot, Series, dot_chart, heat_map, line_chart
from filtercov.lab.report.page import figure, text
from filtercov.lab.report.results_claims import Finding
from filtercov.lab.report.results_lines import Line, lines
from filtercov.lab.report.results_statistics import CONFIDENCE, summarise
from filtercov.lab.report.results_words import show_difference, show_mean, show_row, show_seeds, show_trained

Group = tuple[str, int]
MOST_CURVES = 12  # in one chart; those of a grid would hide one another


def charts(record: ExperimentRecord) -> list[str]:
    """Return an experiment's main charts as HTML; cells with runs missing are left out of them."""
    complete = [cell for cell in record.cells if cell.accuracies]
    if record.speeds:
        return [figure(speed_chart(record.speeds), "time of a training step by kernel size")]
    if not complete:
        return []
    if record.chart in ("bars", "ranking"):
        return _dots(record)
    # Of these the paper has pictures and no numbers.
    return _lines(complete, record) if record.chart == "lines" else _grids(complete)


def learning_curves(record: ExperimentRecord) -> list[str]:
    """Return test accuracy after each epoch, mean over seeds, a chart per row; one epoch makes no curve."""
    groups: dict[tuple[str, int, str], list[CellRecord]] = defaultdict(list)
    for cell in record.cells:
        if cell.curves and cell.trained.epochs > 1:
            groups[cell.row, cell.epochs, cell.filters].append(cell)
    return [
        figure(
            _curves(cells),
            f"{text(row)}, {text(show_trained(cells[0].trained, cells[0].epochs, stands_for=bool(record.reduced)))}, "
            f"{filters}: test accuracy in percent, "
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


def _dots(record: ExperimentRecord) -> list[str]:
    """Return for each row its accuracies, and its gains over uniform where there is a uniform to compare with."""
    groups: dict[Group, list[Line]] = defaultdict(list)
    for line in lines(record):
        if line.measured:
            groups[line.row, line.epochs].append(line)
    return [_row(row, found) for (row, _), found in groups.items()]


def _row(row: str, found: Sequence[Line]) -> str:
    accuracies: dict[str, dict[str, Dot]] = defaultdict(dict)
    gains: dict[str, dict[str, Dot]] = defaultdict(dict)
    for line in found:
        if (measured := line.measured) is not None:
            half = measured.std
            low, high = (None, None) if half is None else (measured.mean - half, measured.mean + half)
            paper = line.paper.mean if line.paper else None
            shown = show_mean(measured.mean, half)
            accuracies[line.init][line.filters] = Dot(measured.mean, low, high, paper, shown)
        if (gain := line.difference) is not None:
            shown = show_difference(gain)
            gains[line.init][line.filters] = Dot(gain.mean, gain.low, gain.high, line.paper_difference, shown)
    first = found[0]
    name = f"{row}: {show_trained(first.trained, first.epochs, stands_for=first.stands_for)}"
    seeds = show_seeds(line.measured.n for line in found if line.measured)
    drawn = figure(
        dot_chart(accuracies, label=f"accuracy by initialisation, {name}"),
        f"test accuracy in percent, {seeds}{_rings(accuracies)}",
    )
    if gains:
        certain = any(dot.low is not None for row in gains.values() for dot in row.values())
        interval = f", {CONFIDENCE:.0%} intervals" if certain else ""
        drawn += figure(
            dot_chart(gains, label=f"gain over uniform by initialisation, {name}"),
            f"points above uniform with the same seeds{interval}{_rings(gains)}",
        )
    return f"<h3>{text(name)}</h3>{drawn}"


def _rings(rows: Mapping[str, Mapping[str, Dot]]) -> str:
    return (
        "; rings are the paper's" if any(dot.paper is not None for row in rows.values() for dot in row.values()) else ""
    )


def _lines(cells: Sequence[CellRecord], record: ExperimentRecord) -> list[str]:
    rows: dict[str, dict[str, list[CellRecord]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        rows[cell.row][cell.init].append(cell)
    drawn = []
    for row, inits in rows.items():
        series = []
        for colour, (init, points) in enumerate(inits.items()):
            summaries = [summarise(cell.accuracies) for cell in points]
            places = [(float(c.trained.epochs), s.mean) for c, s in zip(points, summaries, strict=True)]
            series.append(Series(init, places, [s.std for s in summaries], colour=colour))
        chart = line_chart(series, label=f"convergence of {row}", x_label="epochs", y_label="test accuracy")
        seeds = show_seeds(len(cell.accuracies) for points in inits.values() for cell in points)
        (first, *_), *_ = inits.values()
        named = show_row(row, first.trained, reduced=bool(record.reduced))
        drawn.append(figure(chart, f"{text(named)}: test accuracy, each point a schedule of its own; {seeds}"))
    return drawn


def claim_picture(finding: Finding) -> str:
    """Return a claim with its verdict, and its comparisons as a picture where there are any."""
    claim, verdict = finding.claim, finding.verdict
    dots = {
        one.comparison.says: {
            "difference": Dot(d.mean, d.low, d.high, least=0.0 - one.comparison.margin, shown=show_difference(d))
        }
        for one in finding.compared
        if (d := one.difference)
    }
    unit = "percent of a step's time" if claim.number == "C14" else "points of accuracy"
    caption = f"{unit} with {CONFIDENCE:.0%} interval. {text(finding.sentence)}"
    shown = figure(dot_chart(dots, label=f"comparisons of {claim.number}", shows=[0.0]), caption) if dots else ""
    heading = f'<h3>{claim.number}: <span class="{verdict.replace(" ", "-")}">{verdict}</span></h3>'
    return f"{heading}<p>{text(claim.says)}</p>{shown}"


def _grids(cells: Sequence[CellRecord]) -> list[str]:
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
