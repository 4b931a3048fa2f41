"""What a directory of evidence shows, as a page and as Markdown from the same sections.

Three findings first, then runs at the paper's size beside the paper's numbers, then its claims, then what in the closed
form does the work. The page alone has pictures, every comparison of each claim, and all other runs.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from filtercov.errors import ConfigError
from filtercov.lab.experiments.evidence import Evidence
from filtercov.lab.experiments.paper import CLAIMS, DRAWS, REFERENCE_CLAIMS, judge_references
from filtercov.lab.experiments.records import ExperimentRecord, collect
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report import page, results
from filtercov.lab.report.groups import (
    PAPER_ROWS,
    Part,
    Setting,
    Table,
    answer,
    by,
    group_table,
    groups_body,
    sentence,
    settings_of,
    tabulate,
)
from filtercov.lab.report.results_claims import CLAIM_WORDS, Finding, claim_table, claims_answer, judge_claim
from filtercov.lab.report.results_statistics import INTERVAL, METHOD
from filtercov.lab.report.results_table import OURS, TOLD_APART, as_sentence, markdown, ranked, standings
from filtercov.lab.training.progress import duration
from filtercov.printable import counted
from filtercov.statistics.filter_statistics import FilterStatistics
from filtercov.statistics.shipped import REFERENCES, shipped_file

SCALE = "small"  # at which claims are settled
CONTROLS = "controls"
PAPER_WORDS = (
    "Test accuracy in %, ± standard deviation over seeds; differences are from uniform filters. The columns after n "
    "are the paper's number and our distance from it, with Welch's interval where both have a spread."
)
REFERENCE_WORDS = (
    "Two claims need no run: the statistics of trained references, which come with the package, decide them. "
    f"{' '.join(f'{number}: {says}' for number, says in REFERENCE_CLAIMS.items())} A layer counts as negative if its "
    f"static component is below that of {DRAWS} draws of independent filters; the last column is the probability that "
    "as many pairs of layers rise in a random order."
)
CONTROL_WORDS = (
    "Each control has the closed form's variance in every layer and lacks one thing. Numbers are points of accuracy "
    f"above uniform filters with the same seeds, with the {INTERVAL}."
)
LACKS = {
    "closed-form": "nothing",
    "one-sigma": "the growth of σ with depth",
    "no-static": "the static negative component S",
    "no-mask": "M, the higher variance at the centre",
    "no-dynamic": "C, the covariance with neighbours",
    "diagonal": "all covariance between pixels",
    "scrambled": "the eigenvectors: a random basis",
    "power": "all but the total variance",
}


@dataclass(frozen=True)
class View:
    """All that evidence shows."""

    settings: tuple[Setting, ...]  # all runs, by what was trained; most runs first
    others: tuple[Setting, ...]  # runs of no experiment, for which the paper has no number
    findings: tuple[Finding, ...]  # of every claim
    controls: ExperimentRecord | None
    records: tuple[ExperimentRecord, ...]  # of every experiment that was asked for
    damaged: tuple[str, ...]
    summary: str  # how much evidence there is

    @property
    def at_paper_size(self) -> list[Setting]:
        """Settings for which the paper has numbers: its own networks first, in its order, then variants of them."""
        order = [*PAPER_ROWS]
        settings = [setting for setting in self.settings if setting.paper]
        return sorted(settings, key=lambda each: order.index(each.model) if each.model in order else len(order))

    @property
    def begun(self) -> list[ExperimentRecord]:
        """The experiments that have something to show."""
        return [each for each in self.records if not each.missing or any(cell.curves for cell in each.cells)]


def read_view(root: Path | str) -> View:
    """Read the evidence in a directory."""
    evidence = Evidence(root)
    kept, damaged = evidence.found
    if not kept and not damaged:
        raise ConfigError(f"there is no evidence in {root}; filtercov keep RUNS --to {root} puts some there")
    asked = evidence.experiments()
    belonging = {run.key for each in asked for run in each.runs}
    alone = settings_of(run for run in kept if run.key not in belonging)
    records = tuple(collect(each, evidence) for each in asked)
    by_worth = sorted(records, key=lambda record: (find_scale(record.scale).judges, record.scale == SCALE))
    settling = {record.name: record for record in by_worth}  # of one name the last
    controls = settling.get(CONTROLS)
    seconds = sum(run.result.seconds for run in kept)
    return View(
        settings=tuple(settings_of(kept)),
        others=tuple(setting for setting in alone if not setting.paper),
        findings=tuple(judge_claim(claim, settling.get(claim.experiment)) for claim in CLAIMS),
        controls=controls if controls and ranked(controls) else None,
        records=records,
        damaged=damaged,
        summary=f"{counted(len(kept), 'run')}, which took {duration(seconds)} of training in all, by the clock.",
    )


def write_evidence(view: View, out: Path, *, command: str = "") -> list[Path]:
    """Write the page, the same as Markdown beside it, and a page with its texts for every experiment begun."""
    results.check_place(out)
    written = [
        page.write_output(out, evidence_page(view, out, command=command)),
        page.write_output(out.with_suffix(".md"), f"# Evidence\n\n{evidence_markdown(view)}"),
    ]
    for record in view.begun:
        written += results.write_report(record, results.page_beside(out, record), command=command)
    return written


# --- What page and Markdown share ---


def sections(view: View) -> dict[str, list[Part]]:
    """Paragraphs and tables by heading."""
    paper: list[Part] = [PAPER_WORDS, METHOD] if view.at_paper_size else ["Nothing was run at the paper's size."]
    for setting in view.at_paper_size:
        paper += [f"{setting.title}:", group_table(setting.groups)]
    scale = f"At the scale {SCALE}, unless a command says otherwise: {find_scale(SCALE).reduced}."
    claims: list[Part] = [claims_answer(view.findings), CLAIM_WORDS, claim_table(view.findings), scale]
    controls: list[Part] = ["The controls were not run."]
    if view.controls:
        controls = [" ".join(standings(view.controls)), CONTROL_WORDS, controls_table(view.controls), TOLD_APART]
    return {
        "Findings": [f"{number}. {words}" for number, words in enumerate(three_findings(view), start=1)],
        "At the paper's size": paper,
        "The paper's claims": [*claims, REFERENCE_WORDS, reference_table()],
        "What does the work": controls,
    }


def headline(view: View) -> Setting:
    """Uniform and closed-form filters: at the paper's size if several seeds were run there, else of most runs."""
    several = [each for each in view.at_paper_size if all(len(group.runs) > 1 for group in each.groups)]
    setting = (several or view.settings)[0]
    return replace(setting, groups=[one for one in setting.groups if one.label.split()[1] in ("uniform", OURS)])


