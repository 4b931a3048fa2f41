"""The page of an experiment, and beside it the same table as Markdown and CSV.

The paper's numbers stand beside ours wherever it has any. Its accuracies are of larger runs than those of a reduced
scale; its gains over uniform can be compared all the same, and have charts of their own.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.errors import StorageError
from filtercov.lab.experiments.records import DrawingRecord, ExperimentRecord
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report import page
from filtercov.lab.report import results_table as texts
from filtercov.lab.report.charts import Dot, Series, dot_chart, line_chart
from filtercov.lab.report.figures import by_depth, construction
from filtercov.lab.report.groups import by, curves_figure, sentence, spread
from filtercov.lab.report.inspect_target import Target, read_target
from filtercov.lab.report.pictures import covariance_picture, filters_picture, sampled
from filtercov.lab.report.results_claims import Finding, comparison_table, finding_of
from filtercov.lab.report.results_statistics import INTERVAL, OVER_SEEDS
from filtercov.lab.report.results_table import Line
from filtercov.lab.training.progress import duration
from filtercov.printable import counted
from filtercov.schedule import PRESETS, SawtoothSchedule, Schedule, fit_layer, relative_depth

TEXTS = {".md": texts.to_markdown, ".csv": texts.to_csv}
MOST_CURVES = 12  # in one chart; those of a grid would hide one another
STAGES = (2, 2, 6, 2)  # of ConvNeXt-Atto
SHOWN_LAYERS = 8  # of a network


def write_reports(records: Sequence[ExperimentRecord], out: Path, *, command: str = "") -> list[Path]:
    """Write the pages and texts of some experiments and return the paths; pages end with the `command` that made them.

    One experiment becomes `out` and, beside it, .md and .csv. Of several each becomes such a set, named after the
    experiment, and `out` lists them.
    """
    check_place(out)
    if len(records) == 1:
        return write_report(records[0], out, command=command)
    written = [path for record in records for path in write_report(record, page_beside(out, record), command=command)]
    missing = sum(len(record.missing) for record in records)
    lead = f"{counted(len(records), 'experiment')}; {counted(missing, 'run')} missing." if missing else "All complete."
    index = page.page("Experiments", experiment_table(records, out), lead=lead, command=command)
    return [page.write_output(out, index), *written]


def write_report(record: ExperimentRecord, out: Path, *, command: str = "") -> list[Path]:
    """Write an experiment's page and, beside it, its texts; return the paths."""
    kinds = TEXTS if record.cells else {".md": texts.to_markdown}
    html = page.write_output(out, results_page(record, command=command))
    return [html, *(page.write_output(out.with_suffix(suffix), make(record)) for suffix, make in kinds.items())]


def check_place(out: Path) -> None:
    """Raise unless a page can be written to `out` and its texts beside it."""
    if not out.name or os.path.isdir(out):  # noqa: PTH112 - where pathlib raises for a name that is too long
        raise StorageError(f"{out}: cannot be written (Is a directory); name the page in it, {out / 'report.html'}")
    if out.suffix.lower() in TEXTS:
        raise StorageError(f"{out}: needed a name for the page, got that of a text beside it; call it {out.stem}.html")


def page_beside(out: Path, record: ExperimentRecord) -> Path:
    """The path of an experiment's page, one of several that `out` lists."""
    return out.with_name(f"{out.stem}-{record.name}-{record.scale}{out.suffix or '.html'}")


def experiment_table(records: Sequence[ExperimentRecord], out: Path) -> str:
    """The experiments with links to their pages, and how complete they are."""
    rows: list[list[object]] = []
    for record in records:
        link = f'<a href="{page.text(quote(page_beside(out, record).name))}">{page.text(record.name)}</a>'
        state = f"{counted(len(record.missing), 'run')} missing" if record.missing else "complete"
        shows = f'<span class="words">{page.text(record.shows)}</span>'
        rows.append([link, page.text(record.scale), state, duration(record.seconds), shows])
    return page.table(["experiment", "scale", "state", "training time", "shows"], rows)


