"""The catalogue holds every number of the paper's tables, at its settings, and shares what can be shared."""

import pytest

from filtercov.errors import ConfigError, ExperimentError
from filtercov.lab import models
from filtercov.lab.experiments import catalogue, initialisations, register
from filtercov.lab.experiments.builder import Builder, Options
from filtercov.lab.experiments.controls import CONTROLS
from filtercov.lab.experiments.graph import Run, in_order
from filtercov.lab.experiments.paper_numbers import Place, paper_numbers
from filtercov.lab.experiments.scales import SCALES, find_scale
from tests.lab.experiments.tiny import reference, spec

EVERYTHING = Options(imagenet="folder:imagenet")


@pytest.fixture(scope="module")
def paper():
    return catalogue.experiments(["*"], scale="paper", options=EVERYTHING)


@pytest.fixture
def no_new_names(monkeypatch):
    monkeypatch.setattr(initialisations, "_table", dict(initialisations._table))


def test_every_number_of_the_paper_has_a_cell_and_every_cell_of_a_table_a_number(paper):
    tables = {place.table for place in paper_numbers()}
    cells = [
        Place(experiment.name, cell.row, cell.column, cell.epochs)
        for experiment in paper
        if experiment.name in tables
        for cell in experiment.cells
    ]
    assert len(cells) == len(set(cells))
    assert set(cells) == set(paper_numbers())


def test_cifar_runs_have_the_papers_settings(paper):
    table = next(experiment for experiment in paper if experiment.name == "cifar-convmixer-256-24-p2")
    assert table.reduced == ""
    for cell in table.cells:
        assert [run.spec.train.seed for run in cell.runs] == [0, 1, 2]
        for run in cell.runs:
            settings = run.spec.train
            assert (settings.epochs, settings.batch_size) == (cell.epochs, 512)
            assert (settings.lr, settings.weight_decay, settings.opt, settings.sched) == (
                *(0.01, 0.01),
                *("adamw", "triangular"),
            )
            assert run.spec.model == f"convmixer_256_24_{cell.row}_p2"
            assert run.spec.freeze_filters == (cell.filters == "frozen")
            assert run.spec.data_limit is None
            if run.reference:
                assert run.reference.spec.train.epochs == 200
                assert run.reference.spec.train.seed not in (0, 1, 2)
                assert not run.reference.spec.freeze_filters
                width = 32 if cell.init == "covariance-eighth" else 256
                assert run.reference.spec.model == f"convmixer_{width}_24_{cell.row}_p2"


def test_the_closed_form_has_the_schedule_the_paper_chose(paper):
    by_name = {experiment.name: experiment for experiment in paper}
    chosen = {
        name: {run.spec.schedule for cell in by_name[name].cells for run in cell.runs if run.spec.init == "closed-form"}
        for name in ("cifar-convmixer-256-8-p2", "cifar-convmixer-256-8-p1", "cifar-convnext-atto-p1", "imagenet")
    }
    assert chosen == {
        "cifar-convmixer-256-8-p2": {"cifar-p2"},
        "cifar-convmixer-256-8-p1": {"cifar-p1"},
        "cifar-convnext-atto-p1": {"cifar-p1"},
        "imagenet": {"imagenet-frozen", "imagenet-thawed"},
    }


@pytest.mark.parametrize("scale", SCALES)
def test_references_come_first_and_nothing_is_trained_twice(scale):
    experiments = catalogue.experiments(["*"], scale=scale, options=EVERYTHING)
    runs = in_order([run for experiment in experiments for run in experiment.runs])
    assert len({run.key for run in runs}) == len(runs)
    assert len({run.spec for run in runs}) == len(runs)
    seen = set()
    for run in runs:
        assert run.reference is None or run.reference.key in seen
        seen.add(run.key)
    assert len(runs) < sum(len(experiment.runs) for experiment in experiments)  # some are shared
    assert all(experiment.cells or experiment.drawings or experiment.speed for experiment in experiments)


