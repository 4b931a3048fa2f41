"""The evidence in the repository: small, whole, without weights, pixels or places, and what the pages say of it."""

import json
import re

from filtercov.lab.report.evidence import read_view
from tools.write_evidence import EVIDENCE, ROOT, written

FILES = sorted(path for path in EVIDENCE.rglob("*") if path.is_file())
MOST_BYTES, MOST_NUMBERS = 5_000_000, 1000  # of all files, and in a file: a row for each of 100 epochs
PLACE = re.compile(r"/(home|work|tmp|root|usr|mnt|Users|data)\b|[A-Z]:\\\\|~/")


def test_it_is_small_readable_and_names_no_place():
    assert sum(path.stat().st_size for path in FILES) <= MOST_BYTES
    assert {path.suffix for path in FILES} == {".json"}
    for path in FILES:
        content = path.read_text(encoding="utf-8")
        assert len(re.findall(r"[\d.e+-]+(?=[,\]\s}])", content)) < MOST_NUMBERS, path
        assert json.loads(content)
        assert not PLACE.search(content), path


def test_every_run_is_whole_and_pages_say_what_they_show():
    """`python -m tools.write_evidence` writes them."""
    view = read_view(EVIDENCE)
    assert view.damaged == ()
    for path, text in written(view).items():
        assert path.read_text(encoding="utf-8") == text, path.relative_to(ROOT)
