"""An experiment's numbers as a table beside the paper's and uniform's: Markdown, CSV, LaTeX and the terminal."""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from filtercov.lab.experiments.records import CellRecord, ExperimentRecord
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.groups import FinishedRun, Group, Table, by, tabulate
from filtercov.lab.report.results_claims import claim_lines
from filtercov.lab.report.results_statistics import (
    CONFIDENCE,
    METHOD,
    PAPER_SEEDS,
    Summary,
    Verdict,
    judge,
    paired_difference,
    summarise,
)
from filtercov.lab.training.progress import duration
from filtercov.printable import aligned, counted

BASELINE = "uniform"
BY_CHANCE = round(1 / (1 - CONFIDENCE))
SIGNS = (
    "A sign holds if the whole interval lies on its side of zero, is contradicted if it lies on the other, and is open "
    f"otherwise; where there is no difference at all, one in {BY_CHANCE} is decided by chance."
)
NAMED = 3  # of the runs that are missing
TOLD_APART = (
    f"Two initialisations are told apart if the {CONFIDENCE:.0%} interval of their difference, paired over seeds, lies "
    f"on one side of zero; without any difference one pair in {BY_CHANCE} is told apart by chance."
)
CSV_HEAD = (
    *("experiment", "scale", "row", "epochs", "network", "data", "trained_epochs", "filters", "initialisation"),
    *("mean", "std", "n", "missing_runs", "paper_mean", "paper_std"),
    *("difference", "low", "high", "pairs", "paper_difference", "verdict"),
)
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"σ": r"$\sigma$", "±": r"$\pm$"}
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Line(Group):
    """A cell of an experiment's table as a group, whose baseline is uniform in the same row."""

    cell: CellRecord
    shown_row: str  # the paper's name of the row, and the network that stands for it where that is another
    judged: bool  # whether accuracies at this scale mean anything

    @property
    def shown_epochs(self) -> str:
        """The epochs trained, and the paper's where they differ."""
        trained, paper = self.cell.trained.epochs, self.cell.epochs
        return str(paper) if trained == paper else f"{trained} ({paper})"

    @property
    def verdict(self) -> Verdict | None:
        """Whether the sign of the paper's difference holds; None if that is zero or fewer than two seeds are shared."""
        papers, found = self.paper_difference, self.difference
        return judge(found, papers) if self.judged and papers and found and found.n > 1 else None


def lines(record: ExperimentRecord) -> list[Line]:
    """A line per cell, in the experiment's order."""

    def line(cell: CellRecord, baseline: Line | None = None) -> Line:
        return Line(
            label=f"{cell.init}, {cell.filters}",
            runs=[FinishedRun(seed, curve) for seed, curve in zip(cell.seeds, cell.curves, strict=True)],
            baseline=baseline,
            paper=Summary(cell.paper.mean, cell.paper.std, PAPER_SEEDS) if cell.paper else None,
            cell=cell,
            shown_row=f"{cell.row}: {cell.trained.model}" if record.reduced else cell.row,
            judged=find_scale(record.scale).judges,
        )

    uniform = {(cell.row, cell.epochs, cell.filters): line(cell) for cell in record.cells if cell.init == BASELINE}
    return [
        line(cell, None if cell.init == BASELINE else uniform.get((cell.row, cell.epochs, cell.filters)))
        for cell in record.cells
    ]


def table(found: Sequence[Line], *, networks: bool = True) -> Table:
    """The numbers of lines beside the paper's and uniform's; `networks` names those trained in place of the paper's."""
    return tabulate(
        found,
        {
            "row": lambda line: line.shown_row if networks else line.cell.row,
            "epochs (the paper's)": lambda line: line.shown_epochs,
            "filters": lambda line: line.cell.filters,
            "initialisation": lambda line: line.cell.init,
            "measured": lambda line: line.measured or f"missing {counted(len(line.cell.missing), 'run')}",
            "over uniform": lambda line: line.difference,
            "n": lambda line: len(line.runs) or None,
            "paper": lambda line: line.paper,
            "in the paper": lambda line: None if line.paper_difference is None else f"{line.paper_difference:+.2f}",
            "the paper's sign": lambda line: line.verdict,
        },
    )


