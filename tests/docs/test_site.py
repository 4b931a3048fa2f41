"""The documentation site: it builds strictly, shows every name, and needs no network to be read."""

import re
import shutil

import pytest

from tests.processes import ROOT, run

pytestmark = pytest.mark.slow


def mkdocs():
    own = ROOT / ".venv-docs" / "bin" / "mkdocs"
    return str(own) if own.exists() else shutil.which("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly."""
    if mkdocs() is None:
        pytest.skip("mkdocs is not installed; `make docs` installs it in .venv-docs")
    out = tmp_path_factory.mktemp("site")
    run(mkdocs(), "build", "--strict", "--quiet", "--site-dir", out, NO_MKDOCS_2_WARNING="1")
    return out


def test_the_site_builds_strictly_and_shows_every_name(site):
    for page in (site / "api").glob("*.html"):
        source = (ROOT / "docs" / "api" / page.with_suffix(".md").name).read_text(encoding="utf-8")
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"^::: (\S+)$", source, re.MULTILINE):
            assert f'id="{name}"' in text
        assert "doc-symbol-module" not in text  # a function in a file of its name is shown, not the file


def test_the_sites_examples_are_code_and_not_quotations(site):
    text = (site / "api" / "filtercov.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in text
    assert 'class="language-pycon highlight"' in text


def test_the_site_loads_nothing_from_elsewhere(site):
    fetched = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//')
    assert [page.name for page in site.rglob("*.html") if fetched.search(page.read_text(encoding="utf-8"))] == []
