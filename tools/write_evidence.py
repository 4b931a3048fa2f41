"""Write what `evidence/` shows to `docs/evidence.md`, and its parts to README.md and docs/training.md.

`python -m tools.write_evidence`; a test compares the pages with what this returns. In the other two pages the part is
what stands between the lines `<!-- evidence -->` and `<!-- /evidence -->`.
"""

import re
from dataclasses import replace
from pathlib import Path

from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.report.evidence_tables import decisive, short_row_table
from filtercov.lab.report.evidence_text import evidence_markdown, tally
from filtercov.lab.report.evidence_view import View, read_view
from filtercov.lab.report.results_claims import Finding
from filtercov.lab.report.results_text import markdown_table
from filtercov.lab.report.results_words import show_difference

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "evidence"
PAGE, README, TRAINING = ROOT / "docs" / "evidence.md", ROOT / "README.md", ROOT / "docs" / "training.md"
BLOCK = re.compile(r"(<!-- evidence -->\n).*?(<!-- /evidence -->)", re.DOTALL)
VERDICTS = 3  # that README names
INTRODUCTION = """# Evidence

Does filtercov give the paper's numbers, and do the paper's claims hold? This page is written from the runs in
`evidence/` by `python -m tools.write_evidence`, and a test compares it with them. `evidence/` has the configuration,
the numbers of each epoch and the result of every run that counts, without weights;

```sh
filtercov report evidence --out evidence.html
```

makes a page with pictures of it, and tables of every experiment, from that folder alone. Each claim has the command
that runs it again; when runs are finished,

```sh
filtercov keep runs --to evidence          # all that are finished in a directory of runs
filtercov keep runs/first --to evidence    # or one
```

checks them, weights included, and adds them: whole or not at all, and what is there stays, but for timings of fewer
repeats. Data and files are called by their last name, and known by checksums. A run is a file named by the hash of its
configuration, and ends with a checksum of the rest, so that a changed number is noticed.

## The images

`cifar10-images.zip` has CIFAR-10's 60,000 images as JPEG files of quality 75 with halved colour, in `train/CLASS` and
`test/CLASS`. The paper trained on the images as they were published; how much of a difference to its accuracies comes
from that was not measured. The zip is not distributed. `--data cifar10` reads the published images, and
`--data folder:PATH` any folder or zip laid out so.
"""


def page(view: View) -> str:
    """Return docs/evidence.md."""
    return f"{INTRODUCTION}\n{evidence_markdown(view)}"


def row_block(view: View) -> str:
    """Return the row for pages that have a part of this one."""
    starred = "\\* had a part in choosing the recipe."
    return f"{markdown_table(short_row_table(view))}\n\nTest accuracy in %. {starred}"


def readme_block(view: View) -> str:
    """Return the row by the recipe itself and up to three verdicts, one that went against the paper first."""
    by = {verdict: [f for f in view.findings if f.verdict == verdict] for verdict in ("contradicts", "holds", "open")}
    against, *more = by["contradicts"] or [None]
    chosen = [finding for finding in (against, *by["holds"], *more, *by["open"]) if finding][:VERDICTS]
    verdicts = "\n".join(f"* {_verdict(finding)}" for finding in chosen)
    alone = replace(view, recipes=view.recipes[:1], unrecorded=())
    small = find_scale("small").cifar
    scale = (
        f"{tally(view)} That is [at a smaller scale](docs/reproduce.md#scales): {small.limit:,} images, and "
        f"{small.trained_epochs(20)} epochs for the paper's 20."
    )
    return "\n\n".join(filter(None, [row_block(alone), scale, verdicts]))


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
        TRAINING: with_block(TRAINING.read_text(encoding="utf-8"), row_block(view)),
    }


def _verdict(finding: Finding) -> str:
    worst = decisive(finding)
    shown = f" ({show_difference(worst.difference)})" if worst else ""
    return f"{finding.claim.number}, {finding.verdict}{shown}: {finding.claim.says}"


if __name__ == "__main__":
    for path, text in written(read_view(EVIDENCE)).items():
        path.write_text(text, encoding="utf-8")
