"""The page `filtercov demo` writes: table, learning curves, filters before and after, covariances."""

from __future__ import annotations

from collections.abc import Sequence

import filtercov as fc
from filtercov.covariance.forms import Array
from filtercov.lab.experiments.demo import DemoRun
from filtercov.lab.report import page, style
from filtercov.lab.report.demo_table import demo_rows
from filtercov.lab.report.inspect_pictures import covariance_picture, filters_picture
from filtercov.lab.report.results_charts import ticks
from filtercov.lab.report.results_words import ONE_RUN

STYLE = """
.cards { display: flex; flex-wrap: wrap; gap: 1.2rem; margin: 1rem 0; }
.key { display: inline-block; width: 1.6rem; border-top: 3px solid; vertical-align: middle; margin-right: .3rem; }
svg .frozen { stroke-dasharray: 6 4; }
.first { color: var(--accent); } .second { color: var(--second); }
"""
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 24, 34
WIDTH, HEIGHT = 480, 260


def demo_page(runs: Sequence[DemoRun]) -> str:
    """Return the whole page for the four runs."""
    spec = runs[0].spec
    body = f"""<h1>What the covariance of filters is worth</h1>
<p>{len(runs)} runs of <code>{page.text(spec.model)}</code> on {spec.data_limit:,} images of Fashion-MNIST for
{spec.train.epochs} epochs, alike in everything but the depthwise filters: drawn independently and uniformly (PyTorch's
default), or from the paper's closed-form covariance; frozen as drawn, or thawed and trained.
</p>
{results_table(runs)}
<p class="note">{page.text(ONE_RUN)}</p>
<h2>Learning curves</h2>
{_legend(runs)}
<div class="cards">
{page.figure(loss_chart(runs), "training loss, the mean since the point before")}
{page.figure(accuracy_chart(runs), "test accuracy after each epoch, %")}
</div>
<h2>Filters before and after training</h2>
<p>The first eight filters of the first, middle and last layer of the thawed runs, each on its own scale: red is
positive, blue negative.</p>
{_filters_section(runs)}
<h2>Covariances</h2>
<p>Block form, the paper's first figure: each block is a picture of one pixel's covariance with every pixel. The closed
form is what the filters are drawn from; the others are measured on the {len(runs[0].layers[0].before)} filters of a
layer.</p>
{_covariance_section(runs)}
"""
    return page.page("filtercov demo", body, styles=[STYLE])


def results_table(runs: Sequence[DemoRun]) -> str:
    """Return accuracy by initialisation, frozen and thawed, the difference, and what it settles."""
    head, *rows = demo_rows(runs)
    shown: list[list[object]] = [[page.text(cell) for cell in row] for row in rows]
    return page.table([page.text(cell) for cell in head], shown, caption="test accuracy, %")


def loss_chart(runs: Sequence[DemoRun]) -> str:
    """Return the training loss of each run over its steps."""
    curves = [[(record["step"], record["loss"]) for record in run.metrics if record["event"] == "step"] for run in runs]
    return _chart(runs, curves, "training loss by step", "step", low=0.0)


def accuracy_chart(runs: Sequence[DemoRun]) -> str:
    """Return the test accuracy of each run after each epoch."""
    curves = [
        [(record["epoch"], record["test_accuracy"]) for record in run.metrics if record["event"] == "epoch"]
        for run in runs
    ]
    return _chart(runs, curves, "test accuracy by epoch", "epoch", dots=True)


def _chart(
    runs: Sequence[DemoRun],
    curves: Sequence[Sequence[tuple[float, float]]],
    label: str,
    x_label: str,
    *,
    low: float | None = None,
    dots: bool = False,
) -> str:
    """Return lines over a common linear scale, in the page's colours."""
    points = [point for curve in curves for point in curve]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    marks = ticks(min(y for _, y in points) if low is None else low, max(y for _, y in points))

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - first) / ((last - first) or 1)
        up = (y - marks[0]) / (marks[-1] - marks[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in marks:
        y = at(first, tick)[1]
        parts.append(f'<path class="axis" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for x in (tick for tick in ticks(first, last) if first <= tick <= last and tick == round(tick)):
        parts.append(f'<text x="{at(x, 0)[0]:.1f}" y="{HEIGHT - 18}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 3}" text-anchor="middle">{x_label}</text>')
    for run, curve in zip(runs, curves, strict=True):
        kind = _kind(run)
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*point) for point in curve))
        parts.append(f'<path class="{kind}" d="M{path}"><title>{page.text(run.label)}</title></path>')
        for x, y in curve if dots else ():
            left, top = at(x, y)
            title = f"<title>{page.text(run.label)}: {y:.2f}</title>"
            dot = "dot" if run.spec.init == "closed-form" else "dot2"
            parts.append(f'<circle class="{dot}" cx="{left:.1f}" cy="{top:.1f}" r="3.5">{title}</circle>')
    drawn = "".join(parts)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg role="img" aria-label="{page.text(label)}" {size}>{drawn}</svg>'


def _kind(run: DemoRun) -> str:
    colour = "first" if run.spec.init == "closed-form" else "second"
    return f"{colour} frozen" if run.frozen else colour


def _legend(runs: Sequence[DemoRun]) -> str:
    entries = []
    for run in runs:
        dashes = "border-top-style: dashed" if run.frozen else ""
        colour = _kind(run).split()[0]
        key = f'<span class="{colour}"><span class="key" style="{dashes}"></span></span>'
        entries.append(f'<span style="white-space: nowrap">{key}{page.text(run.label)}</span>')
    return f"<p>{' &emsp; '.join(entries)}</p>"


def _filters_section(runs: Sequence[DemoRun]) -> str:
    rows: list[list[object]] = []
    for run in (run for run in runs if not run.frozen):
        for index in _shown(run):
            layer = run.layers[index]
            cells: list[object] = [
                filters_picture(filters[:8], columns=8, size=8 * 46).html(f"{run.label}: filters {when} training")
                for filters, when in ((layer.before, "before"), (layer.after, "after"))
            ]
            rows.append([f"{page.text(run.spec.init)}, layer {index + 1}", *cells])
    return page.table(["", "before", "after"], rows)


def _covariance_section(runs: Sequence[DemoRun]) -> str:
    thawed = [run for run in runs if not run.frozen]
    rows: list[list[object]] = []
    for index in _shown(runs[0]):
        layer = runs[0].layers[index]
        kernel_size = layer.before.shape[1]
        closed = fc.gaussian_covariance(kernel_size, layer.sigma)
        cells: list[object] = [_covariance(closed, kernel_size, f"closed form, layer {index + 1}")]
        for run in thawed:
            measured = fc.empirical_covariance(run.layers[index].after)[1]
            cells.append(_covariance(measured, kernel_size, f"{run.label}, layer {index + 1}, after training"))
        rows.append([f"layer {index + 1}, σ = {layer.sigma:.2f}", *cells])
    return page.table(["", "closed form", *(f"{page.text(run.spec.init)}, trained" for run in thawed)], rows)


def _covariance(cov: Array, kernel_size: int, alt: str) -> str:
    return covariance_picture(cov, kernel_size, limit=style.covariance_limit(cov), size=220).html(alt)


def _shown(run: DemoRun) -> list[int]:
    last = len(run.layers) - 1
    return sorted({0, last // 2, last})
