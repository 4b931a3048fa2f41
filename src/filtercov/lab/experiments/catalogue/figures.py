"""The paper's figures: transfer, convergence, grid searches, schedules, covariances, filters and speed.

The paper gives results as charts without numbers and does not always say for which epochs or filters; where it does
not, 20 epochs and the filter sizes of its tables are taken.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from filtercov.lab.experiments.catalogue.build import (
    UNIFORM,
    Builder,
    Drawing,
    Experiment,
    Init,
    closed_form,
    covariance,
    eighth,
    filters,
)

Row = tuple[str, str, Sequence[Init]]  # name, network, columns besides uniform


def mixer(kernel: int = 9, *, width: int = 256, depth: int = 8, patch: int = 2) -> str:
    """The name of a ConvMixer, the paper's usual one where nothing is said."""
    return f"convmixer_{width}_{depth}_k{kernel}_p{patch}"


def _widths(build: Builder, kernel: int) -> Iterator[Row]:
    references = {f"width {2**i}": mixer(kernel, width=2**i) for i in range(9)}
    yield f"k{kernel}", mixer(kernel), _distinct(build, references)


def _depths(build: Builder, kernel: int) -> Iterator[Row]:
    """Statistics of shallower networks are interpolated over depth."""
    references = {f"depth {depth}": mixer(kernel, depth=depth) for depth in (2, 4, 8, 16, 32)}
    yield f"k{kernel}", mixer(kernel, depth=32), _distinct(build, references)


def _patches(_build: Builder, kernel: int) -> Iterator[Row]:
    for patch, other in ((1, 2), (2, 1)):
        networks = {p: mixer(kernel, patch=p) for p in (patch, other)}
        columns = [
            *(covariance(network, f"covariance from p{p}") for p, network in networks.items()),
            *(covariance(eighth(network), f"covariance-eighth from p{p}") for p, network in networks.items()),
            *(filters(network, f"filters from p{p}") for p, network in networks.items()),
        ]
        yield f"k{kernel}-p{patch}", networks[patch], columns


def _kernels(_build: Builder, kernel: int) -> Iterator[Row]:
    yield f"k{kernel}", mixer(kernel), [covariance(mixer(size), f"covariance from k{size}") for size in (3, 7, 9, 15)]


def _imagenet(_build: Builder, kernel: int) -> Iterator[Row]:
    source = "convmixer_512_12_k9_p14"
    for patch in (2, 1) if kernel == 9 else ():
        columns = [
            covariance(mixer(patch=patch)),
            covariance(source, "covariance from ImageNet", family="imagenet"),
            covariance(eighth(source), "covariance-eighth from ImageNet", family="imagenet"),
            closed_form(),
        ]
        yield f"k9-p{patch}", mixer(patch=patch), columns


def _kronecker(_build: Builder, kernel: int) -> Iterator[Row]:
    model = mixer(kernel)
    yield f"k{kernel}", model, [covariance(model), Init("kronecker", "kronecker-of", reference=model)]


def _distinct(build: Builder, references: Mapping[str, str]) -> list[Init]:
    """A column per reference, leaving out those that a reduced scale makes equal to a later one."""
    largest = {build.scale.model(model): (column, model) for column, model in references.items()}
    return [covariance(model, column) for column, model in largest.values()]


# Name -> place, title, what it shows, its rows for a kernel size.
TRANSFERS: Mapping[str, tuple[str, str, str, Callable[[Builder, int], Iterator[Row]]]] = {
    "width-transfer": (
        "Fig. 4",
        "Covariances from narrower references",
        "accuracy by the reference's width: the paper finds the best at an eighth of the width",
        _widths,
    ),
    "depth-transfer": (
        "Fig. 4",
        "Covariances from shallower references",
        "accuracy by the reference's depth: the paper finds the best at 8 of 32 layers, and 2 and 4 good",
        _depths,
    ),
    "patch-transfer": (
        "Fig. 9",
        "Transfer between patch sizes",
        "whether covariances of 1x1-patch models help 2x2-patch models (the paper: more than their own) and back",
        _patches,
    ),
    "kernel-transfer": (
        "Fig. 9",
        "Transfer between filter sizes",
        "accuracy by the reference's filter size: the paper finds all better than uniform above 3x3",
        _kernels,
    ),
    "imagenet-to-cifar": (
        "Fig. 10",
        "ImageNet statistics into CIFAR-10 models",
        "whether covariances learned on other data help as much as those of the same data (the paper: more)",
        _imagenet,
    ),
    "kronecker": (
        "Fig. 14",
        "Kronecker-factorised covariances",
        "whether A⊗A holds what matters of a covariance: the paper finds it slightly better than the whole",
        _kronecker,
    ),
}


