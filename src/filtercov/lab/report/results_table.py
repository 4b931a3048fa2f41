"""An experiment's numbers as a table beside the paper's and uniform's: Markdown, CSV and the terminal."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from filtercov.lab.experiments.paper import CellName
from filtercov.lab.experiments.records import CellRecord, ExperimentRecord
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.groups import FinishedRun, Group, Part, Table, by, tabulate, with_baselines
from filtercov.lab.report.results_claims import comparison_table, finding_of
from filtercov.lab.report.results_statistics import CONFIDENCE, INTERVAL, METHOD, Summary
from filtercov.lab.training.progress import duration
from filtercov.printable import aligned, counted

BASELINE = "uniform"
OURS = "closed-form"
NAMED = 3  # of the runs that are missing
TOLD_APART = (
    f"Two initialisations are told apart if the {INTERVAL} of their difference, paired over seeds, lies "
    f"on one side of zero; without any difference one pair in {round(1 / (1 - CONFIDENCE))} is told apart by chance."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Line(Group):
    """A cell of an experiment's table as a group, whose baseline is uniform in the same row."""

    cell: CellRecord
    shown_row: str  # the paper's name of the row, and the network that stands for it where that is another

    @property
    def shown_epochs(self) -> str:
        """The epochs trained, and the paper's where they differ."""
        trained, paper = self.cell.trained.epochs, self.cell.epochs
        return str(paper) if trained == paper else f"{trained} ({paper})"


def lines(record: ExperimentRecord) -> list[Line]:
    """A line per cell, in the experiment's order."""
    found = {
        CellName(cell.row, cell.column, cell.epochs): Line(
            label=f"{cell.init}, {cell.filters}",
            runs=[FinishedRun(seed, curve) for seed, curve in cell.curves.items()],
            paper=Summary(cell.paper.mean, cell.paper.std) if cell.paper else None,
            cell=cell,
            shown_row=f"{cell.row}: {cell.trained.model}" if record.reduced else cell.row,
        )
        for cell in record.cells
    }
    return with_baselines(found, lambda name: replace(name, column=f"{name.filters}/{BASELINE}"))


def table(found: Sequence[Line]) -> Table:
    """The numbers of lines beside the paper's and uniform's, without row and epochs if all have the same."""
    one = len({(line.cell.row, line.shown_epochs) for line in found}) == 1
    return tabulate(
        {
            "row": None if one else line.cell.row,
            "epochs (the paper's)": None if one else line.shown_epochs,
            "filters": line.cell.filters,
            "initialisation": line.cell.init,
            "measured": line.measured or f"missing {counted(len(line.cell.missing), 'run')}",
            "over uniform": line.difference and line.difference.interval,
            "n": len(line.runs) or None,
            "paper": line.paper,
            "in the paper": None if line.paper_difference is None else f"{line.paper_difference:+.2f}",
        }
        for line in found
    )


def notes(record: ExperimentRecord) -> list[str]:
    """Notes below a table: what is smaller than in the paper, how differences are computed, who stands where."""
    said = [f"Smaller than in the paper: {record.reduced}."] if record.reduced and record.trained else []
    said += [METHOD] if any(line.difference for line in lines(record)) else []
    said += [*ranking, TOLD_APART] if (ranking := standings(record)) else []
    return said + ([f"The runs took {duration(record.seconds)} of training in all."] if record.seconds else [])


def warnings(record: ExperimentRecord) -> list[str]:
    """Missing and damaged runs, which are left out of every mean."""
    said = []
    if record.missing:
        named = "; ".join(record.missing[:NAMED])
        more = f"; and {len(record.missing) - NAMED} more" if len(record.missing) > NAMED else ""
        count = counted(len(record.missing), "run")
        said.append(f"Missing, and left out of every mean ({count}): {named}{more}.")
    return [*said, *map(as_sentence, record.damaged)]


def as_sentence(text: str) -> str:
    """A remark that begins small and has no full stop, with both."""
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def introduction(record: ExperimentRecord) -> str:
    """The purpose of an experiment, its name and scale, and the networks trained."""
    trained = f" Trained: {record.trained}." if record.trained else ""
    return f"{record.name}, scale {record.scale}: {record.shows.removesuffix('.')}.{trained}"


def speed_table(record: ExperimentRecord) -> Table:
    """The times of a step, thawed and frozen."""
    return tabulate(
        {
            "network": speed.model,
            "kernel": speed.kernel_size,
            "thawed step, ms": f"{1000 * speed.thawed:.1f}",
            "frozen step, ms": f"{1000 * speed.frozen:.1f}",
            "frozen takes less": f"{1 - speed.frozen / speed.thawed:.0%}",
        }
        for speed in record.speeds
    )


