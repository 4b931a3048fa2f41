"""What the pages that say how to show in Python runs as it stands, block after block."""

import copy
import re
from pathlib import Path

import pytest
import torch

from filtercov.lab.experiments import initialisations
from tests.peers import import_peer

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "index.md", *sorted((DOCS / "howto").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_its_python_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # What a page registers is gone after it.
    monkeypatch.setattr(initialisations, "_table", dict(initialisations._table))
    names = {"__name__": "example"}
    for block in blocks(page):
        if "import timm" in block:
            import_peer("timm")
        exec(compile(block, page.name, "exec"), names)
    assert capsys.readouterr().out


def test_transferring_leaves_the_trained_model_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    first, *others = blocks(DOCS / "howto" / "transfer.md")
    exec(first, names)
    trained = names["trained"]
    before = copy.deepcopy(trained.state_dict())
    for block in others:
        exec(block, names)
    assert names["trained"] is trained
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())


def test_the_report_on_the_first_page_is_the_one_its_code_prints(capsys):
    (block,) = blocks(DOCS / "index.md")
    exec(compile(block, "index.md", "exec"), {"__name__": "example"})
    (shown,) = re.findall(
        r"^```text\n(.*?)^```", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert capsys.readouterr().out == shown
