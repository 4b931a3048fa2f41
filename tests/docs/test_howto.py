"""Pages that show Python run as they stand, block after block, and do what the library does."""

import pytest
import torch
from torch import nn

import filtercov
from filtercov.covariance import gaussian_covariance
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
    printed = capsys.readouterr().out
    assert [printed] == blocks(DOCS / page, "text") if page == "index.md" else printed


# --- The method to copy and paste, docs/method.md ---


def test_it_is_short_and_needs_no_filtercov():
    (code,) = python_blocks("method.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    assert "filtercov" not in code


def test_its_filters_are_those_of_init_from_the_same_random_numbers(monkeypatch):
    net = nn.Sequential(*(nn.Conv2d(8, 8, k, groups=8) for k in (7, 3, 5, 9)), nn.Conv2d(8, 8, 5))
    before = [layer.weight.detach().clone() for layer in net]
    drawn = iter([torch.randn(8, k * k, generator=torch.Generator().manual_seed(k)) for k in (7, 5, 9)])
    with monkeypatch.context() as patched:
        patched.setattr(torch, "randn", lambda *_, **__: next(drawn).double())
        run_page("method.md")["init_depthwise_"](net)
    for index, k in ((0, 7), (2, 5), (3, 9)):
        cov = gaussian_covariance(k, 0.15 + 0.25 * index / 3 + 0.5 * (index / 3) ** 2)
        filtercov.covariance_normal_(before[index], cov, generator=torch.Generator().manual_seed(k))
    for layer, expected in zip(net, before, strict=True):
        torch.testing.assert_close(layer.weight, expected, rtol=0, atol=1e-6)
