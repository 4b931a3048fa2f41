"""Turns the paper's settings into runs at a scale: what every experiment of the catalogue is built with."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from filtercov import PRESETS
from filtercov.errors import ExperimentError
from filtercov.lab.data.by_name import check_name
from filtercov.lab.experiments import initialisations
from filtercov.lab.experiments.graph import Cell, Experiment, Run, transferred
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.experiments.scales import Family, Scale

# No seed of a table's, so that a reference shares no random weight with the runs that start from it.
REFERENCE_SEED = 100


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
        if self.seeds is not None and self.seeds < 1:
            raise ExperimentError(f"a table needs at least one seed, got {self.seeds}")


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


@dataclass(frozen=True)
class Builder:
    """Makes runs and cells for one family of data at one scale.

    A family is `cifar`, `imagenet`, or `embedded`: what `cifar` is, on the images that come with the package.

    Tables are of test images, as the paper's are; what chooses a setting has its runs judged on validation images.
    """

    scale: Scale
    options: Options
    family_name: str = "cifar"
    evaluate: Literal["test", "validation"] = "test"

    @property
    def family(self) -> Family:
        """How runs on this data are sized."""
        return self._family(self.family_name)

    def cells(
        self,
        row: str,
        model: str,
        inits: Iterable[Init],
        *,
        epochs: int,
        filters: Sequence[str] = ("thawed", "frozen"),
        seeds: int | None = None,
    ) -> list[Cell]:
        """Return a row's cells, none if the scale leaves these epochs out; `model` and `epochs` are the paper's.

        A column that is named twice is there once, and refused if its runs are not the same.
        """
        trained = self.family.trained_epochs(epochs)
        if trained is None:
            return []
        count = self.options.seeds or seeds or self.family.seeds
        cells: dict[str, Cell] = {}
        for kind, init in product(filters, inits):
            column = f"{kind}/{init.column}"
            cell = Cell(row, column, epochs, self._runs(model, init, kind == "frozen", trained, count))
            if cells.setdefault(column, cell) != cell:
                raise ExperimentError(
                    f"row {row} has a column {init.column} of its own, whose runs are not those of the initialisation "
                    f"{init.init}; leave out --also {init.init}, or register yours under another name"
                )
        return list(cells.values())

    def reference(self, model: str, *, family: str | None = None) -> Run:
        """Return the thawed, uniformly initialised run that others start from; `model` is the paper's."""
        family = family or self.family_name
        sized = self._family(family)
        return Run(self._spec(family, self.scale.model(model), epochs=sized.reference_epochs, seed=REFERENCE_SEED))

    def also(self) -> list[Init]:
        """Return the columns the user asked for, and those that others have registered."""
        return [Init(name, name) for name in dict.fromkeys([*self.options.also, *initialisations.others()])]

    def experiment(self, name: str, *, title: str, shows: str, cells: Iterable[Cell] = (), **more: Any) -> Experiment:
        """Return the experiment, with the scale's name and reductions filled in."""
        return Experiment(
            name=name,
            title=title,
            shows=shows,
            scale=self.scale.name,
            reduced=self.scale.reduced,
            cells=tuple(cells),
            **more,
        )

    def _runs(self, model: str, init: Init, frozen: bool, epochs: int, seeds: int) -> tuple[Run, ...]:
        reference = self.reference(init.reference, family=init.reference_family) if init.reference else None
        settings = {
            "init": transferred(init.init, reference) if reference else init.init,
            "schedule": init.schedule and _canonical(init.schedule),
            "freeze_filters": frozen,
        }
        model = self.scale.model(model)
        return tuple(
            Run(self._spec(self.family_name, model, epochs=epochs, seed=seed, **settings), reference)
            for seed in range(seeds)
        )

    def _spec(self, family: str, model: str, *, epochs: int, seed: int, **fields: Any) -> RunSpec:
        sized = self._family(family)
        train: dict[str, Any] = {"epochs": epochs, "seed": seed}
        if sized.batch_size is not None:
            train["batch_size"] = sized.batch_size
        if sized.augment is not None:
            fields["augment"] = sized.augment
        return RunSpec.recipe(
            sized.recipe,
            train=train,
            model=model,
            data=self._data(family),
            data_limit=sized.limit,
            image_size=sized.image_size,
            evaluate=self.evaluate,
            **fields,
        )

    def _family(self, name: str) -> Family:
        if name == "embedded":
            return replace(self.scale.cifar, data="embedded")
        return self.scale.cifar if name == "cifar" else self.scale.imagenet

    def _data(self, family: str) -> str:
        sized = self._family(family)
        if sized.data is not None:
            return sized.data
        if family == "cifar":
            return self.options.cifar
        if self.options.imagenet is None:
            raise ExperimentError(
                "this experiment trains on ImageNet, which must be on disk; name it with --imagenet folder:PATH, where "
                "PATH has train/CLASS/*.jpg and val/CLASS/*.jpg"
            )
        return self.options.imagenet


def _canonical(schedule: str) -> str:
    """Return the preset that a schedule's numbers are, if any, so that equal runs have equal names.

    >>> _canonical(".08,.37,2.9"), _canonical("sawtooth:1,2,3")
    ('cifar-p2', 'sawtooth:1,2,3')
    """
    kind, colon, numbers = schedule.rpartition(":")
    wanted = initialisations.parse_schedule(numbers)
    return kind + colon + next((name for name, preset in PRESETS.items() if preset == wanted), numbers)
