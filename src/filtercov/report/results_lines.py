"""An experiment's numbers as lines: what was measured, what the paper has, and how each compares with uniform."""

from collections.abc import Sequence
from dataclasses import dataclass

from filtercov.experiments.paper_numbers import PaperNumber
from filtercov.experiments.records import CellRecord, ExperimentRecord
from filtercov.report.results_statistics import (
    Agreement,
    Difference,
    Summary,
    bootstrap_difference,
    compare_signs,
    summarise,
)

BASELINE = "uniform"


@dataclass(frozen=True)
class Line:
    """One cell of a table. The differences are from uniform in the same row, and missing where either side is."""

    row: str
    epochs: int
    trained_epochs: int
    filters: str
    init: str
    measured: Summary | None
    missing: int  # runs
    paper: PaperNumber | None
    difference: Difference | None
    paper_difference: float | None
    agreement: Agreement | None


def lines(record: ExperimentRecord) -> list[Line]:
    """Return a line per cell, in the experiment's order."""
    uniform = {_group(cell): cell for cell in record.cells if cell.init == BASELINE}
    return [_line(cell, uniform.get(_group(cell))) for cell in record.cells]


def agreements(found: Sequence[Line]) -> tuple[int, int]:
    """Return how many differences have the paper's sign, of how many that can be compared."""
    compared = [line.agreement for line in found if line.agreement is not None]
    return compared.count("agrees"), len(compared)


def _group(cell: CellRecord) -> tuple[str, int, str]:
    return cell.row, cell.epochs, cell.filters


def _line(cell: CellRecord, uniform: CellRecord | None) -> Line:
    difference = paper_difference = None
    if uniform is not None and cell.init != BASELINE:
        if cell.accuracies and uniform.accuracies:
            difference = bootstrap_difference(cell.accuracies, uniform.accuracies)
        if cell.paper and uniform.paper:
            paper_difference = round(cell.paper.mean - uniform.paper.mean, 2)
    known = difference is not None and paper_difference is not None
    return Line(
        row=cell.row,
        epochs=cell.epochs,
        trained_epochs=cell.trained_epochs,
        filters=cell.filters,
        init=cell.init,
        measured=summarise(cell.accuracies) if cell.accuracies else None,
        missing=len(cell.missing),
        paper=cell.paper,
        difference=difference,
        paper_difference=paper_difference,
        agreement=compare_signs(difference.mean, paper_difference) if known else None,  # type: ignore[union-attr, arg-type]
    )
