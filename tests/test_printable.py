"""Text from files is shown so that it can be read, and does nothing to what shows it."""

import unicodedata

from filtercov.errors import CheckpointError
from filtercov.lab.report.page import text
from filtercov.printable import printable
from tests.processes import python

HOSTILE = "\x1b[31m\n\u202e\x9b\0$\\nope$"


def test_every_character_is_either_kept_or_escaped_to_ascii():
    for code in (*range(0x3000), *range(0x3000, 0x110000, 13), 0xFEFF, 0xD800, 0xDFFF, 0xE0001):
        shown = printable(chr(code))
        dangerous = unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        assert (shown.isascii() and shown.isprintable() and shown[0] == "\\") if dangerous else shown == chr(code)


def test_errors_and_pages_show_foreign_text_on_one_line():
    assert str(CheckpointError(f"{HOSTILE}: bad")) == printable(f"{HOSTILE}: bad")
    assert text(f"<{HOSTILE}>") == f"&lt;{printable(HOSTILE)}&gt;"


def test_output_that_cannot_spell_sigma_is_no_error(tmp_path):
    code = "from filtercov.cli import main; main()"
    arguments = ["init", "convmixer_8_2_k5_p4", "--out", tmp_path / "a.safetensors"]
    assert "? = 0.15" in python(code, *arguments, PYTHONIOENCODING="ascii").stdout
