"""What the paper claims, and what will decide each claim: written down before anything is run.

A claim is one experiment of the catalogue, `claim-c1` to `claim-c18`, and a few comparisons of its cells. A comparison
is a number for each seed, made of the accuracies of that seed: mostly a difference of two cells, in points. What is
"better" must be above zero; what is "at least as good" must not be worse by `MARGIN`, stated here so that no one can
choose it afterwards; what "matters little" must be at least as good both ways. Where the paper says neither frozen nor
thawed the comparison is of frozen filters, which keep all that the initialisation gave them.

`lab/report/results_claims.py` judges; `catalogue/claims.py` has the runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MARGIN = 1.0  # points of accuracy below which "at least as good" is not
EPOCHS = 20
LARGE = (7, 9, 15)  # the kernel sizes of which the paper claims most
KERNELS = (3, *LARGE)
DEPTHS = (8, 24)  # 16, between them, would have no weight in a line through the three
LITTLE_TO_TRANSFER = (  # why transfer from 3x3 filters is no part of C11
    "the paper excepts 3x3 filters, which have little structure to transfer; it was counted until its runs were seen"
)
SPEED_KERNELS = (3, 9, 15)
# Nine of the 27 schedules (σ0, v, a) around the paper's, half and double: every two values of two numbers meet once.
GRID = tuple(
    f"{0.08 * 2.0**i:g},{0.37 * 2.0**j:g},{2.9 * 2.0 ** ((i + j + 1) % 3 - 1):g}"
    for i in (-1, 0, 1)
    for j in (-1, 0, 1)
)


class CellName(NamedTuple):
    """Which cell of a claim's experiment; `epochs` are the paper's.

    Of an experiment that times steps, the row is the kernel size and the column is `saved`: what freezing saves of the
    time of a step, in percent, turn by turn.
    """

    row: str
    column: str  # "thawed/" or "frozen/" and an initialisation
    epochs: int = EPOCHS


Terms = tuple[tuple[float, CellName], ...]  # weights and cells


@dataclass(frozen=True)
class Comparison:
    """A number that each seed has: the weighted sum of cells, and, if `median_of` names some, the median of those.

    It must be above `-margin`. One that is `beside` its claim, for the reason given, is shown and decides nothing.
    """

    says: str
    terms: Terms
    margin: float = 0.0
    median_of: tuple[CellName, ...] = ()
    beside: str = ""

    @property
    def cells(self) -> tuple[CellName, ...]:
        """Every cell it needs."""
        return (*(cell for _, cell in self.terms), *self.median_of)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, in a sentence of ours, and all comparisons that must hold for it to hold."""

    number: str
    place: str  # tables and figures that show it; empty if the paper only says it
    says: str
    comparisons: tuple[Comparison, ...]

    @property
    def experiment(self) -> str:
        """The name in the catalogue: `filtercov reproduce claim-c1` settles C1."""
        return f"claim-{self.number.lower()}"


def better(says: str, one: CellName, other: CellName, *, margin: float = 0.0) -> Comparison:
    """Return the comparison that `one` is above `other`, or not worse by `margin`."""
    return Comparison(says, ((1.0, one), (-1.0, other)), margin)


def as_good(says: str, one: CellName, other: CellName) -> Comparison:
    """Return the comparison that `one` is at least as good as `other`."""
    return better(says, one, other, margin=MARGIN)


def gain(init: str, row: str, filters: str, weight: float = 1.0) -> Terms:
    """Return what an initialisation gains over uniform in a row, times a weight."""
    return ((weight, CellName(row, f"{filters}/{init}")), (-weight, CellName(row, f"{filters}/uniform")))


def rise(places: Sequence[float]) -> list[float]:
    """Return the weights that make of numbers at some places the rise of their least-squares line, end to end.

    >>> rise([8, 16, 24])
    [-1.0, 0.0, 1.0]
    """
    middle = sum(places) / len(places)
    squares = sum((place - middle) ** 2 for place in places)
    length = max(places) - min(places)
    return [(place - middle) / squares * length for place in places]


