"""An experiment's table as Markdown, CSV, LaTeX, and for the terminal."""

import csv
import io
import re
from collections.abc import Callable, Sequence

from filtercov.lab.experiments.paper_numbers import PaperNumber
from filtercov.lab.experiments.records import ExperimentRecord
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.results_claims import claim_lines
from filtercov.lab.report.results_lines import Line, lines, tally
from filtercov.lab.report.results_ranking import NOT_RANKED, TOLD_APART, rankings
from filtercov.lab.report.results_words import (
    METHOD,
    ONE_RUN,
    VERDICTS,
    heading,
    introduction,
    show_difference,
    show_mean,
    show_measured,
)
from filtercov.lab.training.progress import duration
from filtercov.printable import counted

HEAD = (
    "row",
    "epochs (the paper's)",
    "filters",
    "initialisation",
    "measured",
    "n",
    "paper",
    "over uniform",
    "in the paper",
    "the paper's sign",
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
    parts = [f"## {heading(record)}", introduction(record), *notes(record, found)]
    stated = claim_lines(record)
    parts += ["\n".join(re.sub(r"^( *)", r"\1- ", line) for line in stated)] if stated else []
    if found:
        parts.append(markdown_table(table(found)))
    ranked = rankings(record)
    parts += [TOLD_APART] if ranked else []
    for ranking in ranked:
        parts += [f"### {ranking}", markdown_table(ranking.table())]
    if record.speeds:
        head = ["network", "kernel", "thawed step, s", "frozen step, s", "frozen takes less"]
        rows = [
            [s.model, str(s.kernel_size), f"{s.thawed:.3f}", f"{s.frozen:.3f}", f"{1 - s.frozen / s.thawed:.0%}"]
            for s in record.speeds
        ]
        parts.append(markdown_table([head, *rows]))
    parts.append(f"    {record.command}")
    return "\n\n".join(parts) + "\n"


def to_latex(record: ExperimentRecord) -> str:
    """Return the table in the paper's arrangement, measured above the paper's numbers, for booktabs."""
    found = lines(record)
    columns = list(dict.fromkeys((line.filters, line.init) for line in found))
    rows = list(dict.fromkeys((show_row(line), show_epochs(line)) for line in found))
    by_place = {(show_row(line), show_epochs(line), line.filters, line.init): line for line in found}

    def cell_row(place: tuple[str, str], show: Callable[[Line], str]) -> str:
        shown = (by_place.get((*place, *column)) for column in columns)
        return " & ".join(show(line) if line else "" for line in shown)

    body = []
    for place in rows:
        body.append(f"{_escape(place[0])} & {place[1]} & {cell_row(place, _latex_measured)} \\\\")
        body.append(f" & \\emph{{paper}} & {cell_row(place, _latex_paper)} \\\\")
    head = " & ".join(f"\\rotatebox{{90}}{{{_escape(f'{filters} {init}')}}}" for filters, init in columns)
    return "\n".join(
        [
            f"% {record.command}",
            f"% {heading(record)}",
            *(f"% {note}" for note in notes(record, found)),
            f"\\begin{{tabular}}{{ll{'r' * len(columns)}}}",
            "\\toprule",
            f" & epochs & {head} \\\\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "",
        ]
    )


def to_terminal(record: ExperimentRecord) -> str:
    """Return the table in aligned columns."""
    found = lines(record)
    rows = _aligned(table(found)) if found else []
    said = [title_line(record), *rows, *ranking_lines(record), *speed_lines(record), *notes(record, found)]
    return "\n".join(said)


def ranking_lines(record: ExperimentRecord) -> list[str]:
    """Return the rankings of a record, and what it takes to be told apart."""
    ranked = rankings(record)
    text = [line for ranking in ranked for line in ["", str(ranking), *_aligned(ranking.table())]]
    return [*text, "", TOLD_APART] if ranked else []


def title_line(record: ExperimentRecord) -> str:
    """Return what a table is headed with in a terminal."""
    return f"{heading(record)} ({record.name}, scale {record.scale})"


def speed_lines(record: ExperimentRecord) -> list[str]:
    """Return a line for each network whose steps were timed."""
    return [
        f"{s.model}: thawed {1000 * s.thawed:.0f} ms, frozen {1000 * s.frozen:.0f} ms a step" for s in record.speeds
    ]


def notes_once(records: Sequence[ExperimentRecord]) -> tuple[list[list[str]], list[str]]:
    """Return the notes that each table has alone, and those that several share, once, with whose if not all tables'."""
    of = [notes(record, lines(record)) for record in records]
    tables: dict[str, list[str]] = {}
    for record, said in zip(records, of, strict=True):
        for note in said:
            tables.setdefault(note, []).append(record.name)
    own = [[note for note in said if len(tables[note]) == 1] for said in of]
    shared = [
        note if len(names) == len(records) else f"{', '.join(names)}: {note}"
        for note, names in tables.items()
        if len(names) > 1
    ]
    return own, shared


def notes(record: ExperimentRecord, found: Sequence[Line]) -> list[str]:
    """Return what a reader of the numbers must know: reductions, the verdicts, what is missing or damaged."""
    said = []
    if record.reduced and record.trained:
        said.append(f"Smaller than in the paper: {record.reduced}.")
    if any(line.difference for line in found):
        said.append(METHOD)
    if verdicts := tally(found):
        said.append(
            f"Of {verdicts.total()} signs of the paper's differences from uniform {verdicts['holds']} hold, "
            f"{verdicts['contradicts']} are contradicted and {verdicts['open']} are open."
        )
        said.append(VERDICTS)
    if record.chart == "ranking" and not find_scale(record.scale).judges:
        said.append(NOT_RANKED)
    if any(line.measured and line.measured.n == 1 for line in found):
        said.append(ONE_RUN)
    if record.missing:
        count = counted(len(record.missing), "run")
        said.append(f"Missing, and left out of every mean ({count}): {'; '.join(record.missing)}.")
    said += [f"{text[0].upper()}{text[1:]}." for text in record.damaged]
    if record.seconds:
        said.append(f"The runs took {duration(record.seconds)} of training in all.")
    return said


def table(found: Sequence[Line]) -> list[list[str]]:
    """Return the heading and a row per line, without the columns that are empty in all of them."""
    rows = [_cells(line) for line in found]
    used = [i for i in range(len(HEAD)) if any(row[i] for row in rows)]
    return [[row[i] for i in used] for row in (HEAD, *rows)]


def _cells(line: Line) -> tuple[str, ...]:
    return (
        show_row(line),
        show_epochs(line),
        line.filters,
        line.init,
        show_measured(line.measured, line.missing),
        str(line.measured.n) if line.measured else "",
        show_paper(line.paper),
        "no seed in common" if line.unpaired else show_difference(line.difference),
        "" if line.paper_difference is None else f"{line.paper_difference:+.2f}",
        line.verdict or "",
    )


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table, the first row of which is its heading.

    >>> print(markdown_table([["name"], ["a|b"]]))
    | name |
    | --- |
    | a\\|b |
    """
    head, *body = [[text.replace("|", "\\|") for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


def show_row(line: Line) -> str:
    """Return the paper's name of a row, and the network that stands for it where that is another."""
    return f"{line.row}: {line.trained.model}" if line.stands_for else line.row


def show_epochs(line: Line) -> str:
    """Return the epochs trained, and the paper's where they differ."""
    return str(line.epochs) if line.trained.epochs == line.epochs else f"{line.trained.epochs} ({line.epochs})"


def show_paper(paper: PaperNumber | None) -> str:
    """Return the paper's number as the paper writes it, nothing if it has none."""
    if paper is None:
        return ""
    return show_mean(paper.mean, paper.std)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _latex_measured(line: Line) -> str:
    return _escape(show_measured(line.measured, line.missing))


def _latex_paper(line: Line) -> str:
    return _escape(show_paper(line.paper))


def _escape(text: str) -> str:
    return text.translate(_LATEX)
