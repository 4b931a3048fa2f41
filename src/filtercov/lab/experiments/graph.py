"""Experiments as data: runs, the runs they start from, and the cells of a table that average over seeds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from filtercov.errors import ExperimentError
from filtercov.lab.experiments.references import reference_key, shown_init
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.printable import counted


@dataclass(frozen=True)
class Run:
    """A training run and, if its initialisation starts from another run, that run."""

    spec: RunSpec
    reference: "Run | None" = None

    def __post_init__(self) -> None:
        wanted = reference_key(self.spec.init)
        given = self.reference.key if self.reference else None
        if wanted != given:
            raise ExperimentError(f"init {self.spec.init!r} starts from run {wanted}, but the reference is {given}")

    @cached_property
    def key(self) -> str:
        """The name of the run's directory."""
        return self.spec.key

    def __str__(self) -> str:
        """Return one line for people."""
        spec, train = self.spec, self.spec.train
        filters = "frozen" if spec.freeze_filters else "thawed"
        init = shown_init(spec.init, spec.schedule)
        origin = f" {self.reference.spec.model}" if self.reference else ""
        return f"{self.key}  {spec.model} {filters} {init}{origin}, {counted(train.epochs, 'epoch')}, seed {train.seed}"


def transferred(kind: str, reference: Run) -> str:
    """Return the `init` of a run that starts from another by the initialisation `kind`."""
    if reference_key(kind) is None:
        raise ExperimentError(
            f"{kind!r} does not start from another run; use statistics-of, covariances-of, kronecker-of, filters-of, "
            "interpolated-of or selected-of"
        )
    return f"{kind}:{reference.key}"


class InColumn:
    """What the name of a table's column says."""

    column: str  # "thawed/" or "frozen/" and an initialisation

    @property
    def filters(self) -> str:
        """Whether the filters train: thawed or frozen."""
        return self.column.partition("/")[0]

    @property
    def init(self) -> str:
        """The initialisation."""
        return self.column.partition("/")[2]


@dataclass(frozen=True)
class Cell(InColumn):
    """One number of a table: the mean over the `runs`, which differ in their seed alone.

    `epochs` are the paper's, by which the cell is named; a reduced scale trains for fewer.
    """

    row: str
    column: str  # "thawed/" or "frozen/" and an initialisation
    epochs: int
    runs: tuple[Run, ...]


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
    chart: str = ""  # how the cells are drawn: "bars", "lines" over epochs, "grid", "ranking"
    speed: tuple[str, ...] = field(default=())  # networks whose frozen and thawed steps are timed

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run the experiment needs, each once, references before those that start from them."""
        wanted = [run for cell in self.cells for run in cell.runs]
        return in_order([*wanted, *(drawing.run for drawing in self.drawings if drawing.run)])


def in_order(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return runs and all they start from, each once, references first."""
    found: dict[str, Run] = {}
    for run in runs:
        for needed in _chain(run):
            found.setdefault(needed.key, needed)
    return tuple(found.values())


def _chain(run: Run) -> Iterator[Run]:
    if run.reference:
        yield from _chain(run.reference)
    yield run
