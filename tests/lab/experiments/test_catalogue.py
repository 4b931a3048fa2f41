"""The catalogue holds every number of the paper's tables, at its settings, and shares what can be shared."""

import hashlib
import re
from importlib import resources

import pytest

from filtercov.lab.experiments import catalogue, initialisations, register
from filtercov.lab.experiments.catalogue import PLACES, Options
from filtercov.lab.experiments.paper import paper_numbers
from filtercov.lab.experiments.runspec import in_order
from filtercov.lab.experiments.scales import SCALES

# Of paper.csv as it was when every number, and no other, was found by a parser in the tables of the paper's LaTeX.
CHECKED = "3943a61643c5a3aabfe70f09e80d7c7ebb8173617330320af73ae087a61d1318"
EVERYTHING = Options(imagenet="folder:imagenet")


@pytest.fixture(scope="module")
def paper():
    return {one.name: one for one in catalogue.experiments(["*"], scale="paper", options=EVERYTHING)}


def test_the_papers_numbers_are_those_of_its_latex():
    text = resources.files("filtercov.lab.experiments").joinpath("paper.csv").read_bytes()
    assert hashlib.sha256(text).hexdigest() == CHECKED
    assert len(paper_numbers()) == 584
    assert all((number.std is None) == table.startswith("imagenet") for (table, *_), number in paper_numbers().items())


def test_every_table_and_all_figures_with_results_have_an_experiment():
    assert [name for name, place in PLACES.items() if not place] == ["claim-c17", "controls", "ranking"]
    places = " ".join(place for name, place in PLACES.items() if not name.startswith("claim-"))
    for kind, wanted in (("Table", set(range(1, 15))), ("Fig", set(range(1, 25)) - {15, 16})):  # which are listings
        listed = re.findall(rf"{kind}s?\.? (\d+(?:, \d+)*)", places)
        assert {int(number) for numbers in listed for number in numbers.split(",")} == wanted


def test_every_number_of_the_paper_has_a_cell_and_every_cell_of_a_table_a_number(paper):
    tables = {table for table, *_ in paper_numbers()}
    cells = [(name, cell.row, cell.column, cell.epochs) for name in tables for cell in paper[name].cells]
    assert len(cells) == len(set(cells))
    assert set(cells) == set(paper_numbers())
    assert paper["frozen-speed"].speed == tuple(f"convmixer_512_12_k{k}_p2" for k in range(3, 16, 2))


def test_cifar_runs_have_the_papers_settings(paper):
    for cell in paper["cifar-convmixer-256-24-p2"].cells:
        assert [run.spec.train.seed for run in cell.runs] == [0, 1, 2]
        spec, reference = cell.runs[0].spec, cell.runs[0].reference
        train = spec.train
        assert (train.epochs, train.batch_size, train.lr, train.weight_decay) == (cell.epochs, 512, 0.01, 0.01)
        assert (train.opt, train.sched, spec.data_limit) == ("adamw", "triangular", None)
        assert spec.model == f"convmixer_256_24_{cell.row}_p2"
        assert spec.freeze_filters == (cell.filters == "frozen")
        if reference:
            width = 32 if cell.init == "covariance-eighth" else 256
            assert reference.spec.model == f"convmixer_{width}_24_{cell.row}_p2"
            assert (reference.spec.train.epochs, reference.spec.freeze_filters) == (200, False)


@pytest.mark.parametrize("scale", SCALES)
def test_references_come_first_and_nothing_is_trained_twice(scale):
    experiments = catalogue.experiments(["*"], scale=scale, options=EVERYTHING)
    runs = in_order([run for one in experiments for run in one.runs])
    assert len({run.key for run in runs}) == len({run.spec for run in runs}) == len(runs)
    seen = set()
    for run in runs:
        assert run.reference is None or run.reference.key in seen
        seen.add(run.key)
    assert all(one.cells or one.drawings or one.speed for one in experiments)


def test_what_others_register_and_what_is_asked_for_become_columns(monkeypatch):
    monkeypatch.setattr(initialisations, "_table", dict(initialisations._table))
    register("mine", lambda _model, _context: None)
    options = Options(imagenet="folder:imagenet", also=("orthogonal", "box:25"))
    for name in ("cifar-convnext-atto-p2", "imagenet", "width-transfer", "convergence", "cifar-5x5", "claim-c1"):
        columns = {cell.column for cell in catalogue.experiment(name, scale="paper", options=options).cells}
        assert {"thawed/mine", "thawed/orthogonal", "thawed/box:25"} < columns


@pytest.mark.parametrize(
    ("scale", "checksum"),
    [("paper", "bfe9fc373272bf53"), ("small", "80d67227cc8e8635"), ("smoke", "7b0210f712985437")],
)
def test_the_runs_of_every_experiment_keep_their_names(scale, checksum):
    """Evidence is found by these names, and runs under way are continued by them."""
    found = hashlib.sha256()
    for one in catalogue.experiments(["*"], scale=scale, options=EVERYTHING):
        for cell in one.cells:
            found.update(" ".join([one.name, cell.row, cell.column, *(run.key for run in cell.runs)]).encode())
    assert found.hexdigest()[:16] == checksum
