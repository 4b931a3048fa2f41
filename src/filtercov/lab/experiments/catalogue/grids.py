"""The paper's grid searches over the schedule (σ0, v, a).

The paper shows them as pictures and prints neither axes nor numbers; these grids are centred, in steps of a factor of
two, on the settings it chose. Their accuracies are of test images, to be seen beside the paper's: a schedule is chosen
with `filtercov search`, which tries the same ones on validation images.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from filtercov.lab.experiments.builder import Builder, Init
from filtercov.lab.experiments.catalogue.columns import UNIFORM
from filtercov.lab.experiments.graph import Experiment

_FACTORS = (1.0, 0.5, 2.0, 0.25)  # the centre first, so that a smaller scale keeps what is around it


@dataclass(frozen=True)
class Grid:
    """A search: the network, whether its filters are frozen, and the schedule the paper chose as the centre."""

    title: str
    model: str
    centre: tuple[float, float, float]
    family: str = "cifar"
    filters: str = "frozen"
    epochs: int = 20
    sawtooth: bool = False
    finding: str = ""  # the paper's, in words

    def schedule(self, sigma0: float, v: float, a: float) -> str:
        """Return the schedule as a run is told of it, with three digits.

        >>> GRIDS["grid-cifar-p2"].schedule(0.08, 0.37, 2.9)
        '0.08,0.37,2.9'
        """
        numbers = ",".join(f"{number:.3g}" for number in (sigma0, v, a))
        return f"sawtooth:{numbers}" if self.sawtooth else numbers

    def axis(self, index: int, points: int | None = None) -> list[float]:
        """Return the values of σ0 (0), v (1) or a (2), ascending."""
        return sorted(self.centre[index] * factor for factor in _FACTORS[:points])

    def init(self, schedule: str) -> Init:
        """Return the column of a schedule."""
        return Init(f"closed-form {schedule.replace(',', ' ')}", "closed-form", schedule)


_P2, _P1 = (0.08, 0.37, 2.9), (0.16, 0.74, 5.8)
_MOST_GAIN = "the paper finds almost every choice better than uniform"

GRIDS: Mapping[str, Grid] = {
    "grid-cifar-p2": Grid(
        "ConvMixer-256/8, 2x2 patches, frozen, CIFAR-10", "convmixer_256_8_k9_p2", _P2, finding=_MOST_GAIN
    ),
    "grid-cifar-p1": Grid(
        "ConvMixer-256/8, 1x1 patches, frozen, CIFAR-10", "convmixer_256_8_k9_p1", _P1, finding=_MOST_GAIN
    ),
    "grid-convnext": Grid(
        "ConvNeXt-Atto, 1x1 patches, frozen, CIFAR-10",
        "convnext_atto_p1",
        _P1,
        finding="the paper finds more bad choices than for ConvMixer",
    ),
    "grid-convnext-sawtooth": Grid(
        "ConvNeXt-Atto with the sawtooth schedule, frozen, CIFAR-10",
        "convnext_atto_p1",
        _P1,
        sawtooth=True,
        finding="in the paper perhaps more robust than without",
    ),
    "grid-imagenet-frozen": Grid(
        "ConvMixer-512/12, 14x14 patches, frozen, ImageNet",
        "convmixer_512_12_k9_p14",
        (0.15, 0.5, 0.25),
        family="imagenet",
        epochs=10,
    ),
    "grid-imagenet-thawed": Grid(
        "ConvMixer-512/12, 14x14 patches, thawed, ImageNet",
        "convmixer_512_12_k9_p14",
        (0.15, 0.25, 1.0),
        family="imagenet",
        filters="thawed",
        epochs=10,
    ),
}


def grid_search(name: str, build: Builder) -> Experiment:
    """Return a grid search: one seed, a cell per schedule, and uniform to compare with."""
    grid = GRIDS[name]
    points = build.scale.grid_points
    axes = [grid.axis(index, points) for index in range(3)]
    inits = [UNIFORM, *(grid.init(grid.schedule(*values)) for values in product(*axes))]
    row = grid.model.replace("_", "-")
    return build.experiment(
        name,
        title=f"Grid search: {grid.title}",
        shows=": ".join(filter(None, ["accuracy by (σ0, v, a)", grid.finding])),
        cells=build.cells(row, grid.model, inits, epochs=grid.epochs, filters=(grid.filters,), seeds=1),
        chart="grid",
    )
