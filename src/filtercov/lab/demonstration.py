"""`filtercov demo`: a comparison that shows the paper's effect in minutes, on the images in the package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from filtercov.covariance import empirical_covariance
from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.lab.comparison import Comparison, compare
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.report.groups import FinishedRun, Group, Table, spread, with_baselines
from filtercov.lab.report.page import grid
from filtercov.lab.report.pictures import BLOCKS, covariance_picture
from filtercov.schedule import PRESETS, relative_depth

SCHEDULE = "cifar-p2"
SIZE = 400  # of a covariance, in pixels


def demonstrate(out: Path, *, seed: int = 0, command: str = "", **smaller: Any) -> Comparison:
    """Train uniform and closed-form filters, frozen and thawed, on the embedded images, and compare them.

    As many runs train at a time as there are processors: layers this small gain little from a second thread, and lose
    much to it where others use the machine. `smaller` are other settings of `compare`.
    """
    settings: dict[str, Any] = {
        "model": "convmixer_32_6_k15_p2",
        "data_limit": 10_000,
        "augment": "light",
        "inits": ["uniform", SCHEDULE],
        "freeze_filters": "both",
        "seeds": [seed],
        "epochs": 4,
        "batch_size": 64,
        "engine": Engine(workers=min(4, os.cpu_count() or 1)),
        **smaller,
    }
    found = compare(data="embedded", run_dir=out / "runs", command=command, **settings)
    uniform, closed, *frozen = (group.runs for group in found.groups)
    kept = [[replace(run, filters={}) for run in runs] for runs in frozen]  # whose filters after training are the same
    labels = [f"{init}, {state}" for state in ("frozen", "thawed") for init in ("uniform", "closed-form")]
    groups = {label: Group(label, runs) for label, runs in zip(labels, [*kept, uniform, closed], strict=True)}
    beside_uniform = with_baselines(groups, lambda label: f"uniform, {label.split(', ')[1]}")
    note = (
        f"{len(groups)} runs of {settings['model']} on {settings['data_limit']:,} images of Fashion-MNIST for "
        f"{settings['epochs']} epochs, alike in everything but the depthwise filters: drawn independently and "
        "uniformly (PyTorch's default), or from the paper's closed-form covariance; frozen as drawn, or thawed and "
        "trained."
    )
    title, below = "What the covariance of filters is worth", _covariances({"uniform": uniform, "closed-form": closed})
    return Comparison(title, beside_uniform, note, command, below)


def demo_table(groups: Sequence[Group]) -> Table:
    """What the demonstration prints: accuracies in percent, and the difference the closed form makes."""
    uniform, closed = groups[::2], groups[1::2]
    return [
        ["filters", "frozen", "thawed"],
        ["uniform", *(str(group.measured) for group in uniform)],
        ["closed-form", *(str(group.measured) for group in closed)],
        ["difference", *(str(group.difference) for group in closed)],
    ]


def _covariances(trained: Mapping[str, Sequence[FinishedRun]]) -> str:
    """The closed form of the first, middle and last layer, beside the covariances of filters after training."""
    layers = {init: [after for _, after in runs[0].filters.values()] for init, runs in trained.items()}
    first = layers["uniform"]
    body = (
        "<h2>Covariances</h2><p>The closed form is what filters are drawn from; the others are measured on the "
        f"{len(first[0])} filters of a layer after training. {BLOCKS}</p>"
    )
    for index in spread(len(first)):
        sigma, size = PRESETS[SCHEDULE](relative_depth(index, len(first))), first[index].shape[1]
        shown = {f"closed form, σ = {sigma:.2f}": gaussian_covariance(size, sigma)}
        shown |= {f"{init}, trained": empirical_covariance(each[index])[1] for init, each in layers.items()}
        pictures = {caption: covariance_picture(cov, size, size=SIZE) for caption, cov in shown.items()}
        figures = (each.figure(caption, of=f"{caption}, layer {index + 1}") for caption, each in pictures.items())
        body += f"<h3>Layer {index + 1}</h3>{grid(figures)}"
    return body
