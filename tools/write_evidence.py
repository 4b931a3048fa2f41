"""Write what `evidence/` shows to `docs/evidence.md`, its picture to `docs/images/controls.svg`, a part to README.md.

`python -m tools.write_evidence`; a test compares the pages with what this returns. In README the part is what
stands between the lines `<!-- evidence -->` and `<!-- /evidence -->`.
"""

import re
from pathlib import Path

from filtercov.lab.experiments.records import ExperimentRecord
from filtercov.lab.report.charts import standalone
from filtercov.lab.report.evidence import View, controls_picture, evidence_markdown, headline, read_view
from filtercov.lab.report.groups import group_table
from filtercov.lab.report.results_table import markdown_table

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "evidence"
PAGE, README, IMAGE = ROOT / "docs" / "evidence.md", ROOT / "README.md", ROOT / "docs" / "images" / "controls.svg"
TIMES = ROOT / "benchmarks" / "time_to_accuracy.md"  # what the script beside it printed, kept
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

`cifar10-png.zip` has CIFAR-10's images as they were published. It is not distributed; `--data cifar10` reads the
published images, `--data folder:PATH` any folder or zip laid out as `train/CLASS`, `test/CLASS`.

Earlier runs used JPEG copies of the images (quality 75, halved colour) and are in the history of the repository. Of
them, ConvNeXt-Atto with 2×2 patches and frozen filters at the paper's size, augmented by RandAugment, had 73.94 ± .32 %
with uniform and 80.29 ± .39 % with closed-form filters: a gain of 6.35 [4.63, 8.07], n = 3, where the paper has 7.18.
"""


def page(view: View) -> str:
    """Return docs/evidence.md."""
    times = TIMES.read_text(encoding="utf-8").strip() if TIMES.exists() else "Not measured yet on these images."
    measured = (
        "`benchmarks/time_to_accuracy.py` trains by schedules of a sixteenth to all of plain PyTorch's steps. The "
        "shortest that ends at plain's accuracy or above counts, its time as a share of plain's."
    )
    shown = evidence_markdown(view, image=f"images/{IMAGE.name}")
    return f"{INTRODUCTION}\n{shown}\n## Time to accuracy\n\n{measured}\n\n{times}\n{ENDING}"


def picture(controls: ExperimentRecord) -> str:
    """Return the page's first chart of the controls as an SVG file of its own."""
    return standalone(controls_picture(controls))


def readme_block(view: View) -> str:
    """Return what the closed form gains."""
    main = headline(view)
    words = "test accuracy in % (frozen filters stay as drawn, thawed ones train)"
    shown = f"{main.title}, {words}:\n\n{markdown_table(group_table(main.groups))}"
    return f"{shown}\n\n[All of the evidence](docs/evidence.md), the paper's claims included."


def with_block(text: str, block: str) -> str:
    """Return a page with its part replaced."""
    changed, found = BLOCK.subn(lambda match: match[1] + block + "\n" + match[2], text)
    assert found == 1, "needed one part between <!-- evidence --> and <!-- /evidence -->"
    return changed


def written(view: View) -> dict[Path, str]:
    """Return every page that is written, or has a part that is."""
    pages = {PAGE: page(view), README: with_block(README.read_text(encoding="utf-8"), readme_block(view))}
    return pages | ({IMAGE: picture(view.controls)} if view.controls else {})


if __name__ == "__main__":
    for path, text in written(read_view(EVIDENCE)).items():
        path.write_text(text, encoding="utf-8")