def verdict_counts(found: Sequence[Line]) -> str:
    """How many of the paper's signs hold, are contradicted and are open; empty if none was judged."""
    verdicts = Counter(line.verdict for line in found if line.verdict is not None)
    if not verdicts:
        return ""
    return (
        f"Of {verdicts.total()} signs of the paper's differences from uniform {verdicts['holds']} hold, "
        f"{verdicts['contradicted']} are contradicted and {verdicts['open']} are open."
    )


def notes(record: ExperimentRecord, found: Sequence[Line]) -> list[str]:
    """What is smaller than in the paper, and how differences and verdicts come about."""
    said = [f"Smaller than in the paper: {record.reduced}."] if record.reduced and record.trained else []
    said += [METHOD] if any(line.difference for line in found) else []
    said += [counts, SIGNS] if (counts := verdict_counts(found)) else []
    if record.chart == "ranking" and not find_scale(record.scale).judges:
        said.append("Nothing is ranked at this scale, whose accuracies mean nothing.")
    return said + ([f"The runs took {duration(record.seconds)} of training in all."] if record.seconds else [])


def warnings(record: ExperimentRecord) -> list[str]:
    """Missing and damaged runs, which are left out of every mean."""
    said = []
    if record.missing:
        named = "; ".join(record.missing[:NAMED])
        more = f"; and {len(record.missing) - NAMED} more" if len(record.missing) > NAMED else ""
        count = counted(len(record.missing), "run")
        said.append(f"Missing, and left out of every mean ({count}): {named}{more}.")
    return said + [f"{text[0].upper()}{text[1:]}." for text in record.damaged]


def introduction(record: ExperimentRecord) -> str:
    """The purpose of an experiment, its name and scale, and the networks trained."""
    trained = f" Trained: {record.trained}." if record.trained else ""
    return f"{record.name}, scale {record.scale}: {record.shows.removesuffix('.')}.{trained}"


def speed_table(record: ExperimentRecord) -> Table:
    """The times of a step, thawed and frozen; a heading alone if none was timed."""
    rows = [["network", "kernel", "thawed step, ms", "frozen step, ms", "frozen takes less"]]
    for speed in record.speeds:
        times = [f"{1000 * seconds:.1f}" for seconds in (speed.thawed, speed.frozen)]
        rows.append([speed.model, str(speed.kernel_size), *times, f"{1 - speed.frozen / speed.thawed:.0%}"])
    return rows


@dataclass(frozen=True)
class Ranking:
    """The initialisations of one row, best first, as a table with its heading; printed, how many can be told apart."""

    says: str
    table: Table

    def __str__(self) -> str:
        return self.says


def rankings(record: ExperimentRecord) -> list[Ranking]:
    """A ranking for each row, frozen and thawed; none where accuracies mean nothing."""
    if record.chart != "ranking" or not find_scale(record.scale).judges:
        return []
    rows = by(lambda line: f"{line.shown_row}, {line.cell.filters}", (line for line in lines(record) if line.runs))
    return [
        rank(title, {line.cell.init: line.by_seed for line in found}) for title, found in rows.items() if len(found) > 1
    ]


