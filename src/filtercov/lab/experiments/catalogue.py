"""Every table and figure of the paper, what settles its claims, and what we compare beside it, by name.

`experiments.csv` says of each where the paper has it, as its captions number tables and figures, on which data it
trains, how its cells are drawn, the steps of which filter sizes are timed, and what it shows. `tables.csv` has its
cells: rows are variants of a network, columns are initialisations (`init_of`), each thawed and frozen, for the paper's
epochs. `drawings.csv` has what is drawn beside cells, and the network whose trained filters that shows, if any.

The paper gives the results of its figures as charts without numbers and does not always say for which epochs or
filters; where it does not, 20 epochs and the filter sizes of its tables are taken. It shows its grid searches over the
schedule (σ0, v, a) as pictures without axes; here they are in steps of a factor of two. Of the figure of convergence in
the appendix it does not name the network; its text says that gains are larger for deeper ones than its tables' 8
layers, so 16 are taken. Columns share their seeds, and everything but the filters. Runs are known by what they are, so
what tables and claims share is trained once.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from filtercov import PRESETS
from filtercov.errors import ConfigError
from filtercov.lab import models
from filtercov.lab.costs import matching
from filtercov.lab.experiments import initialisations
from filtercov.lab.experiments.paper import CLAIMS, CellName, Claim, read_csv
from filtercov.lab.experiments.runspec import EVERY_KERNEL, Run, RunSpec, in_order
from filtercov.lab.experiments.scales import Family, Scale, find_scale
from filtercov.lab.models import ConvMixerSpec

_EXPERIMENTS = {about["name"]: about for about in read_csv("experiments.csv")}
_TABLES, _DRAWINGS = read_csv("tables.csv"), read_csv("drawings.csv")
_CLAIMS = {claim.experiment: claim for claim in CLAIMS}
PLACES = {name: about["place"] for name, about in _EXPERIMENTS.items()}
# No seed of a table's, so that a reference shares no random weight with the runs that start from it.
REFERENCE_SEED = 100


@dataclass(frozen=True)
class Options:
    """The user's choices besides the scale: the data, more initialisations to compare, the number of seeds."""

    cifar: str = "cifar10"
    imagenet: str | None = None  # folder:PATH
    also: tuple[str, ...] = ()
    seeds: int | None = None


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


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The description of an experiment at a scale, shown before and after its runs."""

    name: str
    title: str
    shows: str  # what one learns from it
    scale: str
    reduced: str  # what is smaller than in the paper, in words; empty at the paper's scale
    chart: str = ""  # how the cells are drawn: "bars", "lines" over epochs, "ranking"


@dataclass(frozen=True, kw_only=True)
class Experiment(Heading):
    """A table or figure of the paper, or beside it, at one scale."""

    cells: tuple[Cell, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    speed: tuple[str, ...] = ()  # networks whose frozen and thawed steps are timed
    options: Options = Options()

    @property
    def shown(self) -> tuple[Run, ...]:
        """The runs of its cells and drawings."""
        runs = (run for cell in self.cells for run in cell.runs)
        return (*runs, *(drawing.run for drawing in self.drawings if drawing.run))

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run the experiment needs, each once, references before those that start from them."""
        return in_order(self.shown)


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
MIXER, IMAGENET = "convmixer_256_8_k9_p2", "convmixer_512_12_k9_p14"  # the paper's usual networks


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
        kind, reference = "covariance", variant(reference, "eighth")
    if kind in TRANSFERS:
        return Init(column, TRANSFERS[kind], reference=reference, reference_family=family)
    if kind == "sawtooth":
        return Init(column, "closed-form", "sawtooth:cifar-p2")
    name, _, schedule = kind.partition(" ")
    return Init(column, name, schedule.replace(" ", ",") or None)


