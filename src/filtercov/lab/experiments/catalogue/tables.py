"""The paper's tables, CIFAR-10 and ImageNet, and ours: a ranking of initialisations, and controls for the closed form.

Columns share their seeds, and everything but the filters.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from filtercov.lab import models
from filtercov.lab.experiments.catalogue.build import (
    UNIFORM,
    Builder,
    Cell,
    Experiment,
    Init,
    closed_form,
    covariance,
    eighth,
    filters,
)
from filtercov.lab.experiments.controls import CONTROLS

SHOWS = "accuracy by initialisation, thawed and frozen"

# Name -> place, title, network.
CIFAR: Mapping[str, tuple[str, str, str]] = {
    "cifar-convmixer-256-8-p2": ("Table 10, Fig. 3", "ConvMixer-256/8, 2x2 patches", "convmixer_256_8_k9_p2"),
    "cifar-convmixer-256-24-p2": ("Table 11, Fig. 3", "ConvMixer-256/24, 2x2 patches", "convmixer_256_24_k9_p2"),
    "cifar-convmixer-256-8-p1": ("Table 12, Fig. 3", "ConvMixer-256/8, 1x1 patches", "convmixer_256_8_k9_p1"),
    "cifar-convnext-atto-p1": ("Table 13, Fig. 7", "ConvNeXt-Atto, 1x1 patches", "convnext_atto_p1"),
    "cifar-convnext-atto-p2": ("Table 14", "ConvNeXt-Atto, 2x2 patches", "convnext_atto_p2"),
}

CANDIDATES = (".15,.3,.5", ".15,.5,.25", ".15,.25,1.0")  # schedules the paper chose from on ImageNet
# The main table: every network for 50 epochs, and two of them, thawed with one schedule, for 150.
_MIXERS = ("512-12", "512-24", "512-32", "1024-12", "1024-24", "1024-32")
_MAIN_50 = {
    **{f"convmixer-{size}-k9-p14": f"convmixer_{size.replace('-', '_')}_k9_p14" for size in _MIXERS},
    "convmixer-512-12-k9-p7": "convmixer_512_12_k9_p7",
    "convnext-atto-k7-p4": "convnext_atto_p4",
    "convnext-tiny-k7-p4": "convnext_tiny_p4",
}
_MAIN_150 = {"convmixer-1536-24-k9-p14": "convmixer_1536_24_k9_p14", "convnext-tiny-k7-p4": "convnext_tiny_p4"}


class ImagenetTable(NamedTuple):
    """A table of the appendix: the network, the one that references come from, epochs, schedules compared."""

    place: str
    model: str
    reference: str
    epochs: int
    schedules: tuple[str, ...] = CANDIDATES


_14, _7, _DEEP = "convmixer_512_12_k9_p14", "convmixer_512_12_k9_p7", "convmixer_512_24_k9_p14"
_ATTO, _TINY = "convnext_atto_p4", "convnext_tiny_p4"
IMAGENET: Mapping[str, ImagenetTable] = {
    "imagenet-10-convmixer-512-12-p14": ImagenetTable("Table 2", _14, _14, 10, CANDIDATES[:2]),
    "imagenet-10-convmixer-512-12-p7": ImagenetTable("Table 3", _7, _7, 10, CANDIDATES[:2]),
    "imagenet-10-convmixer-512-24-p14": ImagenetTable("Table 4", _DEEP, _14, 10, CANDIDATES[:2]),
    "imagenet-10-convnext-atto": ImagenetTable("Table 5", _ATTO, _ATTO, 10),
    "imagenet-10-convnext-tiny": ImagenetTable("Table 6", _TINY, _TINY, 10),
    "imagenet-50-convnext-atto": ImagenetTable("Table 7", _ATTO, _ATTO, 50),
    "imagenet-50-convmixer-512-12-p14": ImagenetTable("Table 8", _14, _14, 50),
    "imagenet-50-convmixer-512-24-p14": ImagenetTable("Table 9", _DEEP, _DEEP, 50),
}


# Of the ranking and the controls.
NETWORKS = {"convmixer": "convmixer_256_8_k9_p2", "convnext": "convnext_atto_p2"}
# Whose filters are selected from: wider and, where stages are, deeper.
LARGER = {"convmixer": "convmixer_512_8_k9_p2", "convnext": "convnext_tiny_p2"}
SMALLER_KERNEL = {7: 3, 9: 7, 15: 9}  # the next smaller of the paper's sizes
BY_FORMULA = (
    *("kaiming", "trunc-normal", "orthogonal", "identity", "delta-gaussian", "dog"),
    *("impulse", "box:9", "gaussian-bump:1", "master-keys"),
)
# Of the controls: kernel sizes, the more important first, and whether filters train.
CONTROLLED = {9: ("frozen", "thawed"), 15: ("frozen",)}


def cifar_table(name: str, build: Builder) -> Experiment:
    """One of the five CIFAR-10 tables of the appendix, which also hold the numbers of the bar charts."""
    _, title, model = CIFAR[name]
    kernels = build.scale.table_kernels if model.startswith("convmixer") else (7,)
    networks = {f"k{kernel}": _with_kernel(model, kernel) for kernel in kernels}
    return build.experiment(
        name, title=f"{title}, CIFAR-10", shows=SHOWS, cells=_cifar_cells(build, networks), chart="bars"
    )


def cifar_5x5(build: Builder) -> Experiment:
    """The appendix's comparison for 5x5 filters, of which the paper shows a chart and no numbers."""
    cells = _cifar_cells(build, {f"k5-p{patch}": f"convmixer_256_8_k5_p{patch}" for patch in (2, 1)})
    return build.experiment("cifar-5x5", title="5x5 filters, CIFAR-10", shows=SHOWS, cells=cells, chart="bars")