def told_apart(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Whether the interval of a paired difference lies on one side of zero."""
    difference = paired_difference(one, other)
    return difference is not None and difference.decided


def rank(title: str, inits: Mapping[str, Mapping[int, float]]) -> Ranking:
    """Rank initialisations by their mean accuracy, each given as accuracies by seed.

    >>> found = rank("toys", {"a": {0: 50.0, 1: 52.0}, "b": {0: 50.5, 1: 51.0}, "c": {0: 40.0, 1: 42.1}})
    >>> [row[-1] for row in found.table[1:]], str(found)
    (['2', '1, 3', '2'], 'toys: 1 of 3 pairs told apart')
    """
    ordered = sorted(inits, key=lambda init: -float(np.mean(list(inits[init].values()))))
    apart = {(a, b): told_apart(inits[a], inits[b]) for a, b in combinations(ordered, 2)}
    rows = [["rank", "initialisation", "measured", "n", "behind the first", "not told apart from"]]
    for place, init in enumerate(ordered, start=1):
        measured = summarise(list(inits[init].values()))
        behind = paired_difference(inits[init], inits[ordered[0]]) if place > 1 else None
        alike = {a if b == init else b for (a, b), told in apart.items() if init in (a, b) and not told}
        others = ", ".join(str(i) for i, other in enumerate(ordered, start=1) if other in alike) or "none"
        rows.append([str(place), init, str(measured), str(measured.n), str(behind or ""), others])
    return Ranking(f"{title}: {sum(apart.values())} of {counted(len(apart), 'pair')} told apart", rows)


def to_csv(record: ExperimentRecord) -> str:
    """A line per cell with every number unrounded; what is missing or unknown is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for line in lines(record):
        cell, measured, paper, difference = line.cell, line.measured, line.paper, line.difference
        writer.writerow(
            [record.name, record.scale, cell.row, cell.epochs, cell.trained.model, cell.trained.data]
            + [cell.trained.epochs, cell.filters, cell.init]
            + ([measured.mean, measured.std, measured.n] if measured else [None] * 3)
            + [len(cell.missing)]
            + ([paper.mean, paper.std] if paper else [None] * 2)
            + ([difference.mean, difference.low, difference.high, difference.n] if difference else [None] * 4)
            + [line.paper_difference, line.verdict]
        )
    return stream.getvalue()


def to_markdown(record: ExperimentRecord) -> str:
    """The table with what it needs to be understood."""
    found, ranked, stated = lines(record), rankings(record), claim_lines(record)
    parts = [f"## {record.title}", introduction(record), *notes(record, found), *warnings(record)]
    parts += ["\n".join(re.sub(r"^( *)", r"\1- ", line) for line in stated)] if stated else []
    parts += [markdown_table(table(found))] if found else []
    parts += [TOLD_APART] if ranked else []
    for ranking in ranked:
        parts += [f"### {ranking}", markdown_table(ranking.table)]
    parts += [markdown_table(speed_table(record))] if record.speeds else []
    return "\n\n".join([*parts, f"    {record.command}"]) + "\n"


def to_latex(record: ExperimentRecord) -> str:
    """The table for booktabs."""
    found = lines(record)
    head, *body = [" & ".join(text.translate(_LATEX) for text in row) + r" \\" for row in table(found)]
    comments = [f"% {words}" for words in (record.command, record.title, *notes(record, found), *warnings(record))]
    columns = "l" * 4 + "r" * (len(table(found)[0]) - 4)
    opening, closing = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"], [r"\bottomrule"]
    return "\n".join([*comments, *opening, *body, *closing, r"\end{tabular}", ""])


def to_terminal(record: ExperimentRecord) -> str:
    """The table in aligned columns."""
    found, ranked = lines(record), rankings(record)
    said = [title_line(record), *(aligned(table(found)) if found else [])]
    for ranking in ranked:
        said += ["", str(ranking), *aligned(ranking.table)]
    said += ["", TOLD_APART] if ranked else []
    said += aligned(speed_table(record)) if record.speeds else []
    return "\n".join([*said, *notes(record, found), *warnings(record)])


def title_line(record: ExperimentRecord) -> str:
    """The title of a table in a terminal."""
    return f"{record.title} ({record.name}, scale {record.scale})"


def markdown_table(rows: Table) -> str:
    """A table, the first row of which is its heading.

    >>> print(markdown_table([["name"], ["a|b"]]))
    | name |
    | --- |
    | a\\|b |
    """
    head, *body = [[text.replace("|", "\\|") for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])