def variant(model: str, changes: str) -> str:
    """A network with what the name of a row or a column changes; `eighth` is that of an eighth of the width.

    >>> variant("convmixer_256_8_k9_p2", "k7-p1"), variant("convmixer_256_8_k9_p2", "depth 24")
    ('convmixer_256_8_k7_p1', 'convmixer_256_24_k9_p2')
    """
    spec, fields = models.parse(model), {"k": "kernel_size", "p": "patch_size", "depth ": "depth", "width ": "width"}
    changed: dict[str, Any] = {
        fields[kind]: int(number) for kind, number in re.findall(r"(k|p|depth |width )(\d+)", changes)
    }
    if changes == "eighth":
        changed = {"width": spec.width // 8} if isinstance(spec, ConvMixerSpec) else {"divide": 8}
    return replace(spec, **changed).name


@dataclass(frozen=True)
class Builder:
    """Makes runs and cells for one family of data at one scale.

    A family is `cifar`, `imagenet`, or `embedded`: what `cifar` is, on the images that come with the package.
    """

    scale: Scale
    options: Options
    family_name: str = "cifar"

    def sized(self, family: str | None = None) -> Family:
        """The sizes of runs on a family's data, by default this builder's."""
        name = family or self.family_name
        if name == "embedded":
            return replace(self.scale.cifar, run={**self.scale.cifar.run, "data": "embedded"})
        return self.scale.cifar if name == "cifar" else self.scale.imagenet

    def cells(
        self,
        row: str,
        model: str,
        columns: Iterable[str],
        *,
        epochs: int,
        filters: Sequence[str],
        seeds: int | None = None,
        reference: str = "",
        also: bool = True,
    ) -> Iterator[Cell]:
        """The cells of a row, its network and length of training the paper's; none if the scale leaves that out.

        Columns start from variants of `reference`, of the row's own network without one. With `also` the
        initialisations that the user asked for and that others have registered are columns too.
        """
        lengths = self.sized().epochs
        trained = epochs if lengths is None else lengths.get(epochs)
        if trained is None:
            return
        inits = {init.column: init for init in (init_of(column, reference or model) for column in columns)}
        others = (name for name in initialisations.names() if not initialisations.find(name).ours)
        for name in (*self.options.also, *others) if also else ():
            inits.setdefault(name, Init(name, name))
        for kind, init in product(filters, inits.values()):
            count = self.options.seeds or seeds or self.sized().seeds
            runs = tuple(self._run(model, init, kind == "frozen", trained, seed) for seed in range(count))
            yield Cell(row, f"{kind}/{init.column}", epochs, runs)

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
            coarse = "imagenet-frozen" if frozen else "imagenet-thawed"
            patch = models.parse(self.scale.model(model)).patch_size
            fields["schedule"] = {1: "cifar-p1", 2: "cifar-p2"}.get(patch, coarse)
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


def _canonical(schedule: str) -> str:
    """The preset that a schedule's numbers are, if any, so that equal runs have equal names.

    >>> _canonical(".08,.37,2.9"), _canonical("sawtooth:1,2,3")
    ('cifar-p2', 'sawtooth:1,2,3')
    """
    kind, colon, numbers = schedule.rpartition(":")
    wanted = initialisations.parse_schedule(numbers)
    return kind + colon + next((name for name, preset in PRESETS.items() if preset == wanted), numbers)


def experiments(patterns: Sequence[str], *, scale: str, options: Options | None = None) -> list[Experiment]:
    """The experiments that match any of the patterns, as shells have them, each once, in the catalogue's order."""
    return [experiment(name, scale=scale, options=options) for name in matching(patterns, list(PLACES))]


def experiment(name: str, *, scale: str, options: Options | None = None) -> Experiment:
    """An experiment at a scale.

    >>> len(experiment("cifar-convmixer-256-8-p2", scale="paper").runs)
    368
    """
    name = matching([name], list(PLACES))[0]
    about, sized = _EXPERIMENTS[name], find_scale(scale)
    build = Builder(sized, options or Options(), about["data"])
    drawn = [(line["kind"], line["title"], line["network"]) for line in _DRAWINGS if line["experiment"] == name]
    timed = [k for k in about["timed"].split() if sized.judges or k in ("3", "9", "15")]
    return Experiment(
        **{word: about[word] for word in ("name", "title", "shows", "chart")},
        scale=sized.name,
        reduced=sized.reduced,
        options=build.options,
        cells=tuple(_claim(_CLAIMS[name], build) if name in _CLAIMS else _table(name, build)),
        drawings=tuple(Drawing(kind, title, build.reference(of) if of else None) for kind, title, of in drawn),
        speed=tuple(sized.model(variant(MIXER, f"k{k} width 512 depth 12")) for k in timed),
    )


def _table(name: str, build: Builder) -> Iterator[Cell]:
    """The cells of an experiment in `tables.csv`, those of filter sizes that the scale leaves out excepted."""
    scale = build.scale
    for line in (line for line in _TABLES if line["experiment"] == name):
        rows = {row: variant(line["network"], row) for row in line["rows"].split()}
        if kernels := scale.kernels.get(line["kernels"]):
            rows = {row: model for row, model in rows.items() if models.parse(model).kernel_size in kernels}
        filters = line["filters"].split()
        seeds = {"": None, "claim": scale.claim_seeds, "1": 1}[line["seeds"]]
        if name == "ranking" and not scale.judges:  # frozen filters and one seed show that all of it runs
            filters, seeds = ["frozen"], 1
        columns, also = _columns(line["columns"].split("; "), scale), not name.startswith("grid-")
        shared: dict[str, Any] = {"filters": filters, "seeds": seeds, "reference": line["reference"], "also": also}
        for (row, model), epochs in product(rows.items(), line["epochs"].split()):
            yield from build.cells(row, model, columns, epochs=int(epochs), **shared)


def _columns(columns: Sequence[str], scale: Scale) -> list[str]:
    """The columns of a line; of references that a reduced scale makes equal the last is kept."""
    found: dict[str, str] = {}
    for column in columns:
        kind, _, rest = column.partition(" ")
        if kind == "grid":
            found |= {schedule: f"closed-form {schedule}" for schedule in _grid(rest, scale)}
        elif kind in ("width", "depth"):
            found[scale.model(variant(MIXER, column))] = column
        else:
            found[column] = column
    return list(found.values())


def _grid(centre: str, scale: Scale) -> list[str]:
    """The schedules around the one that the paper chose, in numbers of three digits.

    >>> _grid("sawtooth:.08 .37 2.9", find_scale("smoke"))
    ['sawtooth:0.08 0.37 2.9']
    """
    kind, colon, numbers = centre.rpartition(":")
    # The centre first, so that a smaller scale keeps what is around it.
    factors = sorted((1.0, 0.5, 2.0, 0.25)[: scale.grid_points])
    axes = [[float(number) * factor for factor in factors] for number in numbers.split()]
    return [kind + colon + " ".join(f"{value:.3g}" for value in values) for values in product(*axes)]


def _claim(claim: Claim, build: Builder) -> Iterator[Cell]:
    """The cells that the comparisons of a claim name, and no others."""
    # The gain of C15 is of several points, not of one.
    seeds = min(build.scale.claim_seeds, build.sized().seeds) if claim.number == "C15" else build.scale.claim_seeds
    tables: dict[tuple[str, int, str], list[str]] = defaultdict(list)  # (row, epochs, filters) -> initialisations
    for cell in dict.fromkeys(cell for comparison in claim.comparisons for cell in comparison.cells):
        if cell.init:  # not "saved"
            tables[cell.row, cell.epochs, cell.filters].append(cell.init)
    for (row, epochs, kind), inits in tables.items():
        inits.sort(key=lambda init: {"uniform": 0, "closed-form": 1}.get(init, 2))
        model = "convnext_atto_p2" if row == "convnext" else variant(MIXER, row)
        yield from build.cells(row, model, inits, epochs=epochs, filters=[kind], seeds=seeds)