def results_page(record: ExperimentRecord, *, command: str = "") -> str:
    """An experiment's page."""
    found, finding = texts.lines(record), finding_of(record)
    title = f"{finding.claim.number}: {finding.claim.says}" if finding else record.title
    lead = _lead(record, found, finding)
    body = [page.part(texts.introduction(record))]
    body += [page.note(words, warning=True) for words in texts.warnings(record)]
    body += [claim_picture(finding)] if finding and finding.run else []
    if found:
        caption = "Test accuracy in percent, mean ± standard deviation over n seeds. Press a heading to sort."
        body += ["<h2>Results</h2>", page.text_table(texts.table(found), caption=caption)]
    if record.speeds:
        body += ["<h2>Results</h2>", page.text_table(texts.speed_table(record))]
    body += [page.note(words) for words in texts.notes(record) if words != lead]
    drawn = []
    for each in record.drawings:
        trained = f": {each.trained}" if record.reduced and each.trained else ""
        drawn.append(page.figure(_drawing(each), page.text(f"{each.title}{trained}")))
    charts = _charts(record, [line for line in found if line.measured])
    body += ["<h2>Figures</h2>", page.grid(charts)] if charts else []
    body += ["<h2>Pictures</h2>", *drawn] if drawn else []
    alike = by(lambda line: f"{line.cell.row}, {line.cell.filters}: {line.cell.trained}", found)
    curves = page.grid(curves_figure(each, title) for title, each in alike.items() if len(each) <= MOST_CURVES)
    body += ["<h2>Learning curves</h2>", curves] if "<svg" in curves else []
    items = "".join(f"<dt>{page.text(name)}</dt><dd>{page.text(value)}</dd>" for name, value in record.versions.items())
    body.append(f"<h2>To get it again</h2>{page.copyable(record.command)}<dl>{items}</dl>")
    return page.page(title, *body, lead=lead, command=command)


def claim_picture(finding: Finding, *, below: str = "") -> str:
    """The comparisons of a claim as dots, what each must lie above and the paper's as rings; beside it the numbers."""
    dots = [
        Dot(one.comparison.says, "difference", d.mean, str(d), d.bounds(), one.paper, one.comparison.least)
        for one in finding.compared
        if (d := one.difference)
    ]
    unit = "percent of a step's time" if finding.claim.number == "C14" else "points of accuracy"
    chart = dot_chart(dots, label=f"comparisons of {finding.claim.number}", shows=[0.0])
    numbers = page.folded("Comparisons", page.text_table(comparison_table(finding)))
    return f'<div class="pairs">{page.figure(chart, f"{unit} with {INTERVAL}")}<div>{numbers}{below}</div></div>'


def _lead(record: ExperimentRecord, found: Sequence[Line], finding: Finding | None) -> str:
    """The result in a sentence."""
    if finding:
        return f"{finding.verdict.capitalize()}. {finding.sentence}"
    if ranking := texts.standings(record):
        return ranking[0]
    gains = [(d.mean, line) for line in found if (d := line.difference)]
    if not gains or not find_scale(record.scale).judges:
        return texts.as_sentence(record.shows)
    _, best = max(gains, key=lambda each: each[0])
    return f"The largest gain over uniform, {best.shown_row}: {sentence(best)}"


def _charts(record: ExperimentRecord, complete: Sequence[Line]) -> list[str]:
    """An experiment's main charts; cells with runs missing are left out of them."""
    if record.speeds:
        thawed = Series("thawed", [(s.kernel_size, 1000 * s.thawed) for s in record.speeds], colour=0)
        frozen = Series("frozen", [(s.kernel_size, 1000 * s.frozen) for s in record.speeds], colour=1)
        chart = line_chart([thawed, frozen], label="step time", x_label="kernel size", y_label="milliseconds", low=0.0)
        return [page.figure(chart, "time of a training step by kernel size")]
    if record.chart == "lines":
        return [_epochs_figure(row, found) for row, found in by(lambda line: line.cell.row, complete).items()]
    figures = []
    for row, found in by(lambda line: f"{line.shown_row}, {line.shown_epochs} epochs", complete).items():
        dots = []
        for line in found:
            if m := line.measured:
                paper = line.paper.mean if line.paper else None
                ends = (m.mean - m.std, m.mean + m.std) if m.std else None
                dots.append(Dot(line.cell.init, line.cell.filters, m.mean, str(m), ends, paper))
        chart = dot_chart(dots, label=f"accuracy by initialisation, {row}")
        figures.append(page.figure(chart, f"{page.text(row)}: test accuracy in percent ± standard deviation"))
        figures.append(gains_figure(row, found))
    return list(filter(None, figures))


