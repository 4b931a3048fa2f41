"""Every table and figure of the paper, what settles its claims, and what we compare beside it, by name.

`experiments.csv` says of each where the paper has it, as its captions number tables and figures, on which data it
trains, how it is drawn and what it shows. `tables.csv` has its cells: rows are variants of a network, columns are
initialisations (`init_of`), each thawed and frozen, for the paper's epochs.

The paper gives the results of its figures as charts without numbers and does not always say for which epochs or
filters; where it does not, 20 epochs and the filter sizes of its tables are taken. It shows its grid searches over the
schedule (σ0, v, a) as pictures without axes; here they are in steps of a factor of two. Of the figure of convergence in
the appendix it does not name the network; its text says that gains are larger for deeper ones than its tables' 8
layers, so 16 are taken. Columns share their seeds, and everything but the filters. Runs are known by what they are, so
what tables and claims share is trained once.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product

from filtercov.lab import models
from filtercov.lab.costs import matching
from filtercov.lab.experiments.builder import IMAGENET, Builder, Cell, Drawing, Experiment, Options, mixer, variant
from filtercov.lab.experiments.paper import CLAIMS, Claim, read_csv
from filtercov.lab.experiments.scales import Scale, find_scale

__all__ = ["PLACES", "Experiment", "Options", "experiment", "experiments", "names"]

_EXPERIMENTS = {about["name"]: about for about in read_csv("experiments.csv")}
_TABLES = read_csv("tables.csv")
_CLAIMS = {claim.experiment: claim for claim in CLAIMS}
PLACES = {name: about["place"] for name, about in _EXPERIMENTS.items()}


def names(pattern: str = "*") -> tuple[str, ...]:
    """The experiments whose name matches a pattern as shells have them.

    >>> names("cifar-convnext-*")
    ('cifar-convnext-atto-p1', 'cifar-convnext-atto-p2')
    """
    return matching([pattern], list(_EXPERIMENTS))


def experiments(patterns: Sequence[str], *, scale: str, options: Options | None = None) -> list[Experiment]:
    """The experiments that match any of the patterns, each once, in the catalogue's order."""
    chosen = matching(patterns, list(_EXPERIMENTS))
    return [experiment(name, scale=scale, options=options) for name in chosen]


def experiment(name: str, *, scale: str, options: Options | None = None) -> Experiment:
    """An experiment at a scale.

    >>> len(experiment("cifar-convmixer-256-8-p2", scale="paper").runs)
    368
    """
    name = names(name)[0]
    about, sized = _EXPERIMENTS[name], find_scale(scale)
    build = Builder(sized, options or Options(), about["data"])
    return Experiment(
        name=name,
        title=about["title"],
        shows=about["shows"],
        scale=sized.name,
        reduced=sized.reduced,
        cells=tuple(_claim(_CLAIMS[name], build) if name in _CLAIMS else _table(name, build)),
        drawings=tuple(_DRAWINGS[name](build)) if name in _DRAWINGS else (),
        chart=about["chart"],
        speed=tuple(_timed_networks(name, sized)),
    )


# --- Cells ---


def _table(name: str, build: Builder) -> list[Cell]:
    """The cells of an experiment in `tables.csv`, those of filter sizes that the scale leaves out excepted."""
    cells: list[Cell] = []
    scale = build.scale
    for line in (line for line in _TABLES if line["experiment"] == name):
        rows = {row: variant(line["network"], row) for row in line["rows"].split()}
        if line["kernels"]:
            kernels = scale.table_kernels if line["kernels"] == "table" else scale.figure_kernels
            rows = {row: model for row, model in rows.items() if models.parse(model).kernel_size in kernels}
        filters = line["filters"].split()
        seeds = {"": None, "claim": scale.claim_seeds, "1": 1}[line["seeds"]]
        if name == "ranking" and not scale.judges:  # frozen filters and one seed show that all of it runs
            filters, seeds = ["frozen"], 1
        cells += build.cells(
            rows,
            _columns(line["columns"].split("; "), scale),
            epochs=[int(epochs) for epochs in line["epochs"].split()],
            filters=filters,
            seeds=seeds,
            reference=line["reference"] or None,
            also=not name.startswith("grid-"),
        )
    return cells


def _columns(columns: Sequence[str], scale: Scale) -> list[str]:
    """The columns of a line; of references that a reduced scale makes equal the last is kept."""
    found: dict[str, str] = {}
    for column in columns:
        kind, _, rest = column.partition(" ")
        if kind == "grid":
            found |= {schedule: f"closed-form {schedule}" for schedule in _grid(rest, scale)}
        elif kind in ("width", "depth"):
            found[scale.model(variant(mixer(), column))] = column
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


def _claim(claim: Claim, build: Builder) -> list[Cell]:
    """The cells that the comparisons of a claim name, and no others."""
    tables: dict[tuple[str, int, str], list[str]] = defaultdict(list)  # (row, epochs, filters) -> initialisations
    for cell in dict.fromkeys(cell for comparison in claim.comparisons for cell in comparison.cells):
        if cell.init:  # not "saved"
            tables[cell.row, cell.epochs, cell.filters].append(cell.init)
    seeds = build.scale.claim_seeds
    if claim.number == "C15":  # whose gain is of several points, not of one
        seeds = min(seeds, build.sized().seeds)
    cells: list[Cell] = []
    for (row, epochs, kind), inits in tables.items():
        inits.sort(key=lambda init: {"uniform": 0, "closed-form": 1}.get(init, 2))
        model = "convnext_atto_p2" if row == "convnext" else variant(mixer(), row)
        cells += build.cells({row: model}, inits, epochs=[epochs], filters=[kind], seeds=seeds)
    return cells


# --- What is drawn and what is timed ---


def _drawn(kind: str, titles: Mapping[str, str], build: Builder) -> list[Drawing]:
    """Filters or covariances of trained networks, a title of each."""
    return [Drawing(kind, title, build.reference(model)) for model, title in titles.items()]


_TRAINED = {mixer(patch=patch): f"Trained on CIFAR-10, {patch}x{patch} patches" for patch in (1, 2)}
_DRAWINGS: Mapping[str, Callable[[Builder], Sequence[Drawing]]] = {
    "variance-schedule": lambda _: (
        Drawing("construction", "The construction of the covariance"),
        Drawing("schedule", "The covariance by depth, σ0 = .5, v = .5, a = 3"),
        Drawing("sawtooth", "The quadratic and the sawtooth schedule of a ConvNeXt"),
    ),
    "learned-covariances": partial(_drawn, "covariances", _TRAINED),
    "learned-covariances-imagenet": partial(_drawn, "covariances", {IMAGENET: "Trained on ImageNet, 14x14 patches"}),
    "example-filters": partial(_drawn, "filters", {mixer(): "ConvMixer-256/8, 2x2 patches, 9x9 filters"}),
}


def _timed_networks(name: str, scale: Scale) -> list[str]:
    """The networks whose frozen and thawed steps an experiment times."""
    sizes = {"frozen-speed": range(3, 16, 2), "claim-c14": (3, 9, 15)}.get(name, ())
    kernels = [kernel for kernel in sizes if scale.judges or kernel in (3, 9, 15)]
    return [scale.model(mixer(kernel, width=512, depth=12)) for kernel in kernels]
