"""`filtercov reproduce` and `report`, as a user calls them; costs are counted as a run would have them."""

import re

import pytest
import torch
import typer
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from filtercov.cli import experiments
from filtercov.cli.reproduce import reproduce
from filtercov.errors import ConfigError, DataError, RunError
from filtercov.lab import models
from filtercov.lab.costs import FILE, SCALES, YARDSTICK, Entry, entries
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.runspec import Run, RunSpec
from tools.write_listing import costs, forward_cost, listing

app = typer.Typer()
for command in (reproduce, experiments.report):
    app.command()(command)


def run(*words: object) -> str:
    """Call the command and return what it printed; its errors are raised as the command line sees them."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def kronecker(tmp_path_factory):
    root = tmp_path_factory.mktemp("kronecker")
    return root, run("reproduce", "kronecker", "--scale", "smoke", "--seeds", 1, "--runs", root, "--also", "orthogonal")


def test_the_table_is_printed_with_what_was_reduced_and_a_claim_with_what_became_of_it(kronecker, tmp_path):
    _, output = kronecker
    assert "Trained: convmixer_8_2_k9_p7 on" in output
    assert "Smaller than in the paper" in output
    assert "9 of 9 done" in output
    for column in ("uniform", "covariance", "kronecker", "orthogonal"):
        assert re.search(rf"\nfrozen +{column} +\d+\.\d\d .*1\n", output)
    output = run("reproduce", "claim-c13", "--scale", "smoke", "--seeds", 1, "--runs", tmp_path)
    assert "C13, With 16 layers the closed form reaches" in output
    assert "Verdict: not run." in output


def test_the_report_repeats_what_was_asked_for_and_names_what_is_missing(kronecker, tmp_path):
    root, _ = kronecker
    output = run("report", root, "--out", tmp_path / "report.html")
    assert "wrote" in output
    assert "missing" not in output
    assert (
        "filtercov reproduce kronecker --scale smoke --also orthogonal --seeds 1"
        in (tmp_path / "report.md").read_text()
    )
    gone = next(path for path in root.iterdir() if (path / "result.json").exists())
    hidden = gone.rename(tmp_path / "hidden")
    try:
        assert "missing 1 run" in run("report", root, "--out", tmp_path / "report.html")
        assert gone.name in (tmp_path / "report.html").read_text()
    finally:
        hidden.rename(gone)


def test_the_list_has_every_experiment_its_place_in_the_paper_and_its_costs():
    output = run("reproduce", "--list", "--scale", "smoke")
    assert "filtercov reproduce --list --measure" in output
    for name in catalogue.PLACES:
        assert re.search(rf"^{name} +(Table \d+|Figs?\. \d+|-)[ ,.\w]* [\d,]+ +[\d,]+ +-  \S", output, re.MULTILINE)
    assert re.search(r"Scale smoke: 0\.\d+ PFLOP of training, \d+ MB of finished runs", output)
    measured = run("reproduce", "kronecker", "--list", "--measure", "--scale", "paper")
    assert re.search(r"at the [\d.]+ images/s of convmixer_256_8_k9_p2 here", measured)
    assert re.search(r"^kronecker +Fig. 14 +76 +2,240 +[\d:]+  \S", measured, re.MULTILINE)


def test_the_list_is_what_the_catalogue_counts():
    """`python -m tools.write_listing` writes it; networks' costs are counted for a few experiments."""
    written = FILE.read_text(encoding="utf-8").splitlines()
    counted = listing(["kronecker", "grid-convnext", "imagenet-10-convnext-atto", "claim-c14"]).splitlines()
    assert set(counted) <= set(written)
    for scale in SCALES:
        found = entries(scale=scale)
        assert [entry.name for entry in found] == list(catalogue.PLACES)
        for entry in found:
            built = catalogue.experiment(entry.name, scale=scale, options=catalogue.Options(imagenet="folder:imagenet"))
            epochs = sum(run.spec.train.epochs for run in built.runs)
            assert (entry.runs, entry.epochs, entry.shows) == (len(built.runs), epochs, built.shows)


def test_mistakes_are_answered_with_a_sentence(tmp_path, monkeypatch):
    for words, error, said in (
        (["reproduce", "--runs", tmp_path], ConfigError, "--list shows them"),
        (["reproduce", "imagenet"], ConfigError, "--imagenet folder:PATH"),
        (["report", tmp_path], ConfigError, "needed finished runs to report"),
        (["reproduce", "kronecker", "--data", tmp_path], DataError, f"did you mean folder:{tmp_path}"),
        (["reproduce", "kronecker", "--engine", "slurm", "--cpus-per-run", 0.5], ConfigError, "one of local, ray"),
        (["reproduce", "kronecker", "--scale", "smoke", "--runs", "s3://bucket/runs"], ConfigError, "a directory"),
    ):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(error, match=said):
            run(*words)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunError, match=r"2 of 9 runs failed: .*/nowhere: cannot be read.* \(2 runs\)$"):
        run("reproduce", "kronecker", "--scale", "smoke", "--seeds", 1, "--runs", "runs", "--also", "stats:nowhere")


def test_costs_counted_on_an_empty_shell_are_those_of_the_network():
    name = "convnext_atto_div20_p1"
    model, values = models.create(name, num_classes=10, in_channels=1), []
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(lambda _layer, _, output: values.append(output.numel()))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, 1, 28, 28))
    cost = forward_cost(name, 28, 1, 10)
    assert cost.values == sum(values)
    assert 2 * cost.multiply_adds == counter.get_total_flops()


def test_the_yardstick_takes_images_over_throughput():
    spec = RunSpec.recipe("cifar", model=YARDSTICK, data="cifar10", train={"epochs": 3})
    # Three epochs of 50,000 images, and three evaluations of 10,000, each a forward pass, a third of a step.
    counted = Entry("one", "", "", **costs([Run(spec)]))
    assert counted.seconds(1000.0) == pytest.approx(2 + 150 + 10)
    assert (counted.runs, counted.epochs, counted.images) == (1, 3, 160_000)
    assert counted.petaflops == pytest.approx(6 * 177_474_048 * 150_000 / 1e15)
