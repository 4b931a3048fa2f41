"""What an experiment's record says of the claim that it is to settle.

Each comparison is judged by Student's 95 % interval over seeds. What must be above zero holds if all of the interval
is, is contradicted if all of it is below, and shows no difference if it lies within ±1 point. What must be the same
holds within ±1 point and is contradicted outside; what must be at least as good holds above -1 and is contradicted
below. Everything else is open.

Several comparisons become one verdict so that either decision is wrong in at most 5 of 100 experiments. A claim holds
only if every comparison does: whoever asks for all of them needs no correction, because where one is false that one
alone must be passed by chance. A claim is contradicted if any comparison is, and chance has as many tries at that as
there are comparisons, so their intervals are widened to 1 - 5 %/m, Bonferroni's, which is also Holm's first step and
decides whether there is any. There is no difference where every comparison is settled and some show none. Everything
else is open, and a claim of which nothing was run is not run.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from filtercov.lab.experiments.paper_claims import CLAIMS, MARGIN, Asks, CellName, Claim, Comparison
from filtercov.lab.experiments.records import ExperimentRecord
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.results_statistics import (
    CONFIDENCE,
    Difference,
    paired_difference,
    show_difference,
    t_quantile,
)
from filtercov.printable import counted

ClaimVerdict = Literal["holds", "contradicts", "no difference", "open", "not run"]

_WORDS: Mapping[ClaimVerdict, tuple[str, str]] = {  # of one, of several
    "holds": ("holds", "hold"),
    "contradicts": ("contradicts", "contradict"),
    "no difference": ("shows no difference", "show no difference"),
    "open": ("is open", "are open"),
    "not run": ("was not run", "were not run"),
}


@dataclass(frozen=True)
class Compared:
    """A comparison, the mean of its number over n seeds with the 95 % interval, and what that says."""

    comparison: Comparison
    difference: Difference | None  # None: not run
    verdict: ClaimVerdict
    paper: float | None = None  # the paper's own difference for the same cells

    def __str__(self) -> str:
        theirs = "" if self.paper is None else f" (the paper's: {self.paper:+.2f})"
        needed = f"must be {self.comparison.needed}"
        return f"{self.comparison.says}, {needed}: {show_difference(self.difference)}{theirs}, {self.shown_verdict}"

    @property
    def shown_verdict(self) -> str:
        """The verdict, and whether it decides nothing."""
        return f"{self.verdict}, beside the claim" if self.comparison.beside and self.difference else self.verdict


@dataclass(frozen=True)
class Finding:
    """What was found of a claim; `n` is the fewest seeds, or turns of a timing, that any comparison had."""

    claim: Claim
    verdict: ClaimVerdict
    n: int
    compared: tuple[Compared, ...]
    sentence: str

    @property
    def counted(self) -> tuple[Compared, ...]:
        """The comparisons that decide."""
        return _counted(self.compared)

    @property
    def in_part(self) -> bool:
        """Whether some of the comparisons that decide were run, and some were not."""
        return len({one.difference is None for one in self.counted}) == 2

    @property
    def begun(self) -> bool:
        """Whether there is any comparison to show."""
        return any(one.difference for one in self.compared)


def judge_claim(claim: Claim, record: ExperimentRecord) -> Finding:
    """Judge a claim by the record of its experiment."""
    if not find_scale(record.scale).judges:
        compared = tuple(Compared(comparison, None, "not run") for comparison in claim.comparisons)
        return Finding(claim, "not run", 0, compared, f"Scale {record.scale} shows that it runs, not what is true.")
    numbers = _by_cell(record)
    differences = [_difference(comparison, numbers) for comparison in claim.comparisons]
    compared = tuple(
        Compared(comparison, difference, _judge(difference, comparison.asks), claim.paper_difference(comparison))
        for comparison, difference in zip(claim.comparisons, differences, strict=True)
    )
    counted_ones = _counted(compared)
    verdict = _together(counted_ones)
    fewest = min((one.difference.n for one in counted_ones if one.difference), default=0)
    beside = "".join(
        f" Beside it stands '{one.comparison.says}': {one.comparison.beside}."
        for one in compared
        if one.comparison.beside and one.difference
    )
    timed = f" Timed on {record.versions['timed on']}." if record.speeds else ""
    return Finding(claim, verdict, fewest, compared, _sentence(verdict, counted_ones) + beside + timed)


def _counted(compared: tuple[Compared, ...]) -> tuple[Compared, ...]:
    return tuple(one for one in compared if not one.comparison.beside)


def findings_of(record: ExperimentRecord) -> list[Finding]:
    """Judge the claim that a record belongs to, if any."""
    return [judge_claim(claim, record) for claim in CLAIMS if claim.experiment == record.name]


def claim_lines(record: ExperimentRecord) -> list[str]:
    """Return the finding on a record's claim as lines to print, none if it belongs to no claim."""
    return [
        line
        for finding in findings_of(record)
        for line in (
            f"{finding.claim.number}, {finding.claim.says} Verdict: {finding.verdict}. {finding.sentence}",
            *(f"  {compared}" for compared in finding.compared if compared.difference),
        )
    ]


