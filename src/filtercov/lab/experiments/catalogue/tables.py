"""The paper's tables: CIFAR-10 and ImageNet."""

from collections.abc import Mapping
from dataclasses import replace

from filtercov.lab import models
from filtercov.lab.experiments.builder import Builder
from filtercov.lab.experiments.catalogue.columns import UNIFORM, closed_form, with_transfers
from filtercov.lab.experiments.graph import Cell, Experiment

CANDIDATES = (".15,.3,.5", ".15,.5,.25", ".15,.25,1.0")  # schedules the paper chose from on ImageNet
_SHOWS = "accuracy by initialisation, thawed and frozen"

CIFAR_TABLES: Mapping[str, tuple[str, str]] = {
    "cifar-convmixer-256-8-p2": ("ConvMixer-256/8, 2x2 patches, CIFAR-10", "convmixer_256_8_k9_p2"),
    "cifar-convmixer-256-24-p2": ("ConvMixer-256/24, 2x2 patches, CIFAR-10", "convmixer_256_24_k9_p2"),
    "cifar-convmixer-256-8-p1": ("ConvMixer-256/8, 1x1 patches, CIFAR-10", "convmixer_256_8_k9_p1"),
    "cifar-convnext-atto-p1": ("ConvNeXt-Atto, 1x1 patches, CIFAR-10", "convnext_atto_p1"),
    "cifar-convnext-atto-p2": ("ConvNeXt-Atto, 2x2 patches, CIFAR-10", "convnext_atto_p2"),
}


def cifar_table(name: str, build: Builder) -> Experiment:
    """Return one of the five CIFAR-10 tables of the appendix, which also hold the numbers of the bar charts."""
    title, model = CIFAR_TABLES[name]
    kernels = build.scale.table_kernels if model.startswith("convmixer") else (7,)
    cells = [
        cell
        for kernel in kernels
        for epochs in build.scale.table_epochs
        for cell in cifar_row(build, f"k{kernel}", replace(models.parse(model), kernel_size=kernel).name, epochs)
    ]
    return build.experiment(name, title=title, shows=_SHOWS, cells=cells, chart="bars")


def cifar_5x5(build: Builder) -> Experiment:
    """Return the appendix's comparison for 5x5 filters, of which the paper shows a chart and no numbers."""
    cells = [
        cell
        for patch in (2, 1)
        for epochs in build.scale.table_epochs
        for cell in cifar_row(build, f"k5-p{patch}", f"convmixer_256_8_k5_p{patch}", epochs)
    ]
    return build.experiment("cifar-5x5", title="5x5 filters, CIFAR-10", shows=_SHOWS, cells=cells, chart="bars")


def cifar_row(build: Builder, row: str, model: str, epochs: int) -> list[Cell]:
    """Return the ten cells of a row, and those of further initialisations."""
    return build.cells(row, model, [*with_transfers(model), closed_form(), *build.also()], epochs=epochs)


# The main table: every network for 50 epochs, and two of them, thawed with one schedule, for 150.
_MIXERS = ("512-12", "512-24", "512-32", "1024-12", "1024-24", "1024-32")
_MAIN_50 = {
    **{f"convmixer-{size}-k9-p14": f"convmixer_{size.replace('-', '_')}_k9_p14" for size in _MIXERS},
    "convmixer-512-12-k9-p7": "convmixer_512_12_k9_p7",
    "convnext-atto-k7-p4": "convnext_atto_p4",
    "convnext-tiny-k7-p4": "convnext_tiny_p4",
}
_MAIN_150 = {"convmixer-1536-24-k9-p14": "convmixer_1536_24_k9_p14", "convnext-tiny-k7-p4": "convnext_tiny_p4"}

# The appendix: (network, the network references come from, epochs, schedules compared).
IMAGENET_TABLES: Mapping[str, tuple[str, str, int, tuple[str, ...]]] = {
    "imagenet-10-convmixer-512-12-p14": ("convmixer_512_12_k9_p14", "convmixer_512_12_k9_p14", 10, CANDIDATES[:2]),
    "imagenet-10-convmixer-512-12-p7": ("convmixer_512_12_k9_p7", "convmixer_512_12_k9_p7", 10, CANDIDATES[:2]),
    "imagenet-10-convmixer-512-24-p14": ("convmixer_512_24_k9_p14", "convmixer_512_12_k9_p14", 10, CANDIDATES[:2]),
    "imagenet-10-convnext-atto": ("convnext_atto_p4", "convnext_atto_p4", 10, CANDIDATES),
    "imagenet-10-convnext-tiny": ("convnext_tiny_p4", "convnext_tiny_p4", 10, CANDIDATES),
    "imagenet-50-convnext-atto": ("convnext_atto_p4", "convnext_atto_p4", 50, CANDIDATES),
    "imagenet-50-convmixer-512-12-p14": ("convmixer_512_12_k9_p14", "convmixer_512_12_k9_p14", 50, CANDIDATES),
    "imagenet-50-convmixer-512-24-p14": ("convmixer_512_24_k9_p14", "convmixer_512_24_k9_p14", 50, CANDIDATES),
}


def imagenet_main(build: Builder) -> Experiment:
    """Return the paper's main ImageNet table."""
    inits = [UNIFORM, *map(closed_form, CANDIDATES[1:]), *build.also()]
    cells = [cell for row, model in _MAIN_50.items() for cell in build.cells(row, model, inits, epochs=50)]
    for row, model in _MAIN_150.items():
        last = [UNIFORM, closed_form(CANDIDATES[2]), *build.also()]
        cells += build.cells(row, model, last, epochs=150, filters=("thawed",))
    return build.experiment("imagenet", title="ImageNet, 50 and 150 epochs", shows=_SHOWS, cells=cells, chart="bars")


def imagenet_table(name: str, build: Builder) -> Experiment:
    """Return one of the ImageNet tables of the appendix, with transfers."""
    model, reference, epochs, schedules = IMAGENET_TABLES[name]
    row = name.removeprefix(f"imagenet-{epochs}-")
    inits = [*with_transfers(reference), *map(closed_form, schedules), *build.also()]
    cells = build.cells(row, model, inits, epochs=epochs)
    return build.experiment(name, title=f"{row}, ImageNet, {epochs} epochs", shows=_SHOWS, cells=cells, chart="bars")
