"""Where the list says that the paper has an experiment, the paper has it: captions are counted in its LaTeX."""

import re

import pytest

from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.catalogue.places import PLACES
from tests.lab.experiments.test_paper_numbers import PAPER

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


def test_every_experiment_but_the_ranking_and_what_stands_in_the_text_alone_has_a_place():
    assert PLACES.keys() == set(catalogue.names())
    assert [name for name, place in PLACES.items() if not place] == ["claim-c17", "ranking"]


def test_places_are_the_papers():
    if not PAPER.exists():
        pytest.skip(f"the paper's LaTeX is not at {PAPER}")
    latex = PAPER.read_text()
    kinds = {"Table": floats(latex, "table|sidewaystable"), "Fig.": floats(latex, "figure|wrapfigure")}
    assert (len(kinds["Table"]), len(kinds["Fig."])) == (14, 24)
    for place in {one for named in PLACES.values() if named for one in each(named)}:
        kind, number = place.split()
        body = re.sub(r"\\(textbf|emph)\{([^}]*)\}", r"\2", kinds[kind][int(number) - 1])
        assert re.search(SAYS[place], body, re.DOTALL), place
