"""Every page ends with what made it: version, sources with their checksums, and the command, ready to be pasted."""

import hashlib
import html
import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.lab.report.inspect import look
from filtercov.lab.report.results import results_page, write_reports
from tests.lab.report.results_records import TABLE


def facts(page: str) -> list[tuple[str, str]]:
    """The footer's terms and what is said of each."""
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page.partition("<footer>")[2])
    return [(term, html.unescape(re.sub("<[^>]*>", "", said)).removesuffix("Copy")) for term, said in found]


def run(*words: str) -> None:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.fixture
def weights(tmp_path, monkeypatch) -> Path:
    """A checkpoint with an awkward name in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("my $net & 'co'.pth")
    torch.save(nn.Sequential(nn.Conv2d(16, 16, 5, groups=16)).state_dict(), path)
    return path


def test_an_inspection_names_its_file_and_the_command_as_typed(weights):
    words = ["inspect", str(weights), "--out", "page one.html"]
    run(*words)
    (_, made), (_, source), (_, command) = facts(Path("page one.html").read_text())
    assert made == f"filtercov {version('filtercov')}"
    assert source == f"{weights} sha256 {hashlib.sha256(weights.read_bytes()).hexdigest()[:16]}…"
    assert shlex.split(command) == ["filtercov", *words]


def test_every_file_that_was_read_is_named_and_a_network_by_its_name_has_no_checksum(weights):
    weights.rename("shard.bin")
    Path("model.bin.index.json").write_text('{"weight_map": {"0.weight": "shard.bin"}}')
    said = [said for _, said in facts(look("model.bin.index.json", against="convmixer_16_2_k5_p2").page())[1:]]
    assert [each.partition(" sha256 ")[0] for each in said] == ["model.bin.index.json", "shard.bin", said[2]]
    assert said[2] == "convmixer_16_2_k5_p2"
    Path("run").mkdir()
    run("init", "convmixer_16_2_k5_p2", "--out", "run/checkpoint.safetensors")
    run("stats", "run/checkpoint.safetensors", "--out", "run/statistics.safetensors")
    names = [source.name for source in look("run").target.sources]
    assert names == ["run/checkpoint.safetensors", "run/statistics.safetensors"]


def test_reports_name_their_runs_and_the_index_names_them_all(tmp_path):
    command, source = "filtercov report 'made up'", "5 runs in made up sha256 0123456789abcdef…"
    assert facts(results_page(TABLE, command=command))[1:] == [("from", source), ("with", command)]
    both, *_ = write_reports([TABLE, TABLE], tmp_path / "two.html", command=command)
    assert [said for _, said in facts(both.read_text())[1:-1]] == [f"made-up, scale small: {source}"] * 2
