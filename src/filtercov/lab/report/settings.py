"""Runs sorted by what was trained, beside the paper's numbers where they are of its size; the page of anyone's runs.

Runs of one setting that differ in initialisation, freezing and seed alone belong together: a group is all seeds of an
initialisation, frozen or thawed, and is compared with uniform filters in the same state.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filtercov.errors import ConfigError, DamagedRunError
from filtercov.files import Source, files_sha256
from filtercov.lab.experiments.initialisations import shown_init
from filtercov.lab.experiments.paper import Place, paper_numbers
from filtercov.lab.experiments.records import Trained
from filtercov.lab.experiments.runs import KeptRun, read_finished
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.report import page
from filtercov.lab.report.groups import FinishedRun, Group, answer, by, groups_body, with_baselines
from filtercov.lab.report.results_statistics import Summary
from filtercov.lab.training.rundir import RunDirectory
from filtercov.printable import counted

PAPER_EPOCHS = 20
# Networks of the paper's size, the main one first, and the table and row of the paper they are in.
PAPER_ROWS = {
    "convmixer_256_8_k9_p2": ("cifar-convmixer-256-8-p2", "k9"),
    "convnext_atto_p2": ("cifar-convnext-atto-p2", "k7"),
}


@dataclass(frozen=True, eq=False)
class Setting:
    """What was trained, and its groups."""

    title: str
    groups: Sequence[Group]
    model: str

    @property
    def paper(self) -> bool:
        """Whether the paper has a number for any group."""
        return any(group.paper for group in self.groups)


def settings_of(kept: Iterable[KeptRun]) -> list[Setting]:
    """Runs sorted by what was trained, in groups by initialisation and freezing; most runs first."""
    trained = [(run.spec, FinishedRun(run.spec.train.seed, run.curve)) for run in kept]
    settings = by(lambda each: _common(each[0]), trained)
    titles = _titles(list(settings))
    found = [Setting(titles[common], _groups(members), common.model) for common, members in settings.items()]
    return sorted(found, key=lambda setting: -sum(len(group.runs) for group in setting.groups))


def _groups(trained: list[tuple[RunSpec, FinishedRun]]) -> list[Group]:
    """The groups of one setting: frozen first, uniform before the others, which are compared with it."""
    found = by(lambda each: _label(each[0]), trained)
    groups = {}
    for label in sorted(found, key=lambda label: (label.split()[0], "uniform" not in label, label)):
        runs = sorted((run for _, run in found[label]), key=lambda run: run.seed)
        groups[label] = Group(label, runs, paper=_paper(found[label][0][0]))

    def baseline(label: str) -> str:
        uniform = f"{label.split()[0]} uniform"
        return uniform if uniform in groups else min(groups)

    return with_baselines(groups, baseline)


def runs_page(root: Path, *, command: str = "") -> tuple[str, list[str]]:
    """The page of the finished runs in a directory, or of the run that it is, and what it leaves out."""
    directories = [root] if (root / "config.json").exists() else sorted(d.parent for d in root.glob("*/config.json"))
    runs, files, left_out = [], [], []
    for run in map(RunDirectory, directories):
        if not run.done:
            left_out.append(f"{run.path.name}: not finished")
            continue
        try:
            runs.append(read_finished(run))
            files += [run.result, run.metrics]
        except DamagedRunError as error:
            left_out.append(str(error))
    if not runs:
        why = f" ({'; '.join(left_out)})" if left_out else ""
        raise ConfigError(f"{root}: needed finished runs to report, found none{why}; filtercov train makes one")
    first, *others = settings = settings_of(runs)
    title, lead, body = first.title, answer(first.groups), groups_body(first.groups)
    if others:
        title, lead = f"Runs in {root.name or root}", f"{counted(len(settings), 'setting')}, each with its own table."
        body = "\n".join(
            f"<h2>{page.text(each.title)}</h2><p>{page.lines(answer(each.groups))}</p>\n{groups_body(each.groups)}"
            for each in settings
        )
    notes = [page.note(f"left out: {words}", warning=True) for words in left_out]
    source = Source(f"{counted(len(runs), 'run')} in {root}", files_sha256(root, files))
    whole = "\n".join([page.heading(title, page.lines(lead)), *notes, body])
    return page.page(f"{title} · filtercov", whole, origin=page.Origin((source,), command)), left_out


def _common(spec: RunSpec) -> RunSpec:
    """The part of a specification that all runs of one setting share."""
    train = replace(spec.train, seed=0)
    return replace(spec, init="uniform", schedule=None, negative="clip", freeze_filters=False, train=train)


def _label(spec: RunSpec) -> str:
    mirrored = " abs" if spec.negative != "clip" else ""
    return f"{'frozen' if spec.freeze_filters else 'thawed'} {shown_init(spec.init, spec.schedule)}{mirrored}"


def _titles(specs: list[RunSpec]) -> dict[RunSpec, str]:
    """A title for each setting, with the fields that tell apart those of the same network and data."""
    titles = {}
    for words, members in by(lambda spec: str(Trained.of(spec)), specs).items():
        flat = {spec: vars(spec) | vars(spec.train) | {"train": None} for spec in members}
        varied = [name for name in flat[members[0]] if len({repr(each[name]) for each in flat.values()}) > 1]
        for spec in members:
            titles[spec] = ", ".join([words, *(f"{name} {flat[spec][name]}" for name in varied)])
    return titles


def _paper(spec: RunSpec) -> Summary | None:
    """The paper's number for a run at its size, None for any other run."""
    smaller = spec.train.epochs != PAPER_EPOCHS or spec.data_limit or spec.data == "embedded"
    if smaller or spec.evaluate != "test" or spec.init not in ("uniform", "closed-form"):
        return None
    column = f"{'frozen' if spec.freeze_filters else 'thawed'}/{spec.init}"
    for network, (table, row) in PAPER_ROWS.items():
        number = paper_numbers().get(Place(table, row, column, PAPER_EPOCHS))
        if number and f"{spec.model}_".startswith(f"{network}_"):
            return Summary(number.mean, number.std)
    return None
