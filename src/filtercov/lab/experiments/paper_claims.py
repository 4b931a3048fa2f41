"""What the paper claims, and what will decide each claim: written down before anything is run.

A claim is one experiment of the catalogue, `claim-c1` to `claim-c18`, and a few comparisons of its cells. A comparison
is a number for each seed, made of the accuracies of that seed: mostly a difference of two cells, in points. The paper's
own number for the same cells stands beside it where its tables have them (`paper_difference`). Two more claims need no
run: `reference_claims.py` has them.

What a comparison asks follows the paper's words. "Better" must be `above` zero. "Little change" must be the `same`:
within `MARGIN` of zero. "As good in half the time" must be `at least` as good: not worse by `MARGIN`. Where the paper
says neither frozen nor thawed the comparison is of frozen filters, which keep all that the initialisation gave them.

`lab/report/results_claims.py` judges; `catalogue/claims.py` makes the runs from the cells that comparisons name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from filtercov.lab.experiments.paper_numbers import Place, paper_numbers

Asks = Literal["above", "same", "at least"]

MARGIN = 1.0  # points of accuracy that count as no difference
EPOCHS = 20
LARGE = (7, 9, 15)  # the kernel sizes of which the paper claims most
KERNELS = (3, *LARGE)
# Nine of the 27 schedules (σ0, v, a) around the paper's, half and double: every two values of two numbers meet once.
GRID = tuple(
    f"{0.08 * 2.0**i:g},{0.37 * 2.0**j:g},{2.9 * 2.0 ** ((i + j + 1) % 3 - 1):g}"
    for i in (-1, 0, 1)
    for j in (-1, 0, 1)
)


class CellName(NamedTuple):
    """Which cell of a claim's experiment; `epochs` are the paper's.

    Of an experiment that times steps, the row is the kernel size and the column is `saved`: the share of a step's time
    that freezing saves, in percent, turn by turn.
    """

    row: str
    column: str  # "thawed/" or "frozen/" and an initialisation
    epochs: int = EPOCHS


Terms = tuple[tuple[float, CellName], ...]  # weights and cells


@dataclass(frozen=True)
class Comparison:
    """A number that each seed has: the weighted sum of cells, and, if `median_of` names some, the median of those.

    A comparison that is `beside` its claim, for the reason given, is shown and decides nothing.
    """

    says: str
    terms: Terms
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
        """What its number must be, in words."""
        return f"within ±{MARGIN:g}" if self.asks == "same" else f"above {self.least:g}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, in a sentence of ours, and all comparisons that must hold for it to hold."""

    number: str
    place: str  # tables and figures that show it; empty if the paper only says it
    says: str
    comparisons: tuple[Comparison, ...]
    paper_rows: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # our row -> table and row of the paper

    @property
    def experiment(self) -> str:
        """The name in the catalogue: `filtercov reproduce claim-c1` settles C1."""
        return f"claim-{self.number.lower()}"

    def paper_difference(self, comparison: Comparison) -> float | None:
        """The paper's own number for a comparison, from the means of its tables; None where they lack a cell.

        >>> c4 = next(claim for claim in CLAIMS if claim.number == "C4")
        >>> [round(c4.paper_difference(comparison), 2) for comparison in c4.comparisons]
        [0.56, 1.3, 3.74]
        """
        total = 0.0
        for weight, cell in comparison.terms:
            table, row = self.paper_rows.get(cell.row, ("", ""))
            number = paper_numbers().get(Place(table, row, cell.column, cell.epochs))
            if number is None or comparison.median_of:
                return None
            total += weight * number.mean
        return total


def frozen(init: str, row: str = "k9") -> CellName:
    """The cell of an initialisation whose filters stay as drawn."""
    return CellName(row, f"frozen/{init}")


def thawed(init: str, row: str = "k9") -> CellName:
    """The cell of an initialisation whose filters train."""
    return CellName(row, f"thawed/{init}")


BOTH = {"frozen": frozen, "thawed": thawed}


def versus(says: str, one: CellName, other: CellName, asks: Asks = "above", beside: str = "") -> Comparison:
    """The difference of two cells."""
    return Comparison(says, ((1.0, one), (-1.0, other)), asks, beside=beside)


def gain(init: str, row: str, filters: str = "frozen", weight: float = 1.0) -> Terms:
    """What an initialisation gains over uniform in a row, times a weight."""
    cell = BOTH[filters]
    return ((weight, cell(init, row)), (-weight, cell("uniform", row)))


