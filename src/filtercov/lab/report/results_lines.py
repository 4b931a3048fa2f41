"""An experiment's numbers as lines: what was measured, what the paper has, and how each compares with uniform."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from filtercov.lab.experiments.paper_numbers import PaperNumber
from filtercov.lab.experiments.records import CellRecord, ExperimentRecord, Trained
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.results_statistics import Difference, Summary, Verdict, judge, paired_difference, summarise

BASELINE = "uniform"


@dataclass(frozen=True)
class Line:
    """One cell of a table. The differences are from uniform in the same row, and missing where either side is.

    The claim that the verdict is on is the sign of the paper's difference; there is none where that is zero. Nor is
    there a verdict where the two sides share fewer than two seeds, or at a scale whose accuracies mean nothing.
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
    unpaired: bool = False  # both sides were measured, but not with one common seed


def lines(record: ExperimentRecord) -> list[Line]:
    """Return a line per cell, in the experiment's order."""
    uniform = {_group(cell): cell for cell in record.cells if cell.init == BASELINE}
    judges = find_scale(record.scale).judges
    return [_line(cell, uniform.get(_group(cell)), bool(record.reduced), judges) for cell in record.cells]


def tally(found: Sequence[Line]) -> Counter[Verdict]:
    """Return how many of the paper's signs hold, are contradicted and are open."""
    return Counter(line.verdict for line in found if line.verdict is not None)


def _group(cell: CellRecord) -> tuple[str, int, str]:
    return cell.row, cell.epochs, cell.filters


def _line(cell: CellRecord, uniform: CellRecord | None, reduced: bool, judges: bool) -> Line:
    difference = paper_difference = verdict = None
    unpaired = False
    if uniform is not None and cell.init != BASELINE:
        if cell.paper and uniform.paper:
            paper_difference = round(cell.paper.mean - uniform.paper.mean, 2)
        if cell.accuracies and uniform.accuracies:
            difference = paired_difference(cell.by_seed, uniform.by_seed)
            unpaired = difference is None
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
        unpaired=unpaired,
    )
