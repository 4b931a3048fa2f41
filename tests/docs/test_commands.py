"""Every command in a block of README and the documentation is run by a test, or says beside it that it is not.

Quick ones run here as they stand, long ones with smaller numbers. What cannot run in a test (a cluster, a download, an
hour) carries the words "(not run in tests)" in its comment or in the paragraph above its block.
"""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import filtercov as fc
from filtercov.cli.app import app
from tests.pages import FENCE, PAGES, ROOT
from tests.peers import import_peer
from tests.processes import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray"),
]
MARK = "(not run in tests)"
PROGRAMS = ("filtercov", "make", "pip", "torchrun", "python", ".venv/bin/python", "for")

SMALL = "--model convmixer_8_2_k9_p4 --data embedded --data-limit 64 --batch-size 32 --epochs 1"
SMALLER = {  # what is large or needs a screen in these commands, and what a test does instead
    "explore.html": "explore.html --no-open",
    "convnext_tiny": "convnext_atto",
    "efficientnet_b0": "convmixer_16_3_k5_p2",
    "mobilenetv3_large_100": "convmixer_8_2_k9_p4 --seconds 1",
    "--batch-size 16 --img-size 128": "--batch-size 4 --img-size 16",
    "--model convmixer_256_8_k9_p2 --data cifar10": SMALL,
    "--model convnext_atto_p2 --data folder:my-images": SMALL,
    "--seeds 3 --epochs 10": "--seeds 2",
}
# Run by another test, which is named.
ELSEWHERE = {
    "make demo": "tests/lab/test_comparison.py",
    "make test": ".ci/run",
    "make docs": "tests/docs/test_site.py",
    "filtercov reproduce cifar-convmixer-256-8-p2 --scale small --workers 2 --out report.html": (
        "tests/lab/experiments/test_reproduce_cli.py"
    ),
    "filtercov reproduce claim-c13 --scale small --workers 2": "tests/lab/experiments/test_paper.py",
    "torchrun --nproc-per-node 4 $(which filtercov) train --model … --data … --run-dir …": "tests/cli/test_train.py",
    ".venv/bin/python -m pytest -q tests/test_init.py": "tests/test_init.py",
    "pip install .": "tools/check_wheel.py",
    "pip install '.[lab]'": "tools/check_wheel.py",
    "pip install '.[lab,ray]'": "tools/check_wheel.py",
    "pip install dist/*.whl": "tools/check_wheel.py",
}


@cache
def shown():
    """Every command in a block, and whether it is marked as not run."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in FENCE.finditer(text):
            paragraph = text[: block.start()].rstrip().rpartition("\n\n")[2]
            for line in re.sub(r"\\\n\s*", "", block[2]).splitlines():
                command, _, comment = line.partition(" #")
                if block[1] in ("", "sh") and command.split(" ")[0] in PROGRAMS:
                    found.append((command.strip(), MARK in comment or MARK in paragraph))
    return found


def runnable():
    """The commands of filtercov that no other test runs, with smaller numbers."""
    for command, marked in sorted(set(shown())):
        if command.startswith("filtercov ") and not marked and command not in ELSEWHERE:
            for large, small in SMALLER.items():
                command = command.replace(large, small)
            yield command


def test_every_other_program_is_run_by_another_test_or_says_that_it_is_not_and_make_knows_its_targets():
    unmarked = {command for command, marked in shown() if not marked}
    assert {command for command in unmarked if not command.startswith("filtercov ")} <= ELSEWHERE.keys() <= unmarked
    assert [place for place in ELSEWHERE.values() if not (ROOT / place).exists()] == []
    run("make", "-n", *{command.split()[1] for command, _ in shown() if command.startswith("make ")})


def test_commands_of_the_documentation_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import_peer("timm")
    torch.manual_seed(0)
    for name in ("trained", "other"):
        model = nn.Sequential(*[nn.Conv2d(16, 16, 7, padding=3, groups=16) for _ in range(2)])
        torch.save(model.state_dict(), f"{name}.pth")
    fc.FilterStatistics.from_model(model).save("trained.stats")
    for name in ("runs/uniform/", "runs/closed-form/", ""):
        Path(name).mkdir(parents=True, exist_ok=True)
        with fc.watch(model, f"{name}filters.watched", every=1) as watch:
            watch()
    commands = list(runnable())
    assert {command.split()[1] for command in commands} >= set("stats inspect train compare bench init info".split())
    for command in commands:
        ended = CliRunner().invoke(app, shlex.split(command)[1:])
        assert ended.exit_code == 0, f"{command}\n{ended.output}\n{ended.exception!r}"
    written = {path.name for path in tmp_path.iterdir()}
    assert written >= {"page.html", "inspect.html", "figures", "start.safetensors", "explore.html"}