def transfer(name: str, build: Builder) -> Experiment:
    """What a reference may differ in and still be worth starting from."""
    _, title, shows, rows = TRANSFERS[name]
    cells = [
        cell
        for kernel in build.scale.figure_kernels
        for row, model, columns in rows(build, kernel)
        for cell in build.cells(row, model, [UNIFORM, *columns, *build.also()])
    ]
    return build.experiment(name, title=title, shows=shows, cells=cells, chart="bars")


def convergence(name: str, depth: int, build: Builder) -> Experiment:
    """Accuracy by length of training, every point a schedule of its own.

    Of the figure in the appendix the paper does not name the network; its text says that gains are larger for deeper
    ones than its tables' 8 layers, so those are taken.
    """
    cells = []
    for patch in (2, 1):
        model = mixer(depth=depth, patch=patch)
        # The paper uses one setting for both patch sizes here, to show how little it matters.
        inits = [UNIFORM, covariance(model), filters(model), Init("closed-form", "closed-form", "cifar-p2")]
        for epochs in (2, 5, 10, 20, 35, 50, 100):
            cells += build.cells(f"k9-p{patch}", model, [*inits, *build.also()], epochs=epochs, filters=("thawed",))
    finding = ": the paper's closed form reaches 90 % in half of uniform's" if name == "convergence" else ""
    return build.experiment(
        name,
        title=f"Convergence of ConvMixer-256/{depth}",
        shows=f"how many epochs each initialisation needs{finding}",
        cells=cells,
        chart="lines",
    )


_FACTORS = (1.0, 0.5, 2.0, 0.25)  # the centre first, so that a smaller scale keeps what is around it


@dataclass(frozen=True)
class Grid:
    """A grid search over the schedule (σ0, v, a): the network, and the schedule the paper chose as the centre.

    The paper shows these as pictures and prints neither axes nor numbers; the grids are in steps of a factor of two.
    """

    place: str
    title: str
    model: str
    centre: tuple[float, float, float]
    family: str = "cifar"
    filters: str = "frozen"
    epochs: int = 20
    sawtooth: bool = False
    finding: str = ""  # the paper's, in words

    def schedule(self, sigma0: float, v: float, a: float) -> str:
        """The schedule as a run is told of it, with three digits."""
        numbers = ",".join(f"{number:.3g}" for number in (sigma0, v, a))
        return f"sawtooth:{numbers}" if self.sawtooth else numbers

    def axis(self, index: int, points: int | None = None) -> list[float]:
        """The values of σ0 (0), v (1) or a (2), ascending."""
        return sorted(self.centre[index] * factor for factor in _FACTORS[:points])


_P2, _P1 = (0.08, 0.37, 2.9), (0.16, 0.74, 5.8)
_MOST_GAIN = "the paper finds almost every choice better than uniform"
_IMAGENET = "convmixer_512_12_k9_p14"

