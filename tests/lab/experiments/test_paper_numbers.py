"""The paper's numbers in the package are the paper's: every one, unchanged, and they say what its text says."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from filtercov.lab.experiments.paper_numbers import Place, paper_numbers
from tests.lab.experiments.paper_tables import Entry, parse

PAPER = Path(__file__).parents[3] / "shared" / "000_a0a60d12d5137c14.txt"


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    if not PAPER.exists():
        pytest.skip(f"the paper's LaTeX is not at {PAPER}")
    return parse(PAPER.read_text())


def test_every_number_of_the_paper_is_there_and_no_other(entries: list[Entry]) -> None:
    parsed = {
        Place(entry.table, entry.row, entry.column, entry.epochs): (
            float(entry.mean),
            float(entry.std) if entry.std else None,
        )
        for entry in entries
    }
    assert len(parsed) == len(entries)
    assert parsed == {place: (number.mean, number.std) for place, number in paper_numbers().items()}


def test_no_number_in_a_table_of_the_paper_escapes_the_parser(entries: list[Entry]) -> None:
    """A coarser count that knows nothing of rows and columns: everything that looks like an accuracy in a tabular."""
    tabulars = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", PAPER.read_text(), re.DOTALL)
    accuracies = [n for tabular in tabulars for n in re.findall(r"(?<![\d.])\d\d\.\d+", tabular)]
    assert sorted(accuracies) == sorted(entry.mean for entry in entries)


def test_cifar_numbers_marked_best_are_the_best_of_their_group(entries: list[Entry]) -> None:
    groups: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.table.startswith("cifar"):
            groups[entry.table, entry.row, str(entry.epochs), entry.column.split("/")[0]].append(entry)
    assert len(groups) == 84
    for group in groups.values():
        best = max(group, key=lambda entry: float(entry.mean))
        assert [entry.mean for entry in group if entry.bold] == [best.mean]


def _gain(table: str, row: str, filters: str = "thawed", *, epochs: int = 200) -> float:
    numbers = paper_numbers()
    ours = numbers[Place(table, row, f"{filters}/closed-form", epochs)].mean
    return round(ours - numbers[Place(table, row, f"{filters}/uniform", epochs)].mean, 2)


def test_the_gains_its_text_quotes_follow_from_its_tables() -> None:
    # "up to a 1.1 % increase for ConvMixer-256/8, and up to 1.6 % for ConvMixer-256/24 (200 epochs)"
    assert max(_gain("cifar-convmixer-256-8-p2", f"k{k}") for k in (7, 9, 15)) == pytest.approx(1.1, abs=0.06)
    assert max(_gain("cifar-convmixer-256-24-p2", f"k{k}") for k in (7, 9, 15)) == pytest.approx(1.6, abs=0.06)
    # "a smaller increase for 7x7 filters (0.15 % vs. 0.5 %)"
    assert _gain("cifar-convmixer-256-8-p1", "k7") == pytest.approx(0.15, abs=0.02)
    assert _gain("cifar-convmixer-256-8-p2", "k7") == pytest.approx(0.5, abs=0.05)


def test_numbers_come_with_the_table_they_stand_in() -> None:
    assert len(paper_numbers()) == 584
    assert all(number.source for number in paper_numbers().values())
    assert all(20 < number.mean < 95 for number in paper_numbers().values())
    assert all((number.std is None) == place.table.startswith("imagenet") for place, number in paper_numbers().items())
