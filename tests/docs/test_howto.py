"""What the pages that say how to show in Python runs as it stands, block after block."""

import pytest

from filtercov.lab.experiments import initialisations
from tests.pages import DOCS, blocks, python_blocks, run_page
from tests.peers import import_peer

PAGES = ["index.md", *sorted(f"howto/{page.name}" for page in (DOCS / "howto").glob("*.md"))]


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)])
def test_its_python_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # What a page registers is gone after it.
    monkeypatch.setattr(initialisations, "_table", dict(initialisations._table))
    if "import timm" in "".join(python_blocks(page)):
        import_peer("timm")
    run_page(page)
    assert capsys.readouterr().out


def test_the_report_on_the_first_page_is_the_one_its_code_prints(capsys):
    run_page("index.md")
    assert [capsys.readouterr().out] == blocks(DOCS / "index.md", "text")
