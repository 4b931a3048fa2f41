"""The paper's figures about transfer: what a reference model may differ in and still be worth starting from.

The paper gives these results as charts without numbers and does not always say for which epochs or filters; where it
does not, 20 epochs and the filter sizes of its tables are taken.
"""

from filtercov.lab.experiments.builder import Builder, Init
from filtercov.lab.experiments.catalogue.columns import UNIFORM, closed_form, covariance, eighth, filters, kronecker
from filtercov.lab.experiments.graph import Cell, Experiment

EPOCHS = 20
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEPTHS = (2, 4, 8, 16, 32)
CONVERGENCE_EPOCHS = (2, 5, 10, 20, 35, 50, 100)


def width_transfer(build: Builder) -> Experiment:
    """Return covariance transfer from narrower references to ConvMixer-256/8."""
    cells: list[Cell] = []
    for kernel in build.scale.figure_kernels:
        references = {width: f"convmixer_{width}_8_k{kernel}_p2" for width in WIDTHS}
        inits = [UNIFORM, *_distinct(build, {f"width {w}": model for w, model in references.items()}), *build.also()]
        cells += build.cells(f"k{kernel}", references[256], inits, epochs=EPOCHS)
    return build.experiment(
        "width-transfer",
        title="Covariances from narrower references",
        shows="accuracy by the reference's width: the paper finds the best at an eighth of the width",
        cells=cells,
        chart="bars",
    )


def depth_transfer(build: Builder) -> Experiment:
    """Return covariance transfer from shallower references, interpolated over depth, to ConvMixer-256/32."""
    cells: list[Cell] = []
    for kernel in build.scale.figure_kernels:
        references = {depth: f"convmixer_256_{depth}_k{kernel}_p2" for depth in DEPTHS}
        inits = [UNIFORM, *_distinct(build, {f"depth {d}": model for d, model in references.items()}), *build.also()]
        cells += build.cells(f"k{kernel}", references[32], inits, epochs=EPOCHS)
    return build.experiment(
        "depth-transfer",
        title="Covariances from shallower references",
        shows="accuracy by the reference's depth: the paper finds the best at 8 of 32 layers, and 2 and 4 good",
        cells=cells,
        chart="bars",
    )


def patch_transfer(build: Builder) -> Experiment:
    """Return transfer between 1x1 and 2x2 patches, both ways."""
    cells: list[Cell] = []
    for kernel in build.scale.figure_kernels:
        networks = {patch: f"convmixer_256_8_k{kernel}_p{patch}" for patch in (1, 2)}
        for patch, other in ((1, 2), (2, 1)):
            inits = [
                UNIFORM,
                *(covariance(networks[p], f"covariance from p{p}") for p in (patch, other)),
                *(covariance(eighth(networks[p]), f"covariance-eighth from p{p}") for p in (patch, other)),
                *(filters(networks[p], f"filters from p{p}") for p in (patch, other)),
                *build.also(),
            ]
            cells += build.cells(f"k{kernel}-p{patch}", networks[patch], inits, epochs=EPOCHS)
    return build.experiment(
        "patch-transfer",
        title="Transfer between patch sizes",
        shows="whether covariances of 1x1-patch models help 2x2-patch models (the paper: more than their own) and back",
        cells=cells,
        chart="bars",
    )


def kernel_transfer(build: Builder) -> Experiment:
    """Return transfer between filter sizes, covariances resized."""
    sizes = (3, 7, 9, 15)
    cells: list[Cell] = []
    for kernel in build.scale.figure_kernels:
        networks = {size: f"convmixer_256_8_k{size}_p2" for size in sizes}
        inits = [UNIFORM, *(covariance(networks[s], f"covariance from k{s}") for s in sizes), *build.also()]
        cells += build.cells(f"k{kernel}", networks[kernel], inits, epochs=EPOCHS)
    return build.experiment(
        "kernel-transfer",
        title="Transfer between filter sizes",
        shows="accuracy by the reference's filter size: the paper finds all better than uniform above 3x3",
        cells=cells,
        chart="bars",
    )


def imagenet_to_cifar(build: Builder) -> Experiment:
    """Return transfer from references trained on ImageNet to models trained on CIFAR-10."""
    source = "convmixer_512_12_k9_p14"
    cells: list[Cell] = []
    for patch in (2, 1):
        model = f"convmixer_256_8_k9_p{patch}"
        inits = [
            UNIFORM,
            covariance(model),
            covariance(source, "covariance from ImageNet", family="imagenet"),
            covariance(eighth(source), "covariance-eighth from ImageNet", family="imagenet"),
            closed_form(),
            *build.also(),
        ]
        cells += build.cells(f"k9-p{patch}", model, inits, epochs=EPOCHS)
    return build.experiment(
        "imagenet-to-cifar",
        title="ImageNet statistics into CIFAR-10 models",
        shows="whether covariances learned on other data help as much as those of the same data (the paper: more)",
        cells=cells,
        chart="bars",
    )


def convergence(build: Builder) -> Experiment:
    """Return accuracy by length of training, every point a schedule of its own."""
    cells: list[Cell] = []
    for patch in (2, 1):
        model = f"convmixer_256_16_k9_p{patch}"
        # The paper uses one setting for both patch sizes here, to show how little it matters.
        inits = [UNIFORM, covariance(model), filters(model), Init("closed-form", "closed-form", "cifar-p2")]
        for epochs in CONVERGENCE_EPOCHS:
            cells += build.cells(f"k9-p{patch}", model, [*inits, *build.also()], epochs=epochs, filters=("thawed",))
    return build.experiment(
        "convergence",
        title="Convergence of ConvMixer-256/16",
        shows="how many epochs each initialisation needs: the paper's closed form reaches 90 % in half of uniform's",
        cells=cells,
        chart="lines",
    )


def kronecker_transfer(build: Builder) -> Experiment:
    """Return covariance transfer with each covariance replaced by its nearest Kronecker square."""
    cells: list[Cell] = []
    for kernel in build.scale.figure_kernels:
        model = f"convmixer_256_8_k{kernel}_p2"
        inits = [UNIFORM, covariance(model), kronecker(model), *build.also()]
        cells += build.cells(f"k{kernel}", model, inits, epochs=EPOCHS)
    return build.experiment(
        "kronecker",
        title="Kronecker-factorised covariances",
        shows="whether A⊗A holds what matters of a covariance: the paper finds it slightly better than the whole",
        cells=cells,
        chart="bars",
    )


def _distinct(build: Builder, references: dict[str, str]) -> list[Init]:
    """Return a column per reference, leaving out those that a reduced scale makes equal to a later one."""
    largest = {build.scale.model(model): (column, model) for column, model in references.items()}
    return [covariance(model, column) for column, model in largest.values()]
