"""What a directory of evidence shows, as a page and as Markdown from the same sections.

Three findings first, then runs at the paper's size beside the paper's numbers, then its claims, then what in the closed
form does the work. The page alone has a picture and every comparison of each claim, and all other runs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from filtercov.errors import ConfigError
from filtercov.files import Source
from filtercov.lab.experiments.evidence import Evidence
from filtercov.lab.experiments.paper_claims import CLAIMS, Claim
from filtercov.lab.experiments.records import ExperimentRecord, collect
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report import page
from filtercov.lab.report.groups import answer, group_table, groups_body
from filtercov.lab.report.own_runs import Setting, kept_settings
from filtercov.lab.report.results import check_place, claim_picture, experiment_table, page_beside, write_report
from filtercov.lab.report.results_claims import ClaimVerdict, Compared, Finding, judge_claim
from filtercov.lab.report.results_statistics import CONFIDENCE, METHOD, show_difference
from filtercov.lab.report.results_table import TOLD_APART, Ranking, Table, markdown_table, rankings
from filtercov.lab.training.progress import duration
from filtercov.printable import counted

SCALE = "small"  # at which claims are settled
CONTROLS = "controls"
NOT_RUN = "not run"
INTERVAL = f"{CONFIDENCE:.0%} interval"
PAPER_WORDS = (
    "Test accuracy in %, ± standard deviation over seeds. The last columns are the paper's number and our distance "
    "from it with Welch's interval, where both have a spread."
)
CLAIM_WORDS = (
    "Each claim is settled by comparisons that were written down before their runs, paired over seeds, with Student's "
    f"{INTERVAL}. It holds if every comparison does, is contradicted if one is after widening the intervals for their "
    "number, shows no difference if all are settled and some lie within ±1 point, and is open otherwise. Ours is the "
    "comparison that is worst for the claim, in points of accuracy, of C14 in percent of a step's time."
)
_VERDICTS: Mapping[ClaimVerdict, tuple[str, str]] = {  # of one, of several
    "holds": ("holds", "hold"),
    "contradicts": ("is contradicted", "are contradicted"),
    "no difference": ("shows no difference", "show no difference"),
    "open": ("is open", "are open"),
    "not run": ("was not run", "were not run"),
}


@dataclass(frozen=True)
class View:
    """All that evidence shows."""

    at_paper_size: tuple[Setting, ...]
    findings: tuple[Finding, ...]  # of every claim
    controls: tuple[Ranking, ...]
    records: tuple[ExperimentRecord, ...]  # of every experiment that was asked for
    others: tuple[Setting, ...]  # runs that belong to neither
    damaged: tuple[str, ...]
    runs: int
    seconds: float
    source: Source

    @property
    def summary(self) -> str:
        """How much evidence there is."""
        return f"{counted(self.runs, 'run')}, which took {duration(self.seconds)} of training in all, by the clock."


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs and tables, the same in HTML and Markdown."""

    title: str
    parts: tuple[str | Table, ...]


def read_view(root: Path | str) -> View:
    """Read the evidence in a directory."""
    evidence = Evidence(root)
    kept, damaged = evidence.found
    if not kept and not damaged:
        raise ConfigError(f"there is no evidence in {root}; filtercov keep RUNS --to {root} puts some there")
    asked = evidence.experiments()
    records = tuple(collect(experiment, evidence, options) for experiment, options in asked)
    belonging = {run.key for experiment, _ in asked for run in experiment.runs}
    settings = kept_settings(run for run in kept)
    alone = kept_settings(run for run in kept if run.key not in belonging)
    controls = _record(records, CONTROLS)
    return View(
        at_paper_size=tuple(setting for setting in settings if setting.paper),
        findings=tuple(_finding(claim, records) for claim in CLAIMS),
        controls=tuple(rankings(controls)) if controls else (),
        records=records,
        others=tuple(setting for setting in alone if not setting.paper),
        damaged=damaged,
        runs=len(kept),
        seconds=sum(run.result.seconds for run in kept),
        source=evidence.source_of([run.key for run in kept], beside=evidence.beside),
    )


def write_evidence(view: View, out: Path, *, command: str = "") -> list[Path]:
    """Write the page, the same as Markdown beside it, and a page with its texts for every experiment."""
    check_place(out)
    written = [
        page.write_output(out, evidence_page(view, out, command=command)),
        page.write_output(out.with_suffix(".md"), f"# Evidence\n\n{evidence_markdown(view)}"),
    ]
    for record in view.records:
        written += write_report(record, page_beside(out, record), command=command)
    return written


def sections(view: View) -> list[Section]:
    """Return the sections that page and Markdown share."""
    findings = three_findings(view)
    paper: list[str | Table] = [PAPER_WORDS, METHOD] if view.at_paper_size else ["Nothing was run at the paper's size."]
    for setting in view.at_paper_size:
        paper += [f"{setting.title}. {answer(setting.groups)}", group_table(setting.groups)]
    controls: list[str | Table] = [TOLD_APART] if view.controls else ["The controls were not run."]
    for ranking in view.controls:
        controls += [f"{ranking}.", ranking.table()]
    small = f"At the scale {SCALE}, unless a command says otherwise: {find_scale(SCALE).reduced}."
    return [
        Section("Findings", tuple(f"{number}. {words}" for number, words in enumerate(findings, start=1))),
        Section("At the paper's size", tuple(paper)),
        Section("The paper's claims", (tally(view), CLAIM_WORDS, small, claim_table(view))),
        Section("What does the work", tuple(controls)),
    ]


