"""The paper's numbers in the package are the paper's, say what its text says, and every table and figure is named."""

import hashlib
import re
from importlib import resources

import pytest

from filtercov.lab.experiments.catalogue import PLACES
from filtercov.lab.experiments.paper_numbers import Place, paper_numbers

# Of the file as it was when every number, and no other, was found by a parser in the tables of the paper's LaTeX.
CHECKED = "3943a61643c5a3aabfe70f09e80d7c7ebb8173617330320af73ae087a61d1318"


def test_the_file_is_the_one_that_was_checked_against_the_papers_latex() -> None:
    text = resources.files("filtercov.lab.experiments").joinpath("paper.csv").read_bytes()
    assert hashlib.sha256(text).hexdigest() == CHECKED


def test_all_numbers_are_read_with_the_table_they_stand_in() -> None:
    assert len(paper_numbers()) == 584
    assert all(number.source for number in paper_numbers().values())
    assert all(20 < number.mean < 95 for number in paper_numbers().values())
    assert all((number.std is None) == place.table.startswith("imagenet") for place, number in paper_numbers().items())


def _gain(table: str, row: str) -> float:
    numbers = paper_numbers()
    ours, uniform = (numbers[Place(table, row, f"thawed/{init}", 200)].mean for init in ("closed-form", "uniform"))
    return ours - uniform


def test_the_gains_its_text_quotes_follow_from_its_tables() -> None:
    # "up to a 1.1 % increase for ConvMixer-256/8, and up to 1.6 % for ConvMixer-256/24 (200 epochs)"
    assert max(_gain("cifar-convmixer-256-8-p2", f"k{k}") for k in (7, 9, 15)) == pytest.approx(1.1, abs=0.06)
    assert max(_gain("cifar-convmixer-256-24-p2", f"k{k}") for k in (7, 9, 15)) == pytest.approx(1.6, abs=0.06)
    # "a smaller increase for 7x7 filters (0.15 % vs. 0.5 %)"
    assert _gain("cifar-convmixer-256-8-p1", "k7") == pytest.approx(0.15, abs=0.02)
    assert _gain("cifar-convmixer-256-8-p2", "k7") == pytest.approx(0.5, abs=0.05)


def test_every_table_and_all_figures_with_results_have_an_experiment() -> None:
    assert [name for name, place in PLACES.items() if not place] == ["claim-c17", "controls", "ranking"]
    of_paper = " ".join(place for name, place in PLACES.items() if not name.startswith("claim-"))
    numbers = {
        kind: {
            int(number)
            for listed in re.findall(rf"{kind}s?\.? (\d+(?:, \d+)*)", of_paper)
            for number in listed.split(",")
        }
        for kind in ("Table", "Fig")
    }
    assert numbers["Table"] == set(range(1, 15))
    assert numbers["Fig"] == set(range(1, 25)) - {15, 16}  # which are listings
