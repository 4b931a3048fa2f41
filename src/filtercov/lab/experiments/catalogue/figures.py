"""The runs of the paper's figures: transfer, convergence, grid searches, schedules, covariances, filters and speed.

The paper gives results as charts without numbers and does not always say for which epochs or filters; where it does
not, 20 epochs and the filter sizes of its tables are taken.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from filtercov.lab.experiments.catalogue.build import (
    UNIFORM,
    Builder,
    Drawing,
    Init,
    Maker,
    Parts,
    closed_form,
    covariance,
    eighth,
    filters,
    mixer,
    timed_networks,
)

Row = tuple[str, str, Iterable[Init]]  # name, network, columns besides uniform


# --- What a reference may differ in and still be worth starting from: rows for a kernel size ---


def _widths(build: Builder, kernel: int) -> Iterator[Row]:
    references = {f"width {2**i}": mixer(kernel, width=2**i) for i in range(9)}
    yield f"k{kernel}", mixer(kernel), _distinct(build, references)


def _depths(build: Builder, kernel: int) -> Iterator[Row]:
    """Statistics of shallower networks are interpolated over depth."""
    references = {f"depth {depth}": mixer(kernel, depth=depth) for depth in (2, 4, 8, 16, 32)}
    yield f"k{kernel}", mixer(kernel, depth=32), _distinct(build, references)


def _distinct(build: Builder, references: Mapping[str, str]) -> list[Init]:
    """A column per reference, leaving out those that a reduced scale makes equal to a later one."""
    largest = {build.scale.model(model): (column, model) for column, model in references.items()}
    return [covariance(model, column) for column, model in largest.values()]


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
    for patch in (2, 1) if kernel == 9 else ():
        columns = [
            covariance(mixer(patch=patch)),
            covariance(IMAGENET, "covariance from ImageNet", family="imagenet"),
            covariance(eighth(IMAGENET), "covariance-eighth from ImageNet", family="imagenet"),
            closed_form(),
        ]
        yield f"k9-p{patch}", mixer(patch=patch), columns


def _kronecker(_build: Builder, kernel: int) -> Iterator[Row]:
    model = mixer(kernel)
    yield f"k{kernel}", model, [covariance(model), Init("kronecker", "kronecker-of", reference=model)]


def _transfer(rows: Callable[[Builder, int], Iterator[Row]], build: Builder) -> Parts:
    found = (row for kernel in build.scale.figure_kernels for row in rows(build, kernel))
    return Parts([cell for name, model, inits in found for cell in build.cells(name, model, [UNIFORM, *inits])])


# --- Training of several lengths, several schedules ---


def _convergence(depth: int, build: Builder) -> Parts:
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
            cells += build.cells(f"k9-p{patch}", model, inits, epochs=epochs, filters=("thawed",))
    return Parts(cells)


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

    def schedule(self, *values: float) -> str:
        """The schedule of σ0, v and a as a run is told of it, with three digits."""
        return self.kind + ",".join(f"{value:.3g}" for value in values)

    def axis(self, index: int, points: int | None = None) -> list[float]:
        """The values of σ0 (0), v (1) or a (2), ascending."""
        return sorted(self.centre[index] * factor for factor in _FACTORS[:points])


_P2, _P1 = (0.08, 0.37, 2.9), (0.16, 0.74, 5.8)
IMAGENET = "convmixer_512_12_k9_p14"
GRIDS = {
    "grid-cifar-p2": Grid(mixer(), _P2),
    "grid-cifar-p1": Grid(mixer(patch=1), _P1),
    "grid-convnext": Grid("convnext_atto_p1", _P1),
    "grid-convnext-sawtooth": Grid("convnext_atto_p1", _P1, kind="sawtooth:"),
    "grid-imagenet-frozen": Grid(IMAGENET, (0.15, 0.5, 0.25), epochs=10),
    "grid-imagenet-thawed": Grid(IMAGENET, (0.15, 0.25, 1.0), "thawed", epochs=10),
}


def _grid_search(grid: Grid, build: Builder) -> Parts:
    """One seed, a cell per schedule, and uniform to compare with."""
    axes = [grid.axis(index, build.scale.grid_points) for index in range(3)]
    inits = [UNIFORM, *(closed_form(grid.schedule(*values)) for values in product(*axes))]
    row = grid.model.replace("_", "-")
    return Parts(build.cells(row, grid.model, inits, epochs=grid.epochs, filters=(grid.filters,), seeds=1, also=False))


# --- What is drawn and what is timed ---


def _schedules(_build: Builder) -> Parts:
    drawings = (
        Drawing("construction", "The construction of the covariance"),
        Drawing("schedule", "The covariance by depth, σ0 = .5, v = .5, a = 3"),
        Drawing("sawtooth", "The quadratic and the sawtooth schedule of a ConvNeXt"),
    )
    return Parts(drawings=drawings)


def _drawn(kind: str, titles: Mapping[str, str], build: Builder) -> Parts:
    """Filters or covariances of trained networks, a title of each."""
    return Parts(drawings=[Drawing(kind, title, build.reference(model)) for model, title in titles.items()])


def _frozen_speed(build: Builder) -> Parts:
    kernels: Sequence[int] = range(3, 16, 2) if build.scale.name != "smoke" else (3, 9, 15)
    return Parts(speed=timed_networks(build, kernels))


_TRAINED = {mixer(patch=patch): f"Trained on CIFAR-10, {patch}x{patch} patches" for patch in (1, 2)}
MAKERS: Mapping[str, Maker] = {
    "width-transfer": partial(_transfer, _widths),
    "depth-transfer": partial(_transfer, _depths),
    "patch-transfer": partial(_transfer, _patches),
    "kernel-transfer": partial(_transfer, _kernels),
    "imagenet-to-cifar": partial(_transfer, _imagenet),
    "kronecker": partial(_transfer, _kronecker),
    "convergence": partial(_convergence, 16),
    "convergence-shallow": partial(_convergence, 8),
    "frozen-speed": _frozen_speed,
    **{name: partial(_grid_search, grid) for name, grid in GRIDS.items()},
    "variance-schedule": _schedules,
    "learned-covariances": partial(_drawn, "covariances", _TRAINED),
    "learned-covariances-imagenet": partial(_drawn, "covariances", {IMAGENET: "Trained on ImageNet, 14x14 patches"}),
    "example-filters": partial(_drawn, "filters", {mixer(): "ConvMixer-256/8, 2x2 patches, 9x9 filters"}),
}
