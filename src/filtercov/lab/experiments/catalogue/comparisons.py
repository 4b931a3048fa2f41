"""What we compare beside the paper: a ranking of initialisations, and controls for the closed form.

Columns share their seeds, and everything but the filters, so that the report can say who cannot be told apart.
"""

from dataclasses import replace

from filtercov.lab import models
from filtercov.lab.experiments.catalogue.build import (
    UNIFORM,
    Builder,
    Cell,
    Experiment,
    Init,
    closed_form,
    covariance,
    filters,
)
from filtercov.lab.experiments.controls import CONTROLS

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


def ranking(build: Builder) -> Experiment:
    """Return every initialisation as a column of one table, for two kinds of networks and large filters.

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
    """Return what does the work: the closed form, uniform filters and controls that lack one property each."""
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
    columns = [
        UNIFORM,
        closed_form(),
        covariance(network),
        covariance(smaller, "covariance, smaller k"),
        filters(network),
        Init("interpolated, smaller k", "interpolated-of", reference=smaller),
        Init("selected, larger", "selected-of", reference=_with_kernel(LARGER[kind], kernel)),
        *(Init(name, name) for name in BY_FORMULA),
    ]
    there = {init.column for init in columns}
    return [*columns, *(init for init in build.also() if init.column not in there)]


def _with_kernel(network: str, kernel: int) -> str:
    return replace(models.parse(network), kernel_size=kernel).name
