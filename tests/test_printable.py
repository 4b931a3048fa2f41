"""Text from files is shown so that it can be read, and does nothing to what shows it."""

import os
import subprocess
import sys
import unicodedata

import pytest
import safetensors.torch
import torch
from torch import nn
from typer.testing import CliRunner

import filtercov as fc
from filtercov.cli.app import app
from filtercov.errors import CheckpointError
from filtercov.lab.report.page import text
from filtercov.printable import printable, shortened

HOSTILE = "\x1b[31m\n\u202e\x9b\0$\\nope$"


def test_every_character_is_either_kept_or_escaped_to_ascii():
    for code in (*range(0x3000), *range(0x3000, 0x110000, 13), 0xFEFF, 0xD800, 0xDFFF, 0xE0001):
        shown = printable(chr(code))
        dangerous = unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        assert (shown.isascii() and shown.isprintable() and shown[0] == "\\") if dangerous else shown == chr(code)


def test_shortened_text_keeps_both_ends():
    assert shortened("begin" + "x" * 1000 + "end", 30) == "begin" + "x" * 10 + "…" + "x" * 11 + "end"
    assert shortened("short") == "short"


def test_errors_and_pages_show_foreign_text_on_one_line():
    assert str(CheckpointError(f"{HOSTILE}: bad")) == printable(f"{HOSTILE}: bad")
    assert text(f"<{HOSTILE}>") == f"&lt;{printable(HOSTILE)}&gt;"


@pytest.fixture
def hostile(tmp_path):
    path = tmp_path / "$\\frac{net$.safetensors"
    safetensors.torch.save_file({f"{HOSTILE}.{i}.weight": torch.randn(8, 1, 5, 5) for i in range(2)}, path)
    return path


@pytest.mark.parametrize("command", [["stats"], ["inspect"], ["inspect", "--json"]])
def test_commands_print_nothing_that_a_terminal_obeys(hostile, tmp_path, command):
    first, *options = command
    out = [] if "--json" in options else ["--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [first, str(hostile), *options, *out], catch_exceptions=False)
    assert result.exit_code == 0
    assert printable(result.output.replace("\n", "")) == result.output.replace("\n", "")
    assert "nope" in result.output or first == "inspect"


def test_output_that_cannot_spell_sigma_is_no_error(tmp_path):
    code = "from filtercov.cli import main; main()"
    arguments = ["init", "convmixer_8_2_k5_p4", "--out", tmp_path / "a.safetensors"]
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, encoding="cp1252", check=False
    )
    assert done.returncode == 0, done.stderr
    assert "? = 0.15" in done.stdout


def test_a_file_whose_name_is_no_utf_8_is_shown(tmp_path):
    path = tmp_path / "caf\udce9.stats"
    fc.FilterStatistics.from_model(nn.Conv2d(8, 8, 5, groups=8)).save(path)
    with pytest.raises(CheckpointError) as refused:
        fc.FilterStatistics.from_checkpoint(path)
    assert "caf\\udce9.stats" in str(refused.value)