def three_findings(view: View) -> list[str]:
    """Return the level at the paper's size, the claims, and what does the work, as far as they were run."""
    found = [f"{setting.title}: {answer(setting.groups)}" for setting in view.at_paper_size[:1]]
    found.append(tally(view))
    if view.controls:
        first, *_, last = view.controls[0].rows
        found.append(f"{view.controls[0].title}: best is {first[1]} ({first[2]} %), last {last[1]} ({last[4]}).")
    return found


def tally(view: View) -> str:
    """How many claims hold, are contradicted, show no difference, are open and were not run."""
    counts = Counter(finding.verdict for finding in view.findings)
    if counts["not run"] == counts.total():
        return f"None of the {counts.total()} claims has been run yet."
    said = ", ".join(f"{counts[kind]} {words[counts[kind] > 1]}" for kind, words in _VERDICTS.items() if counts[kind])
    in_part = sum(finding.in_part for finding in view.findings)
    partly = f"; {in_part} {'was' if in_part == 1 else 'were'} run in part only" if in_part else ""
    return f"Of {counted(counts.total(), 'claim')} {said}{partly}."


def claim_table(view: View) -> Table:
    """Return a line for each claim: the paper's difference, ours, n and the verdict."""
    rows = [["#", "claim", "the paper's", f"ours, {INTERVAL}", "n", "verdict"]]
    for finding in view.findings:
        worst = decisive(finding)
        ours, paper = NOT_RUN, ""
        if worst is not None:
            ours = show_difference(worst.difference)
            paper = "" if worst.paper is None else f"{worst.paper:+.2f}"
            run = sum(one.difference is not None for one in finding.counted)
            ours += f", the worst of {run}" if run > 1 else ""
            ours += f", {len(finding.counted) - run} not run" if finding.in_part else ""
        rows.append([finding.claim.number, finding.claim.says, paper, ours, str(finding.n or ""), finding.verdict])
    return rows


def comparison_table(finding: Finding) -> Table:
    """Return a line for each comparison of a claim."""
    rows = [["comparison", "must be", "the paper's", f"ours, {INTERVAL}", "verdict"]]
    for one in finding.compared:
        paper = "" if one.paper is None else f"{one.paper:+.2f}"
        ours = show_difference(one.difference) or NOT_RUN
        rows.append([one.comparison.says, one.comparison.needed, paper, ours, one.shown_verdict])
    return rows


def decisive(finding: Finding) -> Compared | None:
    """Return the comparison that is worst for a claim: it contradicts most clearly, or is furthest from holding."""
    against = finding.verdict == "contradicts"

    def end(one: Compared) -> float:
        d = one.difference
        assert d is not None
        if against:
            return inf if d.high is None else d.high
        return d.mean if d.low is None else d.low

    return min((one for one in finding.counted if one.difference), key=end, default=None)


def evidence_markdown(view: View) -> str:
    """Return the shared sections as Markdown, without a title."""
    parts = []
    for section in sections(view):
        parts.append(f"## {section.title}")
        parts += [part if isinstance(part, str) else markdown_table(part) for part in section.parts]
    parts += [f"{text[0].upper()}{text[1:]}." for text in view.damaged]
    return "\n\n".join([*parts, f"This is the evidence of {view.summary}"]) + "\n"


def evidence_page(view: View, out: Path, *, command: str = "") -> str:
    """Return the page; `out` is where it will lie, with the pages of experiments beside it."""
    findings, *rest = sections(view)
    body = [page.heading("Evidence", page.text(f"{tally(view)} {view.summary}"))]
    body += [page.note(text, warning=True) for text in view.damaged]
    for section in (findings, *rest):
        body.append(f"<h2>{page.text(section.title)}</h2>")
        body += [f"<p>{page.text(p)}</p>" if isinstance(p, str) else _html_table(p) for p in section.parts]
        if section.title == "The paper's claims":
            body += [_claim(finding, view) for finding in view.findings if finding.begun]
    if view.records:
        body += ["<h2>Experiments</h2>", experiment_table(view.records, out)]
    if view.others:
        listed = "".join(f"<h3>{page.text(each.title)}</h3>{groups_body(each.groups)}" for each in view.others)
        body += ["<h2>Other runs</h2>", page.folded(counted(len(view.others), "setting"), listed)]
    return page.page("Evidence", "\n".join(body), origin=page.Origin((view.source,), command))


def _claim(finding: Finding, view: View) -> str:
    """Return a claim with its picture, its comparisons and the command that runs it again."""
    record = _record(view.records, finding.claim.experiment)
    command = page.copyable(record.command) if record else ""
    verdict = f'<span class="{finding.verdict.replace(" ", "-")}">{finding.verdict}</span>'
    return (
        f'<section class="card"><h3>{finding.claim.number}: {verdict}</h3><p>{page.text(finding.claim.says)} '
        f'{page.text(finding.sentence)}</p><div class="pairs">{claim_picture(finding)}'
        f"<div>{page.folded('Comparisons', page.text_table(comparison_table(finding)))}{command}</div></div></section>"
    )


def _html_table(rows: Table) -> str:
    """Return a table whose sentences wrap and whose verdicts are coloured."""
    head, *body = rows
    shown: list[list[object]] = []
    for row in body:
        cells: list[object] = []
        for name, cell in zip(head, row, strict=True):
            kind = "words" if name == "claim" else cell.replace(" ", "-") if name == "verdict" else ""
            cells.append(f'<span class="{kind}">{page.text(cell)}</span>' if kind else page.text(cell))
        shown.append(cells)
    return page.table([page.text(name) for name in head], shown, sortable=True)


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
