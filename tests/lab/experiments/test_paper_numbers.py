"""The paper's numbers in the package are the paper's: every one, unchanged, and they say what its text says."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from filtercov.lab.experiments.catalogue import PLACES
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


# What the caption, or the heading of the table it belongs to, says of each.
SAYS = {
    "Table 1": "ImageNet-1k accuracy from various",
    "Table 2": "ConvMixer-512/12: Patch Size 14.*10 epochs",
    "Table 3": "ConvMixer-512/12: Patch Size 7.*10-epoch",
    "Table 4": "ConvMixer-512/24: Patch Size 14.*10-epoch",
    "Table 5": "ConvNeXt-Atto.*10-epoch",
    "Table 6": "ConvNeXt-Tiny.*10-epoch",
    "Table 7": "ConvNeXt-Atto.*50-epoch",
    "Table 8": "ConvMixer-512/12: Patch Size 14.*50-epoch",
    "Table 9": "ConvMixer-512/24: Patch Size 14.*50-epoch",
    "Table 10": "ConvMixer-256/8 with patch size 2",
    "Table 11": "ConvMixer-256/24 with patch size 2",
    "Table 12": "ConvMixer-256/8 with patch size 1",
    "Table 13": "ConvNeXt-atto with patch size 1",
    "Table 14": "ConvNeXt-atto with patch size 2",
    "Fig. 1": "In pre-trained models, the covariance",
    "Fig. 2": "faster with frozen filters",
    "Fig. 3": "CIFAR-10 accuracy for uniform",
    "Fig. 4": "narrower.*shallower",
    "Fig. 5": "covariance matrix construction",
    "Fig. 6": "label{fig:varsched}",
    "Fig. 7": "improves ConvNeXt's accuracy on CIFAR-10",
    "Fig. 8": "Convergence plots",
    "Fig. 9": "different patch.*filter sizes",
    "Fig. 10": "pre-trained ImageNet models to initialize",
    "Fig. 11": r"effective for \$5\\times 5\$ filters",
    "Fig. 12": "label{fig:minit-converge-apx}",
    "Fig. 13": "Filters learned or generated",
    "Fig. 14": "Kronecker-factorized",
    "Fig. 17": r"Grid search.*\$2\\times 2\$ patches.*CIFAR-10",
    "Fig. 18": r"Grid search.*\$1\\times 1\$ patches.*CIFAR-10",
    "Fig. 19": "label{fig:convnext-p1}",
    "Fig. 20": "label{fig:convnext-p1-saw}",
    "Fig. 21": "stepwise variance schedule",
    "Fig. 22": "Frozen filters:.*Grid search",
    "Fig. 23": "Thawed filters:.*Grid search",
    "Fig. 24": "label{fig:imnet-covs}",
}


def floats(latex: str, kinds: str) -> list[str]:
    """What stands between one caption of a kind of float and the next, the tabular before a caption included."""
    bodies = re.findall(rf"\\begin\{{({kinds})\}}(.*?)\\end\{{\1\}}", latex, re.DOTALL)
    found = []
    for _, body in bodies:
        pieces = re.split(r"(?=\\caption)", body)
        found += [pieces[0] + pieces[1], *pieces[2:]]
    return found


def each(place: str) -> list[str]:
    """Every table and figure that a place names: 'Figs. 5, 6' are 'Fig. 5' and 'Fig. 6'."""
    found, kind = [], ""
    for part in place.split(", "):
        *named, number = part.split()
        kind = named[0].replace("Figs.", "Fig.") if named else kind
        found.append(f"{kind} {number}")
    return found


def test_every_experiment_of_the_paper_has_a_place_and_its_caption_says_so() -> None:
    beside = [name for name, place in PLACES.items() if not place]
    assert beside == ["claim-c17", "controls", "ranking"]
    if not PAPER.exists():
        pytest.skip(f"the paper's LaTeX is not at {PAPER}")
    latex = PAPER.read_text()
    kinds = {"Table": floats(latex, "table|sidewaystable"), "Fig.": floats(latex, "figure|wrapfigure")}
    assert (len(kinds["Table"]), len(kinds["Fig."])) == (14, 24)
    for place in {one for named in PLACES.values() if named for one in each(named)}:
        kind, number = place.split()
        body = re.sub(r"\\(textbf|emph)\{([^}]*)\}", r"\2", kinds[kind][int(number) - 1])
        assert re.search(SAYS[place], body, re.DOTALL), place
