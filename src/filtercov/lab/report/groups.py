"""Groups of runs side by side: the answer in a sentence, a table, learning curves with bands, filters before and after.

Runs of one group differ in their seed alone. A group and its baseline share seeds, so differences are paired. Pages of
experiments, of evidence and of comparisons are all made of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.lab.report import page
from filtercov.lab.report.charts import COLOURS, Series, line_chart
from filtercov.lab.report.pictures import filters_picture
from filtercov.lab.report.results_statistics import (
    METHOD,
    MOST_SEEDS,
    Difference,
    Summary,
    paired_difference,
    seeds_needed,
    show_seeds,
    summarise,
    welch_interval,
)
from filtercov.printable import counted

FILTERS = 8  # of a layer that are shown
Table = list[list[str]]  # of text, the first row its heading
Part = str | Table  # a paragraph or a table, of which texts and pages are made


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: accuracy in percent after each epoch, seconds a step, and filters by layer where they are known.

    `filters` are (before, after) training, each (count, *kernel_size).
    """

    seed: int
    curve: tuple[float, ...]
    step_seconds: float | None = None
    filters: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in their seed alone, the group they are compared with, and the paper's number for the same."""

    label: str
    runs: Sequence[FinishedRun]  # none where any is missing: a mean over some would pass for one over all
    baseline: Group | None = None
    paper: Summary | None = None

    @property
    def by_seed(self) -> dict[int, float]:
        """The accuracy of each seed after the last epoch."""
        return {run.seed: run.curve[-1] for run in self.runs}

    @property
    def measured(self) -> Summary | None:
        """Mean and spread of the accuracies."""
        return summarise(list(self.by_seed.values())) if self.runs else None

    @property
    def difference(self) -> Difference | None:
        """The paired difference from the baseline, over the seeds that both have."""
        return paired_difference(self.by_seed, self.baseline.by_seed) if self.baseline else None

    @property
    def paper_difference(self) -> float | None:
        """The same difference in the paper."""
        if not self.paper or not self.baseline or not self.baseline.paper:
            return None
        return round(self.paper.mean - self.baseline.paper.mean, 2)

    @property
    def step_seconds(self) -> float | None:
        """The mean time of a step, where it is known."""
        times = [run.step_seconds for run in self.runs if run.step_seconds]
        return float(np.mean(times)) if times else None


G = TypeVar("G", bound=Group)
K = TypeVar("K")
T = TypeVar("T")


def with_baselines(groups: Mapping[K, G], baseline: Callable[[K], K]) -> list[G]:
    """Each group with the one of its `baseline` key as the baseline, if there is one and it is another."""
    return [
        group if baseline(key) == key else replace(group, baseline=groups.get(baseline(key)))
        for key, group in groups.items()
    ]


def by(key: Callable[[T], K], items: Iterable[T]) -> dict[K, list[T]]:
    """Items by a key, in their order."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def answer(groups: Sequence[Group]) -> str:
    """The result in words: a line for each group with a baseline, the largest difference first."""
    if found := [(d.mean, group) for group in groups if (d := group.difference)]:
        return "\n".join(sentence(group) for _, group in sorted(found, key=lambda each: -each[0]))
    best = max(groups, key=lambda group: float(np.mean(list(group.by_seed.values()))))
    return f"{best.label} reaches {best.measured} % ({counted(len(best.runs), 'seed')})."


def sentence(group: Group) -> str:
    """How a group ends beside its baseline, with which it shares seeds."""
    other, d = group.baseline, group.difference
    assert other is not None
    assert d is not None
    paper = "" if group.paper_difference is None else f", in the paper {group.paper_difference:+.2f}"
    words = f"{group.label} ends {abs(d.mean):.2f} points {'above' if d.mean >= 0 else 'below'} {other.label}"
    if group.label == f"{other.label}, frozen" and group.step_seconds and other.step_seconds:
        share = group.step_seconds / other.step_seconds
        words += f", in {abs(1 - share):.0%} {'less' if share < 1 else 'more'} time a step"
    if d.low is None or d.high is None:
        return f"{words} ({'one seed' if d.n == 1 else 'no spread'}: no verdict){paper}."
    words += f", [{d.low:+.2f}, {d.high:+.2f}], n = {d.n}{paper}"
    if d.sign:
        since = _ahead_since(*((group, other) if d.sign > 0 else (other, group)))
        return f"{words}; {'ahead' if d.sign > 0 else 'behind'} from epoch {since}." if since else f"{words}."
    std = np.std([group.by_seed[seed] - other.by_seed[seed] for seed in group.by_seed.keys() & other.by_seed], ddof=1)
    needed = seeds_needed(float(std), effect=abs(d.mean))
    seeds = f"about {needed}" if needed else f"not even {MOST_SEEDS}"
    return f"{words}: too few to tell; {seeds} seeds would be enough for a difference of that size."


def _ahead_since(winner: Group, other: Group) -> int | None:
    """The first epoch from which on one group's mean is above the other's; None of a single epoch."""
    ours, theirs = (np.mean([run.curve for run in group.runs], axis=0) for group in (winner, other))
    behind = np.flatnonzero(ours <= theirs)
    return None if len(ours) == 1 else int(behind[-1]) + 2 if len(behind) else 1


def tabulate(rows: Iterable[Mapping[str, object]]) -> Table:
    """Rows by column as text below a heading; None is an empty cell, and columns with nothing else are left out.

    >>> tabulate([{"net": "a", "n": 3, "note": None}, {"net": "b", "n": None, "note": None}])
    [['net', 'n'], ['a', '3'], ['b', '']]
    """
    shown = [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in rows]
    used = [name for name in shown[0] if any(row[name] for row in shown)]
    return [used, *([row[name] for name in used] for row in shown)]


def group_table(groups: Sequence[Group]) -> Table:
    """Accuracy, paired difference, the paper's number and time a step of each group."""
    rows = []
    for group in groups:
        measured, paper, found, seconds = group.measured, group.paper, group.difference, group.step_seconds
        rows.append(
            {
                "runs": group.label,
                "accuracy, %": measured,
                "difference": found.interval if found and found.n == len(group.runs) else found,
                "n": len(group.runs),
                "the paper's": paper,
                "from the paper's": welch_interval(measured, paper) if measured and paper else None,
                "ms a step": f"{1000 * seconds:.0f}" if seconds else None,
            }
        )
    return tabulate(rows)