def ranked(record: ExperimentRecord) -> dict[str, list[Line]]:
    """The lines of each row, frozen and thawed, that can be compared with uniform, the largest gain first.

    Rows need the closed form and another; there are none unless the experiment is a ranking, at a scale whose
    accuracies mean something.
    """
    if record.chart != "ranking" or not find_scale(record.scale).judges:
        return {}
    compared = (line for line in lines(record) if line.difference)
    return {
        title: sorted(found, key=lambda line: line.difference.mean if line.difference else 0.0, reverse=True)
        for title, found in by(lambda line: f"{line.cell.row} {line.cell.filters}", compared).items()
        if {OURS} < {line.cell.init for line in found}
    }


def standings(record: ExperimentRecord) -> list[str]:
    """For each row of a ranking a sentence: who is as good as the closed form, and who no better than uniform."""
    said = []
    for title, found in ranked(record).items():
        (closed,) = (line for line in found if line.cell.init == OURS)
        words = [f"{title}: the closed form gains {closed.difference}"]
        for kind, members in by(partial(_standing, closed), (line for line in found if line is not closed)).items():
            words.append(f"{kind}: {', '.join(line.cell.init for line in members)}")
        said.append(f"{'; '.join(words)}.")
    return said


def _standing(closed: Line, line: Line) -> str:
    """Where an initialisation stands between uniform and the closed form, if its interval tells."""
    from_closed = replace(line, baseline=closed).difference
    if not from_closed or not from_closed.sign:
        return "not told apart from it"
    if from_closed.sign > 0:
        return "better"
    return "between it and uniform" if line.difference and line.difference.sign > 0 else "no better than uniform"


def to_rows(record: ExperimentRecord) -> list[dict[str, Any]]:
    """A dictionary per cell with every number unrounded, None for what is missing or unknown."""
    found: list[dict[str, Any]] = []
    for line in lines(record):
        cell, trained, m, p, d = line.cell, line.cell.trained, line.measured, line.paper, line.difference
        low, high = (d and d.bounds()) or (None, None)
        found.append(
            {"experiment": record.name, "scale": record.scale, "row": cell.row, "epochs": cell.epochs}
            | {"network": trained.model, "data": trained.data, "trained_epochs": trained.epochs}
            | {"filters": cell.filters, "initialisation": cell.init}
            | {"mean": m and m.mean, "std": m and m.std, "n": m and m.n, "missing_runs": len(cell.missing)}
            | {"paper_mean": p and p.mean, "paper_std": p and p.std}
            | {"difference": d and d.mean, "low": low, "high": high, "pairs": d and d.n}
            | {"paper_difference": line.paper_difference}
        )
    return found


def to_csv(record: ExperimentRecord) -> str:
    """A line per cell, of which there are some; what is missing or unknown is empty."""
    rows, stream = to_rows(record), io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def to_markdown(record: ExperimentRecord) -> str:
    """The tables with what they need to be understood."""
    title, *shown = printed(record)
    return markdown([f"## {title}", *shown, *notes(record), f"    {record.command}"])


def printed(record: ExperimentRecord) -> list[Part]:
    """An experiment for a terminal or notebook, line by line and table by table, without its notes."""
    found, finding = lines(record), finding_of(record)
    shown: list[Part] = [record.title, introduction(record)]
    shown += [table(found)] if found else []
    shown += [speed_table(record)] if record.speeds else []
    if finding:
        shown += [comparison_table(finding)] if finding.run else []
        shown.append(f"{finding.claim.number}, {finding.claim.says} Verdict: {finding.verdict}. {finding.sentence}")
    return [*shown, *warnings(record)]


def to_terminal(record: ExperimentRecord) -> str:
    """All that is printed of an experiment, tables in aligned columns."""
    parts = [*printed(record), *notes(record)]
    return "\n".join(part if isinstance(part, str) else "\n".join(aligned(part)) for part in parts)


def markdown(parts: Iterable[Part]) -> str:
    """Paragraphs and tables as Markdown; empty ones are left out."""
    shown = (part if isinstance(part, str) else markdown_table(part) for part in parts if part)
    return "\n\n".join(shown) + "\n"


def markdown_table(rows: Table) -> str:
    """A table, the first row of which is its heading.

    >>> print(markdown_table([["name"], ["a|b"]]))
    | name |
    | --- |
    | a\\|b |
    """
    head, *body = [[text.replace("|", "\\|") for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])