def gains_figure(name: str, found: Sequence[Line]) -> str:
    """The gains over uniform of a row with the paper's as rings; empty if there are none."""
    dots = [
        Dot(line.cell.init, line.cell.filters, d.mean, str(d), d.bounds(), line.paper_difference)
        for line in found
        if (d := line.difference)
    ]
    if not dots:
        return ""
    chart = dot_chart(dots, label=f"points above uniform, {name}", shows=[0.0])
    return page.figure(chart, f"{page.text(name)}: points above uniform with the same seeds, {INTERVAL}s")


def _epochs_figure(row: str, found: Sequence[Line]) -> str:
    """Accuracy over the length of training for a row, each point a schedule of its own."""
    series = []
    for colour, (init, points) in enumerate(by(lambda line: line.cell.init, found).items()):
        summaries = [(float(line.cell.trained.epochs), m) for line in points if (m := line.measured)]
        means = [(epochs, m.mean) for epochs, m in summaries]
        series.append(Series(init, means, [m.std for _, m in summaries], colour=colour))
    chart = line_chart(series, label=f"convergence of {row}", x_label="epochs", y_label="test accuracy, %")
    return page.figure(chart, f"{page.text(row)}: each point a schedule of its own; {OVER_SEEDS}")


def _drawing(drawing: DrawingRecord) -> str:
    """A figure of the paper that shows schedules, covariances or filters rather than accuracies."""
    if drawing.missing:
        return page.note("The run this shows is missing.", warning=True)
    if drawing.kind == "sawtooth":  # σ by layer of a ConvNeXt, with the quadratic schedule and with its sawtooth
        quadratic, count = PRESETS["cifar-p1"], sum(STAGES)
        schedules: dict[str, Schedule] = {"quadratic": quadratic, "sawtooth": SawtoothSchedule(quadratic, STAGES)}
        series = [
            Series(name, [(i + 1, schedule(relative_depth(i, count))) for i in range(count)], colour=n)
            for n, (name, schedule) in enumerate(schedules.items())
        ]
        return line_chart(series, label="σ by layer", x_label="depthwise layer", y_label="σ", low=0.0)
    if drawing.directory is not None and drawing.kind == "filters":
        return _filters(read_target(drawing.directory))
    if drawing.kind == "construction":
        return page.grid(picture.figure(name) for name, picture in construction().items())
    found = by_depth()
    if drawing.directory is not None:
        layers = read_target(drawing.directory).statistics.layers
        some = {f"layer {i + 1}": layers[i] for i in spread(len(layers), SHOWN_LAYERS)}
        found = {name: covariance_picture(layer.covariance, layer.kernel_size) for name, layer in some.items()}
    return f'<div class="strip">{"".join(picture.figure(name) for name, picture in found.items())}</div>'


def _filters(target: Target) -> str:
    """Filters of the first, middle and last layer, a row each: learned, drawn from their covariance, closed form."""
    rng, shown = np.random.default_rng(0), {}
    for i in spread(len(target.statistics.layers)):
        layer = target.statistics.layers[i]
        shown[f"layer {i + 1}, learned"] = target.filters[layer.name][:16]
        drawn = sampled(layer.covariance, layer.kernel_size, rng, mean=layer.mean)
        shown[f"layer {i + 1}, drawn from its covariance"] = drawn
        if not math.isnan(sigma := fit_layer(layer).sigma):
            constructed = sampled(gaussian_covariance(layer.kernel_size, sigma), layer.kernel_size, rng)
            shown[f"layer {i + 1}, closed form"] = constructed
    return page.grid(filters_picture(filters).figure(name) for name, filters in shown.items())