def trend(says: str, init: str, filters: str, rows: Mapping[float, str]) -> Comparison:
    """Return the comparison that the gain rises from the first row to the last, by its line over all rows."""
    weights = rise(list(rows))
    return Comparison(
        says,
        tuple(
            term
            for row, weight in zip(rows.values(), weights, strict=True)
            for term in gain(init, row, filters, weight)
        ),
    )


def grid_column(schedule: str) -> str:
    """Return the initialisation's name in the column of a schedule.

    >>> grid_column(GRID[4])
    'closed-form 0.08 0.37 2.9'
    """
    return f"closed-form {schedule.replace(',', ' ')}"


def _k(kernel: int) -> str:
    return f"k{kernel}"


def _saved(kernel: int) -> CellName:
    return CellName(_k(kernel), "saved", 0)


def _frozen(init: str, row: str = "k9") -> CellName:
    return CellName(row, f"frozen/{init}")


def _thawed(init: str, row: str = "k9", epochs: int = EPOCHS) -> CellName:
    return CellName(row, f"thawed/{init}", epochs)


_BOTH = {"frozen": _frozen, "thawed": _thawed}

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "C1",
        "Table 10, Fig. 3",
        "Covariance transfer beats uniform filters of 7x7 pixels and more in short training.",
        tuple(Comparison(f"covariance above uniform, {_k(k)}", gain("covariance", _k(k), "thawed")) for k in LARGE),
    ),
    Claim(
        "C2",
        "Table 10, Fig. 3",
        "Covariance transfer gains more where filters stay frozen.",
        (
            Comparison(
                "gain when frozen above gain when thawed, mean of k7, k9, k15",
                tuple(
                    term
                    for k in LARGE
                    for filters, weight in (("frozen", 1 / 3), ("thawed", -1 / 3))
                    for term in gain("covariance", _k(k), filters, weight)
                ),
            ),
        ),
    ),
    Claim(
        "C3",
        "Table 10, Fig. 3",
        "In ConvMixers with 2x2 patches the closed form is at least as good as every transfer into 9x9 filters, and as "
        "covariance transfer into 7x7 and 15x15 ones.",
        tuple(
            as_good(f"closed form against {init}, {filters}, {_k(k)}", cell("closed-form", _k(k)), cell(init, _k(k)))
            for filters, cell in _BOTH.items()
            for k, inits in (
                (9, ("covariance", "covariance-eighth", "filters")),
                (7, ("covariance",)),
                (15, ("covariance",)),
            )
            for init in inits
        ),
    ),
    Claim(
        "C4",
        "Table 10, Fig. 3",
        "With 2x2 patches the closed form frozen is at least as good as uniform filters that train.",
        tuple(
            as_good(
                f"frozen closed form against thawed uniform, {_k(k)}",
                _frozen("closed-form", _k(k)),
                _thawed("uniform", _k(k)),
            )
            for k in LARGE
        ),
    ),
    Claim(
        "C5",
        "Table 10, Fig. 3",
        "The closed form gains more the larger the filters are.",
        (
            trend(
                "gain at k15 above gain at k3, by the line through k3, k7, k9, k15",
                "closed-form",
                "frozen",
                {k: _k(k) for k in KERNELS},
            ),
        ),
    ),
    Claim(
        "C6",
        "Table 10, Table 11",
        "The closed form gains more the deeper the network is.",
        (
            trend(
                "gain at 24 layers above gain at 8",
                "closed-form",
                "frozen",
                {depth: f"depth {depth}" for depth in DEPTHS},
            ),
        ),
    ),
    Claim(
        "C7",
        "Table 10, Fig. 3",
        "For 3x3 filters the closed form gains nothing, and transfer is better.",
        (
            as_good("uniform against closed form, k3", _frozen("uniform", "k3"), _frozen("closed-form", "k3")),
            better("covariance above closed form, k3", _frozen("covariance", "k3"), _frozen("closed-form", "k3")),
        ),
    ),
    Claim(
        "C8",
        "Table 10, Fig. 4",
        "Covariances of a narrow reference are as good as those of one of the same width.",
        tuple(
            as_good(f"narrow against same width, {filters}", cell("covariance-eighth"), cell("covariance"))
            for filters, cell in _BOTH.items()
        ),
    ),
    Claim(
        "C9",
        "Fig. 4",
        "Covariances of a shallow reference work in a deep network.",
        (Comparison("8 layers' covariances above uniform in 24 layers", gain("covariance", "depth 24", "frozen")),),
    ),
    Claim(
        "C10",
        "Fig. 9",
        "Covariances of another patch size beat uniform, both ways.",
        (
            Comparison("from 1x1 patches in 2x2 above uniform", gain("covariance from p1", "k9", "frozen")),
            Comparison("from 2x2 patches in 1x1 above uniform", gain("covariance from p2", "k9-p1", "frozen")),
        ),
    ),
    Claim(
        "C11",
        "Fig. 9",
        "Covariances of another filter size, larger than 3x3, beat uniform.",
        tuple(
            Comparison(
                f"from k{k} in k9 above uniform",
                gain(f"covariance from k{k}", "k9", "frozen"),
                beside=LITTLE_TO_TRANSFER if k == 3 else "",
            )
            for k in KERNELS
            if k != 9
        ),
    ),
    Claim(
        "C12",
        "Fig. 14",
        "Kronecker-factorised covariances are as good as whole ones.",
        (as_good("factorised against whole", _frozen("kronecker"), _frozen("covariance")),),
    ),
    Claim(
        "C13",
        "Fig. 8",
        "The closed form reaches uniform's final accuracy in about half the epochs.",
        (
            as_good(
                "closed form in half the epochs against uniform in all, each by its own schedule",
                _thawed("closed-form", epochs=EPOCHS // 2),
                _thawed("uniform"),
            ),
        ),
    ),
    Claim(
        "C14",
        "Fig. 2",
        "Freezing makes a training step cheaper, more so with larger filters.",
        (
            *(Comparison(f"time saved above zero, {_k(k)}", ((1.0, _saved(k)),)) for k in SPEED_KERNELS),
            better("share saved at k15 above share at k3", _saved(15), _saved(3)),
        ),
    ),
    Claim(
        "C15",
        "Fig. 17",
        "Most choices of the closed form's three numbers beat uniform.",
        (
            Comparison(
                "the middle one of nine schedules above uniform",
                ((-1.0, _frozen("uniform")),),
                median_of=tuple(_frozen(grid_column(schedule)) for schedule in GRID),
            ),
        ),
    ),
    Claim(
        "C16",
        "Table 14, Figs. 7, 20, 21",
        "ConvNeXt gains from the closed form too, and a sawtooth schedule is no better than the plain one.",
        (
            *(
                Comparison(f"closed form above uniform, {filters}", gain("closed-form", "convnext", filters))
                for filters in _BOTH
            ),
            as_good(
                "plain against sawtooth, frozen", _frozen("closed-form", "convnext"), _frozen("sawtooth", "convnext")
            ),
        ),
    ),
    Claim(
        "C17",
        "",
        "The means of filters matter little: covariances alone do as well.",
        (
            as_good("without means against with them", _frozen("covariance, no means"), _frozen("covariance")),
            as_good("with means against without them", _frozen("covariance"), _frozen("covariance, no means")),
        ),
    ),
    Claim(
        "C18",
        "Fig. 10",
        "Statistics learned on other data help as much as those of the same data.",
        tuple(
            comparison
            for row, other in (("k9", "embedded"), ("embedded", "CIFAR-10"))
            for comparison in (
                Comparison(f"from {other} above uniform, {row}", gain(f"covariance from {other}", row, "frozen")),
                as_good(
                    f"from {other} against own, {row}",
                    _frozen(f"covariance from {other}", row),
                    _frozen("covariance", row),
                ),
            )
        ),
    ),
)
