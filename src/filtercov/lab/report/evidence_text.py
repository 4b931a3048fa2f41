"""What evidence shows, as Markdown."""

from collections import Counter
from collections.abc import Mapping

from filtercov.lab.report import evidence_tables as tables
from filtercov.lab.report.evidence_view import View
from filtercov.lab.report.results_claims import ClaimVerdict
from filtercov.lab.report.results_ranking import TOLD_APART, rankings
from filtercov.lab.report.results_text import markdown_table
from filtercov.lab.report.results_words import show_cost
from filtercov.printable import counted

COMMANDS = ("command",)  # columns that are code
_WORDS: Mapping[ClaimVerdict, tuple[str, str]] = {  # of one, of several
    "holds": ("holds", "hold"),
    "contradicts": ("is contradicted", "are contradicted"),
    "open": ("is open", "are open"),
    "not run": ("was not run", "were not run"),
}


def evidence_markdown(view: View) -> str:
    """Return all sections, without a title."""
    parts = ["## The row at the paper's size", *row_markdown(view)]
    parts += [
        "## The paper's claims",
        tables.CLAIM_WORDS,
        tables.SCALE_WORDS,
        tally(view),
        _table(tables.claim_table(view)),
    ]
    for finding in view.findings:
        if finding.begun:
            parts.append(f"### {finding.claim.number}: {finding.verdict}")
            parts.append(f"{finding.claim.says} {finding.sentence}")
            parts.append(_table(tables.comparison_table(finding)))
    parts += ["## The ranking", *_ranking(view)]
    if view.records:
        parts += ["## Experiments", _table(tables.experiment_table(view))]
    if view.others:
        parts += ["## Other runs", _table(tables.other_table(view.others))]
    if view.not_run:
        parts += ["## What was not run", tables.cost_words(), _table(tables.not_run_table(view))]
    parts += [f"{text[0].upper()}{text[1:]}." for text in view.damaged]
    parts.append(summary(view))
    return "\n\n".join(parts) + "\n"


def row_markdown(view: View) -> list[str]:
    """Return the row, with what it needs to be understood."""
    parts = [tables.ROW_WORDS, _table(tables.row_table(view.recipes))]
    gains = tables.gain_table(view.recipes)
    if len(gains) > 1:
        parts += ["What the closed form gains, paired over seeds:", _table(gains)]
    if view.unrecorded:
        parts += ["Numbers that were seen, of which no run was kept:", _table(tables.unrecorded_table(view))]
    return [*parts, *row_remarks(view)]


def row_remarks(view: View) -> list[str]:
    """Return what the runs of the row were trained on and with, and the notes that they were kept with."""
    made = dict.fromkeys(line for recipe in view.recipes for line in recipe.made_with)
    return [f"Trained on {line}." for line in made] + [text for recipe in view.recipes for text in recipe.remarks]


def tally(view: View) -> str:
    """Return how many claims hold, are contradicted, are open and were not run."""
    counts = Counter(finding.verdict for finding in view.findings)
    if counts["not run"] == counts.total():
        return f"None of the {counts.total()} claims has been run yet."
    said = ", ".join(f"{counts[kind]} {words[counts[kind] > 1]}" for kind, words in _WORDS.items() if counts[kind])
    in_part = sum(finding.in_part for finding in view.findings)
    partly = f"; {in_part} {'was' if in_part == 1 else 'were'} run in part only" if in_part else ""
    return f"Of {counted(counts.total(), 'claim')} {said}{partly}."


def summary(view: View) -> str:
    """Return how much evidence there is."""
    return (
        f"This is the evidence of {counted(view.runs, 'run')}, which took {show_cost(view.seconds)} of training in "
        "all, by the clock: whatever else the machine did meanwhile is in it."
    )


def _table(rows: tables.Table) -> str:
    """Return a table whose columns of commands are code."""
    head, *body = rows
    coded = [
        [f"`{cell}`" if name in COMMANDS and cell else cell for name, cell in zip(head, row, strict=True)]
        for row in body
    ]
    return markdown_table([head, *coded])


def _ranking(view: View) -> list[str]:
    found = rankings(view.ranking) if view.ranking else []
    if not found:
        return ["It was not run."]
    parts = [TOLD_APART]
    for ranking in found:
        parts += [f"### {ranking}", _table(ranking.table())]
    return parts
