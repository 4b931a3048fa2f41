"""Every number that an option takes has a range, and what lies outside it is a sentence before anything is done."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from filtercov.cli.app import COMMANDS, _load, app
from filtercov.cli.options import SEEDS, within
from filtercov.errors import ConfigError, FiltercovError

# What a command needs besides the number.
WORDS = {
    "init": ["convmixer_8_2_k5_p2", "--out", "start.pth"],
    "train": ["--model", "convmixer_8_2_k5_p2"],
    "reproduce": ["kronecker", "--scale", "smoke", "--data", "folder:nowhere"],
    "compare": ["--model", "convmixer_8_2_k5_p2"],
    "figures": ["pictures"],
    "demo": [],
    "bench": ["convmixer_8_2_k5_p2"],
}


def numbers() -> list[tuple[str, str, str]]:
    """Return every option that takes a number, and a number that none of them has a use for."""
    found = []
    for name in COMMANDS:
        for option in _load(name).params:
            kind = option.type_descriptor.annotation
            if kind in (int, float):
                found.append((name, option.opts[0], "-1"))
                found += [(name, option.opts[0], "nan")] if kind is float else []
    return found


def test_every_kind_of_command_is_asked() -> None:
    assert {name for name, _, _ in numbers()} == set(WORDS)
    assert len(numbers()) > 25


@pytest.mark.parametrize(("command", "option", "value"), numbers())
def test_a_number_outside_its_range_is_one_sentence_and_nothing_is_done(
    command: str, option: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [command, *WORDS[command], option, value]
    with pytest.raises(FiltercovError) as raised:
        CliRunner().invoke(app, words, catch_exceptions=False)
    said = str(raised.value)
    assert value in said
    assert any(word in said for word in ("must be", "needs"))
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


def test_bounds_are_held_to_the_number() -> None:
    option = SimpleNamespace(opts=["--share"])
    for check, good, bad in (
        (within(0), [0, 0.5, 10**400, None], [-1, -1e-9, math.nan, math.inf]),
        (within(1, 3), [1, 3], [0, 4, 3.0001]),
        (SEEDS, [0, 2**63 - 1], [-1, 2**63]),
    ):
        assert [check(option, value) for value in good] == good
        for value in bad:
            with pytest.raises(ConfigError, match=f"^--share must be .*, got {value}$".replace("+", r"\+")):
                check(option, value)
