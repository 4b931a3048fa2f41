"""The tables of evidence as rows of text, the first of them the heading: the page and the Markdown have the same."""

from collections.abc import Sequence
from math import inf

from filtercov.lab.experiments.evidence import KeptRun
from filtercov.lab.experiments.records import Trained
from filtercov.lab.experiments.references import shown_init
from filtercov.lab.experiments.runs import Record
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.evidence_row import CHOOSES, COLUMNS, SEEDS, Recipe, RowCell
from filtercov.lab.report.evidence_view import PACE, SCALE, View
from filtercov.lab.report.results_claims import Compared, Finding
from filtercov.lab.report.results_statistics import CONFIDENCE
from filtercov.lab.report.results_text import show_paper
from filtercov.lab.report.results_words import NOT_MEASURED, show_cost, show_difference, show_mean
from filtercov.printable import counted

Table = list[list[str]]
NOT_RUN = "not run"
INTERVAL = f"{CONFIDENCE:.0%} interval"

ROW_WORDS = (
    "ConvNeXt-Atto, 2x2 patches, 20 epochs on all 50,000 images, test accuracy in %; the paper's numbers are means of "
    "three seeds ± standard deviation, its Table 14. The column within says whether the paper's mean lies in the "
    f"{INTERVAL} of ours; in use is the recipe that filtercov reproduce trains by. One cell chooses what the paper "
    "leaves open of the recipe: frozen uniform filters, seed 0. Its runs are marked as having chosen, and say nothing "
    "for the recipe that they chose; no other cell had a part in it. Every recipe that was tried is here."
)
CLAIM_WORDS = (
    "Each claim is settled by the comparisons that were written down for it, paired over seeds, with Student's "
    f"{INTERVAL}. It holds if every comparison does, is contradicted if one is after widening the intervals for their "
    "number, and is open otherwise. Differences are in points of accuracy, those of C14 in percent of a step's time."
)
SCALE_WORDS = (
    f"Unless a command says otherwise, that is at the scale {SCALE}: {find_scale(SCALE).reduced}. covariance-eighth is "
    "transfer from that narrow reference."
)


def cost_words() -> str:
    """Return how the costs of what was not run are reckoned."""
    return (
        f"Costs of experiments are reckoned for one core that trains ConvMixer-256/8 at {PACE:g} images a second; what "
        "claims have in common is trained once."
    )


def row_table(recipes: Sequence[Recipe]) -> Table:
    """Return the cells of the row that were run, and those that the recipe of `filtercov reproduce` lacks."""
    head = ["recipe", "filters", "initialisation", "seeds", "measured", INTERVAL, "the paper's"]
    rows = [_row_cell(recipe, cell) for recipe in recipes for cell in recipe.cells if cell.by_seed or recipe.current]
    return [[*head, "within", "chose"], *rows]


def gain_table(recipes: Sequence[Recipe]) -> Table:
    """Return what the closed form gains by each recipe that has both sides of a comparison; a heading alone if none."""
    rows = []
    for recipe in recipes:
        for filters in ("frozen", "thawed"):
            difference, paper = recipe.gain(filters)
            if difference is not None:
                rows.append([str(recipe), filters, show_difference(difference), f"{paper:+.2f}"])
    return [["recipe", "filters", "closed form above uniform", "in the paper"], *rows]


def unrecorded_table(view: View) -> Table:
    """Return the numbers of which no run was kept."""
    rows = [
        [
            *(str(number[name]) for name in ("recipe", "filters", "init", "seed")),
            f"{number['accuracy']:.2f}",
            "yes" if _chose(number) else "no",
        ]
        for number in view.unrecorded
    ]
    return [["recipe", "filters", "initialisation", "seed", "seen", "chose"], *rows]


def short_row_table(view: View) -> Table:
    """Return the row with a line for each recipe, for those who want the numbers alone; * had a part in choosing."""
    columns = [column.replace("/", ", ") for column in COLUMNS]
    paper = [show_paper(cell.paper) for cell in view.recipes[0].cells]
    rows = [[str(recipe), *map(_short, recipe.cells)] for recipe in view.recipes]
    unrecorded: dict[str, dict[str, str]] = {}
    for number in view.unrecorded:
        found = unrecorded.setdefault(str(number["recipe"]), {})
        star = "*" if _chose(number) else ""
        found[f"{number['filters']}/{number['init']}"] = f"{number['accuracy']:.2f}{star}, no record kept"
    rows += [[recipe, *(found.get(column, NOT_RUN) for column in COLUMNS)] for recipe, found in unrecorded.items()]
    return [["recipe", *columns], ["the paper's, n = 3", *paper], *rows]


def _chose(number: Record) -> bool:
    return (f"{number['filters']}/{number['init']}", number["seed"]) == CHOOSES


