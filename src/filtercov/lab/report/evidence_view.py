"""What a directory of evidence shows, ready to be written as a page or as Markdown.

First the row of the paper at its own size, then its claims, then the ranking, then what else was run and what was not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filtercov.errors import ExperimentError
from filtercov.files import Source
from filtercov.lab.experiments.evidence import Evidence, KeptRun
from filtercov.lab.experiments.paper_claims import CLAIMS, Claim
from filtercov.lab.experiments.planning import listed
from filtercov.lab.experiments.records import ExperimentRecord, collect
from filtercov.lab.experiments.runs import Record
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.evidence_row import Recipe, paper_row, placed
from filtercov.lab.report.results_claims import Compared, Finding, judge_claim
from filtercov.lab.report.results_words import show_cost
from filtercov.printable import counted

SCALE = "small"  # at which claims are settled
PACE = 55.0  # images of the yardstick network a second on one core, by which costs are reckoned
SETTINGS = "--data folder:cifar10-images.zip"
RANKING = "ranking"
THE_REST = ", the rest of it"  # of what was run in part


@dataclass(frozen=True)
class NotRun:
    """Something that was not run: what, the command that would, and what that takes."""

    what: str
    command: str
    cost: str


@dataclass(frozen=True)
class View:
    """All that evidence shows."""

    recipes: tuple[Recipe, ...]
    unrecorded: tuple[Record, ...]
    findings: tuple[Finding, ...]  # of every claim
    commands: Mapping[str, str]  # that settle them, by their numbers
    records: tuple[ExperimentRecord, ...]  # of every experiment that was asked for
    others: tuple[KeptRun, ...]  # runs that belong to neither the row nor an experiment
    damaged: tuple[str, ...]
    runs: int
    seconds: float
    source: Source

    @property
    def ranking(self) -> ExperimentRecord | None:
        """The ranking, if it was run at a scale that means something."""
        return _record(self.records, RANKING)

    @property
    def not_run(self) -> tuple[NotRun, ...]:
        """What is missing of the row, of the claims and of the ranking."""
        missing = [
            (finding.claim.experiment, f"{finding.claim.number}{THE_REST if finding.in_part else ''}")
            for finding in self.findings
            if finding.in_part or finding.verdict == "not run"
        ]
        if self.ranking is None or self.ranking.missing:
            missing.append((RANKING, f"The ranking{THE_REST if self.ranking else ''}"))
        return (
            *_cells_not_run(self.recipes),
            *(_experiment(name, what, _record(self.records, name)) for name, what in missing),
        )


def read_view(root: Path | str) -> View:
    """Return what the evidence in a directory shows."""
    evidence = Evidence(root)
    kept, damaged = evidence.found
    if not kept and not damaged:
        raise ExperimentError(f"there is no evidence in {root}; filtercov keep RUNS --to {root} puts some there")
    asked = evidence.experiments()
    records = tuple(collect(experiment, evidence, options) for experiment, options in asked)
    belonging = {run.key for experiment, _ in asked for run in experiment.runs}
    return View(
        recipes=paper_row(kept),
        unrecorded=tuple(evidence.unrecorded()),
        findings=tuple(_finding(claim, records) for claim in CLAIMS),
        commands={claim.number: _command(claim.experiment, _record(records, claim.experiment)) for claim in CLAIMS},
        records=records,
        others=tuple(run for run in kept if run.key not in belonging and not placed(run)),
        damaged=damaged,
        runs=len(kept),
        seconds=sum(run.result.seconds for run in kept),
        source=evidence.source_of([run.key for run in kept], beside=evidence.beside),
    )


def _command(name: str, record: ExperimentRecord | None) -> str:
    """Return the command that an experiment was run by, or would be."""
    return record.command if record else f"filtercov reproduce {name} --scale {SCALE} {SETTINGS}"


def _finding(claim: Claim, records: Sequence[ExperimentRecord]) -> Finding:
    record = _record(records, claim.experiment)
    if record is not None:
        return judge_claim(claim, record)
    compared = tuple(Compared(comparison, None, "not run") for comparison in claim.comparisons)
    return Finding(claim, "not run", 0, compared, "Nothing of it was run.")


def _record(records: Sequence[ExperimentRecord], name: str) -> ExperimentRecord | None:
    """Return the record of an experiment at a scale that judges, that of SCALE before others."""
    found = [record for record in records if record.name == name and find_scale(record.scale).judges]
    return min(found, key=lambda record: record.scale != SCALE, default=None)


def _experiment(name: str, what: str, record: ExperimentRecord | None) -> NotRun:
    load = listed(name, record.scale if record else SCALE)
    cost = f"{counted(load.runs, 'run')}, {show_cost(load.seconds(PACE))} on one core" if load.runs else "timings alone"
    if record is not None and 0 < len(record.missing) < load.runs:
        cost = f"{len(record.missing)} of {cost} for all"
    return NotRun(what, _command(name, record), cost)


def _cells_not_run(recipes: Sequence[Recipe]) -> list[NotRun]:
    """Return the runs that the recipe of `filtercov reproduce` lacks, the frozen ones first, one line a cell."""
    recipe = recipes[0]
    return [
        NotRun(
            f"{column.replace('/', ', ')}, seed {seed}",
            recipe.command(column, seed),
            f"{show_cost(recipe.usual_seconds)}, as others of its runs took" if recipe.seconds else "not measured",
        )
        for column, seed in recipe.missing
    ]