def trend(says: str, init: str, rows: Mapping[int, str]) -> Comparison:
    """The rise of the gain from the first row to the last, on the least-squares line through all rows."""
    middle = sum(rows) / len(rows)
    length, squares = max(rows) - min(rows), sum((place - middle) ** 2 for place in rows)
    weights = {row: (place - middle) / squares * length for place, row in rows.items()}
    return Comparison(says, tuple(term for row, weight in weights.items() for term in gain(init, row, weight=weight)))


def grid_column(schedule: str) -> str:
    """The initialisation's name in the column of a schedule.

    >>> grid_column(GRID[4])
    'closed-form 0.08 0.37 2.9'
    """
    return f"closed-form {schedule.replace(',', ' ')}"


def _saved(kernel: int) -> CellName:
    return CellName(f"k{kernel}", "saved", 0)


_TABLE = "cifar-convmixer-256-8-p2"
_BY_KERNEL = {f"k{k}": (_TABLE, f"k{k}") for k in KERNELS}
_RIVALS = {9: ("covariance", "covariance-eighth", "filters"), 7: ("covariance",), 15: ("covariance",)}  # of C3
_WITHOUT_MEANS: tuple[tuple[str, str, Asks, str], ...] = (  # of C17
    ("against with them", "covariance", "same", ""),
    ("above uniform", "uniform", "above", "the paper does not compare the two"),
)

