"""The report of evidence: the row judged as statistics judge it, every claim named, run or not, on a page that fits."""

import dataclasses
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats
from typer.testing import CliRunner

from filtercov.cli.app import _load, app
from filtercov.errors import ExperimentError
from filtercov.files import Source
from filtercov.lab.experiments.evidence import Evidence, KeptRun, seal
from filtercov.lab.experiments.paper_claims import CLAIMS
from filtercov.lab.experiments.records import Trained
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.report.evidence_page import write_evidence
from filtercov.lab.report.evidence_row import COLUMNS, paper_row
from filtercov.lab.report.evidence_tables import (
    claim_table,
    comparison_table,
    decisive,
    gain_table,
    row_table,
    short_row_table,
)
from filtercov.lab.report.evidence_text import evidence_markdown, tally
from filtercov.lab.report.evidence_view import View, read_view
from filtercov.lab.report.results_claims import judge_claim
from filtercov.lab.report.results_statistics import Difference
from filtercov.lab.training import TrainConfig
from tests.lab.report.results_records import cell, record

EVIDENCE = Path(__file__).parents[3] / "evidence"
BY_NUMBER = {claim.number: claim for claim in CLAIMS}
SPREAD = (0.3, -0.2, 0.1)


@pytest.fixture(scope="module")
def first() -> KeptRun:
    """A real run of the row: frozen, uniform, seed 0, by the recipe of reproduce."""
    kept, damaged = Evidence(EVIDENCE).found
    assert not damaged
    wanted = {"model": "convnext_atto_p2", "augment": "randaugment", "init": "uniform", "freeze_filters": True}
    return next(run for run in kept if wanted.items() <= run.config.items() and run.config["train"]["seed"] == 0)


def like(run: KeptRun, column: str, seed: int, accuracy: float, **fields) -> KeptRun:
    """The run of another cell, as if it had ended with that accuracy."""
    filters, _, init = column.partition("/")
    schedule = "cifar-p2" if init == "closed-form" else None
    config = {**run.config, "freeze_filters": filters == "frozen", "init": init, "schedule": schedule, **fields}
    config["train"] = {**run.config["train"], "seed": seed}
    epochs = (*run.epochs[:-1], {**run.epochs[-1], "test_accuracy": accuracy})
    return KeptRun(config, epochs, replace(run.result, test_accuracy=accuracy))


@pytest.fixture(scope="module")
def whole_row(first) -> list[KeptRun]:
    """Three seeds of every cell by one recipe, at the paper's means but for one that is five points above."""
    paper = {"frozen/uniform": 72.18, "frozen/closed-form": 84.36, "thawed/uniform": 72.96, "thawed/closed-form": 81.13}
    return [like(first, column, seed, paper[column] + SPREAD[seed]) for column in COLUMNS for seed in range(3)]


def test_each_cell_says_whether_the_papers_mean_is_within_its_interval(whole_row):
    (recipe,) = paper_row(whole_row)
    assert recipe.current
    assert not recipe.missing
    assert {cell.column: cell.holds_paper for cell in recipe.cells} == {
        "frozen/uniform": True,
        "frozen/closed-form": False,
        "thawed/uniform": True,
        "thawed/closed-form": True,
    }
    expected = stats.t.interval(0.95, 2, loc=72.18 + sum(SPREAD) / 3, scale=stats.sem(SPREAD))
    assert recipe.by_column["frozen/uniform"].interval == pytest.approx(expected)
    difference, paper = recipe.gain("frozen")
    assert (difference.mean, difference.n, paper) == (pytest.approx(84.36 - 72.18), 3, 7.18)


def test_the_cell_that_chooses_is_the_only_one_with_a_part_in_it(whole_row):
    (recipe,) = paper_row(whole_row)
    assert {cell.column: cell.chose for cell in recipe.cells if cell.chose} == {"frozen/uniform": (0,)}
    rows = row_table([recipe])
    chose = {(row[1], row[2]): row[-1] for row in rows[1:]}
    assert chose == {
        ("frozen", "uniform"): "seed 0",
        ("frozen", "closed-form"): "no",
        ("thawed", "uniform"): "no",
        ("thawed", "closed-form"): "no",
    }


