"""The page `filtercov demo` writes: table, learning curves, filters before and after, covariances."""

from __future__ import annotations

from collections.abc import Sequence

import filtercov as fc
from filtercov.covariance import empirical_covariance
from filtercov.lab.experiments.demo import DemoRun
from filtercov.lab.report import page
from filtercov.lab.report.charts import Series, line_chart, series_legend
from filtercov.lab.report.groups import FinishedRun, Group, answer, difference, filters_section
from filtercov.lab.report.pictures import BLOCKS, covariance_picture
from filtercov.lab.report.results_statistics import show_difference

STATES = {"frozen": True, "thawed": False}
SIZE = 400  # of a covariance, in pixels


def demo_page(runs: Sequence[DemoRun], *, origin: page.Origin | None = None) -> str:
    """The whole page for the four runs."""
    spec, groups = runs[0].spec, _groups(runs)
    head, *rows = demo_rows(runs)
    table = page.table(head, rows, caption="test accuracy, %, one seed each: no interval, no verdict")
    losses, accuracies = _series(runs, "step", "loss"), _series(runs, "epoch", "test_accuracy")
    loss = line_chart(losses, label="training loss by step", x_label="step", y_label="training loss", low=0.0)
    accuracy = line_chart(accuracies, label="test accuracy by epoch", x_label="epoch", y_label="test accuracy, %")
    body = f"""{page.heading("What the covariance of filters is worth", page.lines(answer(groups)))}
<p>{len(runs)} runs of <code>{page.text(spec.model)}</code> on {spec.data_limit:,} images of Fashion-MNIST for
{spec.train.epochs} epochs, alike in everything but the depthwise filters: drawn independently and uniformly (PyTorch's
default), or from the paper's closed-form covariance; frozen as drawn, or thawed and trained.</p>
{page.grid([f"<div>{table}{series_legend(losses)}</div>", page.figure(loss, ""), page.figure(accuracy, "")])}
{filters_section([group for group, run in zip(groups, runs, strict=True) if not run.frozen])}
<h2>Covariances</h2>
<p>The closed form is what filters are drawn from; the others are measured on the
{len(runs[0].layers[0].before)} filters of a layer after training. {BLOCKS}</p>
{_covariances(runs)}
"""
    return page.page("filtercov demo", body, origin=origin)


def demo_rows(runs: Sequence[DemoRun]) -> list[list[str]]:
    """The table, heading first: accuracies in percent, and the difference the closed form makes."""
    groups = _groups(runs)
    by_label = {group.label: group for group in groups}
    rows = [["filters", *STATES]]
    for init in ("uniform", "closed-form"):
        rows.append([init, *(f"{by_label[f'{init}, {state}'].summary.mean:.2f}" for state in STATES)])
    gains = [show_difference(difference(by_label[f"closed-form, {state}"], groups)) for state in STATES]
    return [*rows, ["difference", *gains]]


def _groups(runs: Sequence[DemoRun]) -> list[Group]:
    groups = []
    for run in runs:
        curve = tuple(record["test_accuracy"] for record in run.metrics if record["event"] == "epoch")
        filters = {layer.name: (layer.before, layer.after) for layer in run.layers}
        finished = FinishedRun(run.spec.train.seed, curve, filters=filters)
        groups.append(Group(run.label, [finished], against=f"uniform, {'frozen' if run.frozen else 'thawed'}"))
    return groups


def _series(runs: Sequence[DemoRun], event: str, value: str) -> list[Series]:
    """A line per run: a colour for each initialisation, dashed where the filters were frozen."""
    return [
        Series(
            run.label,
            [(record[event], record[value]) for record in run.metrics if record["event"] == event],
            dashed=run.frozen,
            colour=int(run.spec.init == "uniform"),
        )
        for run in runs
    ]


def _covariances(runs: Sequence[DemoRun]) -> str:
    thawed = [run for run in runs if not run.frozen]
    rows = []
    last = len(runs[0].layers) - 1
    for index in sorted({0, last // 2, last}):
        layer = runs[0].layers[index]
        size = layer.before.shape[1]
        shown = {f"closed form, σ = {layer.sigma:.2f}": fc.gaussian_covariance(size, layer.sigma)}
        shown |= {f"{run.spec.init}, trained": empirical_covariance(run.layers[index].after)[1] for run in thawed}
        figures = []
        for caption, cov in shown.items():
            picture = covariance_picture(cov, size, size=SIZE)
            words = f"{caption}; {picture.cut}" if picture.cut else caption
            figures.append(page.figure(picture.html(f"{caption}, layer {index + 1}"), page.text(words)))
        rows.append(f"<h3>Layer {index + 1}</h3>{page.grid(figures)}")
    return "".join(rows)
