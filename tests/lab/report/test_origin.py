"""Every page ends with what made it: version, sources with their checksums, and the command, ready to be pasted."""

import hashlib
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.lab.report.inspect import look
from filtercov.lab.report.page import write_output
from filtercov.lab.report.results import results_page, write_reports
from tests.browser import Browser, Tab
from tests.lab.report.results_records import TABLE


def facts(tab: Tab) -> list[tuple[str, str]]:
    """Return the footer's terms and what is said of each, as a reader sees them."""
    found = tab.evaluate(
        "[...document.querySelectorAll('footer dt')].map(t => [t.innerText, t.nextElementSibling.innerText])"
    )
    return [(term, said.removesuffix("\nCopy").removesuffix("Copy").strip()) for term, said in found]


def run(*words: object) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint with an awkward name in the working directory."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    path = Path("my $net & 'co'.pth")
    torch.save(nn.Sequential(nn.Conv2d(16, 16, 5, groups=16)).state_dict(), path)
    return path


def test_an_inspection_names_its_file_and_the_command_as_typed(browser: Browser, weights: Path) -> None:
    words = ["inspect", str(weights), "--out", "page one.html"]
    run(*words)
    tab = browser.open(Path("page one.html"))
    (_, made), (_, source), (_, command) = facts(tab)
    assert made == f"filtercov {version('filtercov')}"
    assert source == f"{weights} sha256 {hashlib.sha256(weights.read_bytes()).hexdigest()[:16]}…"
    assert shlex.split(command) == ["filtercov", *words]
    assert tab.errors == []


def test_every_file_that_was_read_is_named_and_a_network_by_its_name_has_no_checksum(weights: Path) -> None:
    weights.rename("shard.bin")
    Path("model.bin.index.json").write_text('{"weight_map": {"0.weight": "shard.bin"}}')
    found = look("model.bin.index.json", against="convmixer_16_2_k5_p2").page()
    (_, *said) = found.partition("<footer>")[2].split("<dt>from</dt><dd>")
    assert [(part.partition("</dd>")[0].partition(" <code>")[0], "sha256" in part) for part in said] == [
        ("model.bin.index.json", True),
        ("shard.bin", True),
        ("convmixer_16_2_k5_p2", False),
    ]
    Path("run").mkdir()
    run("init", "convmixer_16_2_k5_p2", "--out", "run/checkpoint.safetensors")
    run("stats", "run/checkpoint.safetensors", "--out", "run/statistics.safetensors")
    names = [source.name for source in look("run").target.sources]
    assert names == ["run/checkpoint.safetensors", "run/statistics.safetensors"]


def test_reports_name_their_runs_and_the_index_names_them_all(browser: Browser, tmp_path: Path) -> None:
    command = "filtercov report 'made up'"
    source = "5 runs in made up sha256 0123456789abcdef…"
    alone = write_output(tmp_path / "one.html", results_page(TABLE, command=command))
    assert facts(browser.open(alone))[1:] == [("from", source), ("with", command)]
    both, *_ = write_reports([TABLE, TABLE], tmp_path / "two.html", command=command)
    assert [said for _, said in facts(browser.open(both))[1:-1]] == [f"made-up, scale small: {source}"] * 2
