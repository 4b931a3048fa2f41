"""Hostile files: every one is read or refused in a sentence, none runs code, memory stays within the stated limit."""

import json
import sys
import unicodedata
from pathlib import Path

import pytest

from filtercov.files import MEMORY
from tests.layers.hostile_files import hostile_files
from tests.processes import run

# Kinds of which no file is a checkpoint, so that every one has to be refused.
NEVER_READ = {"executing", "deeply nested", "archives", "holes", "paths"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What became of every file, read by a process of its own under a limit on its memory."""
    work = tmp_path_factory.mktemp("hostile")
    folder = work / "files"
    folder.mkdir()
    listed = work / "listed.json"
    listed.write_text(json.dumps([(kind, str(path)) for kind, path in hostile_files(folder)]))
    ended = run(sys.executable, Path(__file__).with_name("hostile_files.py"), work, listed, check=False)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, f"died after {lines[-1:]}: {ended.stderr[-2000:]}"
    return {"files": lines[:-1], "taken": lines[-1]["taken"], "executed": (folder / "executed").exists()}


def test_every_one_is_read_or_refused_in_one_sentence(seen: dict) -> None:
    disorderly = [
        one
        for one in seen["files"]
        if not (one["code"] == 0 or (one["code"] == 1 and one["err"].startswith("filtercov: ") and one["out"] == ""))
        or one["err"].count("\n") != (one["code"] or one["kind"] == "statistics")
    ]
    assert disorderly == []


def test_what_is_no_checkpoint_is_never_read_nor_executed(seen: dict) -> None:
    assert [one for one in seen["files"] if one["kind"] in NEVER_READ and one["code"] == 0] == []
    assert not seen["executed"]


def test_memory_stays_within_the_limit(seen: dict) -> None:
    assert seen["taken"] < MEMORY
    # A hole of 10 GB is mapped, and the limit is on addresses.
    assert [one for one in seen["files"] if "MemoryError" in one["err"] and one["kind"] != "holes"] == []


def test_nothing_a_terminal_obeys_is_printed(seen: dict) -> None:
    for one in seen["files"]:
        printed = (one["out"] + one["err"]).replace("\n", "")
        assert not {unicodedata.category(c) for c in printed} & {"Cc", "Cf", "Cs", "Zl", "Zp"}, one["path"]
        assert len(printed) < 20_000
