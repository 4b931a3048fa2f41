"""Every table and figure of the paper, what settles its claims, and what we compare beside it, by name.

`experiments.csv` says of each where the paper has it, as its captions number tables and figures, on which data it
trains, how it is drawn and what it shows. `tables` makes its runs.
"""

from collections.abc import Sequence

from filtercov.lab.costs import matching
from filtercov.lab.experiments.catalogue.build import Builder, Experiment, Options
from filtercov.lab.experiments.catalogue.tables import CELLS, DRAWINGS, timed_networks
from filtercov.lab.experiments.paper_numbers import read_csv
from filtercov.lab.experiments.scales import find_scale

__all__ = ["PLACES", "Experiment", "Options", "experiment", "experiments", "names"]

_EXPERIMENTS = {about["name"]: about for about in read_csv("experiments.csv")}
PLACES = {name: about["place"] for name, about in _EXPERIMENTS.items()}


def names(pattern: str = "*") -> tuple[str, ...]:
    """The experiments whose name matches a pattern as shells have them.

    >>> names("cifar-convnext-*")
    ('cifar-convnext-atto-p1', 'cifar-convnext-atto-p2')
    """
    return matching(pattern, list(_EXPERIMENTS))


def experiment(name: str, *, scale: str, options: Options | None = None) -> Experiment:
    """An experiment at a scale.

    >>> len(experiment("cifar-convmixer-256-8-p2", scale="paper").runs)
    368
    """
    about, sized = _EXPERIMENTS[names(name)[0]], find_scale(scale)
    build = Builder(sized, options or Options(), about["data"])
    name = about["name"]
    return Experiment(
        name=name,
        title=about["title"],
        shows=about["shows"],
        scale=sized.name,
        reduced=sized.reduced,
        cells=tuple(CELLS[name](build)) if name in CELLS else (),
        drawings=tuple(DRAWINGS[name](build)) if name in DRAWINGS else (),
        chart=about["chart"],
        speed=tuple(timed_networks(name, sized)),
    )


def experiments(patterns: Sequence[str], *, scale: str, options: Options | None = None) -> list[Experiment]:
    """The experiments that match any of the patterns, each once, in the catalogue's order."""
    wanted = {name for pattern in patterns for name in names(pattern)}
    return [experiment(name, scale=scale, options=options) for name in _EXPERIMENTS if name in wanted]
