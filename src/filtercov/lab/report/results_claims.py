"""Verdicts on the paper's claims, each from the record of its experiment.

Each comparison is judged by Student's 95 % interval over seeds. What must be above zero holds if all of the interval
is, is contradicted if all of it is below, and shows no difference if it lies within ±1 point. What must be the same
holds within ±1 point and is contradicted outside; what must be at least as good holds above -1 and is contradicted
below. Everything else is open.

Several comparisons become one verdict so that either decision is wrong in at most 5 of 100 experiments. A claim holds
only if every comparison does: whoever asks for all of them needs no correction, because where one is false that one
alone must be passed by chance. A claim is contradicted if any comparison is, and chance has as many tries at that as
there are comparisons, so their intervals are widened to 1 - 5 %/m (Bonferroni). There is no difference where every
comparison is settled and some show none. Everything else is open, and a claim of which nothing was run is not run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from filtercov.lab.experiments.paper import CLAIMS, MARGIN, CellName, Claim, Comparison
from filtercov.lab.experiments.records import ExperimentRecord
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.groups import Table, tabulate
from filtercov.lab.report.results_statistics import CONFIDENCE, INTERVAL, Difference, paired_difference
from filtercov.printable import counted

ClaimVerdict = Literal["holds", "contradicted", "no difference", "open", "not run"]

VERDICTS: Mapping[ClaimVerdict, tuple[str, str]] = {  # of one, of several
    "holds": ("holds", "hold"),
    "contradicted": ("is contradicted", "are contradicted"),
    "no difference": ("shows no difference", "show no difference"),
    "open": ("is open", "are open"),
    "not run": ("was not run", "were not run"),
}

CLAIM_WORDS = (
    "Each claim is settled by comparisons that were written down before their runs, paired over seeds, with Student's "
    f"{INTERVAL}. It holds if every comparison does, is contradicted if one is after correcting for their number, "
    "shows no difference if all are settled and some lie within ±1 point, and is open otherwise. Ours is the "
    "comparison that is worst for the claim, in points (C14: percent of a step's time); the paper's is for its cells."
)


@dataclass(frozen=True)
class Compared:
    """A comparison, the mean of its number over n seeds with its interval, and the paper's own number."""

    comparison: Comparison
    difference: Difference | None  # None: not run
    paper: float | None

    def verdict(self, among: int = 1) -> ClaimVerdict:
        """The verdict of the interval, which is widened for one of `among` comparisons (Bonferroni)."""
        least, most = self.comparison.least, MARGIN if self.comparison.asks == "same" else inf
        if self.difference is None:
            return "not run"
        if not (bounds := self.difference.bounds(1 - (1 - CONFIDENCE) / among)):
            return "open"
        low, high = bounds
        if low > least and high < most:
            return "holds"
        if high < least or low > most:
            return "contradicted"
        return "no difference" if low > -MARGIN and high < MARGIN else "open"


@dataclass(frozen=True)
class Finding:
    """A claim, its comparisons, and the verdict on all of them together."""

    claim: Claim
    compared: tuple[Compared, ...]
    remark: str = ""

    @property
    def counted(self) -> tuple[Compared, ...]:
        """The comparisons that decide."""
        return tuple(one for one in self.compared if not one.comparison.beside)

    @property
    def run(self) -> tuple[Compared, ...]:
        """The deciding comparisons that were run."""
        return tuple(one for one in self.counted if one.difference)

    @property
    def verdict(self) -> ClaimVerdict:
        """The verdict on all comparisons that decide."""
        verdicts = {one.verdict() for one in self.counted}
        if verdicts in ({"not run"}, {"holds"}):
            return verdicts.pop()
        if "contradicted" in (one.verdict(len(self.counted)) for one in self.counted):
            return "contradicted"
        return "no difference" if verdicts <= {"holds", "no difference"} else "open"

    @property
    def worst(self) -> Compared | None:
        """The comparison that is worst for the claim: it contradicts most clearly, or is furthest from holding."""

        def end(one: Compared) -> float:
            assert one.difference is not None
            low, high = one.difference.bounds() or (one.difference.mean, inf)
            return high if self.verdict == "contradicted" else low

        return min(self.run, key=end, default=None)

    @property
    def sentence(self) -> str:
        """How the comparisons ended."""
        said = f"Of {counted(len(self.counted), 'comparison')} {tally(one.verdict() for one in self.counted)}."
        beside = [one.comparison for one in self.compared if one.comparison.beside and one.difference]
        said += "".join(f" Beside it stands '{one.says}': {one.beside}." for one in beside)
        return f"{said} {self.remark}".strip()


