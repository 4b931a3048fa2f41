"""Every table and figure of the paper, what settles its claims, and what we compare beside it, by name.

`experiments.csv` says of each where the paper has it, as its captions number tables and figures, on which data it
trains, how it is drawn and what it shows. Here are its runs: rows of networks by columns of initialisations, whose
names say what they are.

The paper gives the results of its figures as charts without numbers and does not always say for which epochs or
filters; where it does not, 20 epochs and the filter sizes of its tables are taken. Columns share their seeds, and
everything but the filters. Runs are known by what they are, so what tables and claims share is trained once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from filtercov.lab.costs import matching
from filtercov.lab.experiments.baselines import CONTROLS
from filtercov.lab.experiments.builder import (
    IMAGENET,
    Builder,
    Cell,
    Drawing,
    Experiment,
    Init,
    Options,
    mixer,
    variant,
)
from filtercov.lab.experiments.paper import CLAIMS, Claim, read_csv
from filtercov.lab.experiments.scales import Scale, find_scale

__all__ = ["PLACES", "Experiment", "Options", "experiment", "experiments", "names"]

_EXPERIMENTS = {about["name"]: about for about in read_csv("experiments.csv")}
PLACES = {name: about["place"] for name, about in _EXPERIMENTS.items()}

# The first four columns of the paper's tables.
TRANSFERRED = ("uniform", "covariance", "covariance-eighth", "filters")
KERNELS = (3, 7, 9, 15)
ATTO, TINY = "convnext_atto_p4", "convnext_tiny_p4"


def _kernels(kernels: Iterable[int], model: str) -> dict[str, str]:
    return {f"k{kernel}": variant(model, f"k{kernel}") for kernel in kernels}


def _patches(kernel: int = 9, depth: int = 8) -> dict[str, str]:
    return {f"k{kernel}-p{patch}": mixer(kernel, depth=depth, patch=patch) for patch in (2, 1)}


# --- CIFAR-10 ---


def _cifar(model: str, build: Builder) -> list[Cell]:
    """One of the tables of the appendix, which also hold the numbers of the bar charts."""
    rows = _kernels(build.scale.table_kernels if model.startswith("convmixer") else [7], model)
    return build.cells(rows, [*TRANSFERRED, "closed-form"], epochs=build.scale.table_epochs)


def _cifar_5x5(build: Builder) -> list[Cell]:
    return build.cells(_patches(5), [*TRANSFERRED, "closed-form"], epochs=build.scale.table_epochs)


def _figure(columns: Iterable[str], build: Builder, *, depth: int = 8) -> list[Cell]:
    """What a reference may differ in and still be worth starting from."""
    return build.cells(_kernels(build.scale.figure_kernels, mixer(depth=depth)), ["uniform", *columns])


def _smaller(kind: str, sizes: Iterable[int], depth: int, build: Builder) -> list[Cell]:
    """A column per reference, leaving out those that a reduced scale makes equal to a later one."""
    columns = {build.scale.model(variant(mixer(), f"{kind} {size}")): f"{kind} {size}" for size in sizes}
    return _figure(columns.values(), build, depth=depth)


def _patch_transfer(build: Builder) -> list[Cell]:
    cells: list[Cell] = []
    for kernel, (patch, other) in product(build.scale.figure_kernels, ((1, 2), (2, 1))):
        kinds = ("covariance", "covariance-eighth", "filters")
        columns = ["uniform", *(f"{kind} from p{p}" for kind in kinds for p in (patch, other))]
        cells += build.cells({f"k{kernel}-p{patch}": mixer(kernel, patch=patch)}, columns)
    return cells


def _imagenet_to_cifar(build: Builder) -> list[Cell]:
    columns = ("covariance", "covariance from ImageNet", "covariance-eighth from ImageNet", "closed-form")
    return build.cells(_patches() if 9 in build.scale.figure_kernels else {}, ["uniform", *columns])


def _convergence(depth: int, build: Builder) -> list[Cell]:
    """Accuracy by length of training, every point a schedule of its own.

    Of the figure in the appendix the paper does not name the network; its text says that gains are larger for deeper
    ones than its tables' 8 layers, so those are taken. It uses one setting of the closed form for both patch sizes
    here, to show how little it matters.
    """
    columns: list[str | Init] = ["uniform", "covariance", "filters", Init("closed-form", "closed-form", "cifar-p2")]
    lengths = (2, 5, 10, 20, 35, 50, 100)
    return build.cells(_patches(depth=depth), columns, epochs=lengths, filters=("thawed",))


# --- ImageNet ---

CANDIDATES = tuple(f"closed-form {schedule}" for schedule in (".15 .3 .5", ".15 .5 .25", ".15 .25 1.0"))
# The main table: every network for 50 epochs, and two of them, thawed with one schedule, for 150.
_MIXERS = ("512-12", "512-24", "512-32", "1024-12", "1024-24", "1024-32")
_MAIN_50 = {
    **{f"convmixer-{size}-k9-p14": f"convmixer_{size.replace('-', '_')}_k9_p14" for size in _MIXERS},
    "convmixer-512-12-k9-p7": "convmixer_512_12_k9_p7",
    "convnext-atto-k7-p4": ATTO,
    "convnext-tiny-k7-p4": TINY,
}
_MAIN_150 = {"convmixer-1536-24-k9-p14": "convmixer_1536_24_k9_p14", "convnext-tiny-k7-p4": TINY}


def _imagenet_main(build: Builder) -> list[Cell]:
    short = build.cells(_MAIN_50, ["uniform", *CANDIDATES[1:]], epochs=(50,))
    return short + build.cells(_MAIN_150, ["uniform", CANDIDATES[2]], epochs=(150,), filters=("thawed",))


# Tables of the appendix: the network, and the one that references come from.
_WIDE, _FINE, _DEEP = IMAGENET, "convmixer_512_12_k9_p7", "convmixer_512_24_k9_p14"
IMAGENET_TABLES = {
    "imagenet-10-convmixer-512-12-p14": (_WIDE, _WIDE),
    "imagenet-10-convmixer-512-12-p7": (_FINE, _FINE),
    "imagenet-10-convmixer-512-24-p14": (_DEEP, _WIDE),
    "imagenet-10-convnext-atto": (ATTO, ATTO),
    "imagenet-10-convnext-tiny": (TINY, TINY),
    "imagenet-50-convnext-atto": (ATTO, ATTO),
    "imagenet-50-convmixer-512-12-p14": (_WIDE, _WIDE),
    "imagenet-50-convmixer-512-24-p14": (_DEEP, _DEEP),
}


def _imagenet(name: str, build: Builder) -> list[Cell]:
    model, reference = IMAGENET_TABLES[name]
    _, epochs, row = name.split("-", 2)
    candidates = CANDIDATES[:2] if name.startswith("imagenet-10-convmixer") else CANDIDATES
    columns = [*TRANSFERRED, *candidates]
    return build.cells({row: model}, columns, epochs=(int(epochs),), reference=reference)


# --- Grid searches ---

_FACTORS = (1.0, 0.5, 2.0, 0.25)  # the centre first, so that a smaller scale keeps what is around it


class Grid(NamedTuple):
    """A grid search over the schedule (σ0, v, a): the network, and the schedule the paper chose as the centre.

    The paper shows these as pictures and prints neither axes nor numbers; the grids are in steps of a factor of two.
    """

    model: str
    centre: tuple[float, float, float]
    filters: str = "frozen"
    epochs: int = 20
    kind: str = ""  # "sawtooth:"


_P2, _P1 = (0.08, 0.37, 2.9), (0.16, 0.74, 5.8)
GRIDS = {
    "grid-cifar-p2": Grid(mixer(), _P2),
    "grid-cifar-p1": Grid(mixer(patch=1), _P1),
    "grid-convnext": Grid("convnext_atto_p1", _P1),
    "grid-convnext-sawtooth": Grid("convnext_atto_p1", _P1, kind="sawtooth:"),
    "grid-imagenet-frozen": Grid(IMAGENET, (0.15, 0.5, 0.25), epochs=10),
    "grid-imagenet-thawed": Grid(IMAGENET, (0.15, 0.25, 1.0), "thawed", epochs=10),
}


def _grid(grid: Grid, build: Builder) -> list[Cell]:
    """One seed, a cell per schedule of three digits, and uniform to compare with."""
    factors = sorted(_FACTORS[: build.scale.grid_points])
    axes = [[centre * factor for factor in factors] for centre in grid.centre]
    schedules = (" ".join(f"{value:.3g}" for value in values) for values in product(*axes))
    columns = ["uniform", *(f"closed-form {grid.kind}{schedule}" for schedule in schedules)]
    row = {grid.model.replace("_", "-"): grid.model}
    return build.cells(row, columns, epochs=(grid.epochs,), filters=(grid.filters,), seeds=1, also=False)


# --- What is drawn and what is timed ---


def _drawn(kind: str, titles: Mapping[str, str], build: Builder) -> list[Drawing]:
    """Filters or covariances of trained networks, a title of each."""
    return [Drawing(kind, title, build.reference(model)) for model, title in titles.items()]


_TRAINED = {mixer(patch=patch): f"Trained on CIFAR-10, {patch}x{patch} patches" for patch in (1, 2)}
DRAWINGS: Mapping[str, Callable[[Builder], Sequence[Drawing]]] = {
    "variance-schedule": lambda _: (
        Drawing("construction", "The construction of the covariance"),
        Drawing("schedule", "The covariance by depth, σ0 = .5, v = .5, a = 3"),
        Drawing("sawtooth", "The quadratic and the sawtooth schedule of a ConvNeXt"),
    ),
    "learned-covariances": partial(_drawn, "covariances", _TRAINED),
    "learned-covariances-imagenet": partial(_drawn, "covariances", {IMAGENET: "Trained on ImageNet, 14x14 patches"}),
    "example-filters": partial(_drawn, "filters", {mixer(): "ConvMixer-256/8, 2x2 patches, 9x9 filters"}),
}
TIMED = {"frozen-speed": range(3, 16, 2), "claim-c14": (3, 9, 15)}  # kernel sizes


def timed_networks(name: str, scale: Scale) -> list[str]:
    """The networks whose frozen and thawed steps an experiment times."""
    kernels = [kernel for kernel in TIMED.get(name, ()) if scale.judges or kernel in (3, 9, 15)]
    return [scale.model(mixer(kernel, width=512, depth=12)) for kernel in kernels]


# --- Ours: a ranking of initialisations, and controls for the closed form ---

BY_FORMULA = (
    *("kaiming", "trunc-normal", "orthogonal", "identity", "delta-gaussian"),
    *("impulse", "box:9", "gaussian-bump:1", "master-keys"),
)
RANKED = {"convmixer": mixer(), "convnext": "convnext_atto_p2"}
SMALLER_KERNEL = {7: 3, 9: 7, 15: 9}  # the next smaller of the paper's sizes


def _ranking(build: Builder) -> list[Cell]:
    """Every initialisation as a column of one table, for two kinds of networks and large filters.

    Where accuracies mean nothing, frozen filters and one seed show that all of it runs.
    """
    kinds, seeds = (("thawed", "frozen"), None) if build.scale.judges else (("frozen",), 1)
    cells: list[Cell] = []
    for kernel, (kind, network) in product(build.scale.table_kernels, RANKED.items()):
        if kernel in SMALLER_KERNEL:
            transferred = ("covariance", f"covariance from k{SMALLER_KERNEL[kernel]}", "filters")
            row = {f"{kind}-k{kernel}": variant(network, f"k{kernel}")}
            cells += build.cells(row, ["uniform", "closed-form", *transferred, *BY_FORMULA], filters=kinds, seeds=seeds)
    return cells


def _controls(build: Builder) -> list[Cell]:
    """What does the work: the closed form, uniform filters and controls that lack one property each."""
    columns = ["uniform", "closed-form", "power", *CONTROLS]
    cells: list[Cell] = []
    for kernel, kinds in {9: ("frozen", "thawed"), 15: ("frozen",)}.items():  # the more important first
        if kernel in build.scale.table_kernels:
            cells += build.cells(_kernels([kernel], mixer()), columns, filters=kinds, seeds=build.scale.claim_seeds)
    return cells


# --- Claims: the cells that their comparisons name, and no others ---


def _claim(claim: Claim, build: Builder) -> list[Cell]:
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
        cells += build.cells({row: model}, inits, epochs=(epochs,), filters=(kind,), seeds=seeds)
    return cells


CELLS: Mapping[str, Callable[[Builder], list[Cell]]] = {
    "cifar-convmixer-256-8-p2": partial(_cifar, mixer()),
    "cifar-convmixer-256-24-p2": partial(_cifar, mixer(depth=24)),
    "cifar-convmixer-256-8-p1": partial(_cifar, mixer(patch=1)),
    "cifar-convnext-atto-p1": partial(_cifar, "convnext_atto_p1"),
    "cifar-convnext-atto-p2": partial(_cifar, "convnext_atto_p2"),
    "cifar-5x5": _cifar_5x5,
    "width-transfer": partial(_smaller, "width", [2**i for i in range(9)], 8),
    "depth-transfer": partial(_smaller, "depth", (2, 4, 8, 16, 32), 32),
    "patch-transfer": _patch_transfer,
    "kernel-transfer": partial(_figure, [f"covariance from k{kernel}" for kernel in KERNELS]),
    "imagenet-to-cifar": _imagenet_to_cifar,
    "kronecker": partial(_figure, ["covariance", "kronecker"]),
    "convergence": partial(_convergence, 16),
    "convergence-shallow": partial(_convergence, 8),
    **{name: partial(_grid, grid) for name, grid in GRIDS.items()},
    "imagenet": _imagenet_main,
    **{name: partial(_imagenet, name) for name in IMAGENET_TABLES},
    **{claim.experiment: partial(_claim, claim) for claim in CLAIMS},
    "controls": _controls,
    "ranking": _ranking,
}


# --- By name ---


def names(pattern: str = "*") -> tuple[str, ...]:
    """The experiments whose name matches a pattern as shells have them.

    >>> names("cifar-convnext-*")
    ('cifar-convnext-atto-p1', 'cifar-convnext-atto-p2')
    """
    return matching([pattern], list(_EXPERIMENTS))


def experiment(name: str, *, scale: str, options: Options | None = None) -> Experiment:
    """An experiment at a scale.

    >>> len(experiment("cifar-convmixer-256-8-p2", scale="paper").runs)
    368
    """
    about, sized = _EXPERIMENTS[names(name)[0]], find_scale(scale)
    build = Builder(sized, options or Options(), about["data"])
    name = about["name"]
    return Experiment(
        name=name,
        title=about["title"],
        shows=about["shows"],
        scale=sized.name,
        reduced=sized.reduced,
        cells=tuple(CELLS[name](build)) if name in CELLS else (),
        drawings=tuple(DRAWINGS[name](build)) if name in DRAWINGS else (),
        chart=about["chart"],
        speed=tuple(timed_networks(name, sized)),
    )


def experiments(patterns: Sequence[str], *, scale: str, options: Options | None = None) -> list[Experiment]:
    """The experiments that match any of the patterns, each once, in the catalogue's order."""
    chosen = matching(patterns, list(_EXPERIMENTS))
    return [experiment(name, scale=scale, options=options) for name in chosen]