GRIDS: Mapping[str, Grid] = {
    "grid-cifar-p2": Grid(
        "Fig. 17", "ConvMixer-256/8, 2x2 patches, frozen, CIFAR-10", mixer(), _P2, finding=_MOST_GAIN
    ),
    "grid-cifar-p1": Grid(
        "Fig. 18", "ConvMixer-256/8, 1x1 patches, frozen, CIFAR-10", mixer(patch=1), _P1, finding=_MOST_GAIN
    ),
    "grid-convnext": Grid(
        "Fig. 19",
        "ConvNeXt-Atto, 1x1 patches, frozen, CIFAR-10",
        "convnext_atto_p1",
        _P1,
        finding="the paper finds more bad choices than for ConvMixer",
    ),
    "grid-convnext-sawtooth": Grid(
        "Fig. 20",
        "ConvNeXt-Atto with the sawtooth schedule, frozen, CIFAR-10",
        "convnext_atto_p1",
        _P1,
        sawtooth=True,
        finding="in the paper perhaps more robust than without",
    ),
    "grid-imagenet-frozen": Grid(
        "Fig. 22",
        "ConvMixer-512/12, 14x14 patches, frozen, ImageNet",
        _IMAGENET,
        (0.15, 0.5, 0.25),
        family="imagenet",
        epochs=10,
    ),
    "grid-imagenet-thawed": Grid(
        "Fig. 23",
        "ConvMixer-512/12, 14x14 patches, thawed, ImageNet",
        _IMAGENET,
        (0.15, 0.25, 1.0),
        family="imagenet",
        filters="thawed",
        epochs=10,
    ),
}


def grid_search(name: str, build: Builder) -> Experiment:
    """A grid search: one seed, a cell per schedule, and uniform to compare with."""
    grid = GRIDS[name]
    axes = [grid.axis(index, build.scale.grid_points) for index in range(3)]
    inits = [UNIFORM, *(closed_form(grid.schedule(*values)) for values in product(*axes))]
    row = grid.model.replace("_", "-")
    return build.experiment(
        name,
        title=f"Grid search: {grid.title}",
        shows=": ".join(filter(None, ["accuracy by (σ0, v, a)", grid.finding])),
        cells=build.cells(row, grid.model, inits, epochs=grid.epochs, filters=(grid.filters,), seeds=1),
        chart="grid",
    )


# Name -> place, family, title, what it shows, the drawings.
DRAWINGS: Mapping[str, tuple[str, str, str, str, Callable[[Builder], tuple[Drawing, ...]]]] = {
    "variance-schedule": (
        "Figs. 5, 6, 21",
        "cifar",
        "The variance schedule",
        "σ and the covariance by depth, and the sawtooth variant for networks with downsampling",
        lambda _: (
            Drawing("construction", "The construction of the covariance"),
            Drawing("schedule", "The covariance by depth, σ0 = .5, v = .5, a = 3"),
            Drawing("sawtooth", "The quadratic and the sawtooth schedule of a ConvNeXt"),
        ),
    ),
    "learned-covariances": (
        "Fig. 1",
        "cifar",
        "Covariances of learned filters",
        "that filters of trained models have structured covariances, more diffuse with depth",
        lambda build: tuple(
            Drawing("covariances", f"Trained on CIFAR-10, {p}x{p} patches", build.reference(mixer(patch=p)))
            for p in (1, 2)
        ),
    ),
    "learned-covariances-imagenet": (
        "Fig. 24",
        "imagenet",
        "Covariances of filters learned on ImageNet",
        "that they resemble CIFAR-10's, with more structure in the later layers",
        lambda build: (Drawing("covariances", "Trained on ImageNet, 14x14 patches", build.reference(_IMAGENET)),),
    ),
    "example-filters": (
        "Fig. 13",
        "cifar",
        "Learned, sampled and constructed filters",
        "how alike filters look that were learned, drawn from the learned covariance, and constructed",
        lambda build: (Drawing("filters", "ConvMixer-256/8, 2x2 patches, 9x9 filters", build.reference(mixer())),),
    ),
}


def drawn(name: str, build: Builder) -> Experiment:
    """A figure of filters, covariances or schedules."""
    _, _, title, shows, drawings = DRAWINGS[name]
    return build.experiment(name, title=title, shows=shows, drawings=drawings(build))


def frozen_speed(build: Builder) -> Experiment:
    """Training speed by kernel size, frozen and thawed."""
    kernels = range(3, 16, 2) if build.scale.name != "smoke" else (3, 9, 15)
    return build.experiment(
        "frozen-speed",
        title="The speed of frozen filters",
        shows="time of a training step by kernel size: in the paper frozen steps are 20 % faster at 9x9, 40 % at 15x15",
        speed=tuple(build.scale.model(mixer(kernel, width=512, depth=12)) for kernel in kernels),
    )
