"""Every table and figure of the paper, what settles its claims, and what we compare beside it, by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from filtercov.lab.costs import matching
from filtercov.lab.experiments.catalogue import claims, figures, tables
from filtercov.lab.experiments.catalogue.build import Builder, Experiment, Options
from filtercov.lab.experiments.paper_claims import CLAIMS
from filtercov.lab.experiments.scales import find_scale

__all__ = ["PLACES", "Experiment", "Options", "experiment", "experiments", "names"]

Make = Callable[[Builder], Experiment]

# Name -> where the paper has it, as its captions number tables and figures, the data it trains on, what makes it.
_CATALOGUE: Mapping[str, tuple[str, str, Make]] = {
    **{name: (place, "cifar", partial(tables.cifar_table, name)) for name, (place, *_) in tables.CIFAR.items()},
    "cifar-5x5": ("Fig. 11", "cifar", tables.cifar_5x5),
    **{name: (place, "cifar", partial(figures.transfer, name)) for name, (place, *_) in figures.TRANSFERS.items()},
    "convergence": ("Fig. 8", "cifar", partial(figures.convergence, "convergence", 16)),
    "convergence-shallow": ("Fig. 12", "cifar", partial(figures.convergence, "convergence-shallow", 8)),
    "frozen-speed": ("Fig. 2", "cifar", figures.frozen_speed),
    **{name: (grid.place, grid.family, partial(figures.grid_search, name)) for name, grid in figures.GRIDS.items()},
    **{name: (place, family, partial(figures.drawn, name)) for name, (place, family, *_) in figures.DRAWINGS.items()},
    "imagenet": ("Table 1", "imagenet", tables.imagenet_main),
    **{name: (t.place, "imagenet", partial(tables.imagenet_table, name)) for name, t in tables.IMAGENET.items()},
    **{claim.experiment: (claim.place, "cifar", partial(claims.claim_experiment, claim)) for claim in CLAIMS},
    "controls": ("", "cifar", tables.controls),
    "ranking": ("", "cifar", tables.ranking),
}
PLACES = {name: place for name, (place, _, _) in _CATALOGUE.items()}


def names(pattern: str = "*") -> tuple[str, ...]:
    """The experiments whose name matches a pattern as shells have them.

    >>> names("cifar-convnext-*")
    ('cifar-convnext-atto-p1', 'cifar-convnext-atto-p2')
    """
    return matching(pattern, list(_CATALOGUE))


def experiment(name: str, *, scale: str, options: Options | None = None) -> Experiment:
    """An experiment at a scale.

    >>> len(experiment("cifar-convmixer-256-8-p2", scale="paper").runs)
    368
    """
    _, family, make = _CATALOGUE[names(name)[0]]
    return make(Builder(find_scale(scale), options or Options(), family))


def experiments(patterns: Sequence[str], *, scale: str, options: Options | None = None) -> list[Experiment]:
    """The experiments that match any of the patterns, each once, in the catalogue's order."""
    wanted = {name for pattern in patterns for name in names(pattern)}
    return [experiment(name, scale=scale, options=options) for name in _CATALOGUE if name in wanted]
