"""The page `filtercov demo` writes: table, learning curves, filters before and after, covariances."""

from __future__ import annotations

from collections.abc import Sequence

import filtercov as fc
from filtercov.covariance import empirical_covariance
from filtercov.lab.experiments.demo import DemoRun
from filtercov.lab.experiments.runs import accuracies
from filtercov.lab.report import page
from filtercov.lab.report.groups import FinishedRun, Group, answer, curves_figure, filters_section, groups_of
from filtercov.lab.report.pictures import BLOCKS, covariance_picture

STATES, INITS = ("frozen", "thawed"), ("uniform", "closed-form")
SIZE = 400  # of a covariance, in pixels


def demo_page(runs: Sequence[DemoRun], *, origin: page.Origin = page.NOWHERE) -> str:
    """The whole page for the four runs."""
    spec, groups = runs[0].spec, _groups(runs)
    head, *rows = demo_rows(runs)
    table = page.table(head, rows, caption="test accuracy, %, one seed each: no interval, no verdict")
    body = f"""{page.heading("What the covariance of filters is worth", page.lines(answer(groups)))}
<p>{len(runs)} runs of <code>{page.text(spec.model)}</code> on {spec.data_limit:,} images of Fashion-MNIST for
{spec.train.epochs} epochs, alike in everything but the depthwise filters: drawn independently and uniformly (PyTorch's
default), or from the paper's closed-form covariance; frozen as drawn, or thawed and trained.</p>
{page.grid([table, curves_figure(groups, "test accuracy after each epoch")])}
{filters_section([group for group, run in zip(groups, runs, strict=True) if not run.frozen])}
<h2>Covariances</h2>
<p>The closed form is what filters are drawn from; the others are measured on the
{len(runs[0].layers[0].before)} filters of a layer after training. {BLOCKS}</p>
{_covariances(runs)}
"""
    return page.page("filtercov demo", body, origin=origin)


def demo_rows(runs: Sequence[DemoRun]) -> list[list[str]]:
    """The table, heading first: accuracies in percent, and the difference the closed form makes."""
    groups = {group.label: group for group in _groups(runs)}
    rows = [[init, *(str(groups[f"{init}, {state}"].measured) for state in STATES)] for init in INITS]
    gains = [str(groups[f"closed-form, {state}"].difference) for state in STATES]
    return [["filters", *STATES], *rows, ["difference", *gains]]


def _groups(runs: Sequence[DemoRun]) -> list[Group]:
    found = {}
    for run in runs:
        filters = {layer.name: (layer.before, layer.after) for layer in run.layers}
        found[run.label] = [FinishedRun(run.spec.train.seed, accuracies(run.metrics), filters=filters)]
    return groups_of(found, against={run.label: f"uniform, {'frozen' if run.frozen else 'thawed'}" for run in runs})


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
            figures.append(picture.figure(caption, of=f"{caption}, layer {index + 1}"))
        rows.append(f"<h3>Layer {index + 1}</h3>{page.grid(figures)}")
    return "".join(rows)