def imagenet_main(build: Builder) -> Experiment:
    """The paper's main ImageNet table."""
    inits = [UNIFORM, *map(closed_form, CANDIDATES[1:]), *build.also()]
    cells = [cell for row, model in _MAIN_50.items() for cell in build.cells(row, model, inits, epochs=50)]
    for row, model in _MAIN_150.items():
        last = [UNIFORM, closed_form(CANDIDATES[2]), *build.also()]
        cells += build.cells(row, model, last, epochs=150, filters=("thawed",))
    return build.experiment("imagenet", title="ImageNet, 50 and 150 epochs", shows=SHOWS, cells=cells, chart="bars")


def imagenet_table(name: str, build: Builder) -> Experiment:
    """One of the ImageNet tables of the appendix, with transfers."""
    table = IMAGENET[name]
    row = name.removeprefix(f"imagenet-{table.epochs}-")
    inits = [*_with_transfers(table.reference), *map(closed_form, table.schedules), *build.also()]
    cells = build.cells(row, table.model, inits, epochs=table.epochs)
    title = f"{row}, ImageNet, {table.epochs} epochs"
    return build.experiment(name, title=title, shows=SHOWS, cells=cells, chart="bars")


def _cifar_cells(build: Builder, networks: Mapping[str, str]) -> list[Cell]:
    """Ten cells a row and length of training, and those of further initialisations."""
    return [
        cell
        for row, model in networks.items()
        for epochs in build.scale.table_epochs
        for cell in build.cells(row, model, [*_with_transfers(model), closed_form(), *build.also()], epochs=epochs)
    ]


def _with_transfers(reference: str) -> list[Init]:
    """The first four columns of the paper's tables: uniform and the three transfers from a network."""
    return [UNIFORM, covariance(reference), covariance(eighth(reference), "covariance-eighth"), filters(reference)]


def ranking(build: Builder) -> Experiment:
    """Every initialisation as a column of one table, for two kinds of networks and large filters.

    Where accuracies mean nothing, frozen filters and one seed show that all of it runs.
    """
    judges = build.scale.judges
    cells: list[Cell] = []
    for kernel in (size for size in build.scale.table_kernels if size in SMALLER_KERNEL):
        for kind, network in NETWORKS.items():
            cells += build.cells(
                f"{kind}-k{kernel}",
                _with_kernel(network, kernel),
                _ranked(build, kind, kernel),
                filters=("thawed", "frozen") if judges else ("frozen",),
                seeds=None if judges else 1,
            )
    return build.experiment(
        "ranking",
        title="A ranking of initialisations",
        shows="which initialisations can be told apart, and who leads: the paper's ways and those of others",
        cells=cells,
        chart="ranking",
    )


def controls(build: Builder) -> Experiment:
    """What does the work: the closed form, uniform filters and controls that lack one property each."""
    inits = [UNIFORM, closed_form(), Init("power", "power"), *(Init(name, name) for name in CONTROLS), *build.also()]
    cells = [
        cell
        for kernel, kinds in CONTROLLED.items()
        if kernel in build.scale.table_kernels
        for cell in build.cells(
            f"k{kernel}",
            _with_kernel(NETWORKS["convmixer"], kernel),
            inits,
            filters=kinds,
            seeds=build.scale.claim_seeds,
        )
    ]
    return build.experiment(
        "controls",
        title="Structure or scale?",
        shows="what a filter must have to be a good start: controls with the closed form's variance in every layer",
        cells=cells,
        chart="ranking",
    )


def _ranked(build: Builder, kind: str, kernel: int) -> list[Init]:
    network, smaller = _with_kernel(NETWORKS[kind], kernel), _with_kernel(NETWORKS[kind], SMALLER_KERNEL[kernel])
    return [
        UNIFORM,
        closed_form(),
        covariance(network),
        covariance(smaller, "covariance, smaller k"),
        filters(network),
        Init("interpolated, smaller k", "interpolated-of", reference=smaller),
        Init("selected, larger", "selected-of", reference=_with_kernel(LARGER[kind], kernel)),
        *(Init(name, name) for name in BY_FORMULA),
        *build.also(),
    ]


def _with_kernel(network: str, kernel: int) -> str:
    return replace(models.parse(network), kernel_size=kernel).name
