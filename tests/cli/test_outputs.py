"""What a command is told to write to, and what it cannot read: refused before anything is written."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.errors import CheckpointError, FiltercovError, StorageError
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


def test_no_command_writes_over_what_it_reads_or_in_place_of_a_directory(checkpoint: Path, tmp_path: Path) -> None:
    before = checkpoint.read_bytes()
    link = tmp_path / "link.pth"
    link.symlink_to(checkpoint)
    for words in (
        ["stats", link, "--out", checkpoint],
        ["inspect", checkpoint, "--out", link],
        ["inspect", "convmixer_16_2_k5_p2", "--against", checkpoint, "--out", checkpoint],
        ["init", "convmixer_16_2_k5_p2", "--statistics", checkpoint, "--out", checkpoint],
    ):
        assert "needed another place to write to, got the file that is read" in refused(*words), words
    assert checkpoint.read_bytes() == before
    assert "Is a directory" in refused("stats", checkpoint, "--out", tmp_path, kind=CheckpointError)


def test_a_report_goes_to_a_page_and_not_to_a_directory_or_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for out, sentence in {"folder": "Is a directory", "": "Is a directory", "report.md": "report.html"}.items():
        for words in (["report", EVIDENCE], ["reproduce", "kronecker", "--scale", "smoke"]):
            assert sentence in refused(*words, "--out", out), out
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_evidence_is_kept_in_no_file(tmp_path: Path) -> None:
    size = ["--data-limit", 64, "--batch-size", 32, "--epochs", 1]
    run("train", "--model", "convmixer_4_1_k3_p7", *size, "--run-dir", tmp_path / "run")
    (tmp_path / "file").write_text("mine")
    assert "file" in refused("keep", tmp_path / "run", "--to", tmp_path / "file", kind=FiltercovError)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("command", ["inspect", "stats --out x.stats", "report"])
def test_a_path_that_cannot_be_looked_at_is_one_sentence(command: str) -> None:
    result = run_installed(f"{command} {'n' * 300}")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "File name too long" in result.stderr or "unknown" in result.stderr


def test_statistics_are_not_measured_again_and_what_has_no_spread_gets_a_dash(tmp_path: Path) -> None:
    torch.save({"conv.weight": torch.ones(8, 1, 7, 7)}, tmp_path / "flat.pth")
    output = run("stats", tmp_path / "flat.pth", "--out", tmp_path / "flat.stats")
    heading, row, *_ = output.splitlines()
    assert row.split()[-3:] == ["-", "-", "-"]
    assert len(heading) == len(row)
    words = ["stats", tmp_path / "flat.stats", "--out", tmp_path / "again.stats"]
    assert "these are filter statistics already" in refused(*words, kind=CheckpointError)
