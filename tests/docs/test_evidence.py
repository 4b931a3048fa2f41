"""The evidence in the repository: small, whole, without weights, pixels or places, and what the pages say of it."""

import json
import re

import pytest

from filtercov.lab.experiments.evidence import Evidence
from filtercov.lab.experiments.keeping import LARGEST
from filtercov.lab.report.evidence import read_view
from tools.write_evidence import EVIDENCE, PAGE, README, written

FILES = sorted(path for path in EVIDENCE.rglob("*") if path.is_file())
MOST_NUMBERS = 1000  # in a file: a row for each of 100 epochs
PLACE = re.compile(r"/(home|work|tmp|root|usr|mnt|Users|data)\b|[A-Z]:\\\\|~/")


@pytest.fixture(scope="module")
def view():
    return read_view(EVIDENCE)


def numbers(value) -> int:
    if isinstance(value, dict):
        return sum(map(numbers, value.values()))
    return sum(map(numbers, value)) if isinstance(value, list) else isinstance(value, int | float)


def test_it_is_small_and_has_only_readable_files_of_few_numbers():
    assert sum(path.stat().st_size for path in FILES) <= LARGEST == 5_000_000
    assert {path.suffix for path in FILES} == {".json"}
    for path in FILES:
        assert numbers(json.loads(path.read_text(encoding="utf-8"))) < MOST_NUMBERS, path


def test_it_names_no_place():
    for path in FILES:
        assert not PLACE.search(path.read_text(encoding="utf-8")), path


def test_every_run_is_whole(view):
    kept, damaged = Evidence(EVIDENCE).found
    assert damaged == ()
    assert view.damaged == ()
    assert len(kept) == view.runs > 0
    assert all(run.weights_checked or run.note for run in kept)


@pytest.mark.parametrize("page", [PAGE, README], ids=lambda page: page.name)
def test_pages_say_what_the_runs_show(view, page):
    """`python -m tools.write_evidence` writes them."""
    assert page.read_text(encoding="utf-8") == written(view)[page]
