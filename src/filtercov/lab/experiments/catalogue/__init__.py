"""Every table and figure of the paper, what settles its claims, and a ranking beside them, by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from filtercov.lab.costs.listing import matching
from filtercov.lab.experiments.builder import Builder, Options
from filtercov.lab.experiments.catalogue import claims, grids, pictures, ranking, tables, transfers
from filtercov.lab.experiments.graph import Experiment
from filtercov.lab.experiments.scales import find_scale

Make = Callable[[Builder], Experiment]

# Name -> the data it trains on, and what makes it.
_CATALOGUE: Mapping[str, tuple[str, Make]] = {
    **{name: ("cifar", partial(tables.cifar_table, name)) for name in tables.CIFAR_TABLES},
    "cifar-5x5": ("cifar", tables.cifar_5x5),
    "width-transfer": ("cifar", transfers.width_transfer),
    "depth-transfer": ("cifar", transfers.depth_transfer),
    "patch-transfer": ("cifar", transfers.patch_transfer),
    "kernel-transfer": ("cifar", transfers.kernel_transfer),
    "imagenet-to-cifar": ("cifar", transfers.imagenet_to_cifar),
    "convergence": ("cifar", transfers.convergence),
    "kronecker": ("cifar", transfers.kronecker_transfer),
    "frozen-speed": ("cifar", pictures.frozen_speed),
    **{name: (grid.family, partial(grids.grid_search, name)) for name, grid in grids.GRIDS.items()},
    "variance-schedule": ("cifar", pictures.variance_schedule),
    "learned-covariances": ("cifar", pictures.learned_covariances),
    "learned-covariances-imagenet": ("imagenet", pictures.learned_covariances_imagenet),
    "example-filters": ("cifar", pictures.example_filters),
    "imagenet": ("imagenet", tables.imagenet_main),
    **{name: ("imagenet", partial(tables.imagenet_table, name)) for name in tables.IMAGENET_TABLES},
    **{name: ("cifar", partial(claims.claim_experiment, claim)) for name, claim in claims.EXPERIMENTS.items()},
    "ranking": ("cifar", ranking.ranking),
}


def names(pattern: str = "*") -> tuple[str, ...]:
    """Return the experiments whose name matches a pattern as shells have them.

    >>> names("cifar-convnext-*")
    ('cifar-convnext-atto-p1', 'cifar-convnext-atto-p2')
    """
    return matching(pattern, list(_CATALOGUE))


def experiment(name: str, *, scale: str, options: Options | None = None) -> Experiment:
    """Return an experiment of the paper at a scale.

    >>> len(experiment("cifar-convmixer-256-8-p2", scale="paper").runs)
    368
    """
    family, make = _CATALOGUE[names(name)[0]]
    return make(Builder(find_scale(scale), options or Options(), family))


def experiments(patterns: Sequence[str], *, scale: str, options: Options | None = None) -> list[Experiment]:
    """Return the experiments that match any of the patterns, each once, in the catalogue's order."""
    wanted = {name for pattern in patterns for name in names(pattern)}
    return [experiment(name, scale=scale, options=options) for name in _CATALOGUE if name in wanted]
