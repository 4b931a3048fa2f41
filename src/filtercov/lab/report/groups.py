"""Groups of runs side by side: the answer in a sentence, a table, learning curves with bands, filters before and after.

Runs of one group differ in their seed alone. A group and its baseline share seeds, so differences are paired. Pages of
experiments, of evidence, of comparisons and of anyone's runs are all made of this. Finished runs are sorted by what was
trained: in such a setting each initialisation, frozen or thawed, is a group, compared with uniform filters in the same
state, and has the paper's number beside it where the runs are of the paper's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.errors import ConfigError
from filtercov.lab.experiments.initialisations import shown_init
from filtercov.lab.experiments.paper import EPOCHS, paper_numbers
from filtercov.lab.experiments.records import Trained
from filtercov.lab.experiments.runs import KeptRun, Runs
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.report import page
from filtercov.lab.report.charts import COLOURS, Series, line_chart
from filtercov.lab.report.pictures import filters_picture
from filtercov.lab.report.results_statistics import (
    METHOD,
    MOST_SEEDS,
    OVER_SEEDS,
    Difference,
    Summary,
    paired_difference,
    seeds_needed,
    summarise,
    welch_interval,
)
from filtercov.lab.training.rundir import RunDirectory
from filtercov.printable import counted

FILTERS = 8  # of a layer that are shown
# Networks of the paper's size, the main one first, and the table and row of the paper they are in.
PAPER_ROWS = {
    "convmixer_256_8_k9_p2": ("cifar-convmixer-256-8-p2", "k9"),
    "convnext_atto_p2": ("cifar-convnext-atto-p2", "k7"),
}
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
    if not (bounds := d.bounds()):
        return f"{words} ({'one seed' if d.n == 1 else 'no spread'}: no verdict){paper}."
    words += f", [{bounds[0]:+.2f}, {bounds[1]:+.2f}], n = {d.n}{paper}"
    if not d.sign:
        needed = seeds_needed(d)
        seeds = f"about {needed}" if needed else f"not even {MOST_SEEDS}"
        return f"{words}: too few to tell; {seeds} seeds would be enough for a difference of that size."
    ours, theirs = (np.mean([run.curve for run in each.runs], axis=0) for each in (group, other))
    not_yet = np.flatnonzero(d.sign * (ours - theirs) <= 0)
    since = f"; {'ahead' if d.sign > 0 else 'behind'} from epoch {not_yet[-1] + 2 if len(not_yet) else 1}"
    return f"{words}{since if len(ours) > 1 else ''}."


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
    series, colours = [], dict[str, int]()  # frozen and thawed filters of one initialisation share a colour
    for group in drawn:
        name, frozen, _ = group.label.removesuffix(", thawed").partition(", frozen")
        colour = colours.setdefault(name, len(colours))
        kind = "line dashed" if frozen or colour >= COLOURS else "line"
        curves = np.array([run.curve for run in group.runs])
        points = [(float(epoch), float(mean)) for epoch, mean in enumerate(curves.mean(axis=0), start=1)]
        band = [float(x) for x in curves.std(axis=0, ddof=1)] if len(curves) > 1 else []
        series.append(Series(group.label, points, band, kind, colour))
    chart = line_chart(series, label="accuracy by epoch", x_label="epoch", y_label="accuracy, %")
    several = any(line.spread for line in series)
    return page.figure(chart, page.text(f"{what}, {OVER_SEEDS}" if several else what))


def filters_section(groups: Sequence[Group]) -> str:
    """Some filters of the first, middle and last layer before and after training, of each group's first run."""
    blocks = ""
    for group in groups:
        layers = list(group.runs[0].filters.items())
        figures = ""
        for index in spread(len(layers)):
            name, both = layers[index]
            for filters, when in zip(both, ("before", "after"), strict=True):
                figures += filters_picture(filters[:FILTERS]).figure(
                    f"layer {index + 1}, {when}", of=f"{group.label}, {name}, {when} training"
                )
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
    command: str = "",
) -> str:
    """A page of groups: the answer first, and HTML of one's own `below` the rest."""
    return page.page(title, *map(page.note, notes), groups_body(groups), below, lead=answer(groups), command=command)


# --- Anyone's runs, by what was trained ---


