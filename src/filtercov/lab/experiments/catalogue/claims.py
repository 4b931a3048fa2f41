"""The runs that settle each claim: an experiment for each, of no cell that its comparisons do not need.

Networks and epochs are the paper's, its ConvMixer-256/8 with 2x2 patches where nothing else is said. Runs are known by
what they are, so what claims and tables have in common is trained once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from filtercov.lab.experiments.builder import Builder, Init
from filtercov.lab.experiments.catalogue.columns import UNIFORM, closed_form, covariance, eighth, filters, kronecker
from filtercov.lab.experiments.graph import Cell, Experiment
from filtercov.lab.experiments.paper_claims import (
    CLAIMS,
    DEPTHS,
    EPOCHS,
    GRID,
    KERNELS,
    LARGE,
    SPEED_KERNELS,
    Claim,
    grid_column,
)

FROZEN, THAWED, BOTH = ("frozen",), ("thawed",), ("thawed", "frozen")


def network(kernel: int = 9, *, depth: int = 8, patch: int = 2) -> str:
    """Return the ConvMixer of width 256 that a claim is tried on."""
    return f"convmixer_256_{depth}_k{kernel}_p{patch}"


def claim_experiment(claim: Claim, build: Builder) -> Experiment:
    """Return the experiment of a claim."""
    kernels = SPEED_KERNELS if claim.number == "C14" else ()
    return build.experiment(
        claim.experiment,
        title=f"Claim {claim.number}",
        shows=claim.says,
        cells=_CELLS[claim.number](build) if claim.number in _CELLS else (),
        speed=tuple(build.scale.model(f"convmixer_512_12_k{kernel}_p2") for kernel in kernels),
        chart="bars",
    )


def _cells(
    build: Builder,
    row: str,
    model: str,
    inits: Iterable[Init],
    kinds: tuple[str, ...],
    *,
    epochs: int = EPOCHS,
    seeds: int | None = None,
) -> list[Cell]:
    inits = [*inits, *build.also()]
    return build.cells(row, model, inits, epochs=epochs, filters=kinds, seeds=seeds or build.scale.claim_seeds)


def _kernels(
    build: Builder, *inits: Callable[[str], Init], kernels: tuple[int, ...], kinds: tuple[str, ...]
) -> list[Cell]:
    """Return a row for each kernel size, of initialisations that may start from the row's own network."""
    return [
        cell
        for k in kernels
        for cell in _cells(build, f"k{k}", network(k), [init(network(k)) for init in inits], kinds)
    ]


def _uniform(_model: str) -> Init:
    return UNIFORM


def _closed_form(_model: str) -> Init:
    return closed_form()


def _every_transfer(build: Builder) -> list[Cell]:
    own = network()
    transfers = [closed_form(), covariance(own), covariance(eighth(own), "covariance-eighth"), filters(own)]
    others = _kernels(build, _closed_form, covariance, kernels=(7, 15), kinds=BOTH)
    return [*_cells(build, "k9", own, transfers, BOTH), *others]


def _frozen_against_thawed(build: Builder) -> list[Cell]:
    return [
        *_kernels(build, _closed_form, kernels=LARGE, kinds=FROZEN),
        *_kernels(build, _uniform, kernels=LARGE, kinds=THAWED),
    ]


def _depths(build: Builder) -> list[Cell]:
    return [
        cell
        for depth in DEPTHS
        for cell in _cells(build, f"depth {depth}", network(depth=depth), [UNIFORM, closed_form()], FROZEN)
    ]


def _narrow(build: Builder) -> list[Cell]:
    inits = [covariance(network()), covariance(eighth(network()), "covariance-eighth")]
    return _cells(build, "k9", network(), inits, BOTH)


def _shallow(build: Builder) -> list[Cell]:
    return _cells(build, "depth 24", network(depth=24), [UNIFORM, covariance(network())], FROZEN)


def _patches(build: Builder) -> list[Cell]:
    two, one = network(patch=2), network(patch=1)
    return [
        *_cells(build, "k9", two, [UNIFORM, covariance(one, "covariance from p1")], FROZEN),
        *_cells(build, "k9-p1", one, [UNIFORM, covariance(two, "covariance from p2")], FROZEN),
    ]


def _filter_sizes(build: Builder) -> list[Cell]:
    others = [covariance(network(k), f"covariance from k{k}") for k in KERNELS if k != 9]
    return _cells(build, "k9", network(), [UNIFORM, *others], FROZEN)


def _factorised(build: Builder) -> list[Cell]:
    return _cells(build, "k9", network(), [covariance(network()), kronecker(network())], FROZEN)


def _half_the_epochs(build: Builder) -> list[Cell]:
    return [
        *_cells(build, "k9", network(), [closed_form()], THAWED, epochs=EPOCHS // 2),
        *_cells(build, "k9", network(), [UNIFORM], THAWED),
    ]


def _grid(build: Builder) -> list[Cell]:
    schedules = [Init(grid_column(schedule), "closed-form", schedule) for schedule in GRID]
    few = min(build.scale.claim_seeds, build.family.seeds)  # the gain is of several points, not of one
    return _cells(build, "k9", network(), [UNIFORM, *schedules], FROZEN, seeds=few)


def _convnext(build: Builder) -> list[Cell]:
    model = "convnext_atto_p2"
    sawtooth = Init("sawtooth", "closed-form", "sawtooth:cifar-p2")
    return [
        *_cells(build, "convnext", model, [UNIFORM, closed_form()], THAWED),
        *_cells(build, "convnext", model, [UNIFORM, closed_form(), sawtooth], FROZEN),
    ]


def _means(build: Builder) -> list[Cell]:
    without = Init("covariance, no means", "covariances-of", reference=network())
    return _cells(build, "k9", network(), [covariance(network()), without], FROZEN)


def _other_data(build: Builder) -> list[Cell]:
    own = covariance(network())
    embedded = replace(build, family_name="embedded")
    from_embedded = covariance(network(), "covariance from embedded", family="embedded")
    from_cifar = covariance(network(), "covariance from CIFAR-10", family="cifar")
    return [
        *_cells(build, "k9", network(), [UNIFORM, own, from_embedded], FROZEN),
        *_cells(embedded, "embedded", network(), [UNIFORM, own, from_cifar], FROZEN),
    ]


_CELLS: Mapping[str, Callable[[Builder], list[Cell]]] = {
    "C1": lambda build: _kernels(build, _uniform, covariance, kernels=LARGE, kinds=THAWED),
    "C2": lambda build: _kernels(build, _uniform, covariance, kernels=LARGE, kinds=BOTH),
    "C3": _every_transfer,
    "C4": _frozen_against_thawed,
    "C5": lambda build: _kernels(build, _uniform, _closed_form, kernels=KERNELS, kinds=FROZEN),
    "C6": _depths,
    "C7": lambda build: _kernels(build, _uniform, covariance, _closed_form, kernels=(3,), kinds=FROZEN),
    "C8": _narrow,
    "C9": _shallow,
    "C10": _patches,
    "C11": _filter_sizes,
    "C12": _factorised,
    "C13": _half_the_epochs,
    "C15": _grid,
    "C16": _convnext,
    "C17": _means,
    "C18": _other_data,
}

EXPERIMENTS = {claim.experiment: claim for claim in CLAIMS}
