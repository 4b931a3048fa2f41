"""The row of the paper at the paper's own size: ConvNeXt-Atto, 2x2 patches, 20 epochs on all of CIFAR-10.

What the paper leaves open of its recipe is settled on one cell, `CHOOSES`, named before it was run. So runs of that
cell have a part in choosing, no other has, and every recipe that was tried stays beside the paper's numbers.
"""

import dataclasses
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from filtercov.lab import models
from filtercov.lab.experiments.catalogue import experiment
from filtercov.lab.experiments.evidence import KeptRun
from filtercov.lab.experiments.flags import flag
from filtercov.lab.experiments.paper_numbers import PaperNumber, Place, paper_numbers
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.models import ConvNeXtSpec
from filtercov.lab.report.results_statistics import Difference, Summary, paired_difference, summarise
from filtercov.printable import counted

TABLE, ROW, EPOCHS, IMAGES = "cifar-convnext-atto-p2", "k7", 20, 50_000
NETWORK = "convnext_atto_p2"
SEEDS = (0, 1, 2)  # as many as the paper has
COLUMNS = ("frozen/uniform", "frozen/closed-form", "thawed/uniform", "thawed/closed-form")
CHOOSES = ("frozen/uniform", 0)  # column and seed


@dataclass(frozen=True)
class RowCell:
    """A cell of the row by one recipe: the accuracy of each seed that was run, and the paper's number."""

    column: str
    by_seed: Mapping[int, float]
    paper: PaperNumber

    @property
    def measured(self) -> Summary | None:
        """Mean and spread, None of a cell that was not run."""
        return summarise([self.by_seed[seed] for seed in sorted(self.by_seed)]) if self.by_seed else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the mean; one run has none, nor have runs that happen to be equal."""
        above_zero = paired_difference(self.by_seed, dict.fromkeys(self.by_seed, 0.0))
        if above_zero is None or above_zero.low is None or above_zero.high is None:
            return None
        return above_zero.low, above_zero.high

    @property
    def holds_paper(self) -> bool | None:
        """Whether the paper's mean lies within the interval, None without one."""
        return None if self.interval is None else self.interval[0] <= self.paper.mean <= self.interval[1]

    @property
    def chose(self) -> tuple[int, ...]:
        """The seeds whose runs had a part in choosing the recipe."""
        column, seed = CHOOSES
        return (seed,) if self.column == column and seed in self.by_seed else ()


@dataclass(frozen=True)
class Recipe:
    """One way to train the row that was tried: network, and what differs from the recipe `cifar`, as flags."""

    model: str
    flags: tuple[str, ...]
    data: str
    content: str  # checksum of the images
    current: bool  # whether `filtercov reproduce` trains the row so
    cells: tuple[RowCell, ...]  # by COLUMNS
    seconds: tuple[float, ...]  # that its runs took
    made_with: tuple[str, ...]  # images, versions and threads of its runs, in words
    remarks: tuple[str, ...]  # notes that runs were kept with
    among: int = 1  # how many contents of images there are beside each other

    def __str__(self) -> str:
        recipe = " ".join([self.model, *self.flags])
        told = self.among > 1 and self.content
        return f"{recipe}, on {self.data.rpartition(':')[2]} ({self.content[:6]}…)" if told else recipe

    @cached_property
    def by_column(self) -> dict[str, RowCell]:
        """The cells by their names."""
        return {cell.column: cell for cell in self.cells}

    def gain(self, filters: str) -> tuple[Difference | None, float]:
        """Return what the closed form gains over uniform, paired over seeds, and what it gains in the paper."""
        ours, uniform = (self.by_column[f"{filters}/{init}"] for init in ("closed-form", "uniform"))
        return paired_difference(ours.by_seed, uniform.by_seed), round(ours.paper.mean - uniform.paper.mean, 2)

    def command(self, column: str, seed: int) -> str:
        """Return the command that trains one run of a cell."""
        filters, _, init = column.partition("/")
        words = ["filtercov", "train", "--model", self.model, "--data", self.data]
        words += ["--epochs", str(EPOCHS), *self.flags]
        words += ["--freeze-filters"] if filters == "frozen" else []
        words += ["--init", init] if init != "uniform" else []
        return shlex.join([*words, "--seed", str(seed)])

    @property
    def usual_seconds(self) -> float:
        """The time that its runs took, on average."""
        return sum(self.seconds) / len(self.seconds)

    @property
    def missing(self) -> list[tuple[str, int]]:
        """The columns and seeds that were not run."""
        return [(cell.column, seed) for cell in self.cells for seed in SEEDS if seed not in cell.by_seed]