def _short(cell: RowCell) -> str:
    if cell.measured is None:
        return NOT_RUN
    chose = "*" if cell.chose else ""
    return f"{show_mean(cell.measured.mean, cell.measured.std)}{chose}, n = {cell.measured.n}"


def claim_table(view: View) -> Table:
    """Return a line for each claim."""
    head = ["#", "claim", "verdict", "n", f"difference, {INTERVAL}", "command"]
    return [head, *([*_claim(finding), view.commands[finding.claim.number]] for finding in view.findings)]


def comparison_table(finding: Finding) -> Table:
    """Return a line for each comparison of a claim."""
    rows = [
        [
            one.comparison.says,
            f"above {0.0 - one.comparison.margin:g}",
            show_difference(one.difference) or NOT_RUN,
            one.shown_verdict,
        ]
        for one in finding.compared
    ]
    return [["comparison", "must be", f"difference, {INTERVAL}", "verdict"], *rows]


def other_table(runs: Sequence[KeptRun]) -> Table:
    """Return the runs that belong to no experiment and not to the row."""
    head = ["run", "what", "filters", "initialisation", "seed", "accuracy, %", "of"]
    return [head, *(_other(run) for run in runs)]


def experiment_table(view: View) -> Table:
    """Return the experiments that were asked for, and how complete they are."""
    head = ["experiment", "scale", "runs missing", "training time", "means something"]
    return [
        head,
        *(
            [
                record.name,
                record.scale,
                str(len(record.missing)),
                show_cost(record.seconds) if record.seconds else "none",
                "yes" if find_scale(record.scale).judges else "no, it shows that the code runs",
            ]
            for record in view.records
        ),
    ]


def not_run_table(view: View) -> Table:
    """Return what was not run, the command that would, and what it takes."""
    return [["what", "command", "expected"], *([line.what, line.command, line.cost] for line in view.not_run)]


def decisive(finding: Finding) -> Compared | None:
    """Return the comparison that is worst for a claim: that most clearly contradicts it, or is furthest from holding.

    So of a claim that is contradicted it is the one whose interval ends lowest, else the one whose begins lowest.
    """
    run = [one for one in finding.counted if one.difference]
    return min(run, key=_highest if finding.verdict == "contradicts" else _lowest, default=None)


def _lowest(compared: Compared) -> float:
    difference = compared.difference
    assert difference is not None
    return (difference.mean if difference.low is None else difference.low) + compared.comparison.margin


def _highest(compared: Compared) -> float:
    difference = compared.difference
    assert difference is not None
    return inf if difference.high is None else difference.high + compared.comparison.margin


def _row_cell(recipe: Recipe, cell: RowCell) -> list[str]:
    filters, _, init = cell.column.partition("/")
    named = f"{recipe}, in use" if recipe.current else str(recipe)
    paper = show_paper(cell.paper)
    if cell.measured is None:
        return [named, filters, init, "", NOT_RUN, "", paper, "", ""]
    seeds = ", ".join(map(str, cell.by_seed))
    interval = f"{cell.interval[0]:.2f} to {cell.interval[1]:.2f}" if cell.interval else NOT_MEASURED
    within = {True: "yes", False: "no", None: NOT_MEASURED}[cell.holds_paper]
    measured = show_mean(cell.measured.mean, cell.measured.std)
    chose = f"seed {cell.chose[0]}" if cell.chose else "no"
    short = "" if len(cell.by_seed) >= len(SEEDS) else f" of {len(SEEDS)}"
    return [named, filters, init, f"{seeds} (n = {len(cell.by_seed)}{short})", measured, interval, paper, within, chose]


def _claim(finding: Finding) -> list[str]:
    worst = decisive(finding)
    shown = NOT_RUN
    if worst is not None:
        run = sum(one.difference is not None for one in finding.counted)
        several = f", the worst for it of {counted(run, 'comparison')}" if run > 1 else ""
        in_part = f", {len(finding.counted) - run} not run" if finding.in_part else ""
        shown = f"{show_difference(worst.difference)}{several}{in_part}"
    number = str(finding.n) if finding.n else ""
    return [finding.claim.number, finding.claim.says, finding.verdict, number, shown]


def _other(run: KeptRun) -> list[str]:
    spec = run.spec
    result = run.result
    judged = str(result.extra.get("evaluated_on", "test"))
    if spec is None:  # of another version, whose settings meant something else
        what = f"{run.config['model']}, {counted(result.epochs, 'epoch')}, version {run.config['version']} of settings"
        return [run.key, what, "", str(run.config["init"]), "", f"{result.test_accuracy:.2f}", judged]
    filters = "frozen" if spec.freeze_filters else "thawed"
    init = shown_init(spec.init, spec.schedule)
    seed = str(spec.train.seed)
    return [run.key, str(Trained.of(spec)), filters, init, seed, f"{result.test_accuracy:.2f}", f"{judged} images"]