def test_every_recipe_that_was_tried_is_kept_apart_and_the_one_in_use_comes_first(first):
    runs = [
        like(first, "frozen/uniform", 0, 60.0, model="convnext_atto_p2_s2"),
        like(first, "frozen/uniform", 0, 70.0, augment="light"),
        like(first, "frozen/uniform", 0, 90.0, inputs={"data": "0" * 64}),  # of other images
        first,
    ]
    recipes = paper_row(runs)
    content = first.config["inputs"]["data"][:6]
    assert [(str(recipe), recipe.current) for recipe in recipes] == [
        ("convnext_atto_p2, on cifar10-images.zip (000000…)", True),
        (f"convnext_atto_p2, on cifar10-images.zip ({content}…)", True),
        (f"convnext_atto_p2 --augment light, on cifar10-images.zip ({content}…)", False),
        (f"convnext_atto_p2_s2, on cifar10-images.zip ({content}…)", False),
    ]
    assert [recipe.by_column["frozen/uniform"].measured.n for recipe in recipes] == [1] * 4
    more = like(first, "frozen/uniform", 1, 71.0)
    assert [recipe.content[:6] for recipe in paper_row([*runs, more])][:2] == [content, "000000"]
    assert len(row_table(paper_row(runs[:2]))) == 1 + 4 + 2  # of equal images none are named
    assert [str(recipe) for recipe in paper_row([first])] == ["convnext_atto_p2"]
    assert recipes[2].command("frozen/closed-form", 1) == (
        "filtercov train --model convnext_atto_p2 --data folder:cifar10-images.zip --epochs 20 --augment light "
        "--freeze-filters --init closed-form --seed 1"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "convnext_atto_p1"},
        {"model": "convnext_tiny_p2"},
        {"model": "convmixer_256_8_k9_p2"},
        {"data_limit": 1000},
        {"data": "embedded"},
        {"evaluate": "validation"},
        {"init": "kaiming"},
        {"version": 1},
    ],
    ids=str,
)
def test_other_runs_are_no_part_of_the_row(first, fields):
    (empty,) = paper_row([KeptRun({**first.config, **fields}, first.epochs, first.result)])
    assert empty.current
    assert not any(cell.by_seed for cell in empty.cells)
    assert len(empty.missing) == 12


def test_runs_on_more_images_than_the_row_has_are_no_part_of_it(first):
    longer = replace(first.result, steps=first.result.steps + 20)
    (empty,) = paper_row([KeptRun(first.config, first.epochs, longer)])
    assert not any(cell.by_seed for cell in empty.cells)


def test_equal_accuracies_have_no_interval(first):
    (recipe,) = paper_row([like(first, "frozen/uniform", seed, 73.69) for seed in range(2)])
    assert recipe.by_column["frozen/uniform"].interval is None
    assert recipe.by_column["frozen/uniform"].holds_paper is None


def test_the_commands_of_the_row_are_commands(first):
    (recipe,) = paper_row([first])
    words = recipe.command("frozen/closed-form", 2).split()
    context = _load("train").make_context("train", words[2:])
    assert (context.params["init"], context.params["seed"], context.params["freeze_filters"]) == (
        "closed-form",
        2,
        True,
    )


# Every setting other than the recipe `cifar` has it, but for those that the row fixes.
OWN = {"image_size": 48, "negative": "abs", "augment": "cifar", "drop_path": 0.1}
TRAIN = {
    **{"batch_size": 64, "lr": 0.003, "weight_decay": 0.02, "decay_norms": False, "opt": "sgd", "opt_eps": 1e-05},
    **{"momentum": 0.8, "sched": "cosine", "warmup_epochs": 2.0, "smoothing": 0.1, "clip_grad": 1.5, "amp": "float16"},
    **{"ema_decay": 0.99, "compile": True, "filter_lr": 0.1},
}
FIXED = {"model", "data", "data_limit", "init", "schedule", "freeze_filters", "evaluate", "train", "epochs", "seed"}


