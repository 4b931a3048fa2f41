"""An experiment's numbers as a table beside the paper's and uniform's: Markdown, CSV, LaTeX and the terminal."""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from filtercov.lab.experiments.paper_numbers import PaperNumber
from filtercov.lab.experiments.records import CellRecord, ExperimentRecord, Trained
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.results_claims import claim_lines
from filtercov.lab.report.results_statistics import (
    CONFIDENCE,
    METHOD,
    Difference,
    Summary,
    Verdict,
    judge,
    paired_difference,
    show_difference,
    show_mean,
    summarise,
)
from filtercov.lab.training.progress import duration
from filtercov.printable import counted

Table = list[list[str]]  # of text, the first row its heading
BASELINE = "uniform"
VERDICTS = (
    "A sign holds if the whole interval lies on its side of zero, contradicts if it lies on the other, and is open "
    f"otherwise; where there is no difference at all, one in {round(1 / (1 - CONFIDENCE))} is decided by chance."
)
TOLD_APART = (
    f"Two initialisations are told apart if the {CONFIDENCE:.0%} interval of their difference, paired over seeds, lies "
    f"on one side of zero; without any difference one pair in {round(1 / (1 - CONFIDENCE))} is told apart by chance."
)
HEAD = (
    *("row", "epochs (the paper's)", "filters", "initialisation", "measured", "over uniform", "n", "paper"),
    *("in the paper", "the paper's sign"),
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


@dataclass(frozen=True)
class Line:
    """One cell of a table. The differences are from uniform in the same row, and missing where either side is.

    The verdict is on the sign of the paper's difference; there is none where that is zero, where the two sides share
    fewer than two seeds, or at a scale whose accuracies mean nothing.
    """

    row: str
    epochs: int  # the paper's
    trained: Trained
    stands_for: bool  # another network, other data or epochs than the paper's
    filters: str
    init: str
    measured: Summary | None
    missing: int  # runs
    paper: PaperNumber | None
    difference: Difference | None
    paper_difference: float | None
    verdict: Verdict | None
    unpaired: bool  # both sides were measured, but not with one common seed

    @property
    def shown_row(self) -> str:
        """The paper's name of the row, and the network that stands for it where that is another."""
        return f"{self.row}: {self.trained.model}" if self.stands_for else self.row

    @property
    def shown_epochs(self) -> str:
        """The epochs trained, and the paper's where they differ."""
        trained = self.trained.epochs
        return str(self.epochs) if trained == self.epochs else f"{trained} ({self.epochs})"


def lines(record: ExperimentRecord) -> list[Line]:
    """Return a line per cell, in the experiment's order."""
    uniform = {(cell.row, cell.epochs, cell.filters): cell for cell in record.cells if cell.init == BASELINE}
    judges = find_scale(record.scale).judges
    return [
        _line(cell, uniform.get((cell.row, cell.epochs, cell.filters)), bool(record.reduced), judges)
        for cell in record.cells
    ]


def _line(cell: CellRecord, uniform: CellRecord | None, reduced: bool, judges: bool) -> Line:
    difference = paper_difference = verdict = None
    both = uniform is not None and cell.init != BASELINE and bool(cell.accuracies and uniform.accuracies)
    if uniform is not None and cell.init != BASELINE:
        if cell.paper and uniform.paper:
            paper_difference = round(cell.paper.mean - uniform.paper.mean, 2)
        difference = paired_difference(cell.by_seed, uniform.by_seed)
        if judges and paper_difference and difference and difference.n > 1:
            verdict = judge(difference, paper_difference)
    return Line(
        row=cell.row,
        epochs=cell.epochs,
        trained=cell.trained,
        stands_for=reduced,
        filters=cell.filters,
        init=cell.init,
        measured=summarise(cell.accuracies) if cell.accuracies else None,
        missing=len(cell.missing),
        paper=cell.paper,
        difference=difference,
        paper_difference=paper_difference,
        verdict=verdict,
        unpaired=both and difference is None,
    )


def table(found: Sequence[Line]) -> Table:
    """Return the heading and a row per line, without columns that are empty in all of them."""
    rows = [
        (
            line.shown_row,
            line.shown_epochs,
            line.filters,
            line.init,
            show_mean(line.measured.mean, line.measured.std) if line.measured else _missing(line.missing),
            "no seed in common" if line.unpaired else show_difference(line.difference),
            str(line.measured.n) if line.measured else "",
            show_mean(line.paper.mean, line.paper.std) if line.paper else "",
            "" if line.paper_difference is None else f"{line.paper_difference:+.2f}",
            line.verdict or "",
        )
        for line in found
    ]
    used = [i for i in range(len(HEAD)) if any(row[i] for row in rows)]
    return [[row[i] for i in used] for row in (HEAD, *rows)]


def verdict_counts(found: Sequence[Line]) -> str:
    """How many of the paper's signs hold, are contradicted and are open; empty if none was judged."""
    verdicts = Counter(line.verdict for line in found if line.verdict is not None)
    if not verdicts:
        return ""
    return (
        f"Of {verdicts.total()} signs of the paper's differences from uniform {verdicts['holds']} hold, "
        f"{verdicts['contradicts']} are contradicted and {verdicts['open']} are open."
    )


def notes(record: ExperimentRecord, found: Sequence[Line]) -> list[str]:
    """Return notes on reductions, and on how differences and verdicts come about."""
    said = [f"Smaller than in the paper: {record.reduced}."] if record.reduced and record.trained else []
    said += [METHOD] if any(line.difference for line in found) else []
    said += [verdict_counts(found), VERDICTS] if verdict_counts(found) else []
    if record.chart == "ranking" and not find_scale(record.scale).judges:
        said.append("Nothing is ranked at this scale, whose accuracies mean nothing.")
    return said + ([f"The runs took {duration(record.seconds)} of training in all."] if record.seconds else [])


def warnings(record: ExperimentRecord) -> list[str]:
    """Return warnings of missing and damaged runs, which are left out of every mean."""
    said = []
    if record.missing:
        count = counted(len(record.missing), "run")
        said.append(f"Missing, and left out of every mean ({count}): {'; '.join(record.missing)}.")
    return said + [f"{text[0].upper()}{text[1:]}." for text in record.damaged]


def introduction(record: ExperimentRecord) -> str:
    """Return the purpose of an experiment, its name and scale, and the networks trained."""
    trained = f" Trained: {record.trained}." if record.trained else ""
    return f"{record.name}, scale {record.scale}: {record.shows.removesuffix('.')}.{trained}"


def speed_table(record: ExperimentRecord) -> Table:
    """Return the times of a step, thawed and frozen; a heading alone if none was timed."""
    head = ["network", "kernel", "thawed step, ms", "frozen step, ms", "frozen takes less"]
    return [
        head,
        *(
            [
                speed.model,
                str(speed.kernel_size),
                f"{1000 * speed.thawed:.1f}",
                f"{1000 * speed.frozen:.1f}",
                f"{1 - speed.frozen / speed.thawed:.0%}",
            ]
            for speed in record.speeds
        ),
    ]


@dataclass(frozen=True)
class Ranking:
    """The initialisations of one row, best first: rank, accuracy, distance behind the first, who is not told apart."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    told: int  # pairs
    pairs: int

    def table(self) -> Table:
        """Return the heading and a row for each initialisation."""
        head = ["rank", "initialisation", "measured", "n", "behind the first", "not told apart from"]
        return [head, *map(list, self.rows)]

    def __str__(self) -> str:
        return f"{self.title}: {self.told} of {counted(self.pairs, 'pair')} told apart"


def rankings(record: ExperimentRecord) -> list[Ranking]:
    """Return a ranking for each row, frozen and thawed; none where accuracies mean nothing."""
    if record.chart != "ranking" or not find_scale(record.scale).judges:
        return []
    rows: dict[str, dict[str, Mapping[int, float]]] = defaultdict(dict)
    for cell, line in zip(record.cells, lines(record), strict=True):
        if cell.accuracies:
            rows[f"{line.shown_row}, {cell.filters}"][cell.init] = cell.by_seed
    return [rank(title, inits) for title, inits in rows.items() if len(inits) > 1]


def rank(title: str, inits: Mapping[str, Mapping[int, float]]) -> Ranking:
    """Return the ranking of initialisations by their mean accuracy, each given as accuracies by seed.

    >>> found = rank("toys", {"a": {0: 50.0, 1: 52.0}, "b": {0: 50.5, 1: 51.0}, "c": {0: 40.0, 1: 42.1}})
    >>> [row[-1] for row in found.rows], str(found)
    (['2', '1, 3', '2'], 'toys: 1 of 3 pairs told apart')
    """
    ordered = sorted(inits, key=lambda init: -float(np.mean(list(inits[init].values()))))
    alike: dict[str, list[int]] = {init: [] for init in ordered}
    pairs = list(combinations(enumerate(ordered, start=1), 2))
    for (rank_of_first, first), (rank_of_second, second) in pairs:
        d = paired_difference(inits[first], inits[second])
        if d is None or d.low is None or d.high is None or d.low * d.high <= 0:
            alike[first].append(rank_of_second)
            alike[second].append(rank_of_first)
    rows = []
    for place, init in enumerate(ordered, start=1):
        measured = summarise(list(inits[init].values()))
        behind = show_difference(paired_difference(inits[init], inits[ordered[0]])) if place > 1 else ""
        others = ", ".join(map(str, sorted(alike[init]))) or "none"
        rows.append((str(place), init, show_mean(measured.mean, measured.std), str(measured.n), behind, others))
    return Ranking(title, tuple(rows), len(pairs) - sum(map(len, alike.values())) // 2, len(pairs))


def to_csv(record: ExperimentRecord) -> str:
    """Return a line per cell with every number unrounded; what is missing or unknown is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for line in lines(record):
        measured, paper, difference = line.measured, line.paper, line.difference
        writer.writerow(
            [record.name, record.scale, line.row, line.epochs, line.trained.model, line.trained.data]
            + [line.trained.epochs, line.filters, line.init]
            + ([measured.mean, measured.std, measured.n] if measured else [None] * 3)
            + [line.missing]
            + ([paper.mean, paper.std] if paper else [None] * 2)
            + ([difference.mean, difference.low, difference.high, difference.n] if difference else [None] * 4)
            + [line.paper_difference, line.verdict]
        )
    return stream.getvalue()


def to_markdown(record: ExperimentRecord) -> str:
    """Return the table with what it needs to be understood."""
    found = lines(record)
    parts = [f"## {record.title}", introduction(record), *notes(record, found), *warnings(record)]
    stated = claim_lines(record)
    parts += ["\n".join(re.sub(r"^( *)", r"\1- ", line) for line in stated)] if stated else []
    parts += [markdown_table(table(found))] if found else []
    ranked = rankings(record)
    parts += [TOLD_APART] if ranked else []
    for ranking in ranked:
        parts += [f"### {ranking}", markdown_table(ranking.table())]
    parts += [markdown_table(speed_table(record))] if record.speeds else []
    return "\n\n".join([*parts, f"    {record.command}"]) + "\n"


def to_latex(record: ExperimentRecord) -> str:
    """Return the table for booktabs."""
    found = lines(record)
    head, *body = [" & ".join(text.translate(_LATEX) for text in row) + r" \\" for row in table(found)]
    comments = [f"% {words}" for words in (record.command, record.title, *notes(record, found), *warnings(record))]
    columns = "l" * 4 + "r" * (len(table(found)[0]) - 4)
    opening, closing = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"], [r"\bottomrule"]
    return "\n".join([*comments, *opening, *body, *closing, r"\end{tabular}", ""])


def to_terminal(record: ExperimentRecord) -> str:
    """Return the table in aligned columns."""
    found = lines(record)
    said = [title_line(record), *(_aligned(table(found)) if found else [])]
    ranked = rankings(record)
    for ranking in ranked:
        said += ["", str(ranking), *_aligned(ranking.table())]
    said += ["", TOLD_APART] if ranked else []
    said += _aligned(speed_table(record)) if record.speeds else []
    return "\n".join([*said, *notes(record, found), *warnings(record)])


def title_line(record: ExperimentRecord) -> str:
    """Return the title of a table in a terminal."""
    return f"{record.title} ({record.name}, scale {record.scale})"


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table, the first row of which is its heading.

    >>> print(markdown_table([["name"], ["a|b"]]))
    | name |
    | --- |
    | a\\|b |
    """
    head, *body = [[text.replace("|", "\\|") for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _missing(runs: int) -> str:
    return f"missing {counted(runs, 'run')}"
