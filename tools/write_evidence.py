"""Write what `evidence/` shows to `docs/evidence.md`, and a part of it to README.md.

`python -m tools.write_evidence`; a test compares the pages with what this returns. In README the part is what
stands between the lines `<!-- evidence -->` and `<!-- /evidence -->`.
"""

import re
from pathlib import Path

from filtercov.lab.report.evidence import View, evidence_markdown, read_view
from filtercov.lab.report.groups import group_table
from filtercov.lab.report.results_table import markdown_table

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "evidence"
PAGE, README = ROOT / "docs" / "evidence.md", ROOT / "README.md"
BLOCK = re.compile(r"(<!-- evidence -->\n).*?(<!-- /evidence -->)", re.DOTALL)
INTRODUCTION = """# Evidence

Does filtercov give the paper's numbers, and do the paper's claims hold? Every number here comes from the runs in
`evidence/`.
"""
ENDING = """
## How this page is made

`python -m tools.write_evidence` writes it from `evidence/`, which has the configuration, the numbers of each epoch and
the result of every run that counts, without weights; a test compares the two. `filtercov report evidence --out
evidence.html` makes a page with pictures and every single comparison from that folder alone. `filtercov keep runs --to
evidence` checks finished runs, weights included, and adds them.

`cifar10-images.zip` has CIFAR-10's images as JPEG files of quality 75 with halved colour, `cifar10-png.zip` as they
were published. Neither is distributed; `--data cifar10` reads the published images, `--data folder:PATH` any folder or
zip laid out as `train/CLASS`, `test/CLASS`.
"""


def page(view: View) -> str:
    """Return docs/evidence.md."""
    return f"{INTRODUCTION}\n{evidence_markdown(view)}{ENDING}"


def paper_block(view: View, most: int | None = None) -> str:
    """Return the runs at the paper's size, a table for each recipe, that with most runs first."""
    shown = [
        f"{each.title}, test accuracy in %:\n\n{markdown_table(group_table(each.groups))}"
        for each in view.at_paper_size[:most]
    ]
    return "\n\n".join(shown) or "Nothing was run at the paper's size yet."


def readme_block(view: View) -> str:
    """Return the runs at the paper's size, the setting with most of them."""
    return f"{paper_block(view, 1)}\n\n[All of the evidence](docs/evidence.md), the paper's claims included."


def with_block(text: str, block: str) -> str:
    """Return a page with its part replaced."""
    changed, found = BLOCK.subn(lambda match: match[1] + block + "\n" + match[2], text)
    assert found == 1, "needed one part between <!-- evidence --> and <!-- /evidence -->"
    return changed


def written(view: View) -> dict[Path, str]:
    """Return every page that is written, or has a part that is."""
    return {
        PAGE: page(view),
        README: with_block(README.read_text(encoding="utf-8"), readme_block(view)),
    }


if __name__ == "__main__":
    for path, text in written(read_view(EVIDENCE)).items():
        path.write_text(text, encoding="utf-8")
