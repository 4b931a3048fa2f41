"""The page `filtercov demo` writes: table, learning curves, filters before and after, covariances."""

from __future__ import annotations

from collections.abc import Sequence

import filtercov as fc
from filtercov.covariance import empirical_covariance
from filtercov.covariance.forms import Array
from filtercov.lab.experiments.demo import DemoRun
from filtercov.lab.report import page, style
from filtercov.lab.report.charts import Series, line_chart
from filtercov.lab.report.inspect_pictures import covariance_picture, filters_picture
from filtercov.lab.report.results_statistics import paired_difference
from filtercov.lab.report.results_words import ONE_RUN, show_difference

STYLE = """
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1.5rem; }
td { white-space: normal; }
td .pixels { min-width: 9rem; }
"""


def demo_page(runs: Sequence[DemoRun], *, origin: page.Origin | None = None) -> str:
    """Return the whole page for the four runs; `origin` says where they lie and what did them."""
    spec = runs[0].spec
    body = f"""<h1>What the covariance of filters is worth</h1>
<p>{len(runs)} runs of <code>{page.text(spec.model)}</code> on {spec.data_limit:,} images of Fashion-MNIST for
{spec.train.epochs} epochs, alike in everything but the depthwise filters: drawn independently and uniformly (PyTorch's
default), or from the paper's closed-form covariance; frozen as drawn, or thawed and trained.
</p>
{results_table(runs)}
<p class="note">{page.text(ONE_RUN)}</p>
<h2>Learning curves</h2>
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
    return page.page("filtercov demo", body, origin=origin, styles=[STYLE])


def demo_rows(runs: Sequence[DemoRun]) -> list[list[str]]:
    """Return the table, heading first: accuracies in percent, and what the closed form adds; of one seed no verdict."""
    accuracy = {(run.spec.init, run.frozen): {run.spec.train.seed: run.result.test_accuracy} for run in runs}
    states = {"frozen": True, "thawed": False}
    differences = [
        paired_difference(accuracy["closed-form", frozen], accuracy["uniform", frozen]) for frozen in states.values()
    ]
    return [
        ["filters", *states],
        *(
            [init, *(f"{value:.2f}" for frozen in states.values() for value in accuracy[init, frozen].values())]
            for init in ("uniform", "closed-form")
        ),
        ["difference", *map(show_difference, differences)],
    ]


def results_table(runs: Sequence[DemoRun]) -> str:
    """Return accuracy by initialisation, frozen and thawed, and the difference."""
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
    return _chart(runs, curves, "test accuracy by epoch", "epoch")


def _chart(
    runs: Sequence[DemoRun],
    curves: Sequence[Sequence[tuple[float, float]]],
    label: str,
    x_label: str,
    *,
    low: float | None = None,
) -> str:
    """Return a line per run: a colour for each initialisation, dashed where the filters were frozen."""
    series = [
        Series(run.label, curve, dashed=run.frozen, colour=int(run.spec.init == "uniform"))
        for run, curve in zip(runs, curves, strict=True)
    ]
    return line_chart(series, label=label, x_label=x_label, y_label=label.partition(" by ")[0], low=low)


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
            measured = empirical_covariance(run.layers[index].after)[1]
            cells.append(_covariance(measured, kernel_size, f"{run.label}, layer {index + 1}, after training"))
        rows.append([f"layer {index + 1}, σ = {layer.sigma:.2f}", *cells])
    return page.table(["", "closed form", *(f"{page.text(run.spec.init)}, trained" for run in thawed)], rows)


def _covariance(cov: Array, kernel_size: int, alt: str) -> str:
    return covariance_picture(cov, kernel_size, limit=style.covariance_limit(cov), size=220).html(alt)


def _shown(run: DemoRun) -> list[int]:
    last = len(run.layers) - 1
    return sorted({0, last // 2, last})
