"""The runs of the paper's tables, CIFAR-10 and ImageNet, and of ours: a ranking of initialisations, and controls.

Columns share their seeds, and everything but the filters.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from filtercov.lab import models
from filtercov.lab.experiments.catalogue.build import (
    UNIFORM,
    Builder,
    Init,
    Maker,
    Parts,
    closed_form,
    covariance,
    eighth,
    filters,
    mixer,
)
from filtercov.lab.experiments.controls import CONTROLS

# The CIFAR-10 tables of the appendix, which also hold the numbers of the bar charts.
CIFAR = {
    "cifar-convmixer-256-8-p2": mixer(),
    "cifar-convmixer-256-24-p2": mixer(depth=24),
    "cifar-convmixer-256-8-p1": mixer(patch=1),
    "cifar-convnext-atto-p1": "convnext_atto_p1",
    "cifar-convnext-atto-p2": "convnext_atto_p2",
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

    model: str
    reference: str
    epochs: int
    schedules: tuple[str, ...] = CANDIDATES


_14, _7, _DEEP = "convmixer_512_12_k9_p14", "convmixer_512_12_k9_p7", "convmixer_512_24_k9_p14"
_ATTO, _TINY = "convnext_atto_p4", "convnext_tiny_p4"
IMAGENET = {
    "imagenet-10-convmixer-512-12-p14": ImagenetTable(_14, _14, 10, CANDIDATES[:2]),
    "imagenet-10-convmixer-512-12-p7": ImagenetTable(_7, _7, 10, CANDIDATES[:2]),
    "imagenet-10-convmixer-512-24-p14": ImagenetTable(_DEEP, _14, 10, CANDIDATES[:2]),
    "imagenet-10-convnext-atto": ImagenetTable(_ATTO, _ATTO, 10),
    "imagenet-10-convnext-tiny": ImagenetTable(_TINY, _TINY, 10),
    "imagenet-50-convnext-atto": ImagenetTable(_ATTO, _ATTO, 50),
    "imagenet-50-convmixer-512-12-p14": ImagenetTable(_14, _14, 50),
    "imagenet-50-convmixer-512-24-p14": ImagenetTable(_DEEP, _DEEP, 50),
}

# Of the ranking: networks, and those whose filters are selected from: wider and, where stages are, deeper.
NETWORKS = {"convmixer": mixer(), "convnext": "convnext_atto_p2"}
LARGER = {"convmixer": mixer(width=512), "convnext": "convnext_tiny_p2"}
SMALLER_KERNEL = {7: 3, 9: 7, 15: 9}  # the next smaller of the paper's sizes
BY_FORMULA = (
    *("kaiming", "trunc-normal", "orthogonal", "identity", "delta-gaussian", "dog"),
    *("impulse", "box:9", "gaussian-bump:1", "master-keys"),
)
# Of the controls: kernel sizes, the more important first, and whether filters train.
CONTROLLED = {9: ("frozen", "thawed"), 15: ("frozen",)}


def _cifar(build: Builder, networks: Mapping[str, str]) -> Parts:
    """Ten cells a row and length of training, and those of further initialisations."""
    cells = []
    for row, model in networks.items():
        for epochs in build.scale.table_epochs:
            cells += build.cells(row, model, [*_with_transfers(model), closed_form()], epochs=epochs)
    return Parts(cells)


def _cifar_table(model: str, build: Builder) -> Parts:
    kernels = build.scale.table_kernels if model.startswith("convmixer") else (7,)
    return _cifar(build, {f"k{kernel}": _with_kernel(model, kernel) for kernel in kernels})


def _cifar_5x5(build: Builder) -> Parts:
    """5x5 filters, of which the paper shows a chart and no numbers."""
    return _cifar(build, {f"k5-p{patch}": mixer(5, patch=patch) for patch in (2, 1)})


def _imagenet_main(build: Builder) -> Parts:
    cells = []
    for row, model in _MAIN_50.items():
        cells += build.cells(row, model, [UNIFORM, *map(closed_form, CANDIDATES[1:])], epochs=50)
    for row, model in _MAIN_150.items():
        cells += build.cells(row, model, [UNIFORM, closed_form(CANDIDATES[2])], epochs=150, filters=("thawed",))
    return Parts(cells)


def _imagenet_table(name: str, build: Builder) -> Parts:
    table = IMAGENET[name]
    row = name.removeprefix(f"imagenet-{table.epochs}-")
    inits = [*_with_transfers(table.reference), *map(closed_form, table.schedules)]
    return Parts(build.cells(row, table.model, inits, epochs=table.epochs))


def _with_transfers(reference: str) -> list[Init]:
    """The first four columns of the paper's tables: uniform and the three transfers from a network."""
    return [UNIFORM, covariance(reference), covariance(eighth(reference), "covariance-eighth"), filters(reference)]


def _ranking(build: Builder) -> Parts:
    """Every initialisation as a column of one table, for two kinds of networks and large filters.

    Where accuracies mean nothing, frozen filters and one seed show that all of it runs.
    """
    judges = build.scale.judges
    kinds, seeds = (("thawed", "frozen"), None) if judges else (("frozen",), 1)
    cells = []
    for kernel in (size for size in build.scale.table_kernels if size in SMALLER_KERNEL):
        for kind, name in NETWORKS.items():
            network, smaller = (_with_kernel(name, size) for size in (kernel, SMALLER_KERNEL[kernel]))
            inits = [
                UNIFORM,
                closed_form(),
                covariance(network),
                covariance(smaller, "covariance, smaller k"),
                filters(network),
                Init("interpolated, smaller k", "interpolated-of", reference=smaller),
                Init("selected, larger", "selected-of", reference=_with_kernel(LARGER[kind], kernel)),
                *(Init(name, name) for name in BY_FORMULA),
            ]
            cells += build.cells(f"{kind}-k{kernel}", network, inits, filters=kinds, seeds=seeds)
    return Parts(cells)


def _controls(build: Builder) -> Parts:
    """What does the work: the closed form, uniform filters and controls that lack one property each."""
    inits = [UNIFORM, closed_form(), *(Init(name, name) for name in ("power", *CONTROLS))]
    cells = []
    for kernel, kinds in CONTROLLED.items():
        if kernel in build.scale.table_kernels:
            cells += build.cells(f"k{kernel}", mixer(kernel), inits, filters=kinds, seeds=build.scale.claim_seeds)
    return Parts(cells)


def _with_kernel(network: str, kernel: int) -> str:
    return replace(models.parse(network), kernel_size=kernel).name


MAKERS: Mapping[str, Maker] = {
    **{name: partial(_cifar_table, model) for name, model in CIFAR.items()},
    "cifar-5x5": _cifar_5x5,
    "imagenet": _imagenet_main,
    **{name: partial(_imagenet_table, name) for name in IMAGENET},
    "controls": _controls,
    "ranking": _ranking,
}
