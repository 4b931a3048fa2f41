"""Every number in the paper's tables, as `paper.csv` holds them: accuracies in percent, with where each one stands.

A row is a kernel size (CIFAR-10) or an architecture (ImageNet). The paper repeats some ImageNet results in its
appendix, so a result may stand in two tables.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

EPOCHS = 20  # the paper's, where it does not say


@dataclass(frozen=True)
class CellName:
    """Which number of a table.

    Of an experiment that times steps, the row is the kernel size and the column is `saved`: the share of a step's time
    that freezing saves, in percent, turn by turn.
    """

    row: str
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


class Place(NamedTuple):
    """Where a number stands: which table, row and column, trained for how many epochs."""

    table: str
    row: str
    column: str
    epochs: int


@dataclass(frozen=True)
class PaperNumber:
    """A mean accuracy the paper reports, its standard deviation over three seeds where given, and the LaTeX label."""

    mean: float
    std: float | None
    source: str


def read_csv(name: str) -> list[dict[str, str]]:
    """The rows of a file beside this one."""
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def paper_numbers() -> Mapping[Place, PaperNumber]:
    """The paper's numbers by place.

    >>> paper_numbers()[Place("cifar-convmixer-256-8-p2", "k9", "frozen/closed-form", 200)]
    PaperNumber(mean=93.0, std=0.05, source='fig:apx-cm-256-8-2')
    """
    return MappingProxyType(
        {
            Place(line["table"], line["row"], line["column"], int(line["epochs"])): PaperNumber(
                float(line["mean"]), float(line["std"]) if line["std"] else None, line["source"]
            )
            for line in read_csv("paper.csv")
        }
    )