def _by_cell(record: ExperimentRecord) -> dict[CellName, dict[int, float]]:
    """Return the number of each seed, or turn, of everything that was run."""
    cells = {CellName(cell.row, cell.column, cell.epochs): cell.by_seed for cell in record.cells if cell.accuracies}
    saved = {CellName(f"k{s.kernel_size}", "saved", 0): dict(enumerate(s.saved)) for s in record.speeds if s.saved}
    return cells | saved


def _difference(comparison: Comparison, numbers: dict[CellName, dict[int, float]]) -> Difference | None:
    if not all(cell in numbers for cell in comparison.cells):
        return None
    seeds = set.intersection(*(set(numbers[cell]) for cell in comparison.cells))
    middle = {
        seed: float(np.median([numbers[cell][seed] for cell in comparison.median_of])) if comparison.median_of else 0.0
        for seed in seeds
    }
    weighted = {seed: sum(weight * numbers[cell][seed] for weight, cell in comparison.terms) for seed in seeds}
    return paired_difference({seed: middle[seed] + weighted[seed] for seed in seeds}, dict.fromkeys(seeds, 0.0))


def _judge(difference: Difference | None, asks: Asks) -> ClaimVerdict:
    if difference is None:
        return "not run"
    if difference.low is None or difference.high is None:
        return "open"
    low, high = difference.low, difference.high
    within = low > -MARGIN and high < MARGIN
    if asks == "same":
        return "holds" if within else "contradicts" if low > MARGIN or high < -MARGIN else "open"
    least = 0.0 if asks == "above" else -MARGIN
    if low > least or high < least:
        return "holds" if low > least else "contradicts"
    return "no difference" if within else "open"


def _together(compared: tuple[Compared, ...]) -> ClaimVerdict:
    verdicts = {one.verdict for one in compared}
    if verdicts in ({"not run"}, {"holds"}):
        return verdicts.pop()
    widened = [_judge(_widened(one.difference, len(compared)), one.comparison.asks) for one in compared]
    if "contradicts" in widened:
        return "contradicts"
    return "no difference" if verdicts <= {"holds", "no difference"} else "open"


def _widened(difference: Difference | None, among: int) -> Difference | None:
    """Return a difference with the interval that one of so many comparisons must have to count on its own."""
    if difference is None or difference.low is None or difference.high is None:
        return difference
    wider = t_quantile(1 - (1 - CONFIDENCE) / among, difference.n - 1) / t_quantile(CONFIDENCE, difference.n - 1)
    half = wider * (difference.high - difference.low) / 2
    return replace(difference, low=difference.mean - half, high=difference.mean + half)


def _sentence(verdict: ClaimVerdict, compared: tuple[Compared, ...]) -> str:
    if verdict == "not run":
        return "Nothing of it was run."
    if len(compared) == 1:
        return f"Its one comparison {_WORDS[compared[0].verdict][0]}."
    counts = Counter(one.verdict for one in compared)
    parts = [f"{counts[kind]} {words[counts[kind] > 1]}" for kind, words in _WORDS.items() if counts[kind]]
    return f"Of {counted(len(compared), 'comparison')} {', '.join(parts)}."