def tally(verdicts: Iterable[ClaimVerdict]) -> str:
    """How many hold, are contradicted and so on.

    >>> tally(["open", "holds", "holds"])
    '2 hold, 1 is open'
    """
    counts = Counter(verdicts)
    return ", ".join(f"{counts[kind]} {words[counts[kind] > 1]}" for kind, words in VERDICTS.items() if counts[kind])


def judge_claim(claim: Claim, record: ExperimentRecord | None) -> Finding:
    """Judge a claim by the record of its experiment; without one, or at a scale that judges nothing, it is not run."""
    numbers: dict[CellName, dict[int, float]] = {}  # of each seed, or turn of a timing
    remark = f"Scale {record.scale} shows that it runs, not what is true." if record else ""
    if record and find_scale(record.scale).judges:
        remark = f"Timed on {record.versions['timed on']}." if record.speeds else ""
        numbers = {CellName(cell.row, cell.column, cell.epochs): cell.by_seed for cell in record.cells}
        numbers |= {CellName(f"k{s.kernel_size}", "saved", 0): dict(enumerate(s.saved)) for s in record.speeds}

    def difference(comparison: Comparison) -> Difference | None:
        found = [numbers.get(cell, {}) for cell in comparison.cells]
        values = {}
        for seed in set.intersection(*map(set, found)):
            middle = float(np.median([numbers[cell][seed] for cell in comparison.median_of] or [0.0]))
            values[seed] = middle + sum(weight * numbers[cell][seed] for weight, cell in comparison.terms)
        return paired_difference(values, dict.fromkeys(values, 0.0))

    compared = (Compared(one, difference(one), claim.paper_difference(one)) for one in claim.comparisons)
    return Finding(claim, tuple(compared), remark)


def finding_of(record: ExperimentRecord) -> Finding | None:
    """The finding on the claim that a record belongs to, if any."""
    return next((judge_claim(claim, record) for claim in CLAIMS if claim.experiment == record.name), None)


def comparison_table(finding: Finding) -> Table:
    """A line for each comparison of a claim."""
    return tabulate(
        {
            "comparison": one.comparison.says,
            "must be": one.comparison.needed,
            "the paper's": paper_range([one]),
            f"ours, {INTERVAL}": one.difference or "not run",
            "verdict": f"{one.verdict()}, beside the claim" if one.comparison.beside else one.verdict(),
        }
        for one in finding.compared
    )


def paper_range(compared: Sequence[Compared]) -> str:
    """The paper's own differences, the least and the largest; empty where its tables have none."""
    found = sorted(one.paper for one in compared if one.paper is not None)
    return " to ".join(dict.fromkeys(f"{number:+.2f}" for number in (found[:1] + found[-1:])))


def claims_answer(findings: Sequence[Finding]) -> str:
    """How many claims hold, are contradicted, show no difference, are open and were not run, and which."""
    said = []
    for verdict in VERDICTS:
        if numbers := [finding.claim.number for finding in findings if finding.verdict == verdict]:
            which = f" ({', '.join(numbers)})" if verdict != "not run" else ""
            said.append(f"{tally([verdict] * len(numbers))}{which}")
    return f"Of {counted(len(findings), 'claim')} {', '.join(said)}."


def claim_table(findings: Iterable[Finding]) -> Table:
    """A line for each claim: the verdict, our difference, the paper's and n."""
    rows = []
    for finding in findings:
        worst, run, missing = finding.worst, len(finding.run), len(finding.counted) - len(finding.run)
        ours = [worst.difference.interval] if worst and worst.difference else []
        ours += [f"the worst of {run}"] if run > 1 else []
        ours += [f"{missing} not run"] if run and missing else []
        rows.append(
            {
                "#": finding.claim.number,
                "claim": finding.claim.says,
                "verdict": finding.verdict,
                f"ours, {INTERVAL}": ", ".join(ours),
                "the paper's": paper_range([worst] if worst else finding.counted),
                "n": min((one.difference.n for one in finding.run if one.difference), default=None),
            }
        )
    return tabulate(rows)