def curves_figure(groups: Sequence[Group], what: str) -> str:
    """Learning curves with bands over seeds and one legend; empty if no run has two epochs."""
    drawn = [group for group in groups if group.runs and len(group.runs[0].curve) > 1]
    if not drawn:
        return ""
    series = []
    names = [group.label.removesuffix(", frozen").removesuffix(", thawed") for group in drawn]
    kinds = list(dict.fromkeys(names))  # frozen and thawed filters of one initialisation share a colour
    for group, name in zip(drawn, names, strict=True):
        place = kinds.index(name)
        frozen = names.count(name) > 1 and group.label.endswith(", frozen")
        curves = np.array([run.curve for run in group.runs])
        points = [(float(epoch), float(mean)) for epoch, mean in enumerate(curves.mean(axis=0), start=1)]
        band = [float(x) for x in curves.std(axis=0, ddof=1)] if len(curves) > 1 else []
        series.append(Series(group.label, points, band, dashed=frozen or place >= COLOURS, colour=place))
    chart = line_chart(series, label="accuracy by epoch", x_label="epoch", y_label="accuracy, %")
    return page.figure(chart, page.text(f"{what}, {show_seeds(len(group.runs) for group in drawn)}"))


def filters_section(groups: Sequence[Group]) -> str:
    """Some filters of the first, middle and last layer before and after training, of each group's first run."""
    blocks = ""
    for group in groups:
        layers = list(group.runs[0].filters.items())
        figures = ""
        for index in spread(len(layers)):
            name, both = layers[index]
            for filters, when in zip(both, ("before", "after"), strict=True):
                drawn = filters_picture(filters[:FILTERS], columns=4, size=4 * 70)
                figures += drawn.figure(f"layer {index + 1}, {when}", of=f"{group.label}, {name}, {when} training")
        if figures:
            blocks += f'<div><h3>{page.text(group.label)}</h3><div class="pair">{figures}</div></div>'
    words = (
        f"The first {FILTERS} filters of the first, middle and last layer, each on its own scale: red is positive, "
        "blue negative."
    )
    heading = f"<h2>Filters before and after training</h2><p>{words}</p>"
    return f'{heading}<div class="pairs">{blocks}</div>' if blocks else ""


def spread(count: int, most: int = 3) -> list[int]:
    """Layers spread over depth, the first and the last among them.

    >>> spread(9), spread(2), spread(0)
    ([0, 4, 8], [0, 1], [])
    """
    return sorted({round(x) for x in np.linspace(0, count - 1, most)}) if count else []


def groups_body(groups: Sequence[Group]) -> str:
    """Table, learning curves and filters of groups, without a title."""
    table = page.text_table(group_table(groups))
    curves = curves_figure(groups, "accuracy after each epoch")
    return f'{table}<p class="quiet">{page.text(METHOD)}</p>{curves}{filters_section(groups)}'


def groups_page(
    title: str,
    groups: Sequence[Group],
    *,
    notes: Iterable[str] = (),
    below: str = "",
    origin: page.Origin = page.NOWHERE,
) -> str:
    """A page of groups: the answer first, and HTML of one's own `below` the rest."""
    body = [page.heading(title, page.lines(answer(groups))), *map(page.note, notes), groups_body(groups), below]
    return page.page(f"{title} · filtercov", "\n".join(filter(None, body)), origin=origin)
