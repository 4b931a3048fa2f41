"""What a command is told to write to, and options that it would not heed: refused before anything is written."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.cli.options import tell_of_data
from filtercov.errors import ConfigError, FiltercovError, StorageError
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
        for only in ("*", "claim-c1?"):
            assert sentence in refused("report", EVIDENCE, "--only", only, "--out", out), out
        assert sentence in refused("reproduce", "kronecker", "--scale", "smoke", "--out", out), out
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_pages_with_signs_of_addresses_in_their_names_are_linked(tmp_path: Path) -> None:
    run("report", EVIDENCE, "--only", "claim-c1[37]", "--out", tmp_path / "a#b?%41.html")
    assert 'href="a%23b%3F%2541-claim-c13-small.html"' in (tmp_path / "a#b?%41.html").read_text()


def test_a_claims_page_and_text_have_its_verdict_and_comparisons(tmp_path: Path) -> None:
    run("report", EVIDENCE, "--only", "claim-c14", "--out", tmp_path / "claim.html")
    page, text = ((tmp_path / name).read_text() for name in ("claim.html", "claim.md"))
    assert '<p class="lead">Open. Of 3 comparisons' in page
    assert "comparisons of C14" in page
    assert "Verdict: open. Of 3 comparisons" in text
    assert "  - " in text
    assert ".." not in text.split("\n\n")[1]


def test_a_pattern_that_matches_nothing_is_told_from_runs_that_are_not_there(tmp_path: Path) -> None:
    said = refused("report", EVIDENCE, "--only", "grid*", "--out", tmp_path / "x.html", kind=ConfigError)
    assert "--only: needed one of the experiments in" in said
    assert "claim-c13" in said
    assert list(tmp_path.iterdir()) == []


def test_evidence_is_kept_in_no_file(tmp_path: Path) -> None:
    run("train", "--model", "convmixer_4_1_k3_p7", "--data", "embedded", "--data-limit", 64, "--batch-size", 32,
        "--epochs", 1, "--run-dir", tmp_path / "run")  # fmt: skip
    (tmp_path / "file").write_text("mine")
    said = refused("keep", tmp_path / "run", "--to", tmp_path / "file", kind=FiltercovError)
    assert "file" in said
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("command", [["inspect"], ["stats", "--out", "x.stats"], ["report"]])
def test_a_path_that_cannot_be_looked_at_is_one_sentence(command: list[str], tmp_path: Path) -> None:
    words = [*command, str(tmp_path / ("n" * 300))]
    result = run_installed(*words)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "File name too long" in result.stderr or "unknown" in result.stderr


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        (["reproduce", "kronecker", "--ray-address", "auto"], ConfigError, "are for --engine ray"),
        (["reproduce", "kronecker", "--gpus-per-run", "1"], ConfigError, "are for --engine ray"),
        (["bench", "--threads", "99999999999999999999"], ConfigError, "at most 4096"),
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


def test_images_that_are_not_read_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for scale, data in [("smoke", "folder:mine"), ("small", "folder:mine"), ("smoke", "cifar10")]:
        tell_of_data(scale, data)
    said = "scale smoke trains on the images that ship with filtercov; folder:mine is not read\n"
    assert capsys.readouterr().err == said