def paper_row(kept: Iterable[KeptRun]) -> tuple[Recipe, ...]:
    """Return the recipes that were tried on the row, first the one that `filtercov reproduce` trains by, run or not.

    Runs on other images, as on CIFAR-10's stored otherwise, are recipes of their own; that with most runs comes first.
    """
    today = _common(experiment(TABLE, scale="paper").cells[0].runs[0].spec)
    groups: dict[tuple[RunSpec, str], dict[str, dict[int, KeptRun]]] = defaultdict(lambda: defaultdict(dict))
    for run in kept:
        if place := placed(run):
            common, column, seed = place
            groups[common, run.config["inputs"]["data"]][column][seed] = run
    if today not in (spec for spec, _ in groups):
        groups[today, ""] = {}
    among = len({content for _, content in groups if content})
    found = [_recipe(spec, content, columns, spec == today) for (spec, content), columns in groups.items()]
    ordered = sorted(found, key=lambda recipe: (not recipe.current, -len(recipe.seconds), recipe.model, recipe.flags))
    return tuple(replace(recipe, among=among) for recipe in ordered)


def _recipe(spec: RunSpec, content: str, columns: Mapping[str, Mapping[int, KeptRun]], current: bool) -> Recipe:
    numbers = paper_numbers()
    runs = [run for seeds in columns.values() for run in seeds.values()]
    return Recipe(
        model=spec.model,
        flags=_flags(spec),
        data=runs[0].config["data"] if runs else spec.data,
        content=content,
        current=current,
        cells=tuple(
            RowCell(
                column,
                {seed: run.result.test_accuracy for seed, run in sorted(columns.get(column, {}).items())},
                numbers[Place(TABLE, ROW, column, EPOCHS)],
            )
            for column in COLUMNS
        ),
        seconds=tuple(run.result.seconds for run in runs),
        made_with=tuple(dict.fromkeys(map(_made_with, runs))),
        remarks=tuple(dict.fromkeys(run.note for run in runs if run.note)),
    )


def _made_with(run: KeptRun) -> str:
    extra = run.result.extra
    versions = ", ".join(f"{name} {version}" for name, version in extra["versions"].items())
    images = f"{run.config['data'].rpartition(':')[2]} (content {run.config['inputs']['data'][:12]}…)"
    return f"{images} with {versions}, {counted(extra['threads'], 'thread')}"


def placed(run: KeptRun) -> tuple[RunSpec, str, int] | None:
    """Return the recipe, the column and the seed of a run of the row, None of any other run.

    Whatever was tried counts as a recipe; what the row is in any case is the network, but for its first stride, its
    epochs, as many training images as CIFAR-10 has, by the number of steps, and the test images.
    """
    spec = run.spec
    if spec is None or spec.train.epochs != EPOCHS or spec.data_limit or spec.evaluate != "test":
        return None
    if spec.data == "embedded" or spec.init not in ("uniform", "closed-form"):
        return None
    if run.result.steps != EPOCHS * (IMAGES // spec.train.batch_size):
        return None
    if spec.init == "closed-form" and (spec.schedule, spec.negative) != ("cifar-p2", "clip"):
        return None
    network = models.parse(NETWORK)
    if not spec.model.startswith(NETWORK) or not isinstance(network, ConvNeXtSpec):
        return None
    there = models.parse(spec.model)
    if not isinstance(there, ConvNeXtSpec) or replace(there, first_stride=network.first_stride) != network:
        return None
    filters = "frozen" if spec.freeze_filters else "thawed"
    return _common(spec), f"{filters}/{spec.init}", spec.train.seed


def _common(spec: RunSpec) -> RunSpec:
    """Return what runs of one recipe have in common, whatever name they have the data under."""
    train = replace(spec.train, seed=0)
    return replace(spec, data="cifar10", init="uniform", schedule=None, freeze_filters=False, train=train)


def _flags(spec: RunSpec) -> tuple[str, ...]:
    """Return what differs from the recipe `cifar`, as flags of `filtercov train`."""
    usual = RunSpec.recipe("cifar", model=spec.model, data=spec.data, train={"epochs": EPOCHS, "seed": 0})
    words: list[str] = []
    for one, other in ((spec, usual), (spec.train, usual.train)):
        for field in dataclasses.fields(one):
            value = getattr(one, field.name)
            if field.name != "train" and value != getattr(other, field.name):
                words += flag(field.name, value)
    return tuple(words)