def test_a_table_and_a_figure_share_their_reference_runs():
    table, figure = (
        {run.key for run in catalogue.experiment(name, scale="paper").runs}
        for name in ("cifar-convmixer-256-8-p2", "width-transfer")
    )
    assert len(table & figure) >= 8 + 4 * 2 * 3  # 2 references a kernel size, and 20 epochs of uniform


def test_the_key_of_a_run_depends_on_all_of_its_reference():
    def key(seed: int) -> str:
        first = Run(spec(seed=seed))
        return Run(spec(init=f"filters-of:{first.key}"), first).key

    assert key(100) == key(100) != key(101)


def test_a_run_without_the_reference_its_initialisation_names_is_refused():
    with pytest.raises(ExperimentError, match="starts from run abc, but the reference is None"):
        Run(spec(init="filters-of:abc"))
    with pytest.raises(ExperimentError, match="starts from run None"):
        Run(spec(), reference())


def test_small_keeps_the_comparison_and_says_what_it_reduced():
    small = catalogue.experiment("cifar-convmixer-256-8-p2", scale="small")
    paper = catalogue.experiment("cifar-convmixer-256-8-p2", scale="paper")
    assert {cell.column for cell in small.cells} == {cell.column for cell in paper.cells}
    assert {cell.row for cell in small.cells} == {cell.row for cell in paper.cells}
    assert "10,000 training images" in small.reduced
    first = small.cells[0].runs[0].spec
    assert (first.model, first.data_limit, first.train.epochs) == ("convmixer_64_8_k3_p2", 10_000, 2)
    transfer = next(cell for cell in small.cells if cell.init == "covariance-eighth")
    reference = transfer.runs[0].reference.spec
    assert (reference.model, reference.train.epochs) == ("convmixer_32_8_k3_p2", 20)


@pytest.mark.parametrize(
    ("paper", "small"),
    [
        ("convmixer_256_24_k9_p2", "convmixer_64_24_k9_p2"),
        ("convmixer_32_8_k9_p2", "convmixer_32_8_k9_p2"),  # as many filters as the paper's narrow reference
        ("convmixer_4_8_k9_p2", "convmixer_4_8_k9_p2"),
        ("convmixer_256_8_k9_p1", "convmixer_32_8_k9_p1"),
        ("convmixer_32_8_k9_p1", "convmixer_16_8_k9_p1"),
        ("convmixer_1536_24_k9_p14", "convmixer_384_24_k9_p14"),
        ("convnext_atto_p2", "convnext_atto_div2_p2"),
        ("convnext_atto_div8_p2", "convnext_atto_div4_p2"),
        ("convnext_tiny_div8_p1", "convnext_tiny_div16_p1"),
    ],
)
def test_small_networks_are_a_quarter_or_half_as_wide_and_narrow_ones_keep_their_filters(paper, small):
    assert find_scale("small").model(paper) == small


def test_small_says_how_wide_its_narrow_references_are():
    assert "narrow references half as wide, those of ImageNet's ConvMixers a quarter" in find_scale("small").reduced
    shares = set()
    for name in catalogue.names():
        for cell in catalogue.experiment(name, scale="small", options=EVERYTHING).cells:
            if cell.init == "covariance-eighth":
                run = cell.runs[0]
                wide, narrow = (_width(one.spec.model) for one in (run, run.reference))
                large = run.spec.model.startswith("convmixer") and run.spec.train.clip_grad is not None
                shares.add(("ImageNet's ConvMixers" if large else "others", narrow / wide))
    assert shares == {("others", 1 / 2), ("ImageNet's ConvMixers", 1 / 4)}


def _width(model):
    spec = models.parse(model)
    return spec.width if isinstance(spec, models.ConvMixerSpec) else 1 / spec.divide


