"""What the paper claims, and what will decide each claim: written down before anything is run.

A claim is one experiment, `claim-c1` to `claim-c18` of `experiments.csv`, and a few comparisons of its cells, the rows
of `claims.csv`. A comparison is a number for each seed, made of the accuracies of that seed: mostly a difference of two
cells, in points, written as `filters/initialisation @ row`. The paper's own number for the same cells stands beside it
where its tables have them (`paper_difference`). Two more claims need no run: `reference_claims.py` has them.

What a comparison asks follows the paper's words. "Better" must be `above` zero. "Little change" must be the `same`:
within `MARGIN` of zero. "As good in half the time" must be `at least` as good: not worse by `MARGIN`. Where the paper
says neither frozen nor thawed the comparison is of frozen filters, which keep all that the initialisation gave them.

Two rows are more than a difference. C5 is the rise of the gain from 3x3 to 15x15 filters on the least-squares line
through four sizes. C15 is the median of nine of the 27 schedules (σ0, v, a) around the paper's, half and double: every
two values of two numbers meet once.

`lab/report/results_claims.py` judges; `catalogue/tables.py` makes the runs from the cells that comparisons name.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast

from filtercov.lab.experiments.paper_numbers import EPOCHS, CellName, Place, paper_numbers, read_csv

__all__ = ["CLAIMS", "MARGIN", "CellName", "Claim", "Comparison"]

Asks = Literal["above", "same", "at least"]

MARGIN = 1.0  # points of accuracy that count as no difference
# The table and row of the paper that have a row of the claims.
_PAPER_ROWS = {
    **{f"k{k}": ("cifar-convmixer-256-8-p2", f"k{k}") for k in (3, 7, 9, 15)},
    "depth 8": ("cifar-convmixer-256-8-p2", "k9"),
    "depth 24": ("cifar-convmixer-256-24-p2", "k9"),
    "convnext": ("cifar-convnext-atto-p2", "k7"),
}
_TERM = re.compile(r"([+-]?) ?(?:([\d./]+) )?([a-z][^@]*) @ (.+?)(?: in (\d+))?(?= [+-] |$)")


@dataclass(frozen=True)
class Comparison:
    """A number that each seed has: the weighted sum of cells, and, if `median_of` names some, the median of those.

    A comparison that is `beside` its claim, for the reason given, is shown and decides nothing.
    """

    says: str
    terms: tuple[tuple[float, CellName], ...]  # weights and cells
    asks: Asks = "above"
    median_of: tuple[CellName, ...] = ()
    beside: str = ""

    @property
    def cells(self) -> tuple[CellName, ...]:
        """Every cell it needs."""
        return (*(cell for _, cell in self.terms), *self.median_of)

    @property
    def least(self) -> float:
        """The number that its own must be above."""
        return 0.0 if self.asks == "above" else -MARGIN

    @property
    def needed(self) -> str:
        """What its number must be, in words."""
        return f"within ±{MARGIN:g}" if self.asks == "same" else f"above {self.least:g}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, in a sentence of ours, and all comparisons that must hold for it to hold."""

    number: str
    says: str
    comparisons: tuple[Comparison, ...]

    @property
    def experiment(self) -> str:
        """The name in the catalogue: `filtercov reproduce claim-c1` settles C1."""
        return f"claim-{self.number.lower()}"

    def paper_difference(self, comparison: Comparison) -> float | None:
        """The paper's own number for a comparison, from the means of its tables; None where they lack a cell.

        >>> c4 = next(claim for claim in CLAIMS if claim.number == "C4")
        >>> [round(c4.paper_difference(comparison), 2) for comparison in c4.comparisons]
        [0.56, 1.3, 3.74]
        """
        total = 0.0
        for weight, cell in comparison.terms:
            table, row = _PAPER_ROWS.get(cell.row, ("", ""))
            number = paper_numbers().get(Place(table, row, cell.column, cell.epochs))
            if number is None or comparison.median_of:
                return None
            total += weight * number.mean
        return total


def read_terms(text: str) -> Iterator[tuple[float, CellName]]:
    """The weights and cells of a sum.

    >>> list(read_terms("1/4 frozen/uniform @ k9 - thawed/uniform @ depth 16 in 40"))[1]
    (-1.0, CellName(row='depth 16', column='thawed/uniform', epochs=40))
    """
    for sign, weight, column, row, epochs in _TERM.findall(text):
        trained = 0 if column == "saved" else int(epochs or EPOCHS)
        yield float(Fraction(f"{sign}{weight or 1}")), CellName(row, column, trained)


def _read_claims() -> Iterator[Claim]:
    comparisons: dict[str, list[Comparison]] = defaultdict(list)
    for line in read_csv("claims.csv"):
        terms, asks = tuple(read_terms(line["number"])), cast(Asks, line["asks"])
        median_of = tuple(cell for _, cell in read_terms(line["median of"]))
        comparisons[line["claim"]].append(Comparison(line["says"], terms, asks, median_of, line["beside"]))
    about = {line["name"]: line for line in read_csv("experiments.csv")}
    for number, decisive in comparisons.items():
        claim = about[f"claim-{number.lower()}"]
        yield Claim(number, claim["shows"], tuple(decisive))


CLAIMS = tuple(_read_claims())
