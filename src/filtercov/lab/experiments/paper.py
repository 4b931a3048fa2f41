"""What the paper says: every number of its tables (`paper.csv`), its claims, and what decides each of them.

C1 to C18 are experiments, `claim-c1` to `claim-c18` of `experiments.csv`, each with a few comparisons of its cells, the
rows of `claims.csv`, written down before anything was run. A comparison is a number for each seed, made of the
accuracies of that seed: mostly a difference of two cells, in points, written as `filters/initialisation @ row`. The
paper's own number for the same cells stands beside it where its tables have them (`paper_difference`).

What a comparison asks follows the paper's words. "Better" must be `above` zero. "Little change" must be the `same`:
within `MARGIN` of zero. "As good in half the time" must be `at least` as good: not worse by `MARGIN`. Where the paper
says neither frozen nor thawed the comparison is of frozen filters, which keep all that the initialisation gave them.

Two rows are more than a difference. C5 is the rise of the gain from 3x3 to 15x15 filters on the least-squares line
through four sizes. C15 is the median of nine of the 27 schedules (σ0, v, a) around the paper's, half and double: every
two values of two numbers meet once.

C19 and C20 need no run; what decides them stands at the end. `lab/report/results_claims.py` judges the others, and
`catalogue.py` makes their runs from the cells that comparisons name.
"""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np

from filtercov.covariance.closed_form import axis_gaussians
from filtercov.covariance.forms import Array, kron
from filtercov.covariance.transfer import LayerStatistics
from filtercov.schedule import fit_layer
from filtercov.statistics.filter_statistics import FilterStatistics

EPOCHS = 20  # the paper's, where it does not say
MARGIN = 1.0  # points of accuracy that count as no difference


def read_csv(name: str) -> list[dict[str, str]]:
    """The rows of a file beside this one."""
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --- Numbers ---


@dataclass(frozen=True)
class CellName:
    """Which number of a table.

    Of an experiment that times steps, the row is the kernel size and the column is `saved`: the share of a step's time
    that freezing saves, in percent, turn by turn.
    """

    row: str  # a kernel size (CIFAR-10) or an architecture (ImageNet)
    column: str  # "thawed/" or "frozen/" and an initialisation
    epochs: int = EPOCHS  # the paper's; a reduced scale trains for fewer

    @property
    def filters(self) -> str:
        """Whether the filters train: thawed or frozen."""
        return self.column.partition("/")[0]

    @property
    def init(self) -> str:
        """The initialisation, empty if the column has none."""
        return self.column.partition("/")[2]


@dataclass(frozen=True)
class PaperNumber:
    """A mean accuracy in percent, its standard deviation over three seeds where given, and the LaTeX label."""

    mean: float
    std: float | None
    source: str


@cache
def paper_numbers() -> Mapping[tuple[str, str, str, int], PaperNumber]:
    """The paper's numbers by table, row, column and epochs. It repeats some of ImageNet's, which stand in two tables.

    >>> paper_numbers()["cifar-convmixer-256-8-p2", "k9", "frozen/closed-form", 200]
    PaperNumber(mean=93.0, std=0.05, source='fig:apx-cm-256-8-2')
    """
    found = {}
    for line in read_csv("paper.csv"):
        std = float(line["std"]) if line["std"] else None
        number = PaperNumber(float(line["mean"]), std, line["source"])
        found[line["table"], line["row"], line["column"], int(line["epochs"])] = number
    return found


# --- Claims that runs decide ---

Asks = Literal["above", "same", "at least"]

# The table and row of the paper that have a row of the claims.
_PAPER_ROWS = {
    **{f"k{k}": ("cifar-convmixer-256-8-p2", f"k{k}") for k in (3, 7, 9, 15)},
    "depth 8": ("cifar-convmixer-256-8-p2", "k9"),
    "depth 24": ("cifar-convmixer-256-24-p2", "k9"),
    "convnext": ("cifar-convnext-atto-p2", "k7"),
}
_TERM = re.compile(r"([+-]?) ?(?:([\d./]+) )?([a-z][^@]*) @ (.+?)(?: in (\d+))?(?= [+-] |$)")


@dataclass(frozen=True)
class Comparison:
    """A number that each seed has: the weighted sum of cells, and, if `median_of` names some, the median of those.

    A comparison that is `beside` its claim, for the reason given, is shown and decides nothing.
    """

    says: str
    terms: tuple[tuple[float, CellName], ...]  # weights and cells
    asks: Asks = "above"
    median_of: tuple[CellName, ...] = ()
    beside: str = ""

    @property
    def cells(self) -> tuple[CellName, ...]:
        """Every cell it needs."""
        return (*(cell for _, cell in self.terms), *self.median_of)

    @property
    def least(self) -> float:
        """The number that its own must be above."""
        return 0.0 if self.asks == "above" else -MARGIN

    @property
    def needed(self) -> str:
        """The condition on its number, in words."""
        return f"within ±{MARGIN:g}" if self.asks == "same" else f"above {self.least:g}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper in a sentence, and all comparisons that must hold for it to hold."""

    number: str
    says: str
    comparisons: tuple[Comparison, ...]

    @property
    def experiment(self) -> str:
        """The name in the catalogue: `filtercov reproduce claim-c1` settles C1."""
        return f"claim-{self.number.lower()}"

    def paper_difference(self, comparison: Comparison) -> float | None:
        """The paper's own number for a comparison, from the means of its tables; None where they lack a cell."""
        total = 0.0
        for weight, cell in comparison.terms:
            table, row = _PAPER_ROWS.get(cell.row, ("", ""))
            number = paper_numbers().get((table, row, cell.column, cell.epochs))
            if number is None or comparison.median_of:
                return None
            total += weight * number.mean
        return total