def test_a_column_asked_for_that_is_there_already_is_there_once():
    plain = catalogue.experiment("cifar-convmixer-256-8-p2", scale="paper")
    asked = catalogue.experiment("cifar-convmixer-256-8-p2", scale="paper", options=Options(also=("closed-form",)))
    assert asked.cells == plain.cells


def test_a_column_asked_for_under_the_name_of_another_is_refused():
    with pytest.raises(ExperimentError, match=r"row k9-p1 has a column closed-form of its own.* --also closed-form"):
        catalogue.experiment("convergence", scale="paper", options=Options(also=("closed-form",)))


@pytest.mark.usefixtures("no_new_names")
def test_what_others_register_becomes_a_column_of_every_table():
    assert Builder(find_scale("paper"), Options()).also() == []
    register("mine", lambda _model, _context: None)
    for name in ("cifar-convnext-atto-p2", "imagenet", "width-transfer", "convergence", "cifar-5x5"):
        columns = {cell.column for cell in catalogue.experiment(name, scale="paper", options=EVERYTHING).cells}
        assert "thawed/mine" in columns


def test_baselines_become_columns_when_asked_for():
    names = ("kaiming", "trunc-normal", "orthogonal", "delta-gaussian", "dog", "box:25", "master-keys", "identity")
    table = catalogue.experiment("cifar-convnext-atto-p1", scale="smoke", options=Options(also=names))
    assert {f"frozen/{name}" for name in names} < {cell.column for cell in table.cells}
    with pytest.raises(ConfigError, match="did you mean 'orthogonal'"):
        Options(also=("ortogonal",))
    with pytest.raises(ConfigError, match="whole number of pixels"):
        Options(also=("box:none",))


def test_the_ranking_has_every_initialisation_of_ours_as_a_column_of_every_row():
    ranking = catalogue.experiment("ranking", scale="small", options=Options(also=("dog", "box:25")))
    rows = {cell.row for cell in ranking.cells}
    assert rows == {f"{network}-k{kernel}" for network in ("convmixer", "convnext") for kernel in (7, 9, 15)}
    columns = [(cell.row, cell.column) for cell in ranking.cells]
    assert len(columns) == len(set(columns))
    for row in rows:
        cells = [cell for cell in ranking.cells if cell.row == row]
        for filters in ("thawed", "frozen"):
            runs = [cell.runs for cell in cells if cell.filters == filters]
            assert len({tuple(run.spec.train.seed for run in seeds) for seeds in runs}) == 1  # paired
            started = {run.spec.init.partition(":")[0] for seeds in runs for run in seeds}
            by_file = {"stats", "filters", "interpolated", "selected"}  # tables have them by run
            beside = {"kronecker-of", "covariances-of", "power", *CONTROLS}  # of experiments of their own
            assert started == set(initialisations.names()) - by_file - beside
    by_column = {cell.column: cell.runs[0] for cell in ranking.cells if cell.row == "convnext-k15"}
    sources = {column: run.reference.spec.model for column, run in by_column.items() if run.reference}
    assert sources["frozen/interpolated, smaller k"] == sources["frozen/covariance, smaller k"]
    assert sources["frozen/interpolated, smaller k"].endswith("_k9")
    assert sources["frozen/selected, larger"].startswith("convnext_tiny")
    assert sources["frozen/filters"] == by_column["frozen/filters"].spec.model


def test_wrong_names_are_answered_with_right_ones():
    with pytest.raises(ExperimentError, match="did you mean 'convergence'"):
        catalogue.experiment("convergense", scale="smoke")
    with pytest.raises(ExperimentError, match="choose one of paper, small, smoke"):
        catalogue.experiment("convergence", scale="tiny")
    with pytest.raises(ExperimentError, match="--imagenet folder:PATH"):
        catalogue.experiment("imagenet", scale="paper")
    with pytest.raises(ExperimentError, match="at least one seed"):
        Options(seeds=0)