def test_the_command_of_a_run_trains_that_run_whatever_its_settings(first, monkeypatch):
    names = {field.name for kind in (RunSpec, TrainConfig) for field in dataclasses.fields(kind)}
    assert names == {*OWN, *TRAIN, *FIXED}
    config = {**first.config, **OWN, "data": "folder:my images.zip", "train": {**first.config["train"], **TRAIN}}
    result = replace(first.result, steps=20 * (50_000 // TRAIN["batch_size"]))
    tried = next(one for one in paper_row([KeptRun(config, first.epochs, result)]) if not one.current)
    parsed = []

    def stop(spec, *_, **__):
        parsed.append(spec)
        raise ExperimentError("that is all")

    monkeypatch.setattr("filtercov.cli.train.execute", stop)
    program, *words = shlex.split(tried.command("frozen/closed-form", 2))
    done = CliRunner().invoke(app, words)
    assert (program, str(done.exception)) == ("filtercov", "that is all"), done.output
    wanted = {"init": "closed-form", "schedule": "cifar-p2", "freeze_filters": True}
    train = {**config["train"], "seed": 2}
    given = {name: value for name, value in config.items() if name not in ("format", "version", "inputs")}
    assert parsed == [RunSpec.from_dict({**given, **wanted, "train": train})]


def test_what_was_not_run_has_its_command_and_its_cost(first, tmp_path):
    view = view_of(tmp_path, first)
    text = evidence_markdown(view)
    assert "None of the 18 claims has been run yet." in text
    for claim in CLAIMS:
        assert f"| {claim.number} | {claim.says} | not run |" in text
        assert f"`filtercov reproduce {claim.experiment} --scale small --data folder:cifar10-images.zip`" in text
    named = {line.what for line in view.not_run}
    assert {claim.number for claim in CLAIMS} < named
    assert "The ranking" in named
    assert {f"{column.replace('/', ', ')}, seed {s}" for column in COLUMNS for s in (1, 2)} < named
    assert "frozen, uniform, seed 0" not in named
    assert all(line.cost.endswith(("on one core", "of its runs took", "timings alone")) for line in view.not_run)
    assert "| convnext_atto_p2, in use | thawed | uniform |  | not run |  | 72.96 ± 0.70 |" in text
    assert len(gain_table(view.recipes)) == 1
    assert short_row_table(view)[2] == [
        "convnext_atto_p2",
        f"{first.result.test_accuracy:.2f}*, n = 1",
        *3 * ["not run"],
    ]


def view_of(tmp_path, *runs: KeptRun) -> View:
    evidence = Evidence(tmp_path / "evidence")
    for run in runs:
        evidence.file(run.key).parent.mkdir(parents=True, exist_ok=True)
        evidence.file(run.key).write_bytes(seal(run.to_dict()))
    return read_view(evidence.root)


def test_runs_of_no_experiment_and_of_other_versions_are_readable(first, tmp_path):
    other = like(first, "thawed/uniform", 0, 50.0, data_limit=1000)
    older = KeptRun({**other.config, "version": 1}, other.epochs, other.result)
    view = view_of(tmp_path, other, older)
    text = evidence_markdown(view)
    assert f"| {other.key} | convnext_atto_p2 on 1,000 images of cifar10-images.zip, 20 epochs | thawed |" in text
    assert f"| {older.key} | convnext_atto_p2, 20 epochs, version 1 of settings |" in text
    assert "This is the evidence of 2 runs" in text


def run_report(*words: object):
    return CliRunner().invoke(app, ["report", *map(str, words)], catch_exceptions=False)


def test_the_command_rebuilds_everything_and_names_what_is_damaged(tmp_path):
    root = shutil.copytree(EVIDENCE, tmp_path / "evidence")
    done = run_report(root, "--out", tmp_path / "out" / "page.html")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "page.md").read_text(encoding="utf-8").endswith(evidence_markdown(read_view(root)))
    path = next((root / "runs").iterdir())
    path.write_text(path.read_text(encoding="utf-8").replace('"test_accuracy": ', '"test_accuracy": 9', 1))
    again = run_report(root, "--out", tmp_path / "out" / "page.html")
    assert f"run {path.stem} is damaged and will not be used" in again.output
    assert f"run {path.stem} is damaged" in (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    with pytest.raises(ExperimentError, match="--only: needed one of the experiments in"):
        run_report(root, "--only", "kronecker", "--out", tmp_path / "out" / "page.html")


def seeds(mean: float) -> list[float]:
    return [mean + noise for noise in (0.2, -0.1, 0.3, -0.4, 0.0, 0.1)]


@pytest.fixture(scope="module")
def settled(whole_row) -> View:
    """A view in which one claim holds, one is contradicted, one is open, and the rest was not run."""

    def row(kernel, uniform, covariance):
        trained = Trained("convmixer_64_8_k9_p2", "10,000 images of cifar10-images.zip", 2)
        more = {"row": f"k{kernel}", "trained": trained}
        return (
            cell("thawed/uniform", *seeds(uniform), **more),
            cell("thawed/covariance", *reversed(seeds(covariance)), **more),
        )

    def of(number, *gains):
        cells = [one for k, gain in zip((7, 9, 15), gains, strict=True) for one in row(k, 50.0, 50.0 + gain)]
        made = replace(record(*cells), name=f"claim-{number}", title=f"Claim {number}")
        return replace(made, command=f"filtercov reproduce claim-{number} --scale small --seeds 6")

    judged = {number: judge_claim(BY_NUMBER["C1"], of(number, *gains)) for number, gains in GAINS.items()}
    findings = [replace(judged.get(c.number, judge_claim(c, record())), claim=c) for c in CLAIMS]
    return View(
        recipes=paper_row(whole_row),
        unrecorded=({"recipe": "older", "filters": "frozen", "init": "uniform", "seed": 0, "accuracy": 64.47},),
        findings=tuple(findings),
        commands={c.number: f"filtercov reproduce {c.experiment} --scale small --seeds 6" for c in CLAIMS},
        records=tuple(of(number.lower(), *gains) for number, gains in GAINS.items()),
        others=(),
        damaged=(),
        runs=12,
        seconds=9000.0,
        source=Source("12 runs in evidence", "0123456789abcdef" * 4),
    )


GAINS = {"C1": (2.0, 2.5, 3.0), "C2": (2.0, -2.5, 3.0), "C3": (2.0, 0.1, 3.0)}


def test_claims_have_verdict_n_the_difference_that_decides_and_their_command(settled):
    rows = {row[0]: row for row in claim_table(settled)[1:]}
    assert [rows[number][2] for number in ("C1", "C2", "C3", "C4")] == ["holds", "contradicts", "open", "not run"]
    worst = decisive(settled.findings[1])
    assert worst.difference.mean == pytest.approx(-2.5)
    assert "Of 18 claims 1 holds, 1 is contradicted, 1 is open, 15 were not run." in evidence_markdown(settled)
    assert rows["C2"][3] == "6"
    assert rows["C2"][4].startswith("-2.50 [")
    assert rows["C2"][4].endswith("n = 6, the worst for it of 3 comparisons")
    assert rows["C2"][5] == "filtercov reproduce claim-c2 --scale small --seeds 6"


def test_a_claim_that_was_run_in_part_says_so_and_what_the_rest_costs(settled):
    first, second, third = settled.findings[0].compared
    rest = [replace(one, difference=None, verdict="not run") for one in (second, third)]
    partly = replace(settled.findings[0], verdict="open", compared=(first, *rest))
    both = replace(partly, compared=(first, second, rest[1]))
    for finding, said in ((partly, "n = 6, 2 not run"), (both, "n = 6, the worst for it of 2 comparisons, 1 not run")):
        view = replace(settled, findings=(finding, *settled.findings[1:]))
        assert claim_table(view)[1][4].endswith(said)
        assert "Of 18 claims 1 is contradicted, 2 are open, 15 were not run; 1 was run in part only." in tally(view)
        assert "C1, the rest of it" in {line.what for line in view.not_run}
        assert {"C2", "C3"}.isdisjoint({line.what for line in view.not_run})


def test_what_contradicts_a_claim_is_shown_though_another_comparison_reaches_lower(settled):
    clear, vague = Difference(-2.0, -2.5, -1.5, 6), Difference(-1.0, -3.9, 1.9, 6)
    first, second, third = settled.findings[1].compared
    compared = (replace(first, difference=vague), replace(second, difference=clear), third)
    finding = replace(settled.findings[1], compared=compared)
    assert decisive(finding).difference == clear
    assert decisive(replace(finding, verdict="open")).difference == vague


def test_the_page_s_checksum_covers_every_file(first, tmp_path):
    before = view_of(tmp_path, first).source
    for name in ("speeds/claim-c14--small.json", "unrecorded.json"):
        (tmp_path / "evidence" / name).parent.mkdir(exist_ok=True)
        shutil.copy(EVIDENCE / name, tmp_path / "evidence" / name)
        after = read_view(tmp_path / "evidence").source
        assert after.name == before.name
        assert after.sha256 != before.sha256
        before = after


def test_bounds_are_zero_or_the_margin_below_it(settled):
    shown = {row[1] for finding in settled.findings for row in comparison_table(finding)[1:]}
    assert shown == {"above 0", "above -1"}


def test_the_page_fits_and_has_a_picture_for_every_claim_that_was_run(settled, browser, tmp_path):
    paths = write_evidence(settled, tmp_path / "evidence.html", command="filtercov report evidence")
    tab = browser.open(paths[0])
    for width in (390, 1280):
        for dark in (False, True):
            tab.emulate(width=width, dark=dark)
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, dark)
    assert (tab.errors, tab.requests) == ([], [])
    cards = tab.evaluate("[...document.querySelectorAll('.card')].map(e => [e.innerText, !!e.querySelector('svg')])")
    pictured = {text.partition(":")[0] for text, drawn in cards if drawn and text.startswith("C")}
    assert pictured == {"C1", "C2", "C3"}
    text = tab.evaluate("document.body.innerText")
    assert text.index("The row at the paper's size") < text.index("The paper's claims") < text.index("Ranking")
    links = tab.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert len(links) == 3
    assert all((tmp_path / link).exists() for link in links)
