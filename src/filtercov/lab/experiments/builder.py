"""What experiments are made of: cells of runs, and the builder that turns the paper's settings into runs at a scale."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from filtercov import PRESETS
from filtercov.errors import ConfigError
from filtercov.lab import models
from filtercov.lab.data.by_name import check_name
from filtercov.lab.experiments import initialisations
from filtercov.lab.experiments.paper import EPOCHS, CellName
from filtercov.lab.experiments.runspec import EVERY_KERNEL, Run, RunSpec, in_order
from filtercov.lab.experiments.scales import Family, Scale
from filtercov.lab.models import ConvMixerSpec

# No seed of a table's, so that a reference shares no random weight with the runs that start from it.
REFERENCE_SEED = 100


@dataclass(frozen=True)
class Cell(CellName):
    """One number of a table: the mean over the `runs`, which differ in their seed alone."""

    runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """A figure that shows filters or schedules rather than accuracies; `run` is whose filters, where it needs any."""

    kind: str
    title: str
    run: Run | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or beside it, at one scale."""

    name: str
    title: str
    shows: str  # what one learns from it
    scale: str
    reduced: str  # what is smaller than in the paper, in words; empty at the paper's scale
    cells: tuple[Cell, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    chart: str = ""  # how the cells are drawn: "bars", "lines" over epochs, "ranking"
    speed: tuple[str, ...] = ()  # networks whose frozen and thawed steps are timed

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run the experiment needs, each once, references before those that start from them."""
        wanted = [run for cell in self.cells for run in cell.runs]
        return in_order([*wanted, *(drawing.run for drawing in self.drawings if drawing.run)])


@dataclass(frozen=True)
class Options:
    """What a user may choose besides the scale: the data, more initialisations to compare, the number of seeds."""

    cifar: str = "cifar10"
    imagenet: str | None = None  # folder:PATH
    also: tuple[str, ...] = ()
    seeds: int | None = None

    def __post_init__(self) -> None:
        for name in self.also:
            initialisations.find(name)
        for named in filter(None, (self.cifar, self.imagenet)):
            check_name(named)


@dataclass(frozen=True)
class Init:
    """A column of a table: its name, what a run is told, and the network it starts from, if any.

    The reference is trained on the table's data unless `reference_family` says otherwise.
    """

    column: str
    init: str
    schedule: str | None = None
    reference: str | None = None
    reference_family: str | None = None


# Columns that start from a network, and the initialisation by it.
TRANSFERS = {
    "covariance": "statistics-of",
    "covariance, no means": "covariances-of",
    "kronecker": "kronecker-of",
    "filters": "filters-of",
}
IMAGENET = "convmixer_512_12_k9_p14"


def init_of(column: str, model: str) -> Init:
    """The initialisation that a column's name says, for a network.

    `covariance from k7` starts from the network's variant of 7x7 filters, `width 32` from the covariances of one of
    that width, `closed-form .15 .25 1.0` has its schedule in its name. All other names are initialisations'. What
    stands before ` = ` is the column's name alone.

    >>> init_of("covariance-eighth from p1", "convmixer_256_8_k9_p2").reference
    'convmixer_32_8_k9_p1'
    """
    column, _, described = column.partition(" = ")
    kind, _, origin = (described or column).partition(" from ")
    family = {"embedded": "embedded", "ImageNet": "imagenet"}.get(origin)
    reference = IMAGENET if origin == "ImageNet" else variant(model, origin)
    if kind.startswith(("width ", "depth ")):
        kind, reference = "covariance", variant(model, kind)
    elif kind == "covariance-eighth":
        kind, reference = "covariance", eighth(reference)
    if kind in TRANSFERS:
        return Init(column, TRANSFERS[kind], reference=reference, reference_family=family)
    if kind == "sawtooth":
        return Init(column, "closed-form", "sawtooth:cifar-p2")
    name, _, schedule = kind.partition(" ")
    return Init(column, name, schedule.replace(" ", ",") or None)


def variant(model: str, changes: str) -> str:
    """A network with what the name of a row or a column changes.

    >>> variant("convmixer_256_8_k9_p2", "k7-p1"), variant("convmixer_256_8_k9_p2", "depth 24")
    ('convmixer_256_8_k7_p1', 'convmixer_256_24_k9_p2')
    """
    fields = {"k": "kernel_size", "p": "patch_size", "depth ": "depth", "width ": "width"}
    changed: dict[str, Any] = {
        fields[kind]: int(number) for kind, number in re.findall(r"(k|p|depth |width )(\d+)", changes)
    }
    return replace(models.parse(model), **changed).name


def eighth(model: str) -> str:
    """The network of an eighth of the width."""
    spec = models.parse(model)
    narrow: dict[str, Any] = {"width": spec.width // 8} if isinstance(spec, ConvMixerSpec) else {"divide": 8}
    return replace(spec, **narrow).name


def mixer(kernel: int = 9, *, width: int = 256, depth: int = 8, patch: int = 2) -> str:
    """The name of a ConvMixer, the paper's usual one where nothing is said."""
    return f"convmixer_{width}_{depth}_k{kernel}_p{patch}"


@dataclass(frozen=True)
class Builder:
    """Makes runs and cells for one family of data at one scale.

    A family is `cifar`, `imagenet`, or `embedded`: what `cifar` is, on the images that come with the package.
    """

    scale: Scale
    options: Options
    family_name: str = "cifar"

    def sized(self, family: str | None = None) -> Family:
        """How runs on a family's data are sized, on this one's if none is named."""
        name = family or self.family_name
        if name == "embedded":
            return replace(self.scale.cifar, run={**self.scale.cifar.run, "data": "embedded"})
        return self.scale.cifar if name == "cifar" else self.scale.imagenet

    def cells(
        self,
        rows: Mapping[str, str],
        columns: Iterable[str],
        *,
        epochs: Iterable[int] = (EPOCHS,),
        filters: Sequence[str] = ("thawed", "frozen"),
        seeds: int | None = None,
        reference: str | None = None,
        also: bool = True,
    ) -> list[Cell]:
        """The cells of rows, names and networks, for each length of training but those that the scale leaves out.

        Networks and epochs are the paper's. Columns start from variants of `reference`, of the row's own network
        without one. With `also` the initialisations that the user asked for and that others have registered are columns
        too. Of columns of one name the first is taken.
        """
        others = (*self.options.also, *initialisations.others()) if also else ()
        cells: dict[tuple[str, str, int], Cell] = {}
        for (row, model), length in product(rows.items(), epochs):
            trained = self.sized().trained_epochs(length)
            if trained is None:
                continue
            inits = [init_of(column, reference or model) for column in columns]
            for kind, init in product(filters, [*inits, *(Init(name, name) for name in others)]):
                column = f"{kind}/{init.column}"
                if (row, column, length) not in cells:
                    count = self.options.seeds or seeds or self.sized().seeds
                    runs = tuple(self._run(model, init, kind == "frozen", trained, seed) for seed in range(count))
                    cells[row, column, length] = Cell(row, column, length, runs)
        return list(cells.values())

    def reference(self, model: str, *, family: str | None = None, seed: int = 0) -> Run:
        """The thawed, uniformly initialised run that run number `seed` starts from; `model` is the paper's.

        Where a scale has several references of a network, runs take them in turn, so that no verdict hangs on one.
        """
        sized, network = self.sized(family), models.parse(model)
        rotated = seed % sized.references if (network.kernel_size, network.patch_size) == (9, 2) else 0
        return Run(self._spec(sized, model, epochs=sized.reference_epochs, seed=REFERENCE_SEED + rotated))

    def _run(self, model: str, init: Init, frozen: bool, epochs: int, seed: int) -> Run:
        reference = None
        if init.reference:
            reference = self.reference(init.reference, family=init.reference_family, seed=seed)
        fields: dict[str, Any] = {"init": f"{init.init}:{reference.key}" if reference else init.init}
        # The paper's closed form is for every filter, and σ is what it chose for the patch size.
        if init.init == "closed-form":
            fields["min_kernel_size"] = EVERY_KERNEL
        if init.schedule is not None:
            fields["schedule"] = _canonical(init.schedule)
        elif initialisations.find(init.init).schedule == "required":
            fields["schedule"] = _paper_schedule(models.parse(self.scale.model(model)).patch_size, frozen=frozen)
        spec = self._spec(self.sized(), model, epochs=epochs, seed=seed, freeze_filters=frozen, **fields)
        return Run(spec, reference)

    def _spec(self, sized: Family, model: str, *, epochs: int, seed: int, **fields: Any) -> RunSpec:
        named = self.options.cifar if sized.recipe == "cifar" else self.options.imagenet
        fields = {"model": self.scale.model(model), "data": named, **sized.run, **fields}
        if fields["data"] is None:
            raise ConfigError(
                "this experiment trains on ImageNet, which must be on disk; name it with --imagenet folder:PATH, where "
                "PATH has train/CLASS/*.jpg and val/CLASS/*.jpg"
            )
        return RunSpec.recipe(sized.recipe, train={**sized.train, "epochs": epochs, "seed": seed}, **fields)


def _paper_schedule(patch_size: int, *, frozen: bool) -> str:
    """The preset that the paper found for a patch size: above 2, ImageNet's."""
    if patch_size <= 2:
        return "cifar-p1" if patch_size == 1 else "cifar-p2"
    return "imagenet-frozen" if frozen else "imagenet-thawed"


def _canonical(schedule: str) -> str:
    """The preset that a schedule's numbers are, if any, so that equal runs have equal names.

    >>> _canonical(".08,.37,2.9"), _canonical("sawtooth:1,2,3")
    ('cifar-p2', 'sawtooth:1,2,3')
    """
    kind, colon, numbers = schedule.rpartition(":")
    wanted = initialisations.parse_schedule(numbers)
    return kind + colon + next((name for name, preset in PRESETS.items() if preset == wanted), numbers)
