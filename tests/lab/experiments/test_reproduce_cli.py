"""`filtercov reproduce`, `plan`, `search` and `report`, as a user calls them."""

import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from filtercov.cli import experiments
from filtercov.cli.reproduce import reproduce
from filtercov.errors import ConfigError, DataError, ExperimentError, SweepError
from filtercov.lab.costs.listing import FILE
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.runs import Runs
from tests.lab.experiments.tiny import read_journal
from tools.write_listing import listing

SPEED = ("--images-per-second", 1000)
app = typer.Typer()
for command in (reproduce, experiments.plan, experiments.search, experiments.report):
    app.command()(command)


def run(*words: object) -> str:
    """Call the command and return what it printed; its errors are raised as the command line sees them."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def kronecker(tmp_path_factory):
    root = tmp_path_factory.mktemp("kronecker")
    output = run("reproduce", "kronecker", "--scale", "smoke", "--seeds", 1, "--runs", root, "--also", "dog")
    return root, output


def test_the_table_is_printed_with_what_was_reduced(kronecker):
    _, output = kronecker
    assert "Smaller than in the paper" in output
    assert "9 of 9 done" in output
    for column in ("uniform", "covariance", "kronecker", "dog"):
        assert re.search(rf"k9: convmixer_8_2_k9_p7 +1 \(20\) +frozen +{column} +\d+\.\d\d +1", output)


def test_a_claim_is_printed_with_what_became_of_it(tmp_path):
    output = run("reproduce", "claim-c13", "--scale", "smoke", "--runs", tmp_path)
    assert "C13, The closed form reaches uniform's final accuracy in about half the epochs. Verdict: not run." in output


def test_running_again_trains_nothing(kronecker):
    root, first = kronecker
    before = read_journal(Runs(root))
    again = run("reproduce", "kronecker", "--scale", "smoke", "--seeds", 1, "--runs", root, "--also", "dog")
    assert read_journal(Runs(root)) == before
    assert again.partition("Kronecker-factorised")[2] == first.partition("Kronecker-factorised")[2]


def test_the_report_repeats_what_was_asked_for_and_names_what_is_missing(kronecker, tmp_path):
    root, _ = kronecker
    output = run("report", root, "--out", tmp_path / "report.html")
    assert "wrote" in output
    assert "missing" not in output
    text = (tmp_path / "report.md").read_text()
    assert "filtercov reproduce kronecker --scale smoke --also dog --seeds 1" in text
    gone = next(path for path in root.iterdir() if (path / "result.json").exists())
    hidden = gone.rename(tmp_path / "hidden")
    try:
        assert "1 run is missing" in run("report", root, "--out", tmp_path / "report.html")
        assert gone.name in (tmp_path / "report.html").read_text()
    finally:
        hidden.rename(gone)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray")
def test_the_ray_engine_prints_the_same_kind_of_table(tmp_path):
    pytest.importorskip("ray")
    out = tmp_path / "report.html"
    output = run("reproduce", "grid-cifar-p2", "--scale", "smoke", "--runs", tmp_path, "--engine", "ray", "--out", out)
    assert "2 of 2 done" in output
    assert out.exists()


def test_the_list_has_every_experiment_its_place_in_the_paper_and_its_time_once_that_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path))
    output = run("reproduce", "--list", "--scale", "smoke")
    assert "filtercov reproduce --list --measure" in output
    for name in catalogue.names():
        assert re.search(rf"^{name} +(Table \d+|Figs?\. \d+|-).* \d+ +-  \S", output, re.MULTILINE), name
    measured = run("reproduce", "--list", "--measure", "--scale", "smoke")
    assert re.search(r"at [\d.]+ images/s, measured here on \d{4}-\d\d-\d\d with \d+ thread", measured)
    kept = run("reproduce", "--list", "--scale", "smoke")
    assert [line for line in kept.splitlines() if line in measured.splitlines()] == kept.splitlines()
    for name in catalogue.names():
        assert re.search(rf"^{name} .* \d+ +\d+:\d\d  \S", kept, re.MULTILINE), name
    plan = run("plan", "kronecker", "--scale", "smoke", "--runs", tmp_path)
    times = [re.search(r"^kronecker .*?(\d+:\d\d)", text, re.MULTILINE).group(1) for text in (kept, plan)]
    assert times[0] == times[1]


def test_the_list_is_what_the_catalogue_counts():
    assert FILE.read_text(encoding="utf-8") == listing()


def test_the_list_and_the_help_do_not_import_torch():
    script = (
        "import sys; from filtercov.cli.app import app\n"
        "try: app(sys.argv[1:], standalone_mode=False)\n"
        "finally: print([name for name in sys.modules if name in ('torch', 'numpy', 'matplotlib')])"
    )
    for words in (["reproduce", "--list"], ["reproduce", "--help"], ["--help"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1] == "[]", (words, done.stderr)


def test_a_plan_counts_without_running(tmp_path):
    output = run(
        "plan", "cifar-convnext-*", "--scale", "paper", "--images-per-second", 2000, "--gpus", 4, "--runs", tmp_path
    )
    assert re.search(r"^cifar-convnext-atto-p1 +92 +0 +8,500 ", output, re.MULTILINE)
    assert re.search(r"^all, shared runs once +184 +0 +17,000 ", output, re.MULTILINE)
    assert "4 workers training convmixer_256_8_k9_p2 at 2000 images/s" in output
    with pytest.raises(ConfigError, match="--gpus must be at least 1, got 0"):
        run("plan", "kronecker", "--gpus", 0, "--runs", tmp_path)


def test_a_plan_leaves_out_what_is_done(kronecker):
    root, _ = kronecker
    output = run("plan", "kronecker", "--scale", "smoke", "--seeds", 1, "--also", "dog", "--runs", root, *SPEED)
    assert re.search(r"^kronecker +(\d+) +\1 +0 ", output, re.MULTILINE)


def test_a_search_prints_the_best_schedules(tmp_path):
    output = run("search", "grid-cifar-p2", "--scale", "smoke", "--runs", tmp_path)
    assert "1 schedule tried, one run each, spread not measured: which is best is open." in output
    assert re.search(r"The highest validation accuracies.*:\n *\d+\.\d\d %  0.08,0.37,2.9", output)


def test_mistakes_are_answered_with_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(ExperimentError, match="--list shows them"):
        run("reproduce", "--runs", tmp_path)
    with pytest.raises(ExperimentError, match="no experiment was run in"):
        run("report", tmp_path)
    with pytest.raises(ExperimentError, match="filtercov plan counts with --also and --seeds"):
        run("reproduce", "--list", "--seeds", 2)
    with pytest.raises(ExperimentError, match="grid-cifar-p2 has no column for dog"):
        run("reproduce", "grid-cifar-p2", "--scale", "smoke", "--also", "dog", "--runs", tmp_path)
    with pytest.raises(DataError, match=f"did you mean folder:{tmp_path}"):
        run("reproduce", "kronecker", "--data", tmp_path, "--runs", tmp_path)
    with pytest.raises(ExperimentError, match="choose grid or tpe"):
        run("search", "grid-cifar-p2", "--method", "random", "--scale", "smoke", "--runs", tmp_path)
    monkeypatch.chdir(tmp_path)
    for method in ("grid", "tpe"):
        with pytest.raises(ConfigError, match=r"filtercov search needs a directory for --runs, got s3://bucket/runs; "):
            run("search", "grid-cifar-p2", "--method", method, "--scale", "smoke", "--runs", "s3://bucket/runs")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SweepError, match=r"2 of 9 runs failed: .*/nowhere: cannot be read.* \(2 runs\)$"):
        run("reproduce", "kronecker", "--scale", "smoke", "--seeds", 1, "--runs", "runs", "--also", "stats:nowhere")
