"""A ranking of initialisations, and who in it cannot be told apart from whom.

Two columns are told apart if the 95 % interval of their paired difference, seed by seed, does not hold zero. Whatever
has no interval, as of one seed, cannot be told apart. Nothing is corrected for the number of pairs, so the words say
how many would be told apart by chance.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from filtercov.lab.experiments.records import ExperimentRecord
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.results_statistics import CONFIDENCE, Difference, Summary, paired_difference, summarise
from filtercov.lab.report.results_words import show_difference, show_mean, show_row
from filtercov.printable import counted

HEAD = ("rank", "initialisation", "measured", "n", "behind the first", "cannot be told apart from")
TOLD_APART = (
    f"Two initialisations can be told apart if the {CONFIDENCE:.0%} interval of their difference, paired over seeds, "
    "lies on one side of zero; the last column has the ranks of those of which this cannot be said. Each pair is for "
    f"itself: where there is no difference at all, one in {round(1 / (1 - CONFIDENCE))} is told apart by chance."
)
NOT_RANKED = "Nothing is ranked at this scale, whose accuracies mean nothing."


@dataclass(frozen=True)
class Place:
    """An initialisation in a ranking: its accuracy, what it is behind the first, and the ranks it is not told from."""

    rank: int
    init: str
    measured: Summary
    behind: Difference | None  # of the first there is none
    alike: tuple[int, ...]


@dataclass(frozen=True)
class Ranking:
    """The initialisations of one row, best first, and how many of their pairs can be told apart."""

    title: str
    places: tuple[Place, ...]
    intervals: int  # pairs whose difference has one
    left_out: tuple[str, ...] = ()  # initialisations that some row lacks

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return len(self.places) * (len(self.places) - 1) // 2

    @property
    def told(self) -> int:
        """How many of the pairs can be told apart."""
        return self.pairs - sum(len(place.alike) for place in self.places) // 2

    def table(self) -> list[list[str]]:
        """Return the heading and a row for each initialisation."""
        return [list(HEAD), *(_shown(place) for place in self.places)]

    def __str__(self) -> str:
        chance = (1 - CONFIDENCE) * self.intervals
        pairs = counted(self.pairs, "pair")
        said = f"{self.title}: {self.told} of {pairs} told apart, where chance alone would tell {chance:.2g}"
        return f"{said}; not in all of these rows, and left out: {', '.join(self.left_out)}" if self.left_out else said


def rankings(record: ExperimentRecord) -> list[Ranking]:
    """Return a ranking for frozen and thawed filters over all rows, then one for each row; none where it means nothing.

    Over all rows means: of the mean over rows of each seed, for initialisations that all rows have.
    """
    if record.chart != "ranking" or not find_scale(record.scale).judges:
        return []
    by_row: dict[tuple[str, str], dict[str, Mapping[int, float]]] = defaultdict(dict)
    for cell in record.cells:
        if cell.accuracies:
            row = show_row(cell.row, cell.trained, reduced=bool(record.reduced))
            by_row[cell.filters, row][cell.init] = cell.by_seed
    kinds: dict[str, list[Mapping[str, Mapping[int, float]]]] = defaultdict(list)
    for (filters, _), inits in by_row.items():
        kinds[filters].append(inits)
    overall = [_overall(filters, rows, record) for filters, rows in kinds.items() if len(rows) > 1]
    each = [rank(f"{row}, {filters}", inits) for (filters, row), inits in by_row.items()]
    return [ranking for ranking in (*overall, *each) if len(ranking.places) > 1]


def _overall(filters: str, rows: Sequence[Mapping[str, Mapping[int, float]]], record: ExperimentRecord) -> Ranking:
    """Return the ranking over the rows that were run, which says how many there are in all, and what some lack."""
    planned = len({cell.row for cell in record.cells if cell.filters == filters})
    which = f"all {planned}" if len(rows) == planned else f"{len(rows)} of {planned}"
    averaged = _averaged(rows)
    some = dict.fromkeys(init for row in rows for init in row)
    ranking = rank(f"{filters}, mean of {which} rows", averaged)
    return replace(ranking, left_out=tuple(init for init in some if init not in averaged))


def rank(title: str, inits: Mapping[str, Mapping[int, float]]) -> Ranking:
    """Return the ranking of initialisations by their mean accuracy, each given as accuracies by seed.

    >>> found = rank("toys", {"a": {0: 50.0, 1: 52.0}, "b": {0: 50.5, 1: 51.0}, "c": {0: 40.0, 1: 42.1}})
    >>> [(place.init, place.alike) for place in found.places]
    [('a', (2,)), ('b', (1, 3)), ('c', (2,))]
    >>> print(found)
    toys: 1 of 3 pairs told apart, where chance alone would tell 0.15
    """
    ordered = sorted(inits, key=lambda init: -float(np.mean(list(inits[init].values()))))
    ranks = {init: place for place, init in enumerate(ordered, start=1)}
    alike: dict[str, list[int]] = {init: [] for init in ordered}
    intervals = 0
    for first, second in combinations(ordered, 2):
        difference = paired_difference(inits[first], inits[second])
        intervals += difference is not None and difference.low is not None
        if not told_apart(difference):
            alike[first].append(ranks[second])
            alike[second].append(ranks[first])
    return Ranking(
        title,
        tuple(
            Place(
                ranks[init],
                init,
                summarise(list(inits[init].values())),
                paired_difference(inits[init], inits[ordered[0]]) if init != ordered[0] else None,
                tuple(sorted(alike[init])),
            )
            for init in ordered
        ),
        intervals,
    )


def told_apart(difference: Difference | None) -> bool:
    """Tell whether the interval of a difference lies on one side of zero.

    >>> told_apart(Difference(1.0, 0.5, 1.5, 3)), told_apart(Difference(1.0, -0.1, 2.1, 3)), told_apart(None)
    (True, False, False)
    """
    return difference is not None and difference.low is not None and difference.low * (difference.high or 0.0) > 0


def in_ranges(ranks: Sequence[int]) -> str:
    """Return ascending numbers with runs of them drawn together.

    >>> in_ranges([1, 2, 3, 5, 8, 9]), in_ranges([])
    ('1-3, 5, 8-9', 'none')
    """
    runs: list[list[int]] = []
    for number in ranks:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "none"


def _averaged(rows: Sequence[Mapping[str, Mapping[int, float]]]) -> dict[str, dict[int, float]]:
    """Return the mean over rows of each seed's accuracy, for initialisations and seeds that all rows have."""
    common = [init for init in rows[0] if all(init in row for row in rows)]
    seeds = {init: set.intersection(*(set(row[init]) for row in rows)) for init in common}
    return {
        init: {seed: float(np.mean([row[init][seed] for row in rows])) for seed in sorted(seeds[init])}
        for init in common
        if seeds[init]
    }


def _shown(place: Place) -> list[str]:
    measured = place.measured
    return [
        str(place.rank),
        place.init,
        show_mean(measured.mean, measured.std),
        str(measured.n),
        show_difference(place.behind),
        in_ranges(place.alike),
    ]
