"""What a command is told to write to, and options that it would not heed: refused before anything is written."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.errors import FiltercovError, StorageError
from tests.cli.test_core import run, run_installed

EVIDENCE = Path(__file__).parents[2] / "evidence"


def refused(*words: object, kind: type[FiltercovError] = StorageError) -> str:
    with pytest.raises(kind) as raised:
        CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    return str(raised.value)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "net.pth"
    run("init", "convmixer_16_2_k5_p2", "--out", path)
    return path


def test_no_command_writes_over_what_it_reads(checkpoint: Path, tmp_path: Path) -> None:
    before = checkpoint.read_bytes()
    link = tmp_path / "link.pth"
    link.symlink_to(checkpoint)
    for words in (
        ["stats", checkpoint, "--out", checkpoint],
        ["stats", link, "--out", checkpoint],
        ["inspect", checkpoint, "--out", link],
        ["inspect", "convmixer_16_2_k5_p2", "--against", checkpoint, "--out", checkpoint],
        ["init", "convmixer_16_2_k5_p2", "--statistics", checkpoint, "--out", checkpoint],
    ):
        assert "needed another place to write to, got the file that is read" in refused(*words), words
    assert checkpoint.read_bytes() == before


def test_a_report_goes_to_a_page_and_not_to_a_directory_or_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for out, sentence in {
        "folder": "Is a directory",
        ".": "Is a directory",
        "": "Is a directory",
        "report.md": "call it report.html",
        "report.CSV": "call it report.html",
    }.items():
        assert sentence in refused("report", EVIDENCE, "--out", out), out
        assert sentence in refused("reproduce", "kronecker", "--scale", "smoke", "--out", out), out
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_evidence_is_kept_in_no_file(tmp_path: Path) -> None:
    run("train", "--model", "convmixer_4_1_k3_p7", "--data", "embedded", "--data-limit", 64, "--batch-size", 32,
        "--epochs", 1, "--run-dir", tmp_path / "run")  # fmt: skip
    (tmp_path / "file").write_text("mine")
    said = refused("keep", tmp_path / "run", "--to", tmp_path / "file", kind=FiltercovError)
    assert "file" in said
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "command", [["inspect"], ["stats", "--out", "x.stats"], ["report"], ["figures", "d", "--learned"]]
)
def test_a_path_that_cannot_be_looked_at_is_one_sentence(command: list[str], tmp_path: Path) -> None:
    words = [*command, str(tmp_path / ("n" * 300))]
    result = run_installed(*words)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "File name too long" in result.stderr or "unknown" in result.stderr


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        (["inspect", "convmixer_16_2_k5_p2", "--example", "3x10000000x10000000"], FiltercovError, "at most 67,108,864"),
    ],
)
def test_options_that_would_not_be_heeded_or_cannot_be_are_refused(
    words, kind, sentence, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(*words, kind=kind)
    assert list(tmp_path.iterdir()) == []


def test_layers_without_spread_have_a_dash_for_what_cannot_be_told(tmp_path: Path) -> None:
    torch.save({"conv.weight": torch.ones(8, 1, 7, 7)}, tmp_path / "flat.pth")
    output = run("stats", tmp_path / "flat.pth", "--out", tmp_path / "flat.stats")
    heading, row, *_ = output.splitlines()
    assert "nan" not in row
    assert row.split()[-3:] == ["-", "-", "-"]
    assert len(heading) == len(row)