# Where the paper has each claim, and what it says.
_SAYS = {
    "C1": (
        "Table 10, Fig. 3",
        "Covariance transfer from the same architecture is somewhat better than uniform filters of 7x7 pixels and more "
        "in 20 epochs.",
    ),
    "C2": ("Table 10, Fig. 3", "Covariance transfer gains more where filters stay frozen."),
    "C3": (
        "Table 10, Fig. 3",
        "The closed form is better than covariance transfer from a network of the same width or an eighth of it, and "
        "than the very filters of a trained network.",
    ),
    "C4": ("Table 10, Fig. 3", "With 2x2 patches the closed form frozen is better than uniform filters that train."),
    "C5": ("Table 10, Fig. 3", "The closed form gains more the larger the filters are."),
    "C6": ("Table 10, Table 11", "The closed form gains more the deeper the network is."),
    "C7": ("Table 10, Fig. 3", "For 3x3 filters the closed form does nothing, and transfer is better."),
    "C8": ("Table 10, Fig. 4", "Covariances of a narrow reference are better than those of one of the same width."),
    "C9": ("Fig. 4", "In a network of 32 layers the covariances of one of 8 are better than uniform and than its own."),
    "C10": (
        "Fig. 9",
        "Covariances of 1x1 patches serve 2x2 ones better than their own; the other way they serve worse; both ways "
        "they are better than uniform.",
    ),
    "C11": ("Fig. 9", "Covariances of another filter size, larger than 3x3, are better than uniform."),
    "C12": ("Fig. 14", "Kronecker-factorised covariances are slightly better than whole ones."),
    "C13": ("Fig. 8", "With 16 layers the closed form reaches uniform's final accuracy in about half the epochs."),
    "C14": ("Fig. 2", "Freezing makes a training step cheaper from 9x9 filters on, more so with larger ones."),
    "C15": ("Fig. 17", "Almost all choices of the closed form's three numbers are better than uniform."),
    "C16": ("Table 14, Figs. 7, 20, 21", "ConvNeXt gains from the closed form too, and needs no sawtooth schedule."),
    "C17": ("", "The means of filters can be taken as zero with little change."),
    "C18": ("Fig. 10", "Covariances learned on other images help, even more than those of the same images."),
}
# What decides each.
_DECIDES: dict[str, list[Comparison]] = {
    "C1": [Comparison(f"covariance above uniform, k{k}", gain("covariance", f"k{k}", "thawed")) for k in LARGE],
    "C2": [
        Comparison(
            "gain when frozen above gain when thawed, mean of k7, k9, k15",
            tuple(
                term
                for k in LARGE
                for filters, weight in (("frozen", 1 / 3), ("thawed", -1 / 3))
                for term in gain("covariance", f"k{k}", filters, weight)
            ),
        )
    ],
    "C3": [
        versus(f"closed form above {init}, {filters}, k{k}", cell("closed-form", f"k{k}"), cell(init, f"k{k}"))
        for filters, cell in BOTH.items()
        for k, inits in _RIVALS.items()
        for init in inits
    ],
    "C4": [
        versus(f"frozen closed form above thawed uniform, {row}", frozen("closed-form", row), thawed("uniform", row))
        for row in ("k7", "k9", "k15")
    ],
    "C5": [
        trend(
            "gain at k15 above gain at k3, by the line through k3, k7, k9, k15",
            "closed-form",
            {k: f"k{k}" for k in KERNELS},
        )
    ],
    "C6": [trend("gain at 24 layers above gain at 8", "closed-form", {8: "depth 8", 24: "depth 24"})],
    "C7": [
        versus("closed form against uniform, k3", frozen("closed-form", "k3"), frozen("uniform", "k3"), "same"),
        versus("covariance above closed form, k3", frozen("covariance", "k3"), frozen("closed-form", "k3")),
    ],
    "C8": [
        versus(f"narrow above same width, {filters}", cell("covariance-eighth"), cell("covariance"))
        for filters, cell in BOTH.items()
    ],
    "C9": [
        versus(f"8 layers' covariances above {than}", frozen("covariance from depth 8", "depth 32"), other)
        for than, other in (
            ("uniform", frozen("uniform", "depth 32")),
            ("32 layers'", frozen("covariance", "depth 32")),
        )
    ],
    "C10": [
        versus("from 1x1 in 2x2 above its own", frozen("covariance from p1"), frozen("covariance")),
        Comparison("from 1x1 in 2x2 above uniform", gain("covariance from p1", "k9")),
        versus("its own in 1x1 above from 2x2", frozen("covariance", "k9-p1"), frozen("covariance from p2", "k9-p1")),
        Comparison("from 2x2 in 1x1 above uniform", gain("covariance from p2", "k9-p1")),
    ],
    "C11": [
        Comparison(f"from k{k} in k9 above uniform", gain(f"covariance from k{k}", "k9"), beside=excepted)
        for k, excepted in (
            (3, "the paper excepts 3x3 filters, which have little structure to transfer"),
            (7, ""),
            (15, ""),
        )
    ],
    "C12": [versus("factorised above whole", frozen("kronecker"), frozen("covariance"))],
    "C13": [
        versus(
            "closed form in 20 epochs against uniform in 40, each by its own schedule",
            thawed("closed-form", "depth 16"),
            CellName("depth 16", "thawed/uniform", 2 * EPOCHS),
            "at least",
        )
    ],
    "C14": [
        *(
            Comparison(f"time saved above zero, k{k}", ((1.0, _saved(k)),), beside=excepted)
            for k, excepted in ((3, "the paper claims savings for larger filters"), (9, ""), (15, ""))
        ),
        versus("share saved at k15 above share at k9", _saved(15), _saved(9)),
    ],
    "C15": [
        Comparison(
            "the middle one of nine schedules above uniform",
            ((-1.0, frozen("uniform")),),
            median_of=tuple(frozen(grid_column(schedule)) for schedule in GRID),
        )
    ],
    "C16": [
        *(Comparison(f"closed form above uniform, {f}", gain("closed-form", "convnext", f)) for f in BOTH),
        versus(
            "plain against sawtooth, frozen",
            frozen("closed-form", "convnext"),
            frozen("sawtooth", "convnext"),
            "at least",
        ),
    ],
    "C17": [
        versus(f"without means {words}, {filters}", cell("covariance, no means"), cell(init), asks, beside)
        for filters, cell in BOTH.items()
        for words, init, asks, beside in _WITHOUT_MEANS
    ],
    "C18": [
        Comparison("from other images above uniform", gain("covariance from embedded", "k9")),
        versus("from other images above its own", frozen("covariance from embedded"), frozen("covariance")),
    ],
}
# The table and row of the paper that have a claim's rows, where any do.
_PAPER_ROWS = {
    **dict.fromkeys(("C1", "C2", "C3", "C4", "C5", "C7", "C8"), _BY_KERNEL),
    "C6": {"depth 8": (_TABLE, "k9"), "depth 24": ("cifar-convmixer-256-24-p2", "k9")},
    "C16": {"convnext": ("cifar-convnext-atto-p2", "k7")},
}

CLAIMS: tuple[Claim, ...] = tuple(
    Claim(number, place, says, tuple(_DECIDES[number]), _PAPER_ROWS.get(number, {}))
    for number, (place, says) in _SAYS.items()
)
