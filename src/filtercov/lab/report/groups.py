"""Groups of runs side by side: the answer in a sentence, a table, learning curves with bands, filters before and after.

Runs of one group differ in their seed alone. Groups share seeds, so differences are paired. The demonstration, reports
of one's own runs and comparisons of initialisations are made of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.lab.report import page
from filtercov.lab.report.charts import COLOURS, Series, line_chart, series_legend
from filtercov.lab.report.pictures import filters_picture
from filtercov.lab.report.results_statistics import (
    METHOD,
    Difference,
    Summary,
    paired_difference,
    seeds_needed,
    show_difference,
    show_mean,
    show_seeds,
    summarise,
    welch_difference,
)
from filtercov.lab.report.results_table import Table, without_empty_columns
from filtercov.printable import counted

FILTERS = 8  # of a layer that are shown
MOST_SEEDS = 200  # worth naming


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: accuracy in percent after each epoch, seconds a step, and filters by layer where they are known.

    `filters` are (before, after) training, each (count, *kernel_size); None where one is not known.
    """

    seed: int
    curve: tuple[float, ...]
    step_seconds: float | None = None
    filters: Mapping[str, tuple[Array | None, Array]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The accuracy after the last epoch."""
        return self.curve[-1]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in their seed alone; `against` is the label of the group it is compared with."""

    label: str
    runs: Sequence[FinishedRun]
    against: str = ""  # the first group's, if empty
    paper: Summary | None = None  # the paper's number for the same setting

    @property
    def by_seed(self) -> dict[int, float]:
        """The accuracy of each seed."""
        return {run.seed: run.accuracy for run in self.runs}

    @property
    def summary(self) -> Summary:
        """Mean and spread of the accuracies."""
        return summarise([run.accuracy for run in self.runs])


def baseline(group: Group, groups: Sequence[Group]) -> Group | None:
    """The group that a group is compared with, None if it is that itself or there is none."""
    against = group.against or groups[0].label
    found = next((other for other in groups if other.label == against), None)
    return None if found is group else found


def difference(group: Group, groups: Sequence[Group]) -> Difference | None:
    """The paired difference of a group from its baseline."""
    other = baseline(group, groups)
    return None if other is None else paired_difference(group.by_seed, other.by_seed)


def answer(groups: Sequence[Group]) -> str:
    """The result in words: a line for each group with a baseline, the largest difference first.

    >>> runs = lambda *ends: [FinishedRun(seed, (50.0, end)) for seed, end in enumerate(ends)]
    >>> answer([Group("uniform", runs(60.0, 61.0, 62.0)), Group("closed form", runs(63.0, 63.5, 65.2))])
    'closed form ends 2.90 points above uniform, [+2.00, +3.80], n = 3; ahead from epoch 2.'
    """
    found = [(d, group) for group in groups if (d := difference(group, groups)) is not None]
    if not found:
        best = max(groups, key=lambda group: group.summary.mean)
        seeds = counted(best.summary.n, "seed")
        return f"{best.label} reaches {show_mean(best.summary.mean, best.summary.std)} % ({seeds})."
    ordered = sorted(found, key=lambda each: -each[0].mean)
    return "\n".join(_sentence(group, d, baseline(group, groups)) for d, group in ordered)


def _sentence(group: Group, d: Difference, other: Group | None) -> str:
    assert other is not None  # it has a difference
    side = "above" if d.mean >= 0 else "below"
    paper = f", in the paper {group.paper.mean - other.paper.mean:+.2f}" if group.paper and other.paper else ""
    words = f"{group.label} ends {abs(d.mean):.2f} points {side} {other.label}{_saved(group, other)}"
    if d.low is None or d.high is None:
        return f"{words} ({'one seed' if d.n == 1 else 'no spread'}: no verdict){paper}."
    words += f", [{d.low:+.2f}, {d.high:+.2f}], n = {d.n}{paper}"
    if d.low * d.high > 0:
        since = _ahead_since(*((group, other) if d.mean > 0 else (other, group)))
        return f"{words}; {'ahead' if d.mean > 0 else 'behind'} from epoch {since}."
    spread = np.std([group.by_seed[s] - other.by_seed[s] for s in group.by_seed if s in other.by_seed], ddof=1)
    needed = seeds_needed(float(spread), effect=abs(d.mean)) if abs(d.mean) > spread / 8 else MOST_SEEDS + 1
    enough = f"about {needed} seeds would be" if needed <= MOST_SEEDS else f"not even {MOST_SEEDS} seeds would be"
    return f"{words}: too few to tell; {enough} enough for a difference of that size."


def _saved(group: Group, other: Group) -> str:
    """How much time freezing saves in a step, of a group that differs from another in that alone."""
    ours, theirs = ([run.step_seconds for run in each.runs if run.step_seconds] for each in (group, other))
    if group.label != f"{other.label}, frozen" or not ours or not theirs:
        return ""
    saved = 1 - float(np.mean(ours) / np.mean(theirs))
    return f", in {abs(saved):.0%} {'less' if saved > 0 else 'more'} time a step"


def _ahead_since(winner: Group, other: Group) -> int:
    """The first epoch from which on one group's mean is above the other's."""
    ours, theirs = (np.mean([run.curve for run in group.runs], axis=0) for group in (winner, other))
    if ours.shape != theirs.shape:
        return len(ours)
    behind = np.flatnonzero(ours <= theirs)
    return int(behind[-1]) + 2 if len(behind) else 1


def group_table(groups: Sequence[Group]) -> Table:
    """Accuracy, paired difference and time a step of each group, heading first, without empty columns."""
    rows = [["runs", "accuracy, %", "difference", "n", "the paper's", "from the paper's", "ms a step"]]
    for group in groups:
        measured, paper = group.summary, group.paper
        times = [run.step_seconds for run in group.runs if run.step_seconds is not None]
        rows.append(
            [group.label, show_mean(measured.mean, measured.std), show_difference(difference(group, groups))]
            + [str(measured.n)]
            + ([show_mean(paper.mean, paper.std), _from_paper(measured, paper)] if paper else ["", ""])
            + [f"{1000 * float(np.mean(times)):.0f}" if times else ""]
        )
    return without_empty_columns(rows)


def _from_paper(measured: Summary, paper: Summary) -> str:
    """The difference from the paper's mean, with Welch's interval where both have a spread."""
    found = welch_difference(measured, paper)
    if found is None:
        return f"{measured.mean - paper.mean:+.2f}"
    return f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def curve_series(name: str, curves: Sequence[Sequence[float]], place: int, *, dashed: bool = False) -> Series:
    """Accuracy after each epoch, mean over curves of one length, with a band of one standard deviation."""
    values = np.asarray(curves, dtype=float)
    points = [(float(epoch + 1), float(mean)) for epoch, mean in enumerate(values.mean(axis=0))]
    spread = [float(x) for x in values.std(axis=0, ddof=1)] if len(values) > 1 else []
    return Series(name, points, spread, dashed=dashed or place >= COLOURS, colour=place)


def curves_figure(groups: Sequence[Group]) -> str:
    """Learning curves with bands over seeds and one legend; empty if no run has two epochs."""
    drawn = [group for group in groups if len(group.runs[0].curve) > 1]
    if not drawn:
        return ""
    series = [curve_series(group.label, [run.curve for run in group.runs], i) for i, group in enumerate(drawn)]
    chart = line_chart(series, label="accuracy by epoch", x_label="epoch", y_label="accuracy, %")
    counts = [len(group.runs) for group in drawn]
    band = "; bands are one standard deviation" if max(counts) > 1 else ""
    caption = f"accuracy after each epoch, {show_seeds(counts, spread=False)}{band}"
    return page.figure(chart + series_legend(series), caption)


def filters_section(groups: Sequence[Group]) -> str:
    """Some filters of the first, middle and last layer before and after training, of each group's first run."""
    blocks = []
    for group in groups:
        layers = list(group.runs[0].filters.items())
        figures = []
        for index in sorted({0, (len(layers) - 1) // 2, len(layers) - 1}) if layers else ():
            name, (before, after) = layers[index]
            for filters, when in ((before, "before"), (after, "after")):
                if filters is not None:
                    drawn = filters_picture(filters[:FILTERS], columns=4, size=4 * 70)
                    picture = drawn.html(f"{group.label}, {name}, {when} training")
                    figures.append(page.figure(picture, f"layer {index + 1}, {when}"))
        if figures:
            blocks.append(f'<div><h3>{page.text(group.label)}</h3><div class="pair">{"".join(figures)}</div></div>')
    if not blocks:
        return ""
    words = (
        f"The first {FILTERS} filters of the first, middle and last layer, each on its own scale: red is positive, "
        "blue negative."
    )
    known = any(before is not None for group in groups for before, _ in group.runs[0].filters.values())
    title = "Filters before and after training" if known else "Filters after training"
    return f'<h2>{title}</h2><p>{words}</p><div class="pairs">{"".join(blocks)}</div>'


def groups_body(groups: Sequence[Group]) -> str:
    """Table, learning curves and filters of groups, without a title."""
    table = page.text_table(group_table(groups))
    curves = curves_figure(groups)
    return f'{table}<p class="quiet">{page.text(METHOD)}</p>{curves}{filters_section(groups)}'


def groups_page(
    title: str, groups: Sequence[Group], *, notes: Iterable[str] = (), origin: page.Origin | None = None
) -> str:
    """A page of groups: the answer first."""
    body = [page.heading(title, page.lines(answer(groups))), *map(page.note, notes), groups_body(groups)]
    return page.page(f"{title} · filtercov", "\n".join(body), origin=origin)
