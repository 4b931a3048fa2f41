"""An experiment's numbers as a table beside the paper's and uniform's: Markdown, CSV, LaTeX and the terminal."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from filtercov.lab.experiments.records import CellRecord, ExperimentRecord
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.groups import FinishedRun, Group, Table, by, tabulate
from filtercov.lab.report.results_claims import claim_lines
from filtercov.lab.report.results_statistics import CONFIDENCE, INTERVAL, METHOD, Summary, paired_difference
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
    f"Two initialisations are told apart if the {INTERVAL} of their difference, paired over seeds, lies "
    f"on one side of zero; without any difference one pair in {BY_CHANCE} is told apart by chance."
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
    def verdict(self) -> Literal["holds", "contradicted", "open"] | None:
        """Whether the sign of the paper's difference holds; None if that is zero or fewer than two seeds are shared."""
        papers, found = self.paper_difference, self.difference
        if not self.judged or not papers or not found or found.n < 2:
            return None
        return "open" if not found.decided else "holds" if found.mean * papers > 0 else "contradicted"


def lines(record: ExperimentRecord) -> list[Line]:
    """A line per cell, in the experiment's order."""

    def line(cell: CellRecord, baseline: Line | None = None) -> Line:
        return Line(
            label=f"{cell.init}, {cell.filters}",
            runs=[FinishedRun(seed, curve) for seed, curve in zip(cell.seeds, cell.curves, strict=True)],
            baseline=baseline,
            paper=Summary(cell.paper.mean, cell.paper.std) if cell.paper else None,
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
    return [rank(title, found) for title, found in rows.items() if len(found) > 1]


def told_apart(one: Group, other: Group) -> bool:
    """Whether the interval of a paired difference lies on one side of zero."""
    difference = paired_difference(one.by_seed, other.by_seed)
    return difference is not None and difference.decided


def rank(title: str, found: Sequence[Line]) -> Ranking:
    """Rank the initialisations of a row by their mean accuracy."""
    ordered = sorted(found, key=lambda line: -line.measured.mean if line.measured else 0.0)
    places = list(enumerate(ordered, start=1))
    alike = [[str(i) for i, other in places if other is not line and not told_apart(line, other)] for line in ordered]
    rows = [["rank", "initialisation", "measured", "n", "behind the first", "not told apart from"]]
    for place, line in places:
        behind = paired_difference(line.by_seed, ordered[0].by_seed) if place > 1 else ""
        others = ", ".join(alike[place - 1]) or "none"
        rows.append([str(place), line.cell.init, str(line.measured), str(len(line.runs)), str(behind or ""), others])
    pairs = len(ordered) * (len(ordered) - 1) // 2
    apart = pairs - sum(map(len, alike)) // 2
    return Ranking(f"{title}: {apart} of {counted(pairs, 'pair')} told apart", rows)


def to_rows(record: ExperimentRecord) -> list[dict[str, Any]]:
    """A dictionary per cell with every number unrounded, None for what is missing or unknown."""
    rows: list[dict[str, Any]] = []
    for line in lines(record):
        cell, trained, m, p, d = line.cell, line.cell.trained, line.measured, line.paper, line.difference
        rows.append(
            {"experiment": record.name, "scale": record.scale, "row": cell.row, "epochs": cell.epochs}
            | {"network": trained.model, "data": trained.data, "trained_epochs": trained.epochs}
            | {"filters": cell.filters, "initialisation": cell.init}
            | {"mean": m and m.mean, "std": m and m.std, "n": m and m.n, "missing_runs": len(cell.missing)}
            | {"paper_mean": p and p.mean, "paper_std": p and p.std}
            | {"difference": d and d.mean, "low": d and d.low, "high": d and d.high, "pairs": d and d.n}
            | {"paper_difference": line.paper_difference, "verdict": line.verdict}
        )
    return rows


def to_csv(record: ExperimentRecord) -> str:
    """A line per cell; what is missing or unknown is empty."""
    rows = to_rows(record)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
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
    rows = table(found)
    head, *body = [" & ".join(text.translate(_LATEX) for text in row) + r" \\" for row in rows]
    comments = [f"% {words}" for words in (record.command, record.title, *notes(record, found), *warnings(record))]
    columns = "l" * 4 + "r" * (len(rows[0]) - 4)
    opening, closing = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"], [r"\bottomrule"]
    return "\n".join([*comments, *opening, *body, *closing, r"\end{tabular}", ""])


def printed(record: ExperimentRecord) -> list[str | Table]:
    """What a terminal or notebook shows of an experiment, line by line and table by table, before its notes."""
    found = lines(record)
    parts: list[str | Table] = [f"{record.title} ({record.name}, scale {record.scale})"]
    parts += [table(found)] if found else []
    ranked = rankings(record)
    for ranking in ranked:
        parts += [f"\n{ranking}", ranking.table]
    parts += [f"\n{TOLD_APART}"] if ranked else []
    parts += [speed_table(record)] if record.speeds else []
    return [*parts, *claim_lines(record), *warnings(record)]


def to_terminal(record: ExperimentRecord) -> str:
    """All that is printed of an experiment, tables in aligned columns."""
    parts = [*printed(record), *notes(record, lines(record))]
    return "\n".join(part if isinstance(part, str) else "\n".join(aligned(part)) for part in parts)


def markdown_table(rows: Table) -> str:
    """A table, the first row of which is its heading.

    >>> print(markdown_table([["name"], ["a|b"]]))
    | name |
    | --- |
    | a\\|b |
    """
    head, *body = [[text.replace("|", "\\|") for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])