def three_findings(view: View) -> list[str]:
    """Findings for practitioners, as far as they were run: the gain, freezing, and what does the work."""
    found = []
    if view.settings and (main := headline(view)).groups:
        found.append(f"Does it help? {main.title}: {' '.join(answer(main.groups).splitlines())}")
    if freezing := next(filter(None, map(_freezing, view.settings)), ""):
        found.append(f"Can the filters stay frozen? {freezing}")
    if view.controls:
        found.append(f"What does the work? {standings(view.controls)[0]}")
    return found or [claims_answer(view.findings)]


def _freezing(setting: Setting) -> str:
    """How frozen closed-form filters end beside uniform and closed-form ones that train; empty if not all were run."""
    found = {" ".join(group.label.split()[:2]): group for group in reversed(setting.groups)}
    frozen = found.get(f"frozen {OURS}")
    trained = [found[label] for label in ("thawed uniform", f"thawed {OURS}") if label in found]
    if not frozen or len(trained) < 2:
        return ""
    return f"{setting.title}: {' '.join(sentence(replace(frozen, baseline=other)) for other in trained)}"


def reference_table() -> Table:
    """A line for each network that ships: layers with a negative static component, pairs of layers whose σ rises."""
    references = judge_references({name: FilterStatistics.load(shipped_file(name)) for name in REFERENCES})
    return tabulate(
        {
            "reference": found.network,
            "C19: negative": f"{found.negative} of {counted(found.layers, 'layer')}",
            "C20: rising pairs": f"{found.rising} of {found.pairs}",
            "by chance": f"{found.by_chance:.2g}",
        }
        for found in references
    )


def controls_table(record: ExperimentRecord) -> Table:
    """A line for each control, best first: what it lacks, and its gain over uniform in each row of the experiment."""
    gains = {
        title: {line.cell.init: line.difference.interval for line in found if line.difference}
        for title, found in ranked(record).items()
    }
    return tabulate(
        {"filters": init, "lack": LACKS.get(init)}
        | {title: column.get(init, "not run") for title, column in gains.items()}
        for init in next(iter(gains.values()))
    )


def evidence_markdown(view: View, *, image: str = "") -> str:
    """The shared sections as Markdown, without a title; `image` is where the picture of the controls lies."""
    parts: list[Part] = []
    for heading, section in sections(view).items():
        parts += [f"## {heading}", *section]
    if view.controls and image:
        parts.append(f"![Points above uniform filters, with the {INTERVAL}: frozen in blue, thawed in orange]({image})")
    return markdown([*parts, *map(as_sentence, view.damaged), f"This is the evidence of {view.summary}"])


# --- The page ---


def evidence_page(view: View, out: Path, *, command: str = "") -> str:
    """The page; `out` is where it will lie, with the pages of experiments beside it."""
    body = [page.note(text, warning=True) for text in view.damaged]
    for heading, section in sections(view).items():
        body.append(f"<h2>{page.text(heading)}</h2>")
        body += map(page.part, section)
        if heading == "The paper's claims":
            body += [_claim(finding, view) for finding in view.findings if finding.run]
    body += [controls_picture(view.controls)] if view.controls else []
    if view.begun:
        body += ["<h2>Experiments</h2>", results.experiment_table(view.begun, out)]
    if view.others:
        listed = "".join(f"<h3>{page.text(each.title)}</h3>{groups_body(each.groups)}" for each in view.others)
        body += ["<h2>Other runs</h2>", page.folded(counted(len(view.others), "setting"), listed)]
    return page.page("Evidence", *body, lead=f"{claims_answer(view.findings)} {view.summary}", command=command)


def controls_picture(record: ExperimentRecord) -> str:
    """The gains over uniform of all controls, a chart for each kernel size."""
    run = [line for found in ranked(record).values() for line in found]
    return page.grid(results.gains_figure(row, found) for row, found in by(lambda line: line.shown_row, run).items())


def _claim(finding: Finding, view: View) -> str:
    """A claim with its picture, its comparisons and the command that runs it again."""
    commands = (record.command for record in view.records if record.name == finding.claim.experiment)
    verdict = f'<span class="{finding.verdict.replace(" ", "-")}">{finding.verdict}</span>'
    said = page.text(f"{finding.claim.says} {finding.sentence}")
    picture = results.claim_picture(finding, below="".join(map(page.copyable, commands)))
    return f'<section class="card"><h3>{finding.claim.number}: {verdict}</h3><p>{said}</p>{picture}</section>'