def _terms(text: str) -> tuple[tuple[float, CellName], ...]:
    """The weights and cells of a sum.

    >>> _terms("1/4 frozen/uniform @ k9 - thawed/uniform @ depth 16 in 40")[1]
    (-1.0, CellName(row='depth 16', column='thawed/uniform', epochs=40))
    """
    found = []
    for sign, weight, column, row, epochs in _TERM.findall(text):
        trained = 0 if column == "saved" else int(epochs or EPOCHS)
        found.append((float(Fraction(f"{sign}{weight or 1}")), CellName(row, column, trained)))
    return tuple(found)


def _claims() -> Iterator[Claim]:
    says = {line["name"]: line["shows"] for line in read_csv("experiments.csv")}
    comparisons: dict[str, list[Comparison]] = defaultdict(list)
    for line in read_csv("claims.csv"):
        median_of = tuple(cell for _, cell in _terms(line["median of"]))
        terms, asks = _terms(line["number"]), cast(Asks, line["asks"])
        comparisons[line["claim"]].append(Comparison(line["says"], terms, asks, median_of, line["beside"]))
    for number, decisive in comparisons.items():
        yield Claim(number, says[f"claim-{number.lower()}"], tuple(decisive))


CLAIMS = tuple(_claims())

# --- Claims that the statistics of reference networks decide ---
#
# C19 is about the static component. The covariances between different pixels are fitted by least squares as
#
#     Σ ≈ α ½ (D C + C D) + β ½ z zᵀ
#
# with the Gaussians of the layer's nearest closed form, which has β = -1 at its own total variance; so β is given for
# that. (Variances are left out of the fit: by them alone independent pixels would seem to have a negative β.) C20 is
# about σ, layer by layer: of all pairs of layers, in how many does the deeper one have the larger σ? Chance stands
# beside both: for β what as many independent filters show, for pairs an order drawn at random.

LEAST_KERNEL = 5  # pixels a side, under which the closed form has no shape to fit
DRAWS = 40  # of independent filters, the lowest of which is chance
REFERENCE_CLAIMS = {  # all of the paper's Fig. 1
    "C19": "Covariances of trained filters often have a static negative component in the centre.",
    "C20": "Covariances of trained filters become more diffuse with depth.",
}


class ReferenceFinding(NamedTuple):
    """The verdict of a reference's layers on both claims; small layers have none."""

    network: str
    layers: int
    negative: int  # of them, those whose static component is below that of independent filters
    rising: int  # pairs of layers of which the deeper one has the larger σ
    pairs: int
    by_chance: float  # the probability that as many pairs rise in an order drawn at random


def judge_references(references: Mapping[str, FilterStatistics]) -> list[ReferenceFinding]:
    """The verdicts of those networks that have layers large enough to fit."""
    found = []
    for network, statistics in references.items():
        sigmas = {layer: fit_layer(layer).sigma for layer in statistics if max(layer.kernel_size) >= LEAST_KERNEL}
        if sigmas:
            negative = sum(_negative(layer, sigma) for layer, sigma in sigmas.items())
            rising = [shallow < deep for shallow, deep in combinations(sigmas.values(), 2)]
            by_chance = chance_of_rising(len(sigmas), sum(rising))
            found.append(ReferenceFinding(network, len(sigmas), negative, sum(rising), len(rising), by_chance))
    return found


def _negative(layer: LayerStatistics, sigma: float) -> bool:
    """Whether the static component of a layer is below the lowest of `DRAWS` draws of as many independent filters."""
    size, random = layer.kernel_size, np.random.default_rng(0)
    draws = (random.standard_normal((layer.count, math.prod(size))) for _ in range(DRAWS))
    by_chance = min(static_component(np.cov(draw, rowvar=False), size, sigma) for draw in draws)
    return static_component(layer.covariance, size, sigma) < by_chance


def static_component(covariance: Array, kernel_size: tuple[int, ...], sigma: float) -> float:
    """β of a covariance (n, n), for the total variance of the closed form of σ."""
    z, C = (kron(factors) for factors in zip(*(axis_gaussians(k, sigma) for k in kernel_size), strict=True))
    apart = ~np.eye(len(z), dtype=bool)
    dynamic, static = 0.5 * (z[:, None] + z) * C, 0.5 * z[:, None] * z
    parts = np.stack([dynamic[apart], static[apart]], axis=1)
    (_, beta), *_ = np.linalg.lstsq(parts, covariance[apart], rcond=None)
    return float(beta * np.trace(dynamic - static) / np.trace(covariance))


def chance_of_rising(count: int, pairs: int) -> float:
    """The probability that a random order of `count` different numbers has `pairs` or more rising pairs."""
    orders = np.ones(1)  # orders by their number of rising pairs: the n-th number makes 0 to n-1 new ones
    for n in range(2, count + 1):
        orders = np.convolve(orders, np.ones(n) / n)
    return float(orders[pairs:].sum())