@dataclass(frozen=True, eq=False)
class Setting:
    """Runs that share network, images and training, in groups."""

    title: str
    groups: Sequence[Group]
    model: str

    @property
    def paper(self) -> bool:
        """Whether the paper has a number for any group."""
        return any(group.paper for group in self.groups)


def settings_of(kept: Iterable[KeptRun]) -> list[Setting]:
    """Runs sorted by what was trained, in groups by initialisation and freezing; most runs first."""
    settings = by(lambda run: _common(run.spec), kept)
    titles = _titles(list(settings))
    found = [Setting(titles[common], _groups(members), common.model) for common, members in settings.items()]
    return sorted(found, key=lambda setting: -sum(len(group.runs) for group in setting.groups))


def _groups(kept: list[KeptRun]) -> list[Group]:
    """The groups of one setting: frozen first, uniform before the others, which are compared with it."""
    found = by(lambda run: _label(run.spec), sorted(kept, key=lambda run: run.spec.train.seed))
    groups = {}
    for label in sorted(found, key=lambda label: (label.split()[0], "uniform" not in label, label)):
        runs = [FinishedRun(run.spec.train.seed, run.curve) for run in found[label]]
        groups[label] = Group(label, runs, paper=_paper(found[label][0].spec))

    def baseline(label: str) -> str:
        uniform = f"{label.split()[0]} uniform"
        return uniform if uniform in groups else min(groups)

    return with_baselines(groups, baseline)


def runs_page(root: Path, *, command: str = "") -> tuple[str, list[str]]:
    """The page of the finished runs in a directory, or of the run that it is, and what it leaves out."""
    begun = [root] if (root / "config.json").exists() else sorted(path.parent for path in root.glob("*/config.json"))
    whole, damaged = Runs(begun[0].parent if begun else root).usable(path.name for path in begun)
    runs = list(whole.values())
    left_out = [f"{path.name}: not finished" for path in begun if not RunDirectory(path).done] + [*damaged]
    if not runs:
        why = f" ({'; '.join(left_out)})" if left_out else ""
        raise ConfigError(f"{root}: needed finished runs to report, found none{why}; filtercov train makes one")
    first, *others = settings = settings_of(runs)
    title, lead, body = first.title, answer(first.groups), [groups_body(first.groups)]
    if others:
        title, lead = f"Runs in {root.name or root}", f"{counted(len(settings), 'setting')}, each with its own table."
        body = [
            f"<h2>{page.text(each.title)}</h2><p>{page.lines(answer(each.groups))}</p>\n{groups_body(each.groups)}"
            for each in settings
        ]
    notes = [page.note(f"left out: {words}", warning=True) for words in left_out]
    return page.page(title, *notes, *body, lead=lead, command=command), left_out


def _common(spec: RunSpec) -> RunSpec:
    """The part of a specification that all runs of one setting share."""
    train = replace(spec.train, seed=0)
    return replace(spec, init="uniform", schedule=None, negative="clip", freeze_filters=False, train=train)


def _label(spec: RunSpec) -> str:
    mirrored = " abs" if spec.negative != "clip" else ""
    return f"{'frozen' if spec.freeze_filters else 'thawed'} {shown_init(spec.init, spec.schedule)}{mirrored}"


def _titles(specs: list[RunSpec]) -> dict[RunSpec, str]:
    """A title for each setting, with the fields that tell apart those of the same network and data."""
    titles = {}
    for words, members in by(lambda spec: str(Trained.of(spec)), specs).items():
        flat = {spec: vars(spec) | vars(spec.train) | {"train": None} for spec in members}
        varied = [name for name in flat[members[0]] if len({repr(each[name]) for each in flat.values()}) > 1]
        for spec in members:
            titles[spec] = ", ".join([words, *(f"{name} {flat[spec][name]}" for name in varied)])
    return titles


def _paper(spec: RunSpec) -> Summary | None:
    """The paper's number for a run at its size, None for any other run."""
    smaller = spec.train.epochs != EPOCHS or spec.data_limit or spec.data == "embedded"
    if smaller or spec.evaluate != "test" or spec.init not in ("uniform", "closed-form"):
        return None
    column = f"{'frozen' if spec.freeze_filters else 'thawed'}/{spec.init}"
    for network, (table, row) in PAPER_ROWS.items():
        number = paper_numbers().get((table, row, column, EPOCHS))
        if number and f"{spec.model}_".startswith(f"{network}_"):
            return Summary(number.mean, number.std)
    return None
