"""One ranking of all that can be done with filters before training: the paper's ways and those of others.

Not an experiment of the paper's. Columns share their seeds, and everything but the filters, so that the report can say
who cannot be told apart from whom.
"""

from dataclasses import replace

from filtercov.lab import models
from filtercov.lab.experiments.builder import Builder, Init
from filtercov.lab.experiments.catalogue.columns import UNIFORM, closed_form, covariance, filters
from filtercov.lab.experiments.graph import Cell, Experiment

EPOCHS = 20
NETWORKS = {"convmixer": "convmixer_256_8_k9_p2", "convnext": "convnext_atto_p2"}
# Whose filters are selected from: wider and, where stages are, deeper.
LARGER = {"convmixer": "convmixer_512_8_k9_p2", "convnext": "convnext_tiny_p2"}
SMALLER_KERNEL = {7: 3, 9: 7, 15: 9}  # the next smaller of the paper's sizes
BY_FORMULA = (
    *("kaiming", "trunc-normal", "orthogonal", "identity", "delta-gaussian", "dog"),
    *("impulse", "box:9", "gaussian-bump:1", "master-keys"),
)


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
                _columns(build, kind, kernel),
                epochs=EPOCHS,
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


def _columns(build: Builder, kind: str, kernel: int) -> list[Init]:
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
