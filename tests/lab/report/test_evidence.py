"""The page of evidence, on runs that nobody did: findings, the paper's numbers, claims, controls."""

import re
from dataclasses import asdict

import pytest
from scipy import stats

from filtercov.errors import ConfigError
from filtercov.lab.experiments.catalogue import Options, experiment
from filtercov.lab.experiments.evidence import Evidence, KeptRun, seal
from filtercov.lab.experiments.paper import CLAIMS
from filtercov.lab.experiments.runspec import VERSION, RunSpec
from filtercov.lab.report import evidence
from filtercov.lab.report.results_claims import claim_table, claims_answer
from filtercov.lab.report.results_table import standings
from filtercov.lab.training import FitResult
from filtercov.lab.training.config import FORMAT
from tools.write_evidence import picture, readme_block

DATA = "folder:cifar10-png.zip"
OPTIONS = Options(cifar=DATA)
GAINS = {"uniform": 0.0, "power": 0.0, "one-sigma": 6.0, "closed-form": 6.0}  # others 3.0
NOISE = (0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.4, -0.3, 0.05)


def accuracy(init, seed, *, frozen):
    """A level for each seed, a gain for each initialisation, and noise that differs between initialisations."""
    gain = GAINS.get(init, 3.0) if frozen else GAINS.get(init, 3.0) / 2 + 2
    return round(60.0 + seed + gain + NOISE[(seed * 3 + sum(map(ord, init))) % 10], 2)


def put(root, spec):
    """Keep a run that ends with its accuracy."""
    last = accuracy(spec.init, spec.train.seed, frozen=spec.freeze_filters)
    rows = tuple({"test_accuracy": last - 3 * late} for late in reversed(range(spec.train.epochs)))
    numbers = {"train_loss": 1.0, "train_accuracy": 50.0, "test_loss": 1.0, "ema_test_accuracy": None}
    numbers |= {"epochs": len(rows), "steps": 100, "test_accuracy": last, "seconds": 10.0, "weights_sha256": "0" * 64}
    result = FitResult(extra={"versions": {"torch": "2"}, "threads": 1}, **numbers)
    kept = KeptRun({"format": FORMAT, "version": VERSION, **spec.to_dict(), "inputs": {"data": "1"}}, rows, result)
    path = Evidence(root).file(kept.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(seal(kept.to_dict()))


def ask_for(root, *names):
    """Say that experiments were asked for."""
    (root / "sweeps").mkdir()
    for name in names:
        asked = {"name": name, "scale": "small", "options": {**asdict(OPTIONS), "also": []}}
        (root / "sweeps" / f"{name}--small.json").write_bytes(seal(asked))


def recipe(model, seed=0, **fields):
    train = {"epochs": 20, "seed": seed} | fields.pop("train", {})
    return RunSpec.recipe("cifar", model=model, data=DATA, train=train, **fields)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The controls of 9x9 filters with ten seeds, asked for with C4, and runs of the paper's size."""
    place = tmp_path_factory.mktemp("evidence")
    for run in experiment("controls", scale="small", options=OPTIONS).runs:
        if "_k9_" in run.spec.model:
            put(place, run.spec)
    ask_for(place, "controls", "claim-c4")
    closed = {"init": "closed-form", "schedule": "cifar-p2", "min_kernel_size": 2}
    for model, seeds in (("convnext_atto_p2_s2", 4), ("convnext_atto_p2", 3), ("convmixer_256_8_k9_p2", 1)):
        for fields in ({}, closed):
            for seed in range(seeds):
                put(place, recipe(model, seed, freeze_filters=True, **fields))
    return place


@pytest.fixture(scope="module")
def view(root):
    return evidence.read_view(root)


def gain(init, *, frozen, base_frozen):
    """The difference from uniform and its interval, by scipy."""
    ours = [accuracy(init, seed, frozen=frozen) for seed in range(10)]
    theirs = [accuracy("uniform", seed, frozen=base_frozen) for seed in range(10)]
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    return f"{sum(ours) / 10 - sum(theirs) / 10:+.2f} [{low:+.2f}, {high:+.2f}]"


def test_the_papers_networks_come_first_beside_its_numbers_and_variants_after(view):
    assert [setting.title for setting in view.at_paper_size] == [
        f"{model} on cifar10-png.zip, 20 epochs"
        for model in ("convmixer_256_8_k9_p2", "convnext_atto_p2", "convnext_atto_p2_s2")
    ]
    papers = [[group.paper.mean for group in setting.groups] for setting in view.at_paper_size]
    assert papers == [[84.97, 90.56], [72.18, 79.36], [72.18, 79.36]]
    gain, freezing, controls = evidence.three_findings(view)
    assert gain.startswith("Does it help? convnext_atto_p2 on")  # the first with several seeds
    assert ", in the paper +7.18" in gain
    assert freezing.startswith("Can the filters stay frozen? convmixer_64_8_k9_p2 on")
    assert claims_answer(view.findings) == "Of 18 claims 1 is open (C4), 17 were not run."
    assert controls.startswith("What does the work? k9 frozen: the closed form gains +")
    assert readme_block(view).startswith("convnext_atto_p2 on")


def test_claims_are_settled_as_far_as_they_were_run_beside_the_papers_difference(view):
    rows = {row[0]: row for row in claim_table(view.findings)[1:]}
    assert [row[1] for row in rows.values()] == [claim.says for claim in CLAIMS]
    ours = gain("closed-form", frozen=True, base_frozen=False)
    assert rows["C4"][2:] == ["open", f"{ours}, 2 not run", "+1.30", "10"]  # 90.56 - 89.26
    assert rows["C1"][2:] == ["not run", "", "+0.25 to +1.55", ""]
    assert rows["C2"][4] == "+2.47"
    assert rows["C9"][4] == ""  # a figure


def test_controls_are_told_from_the_closed_form_and_from_uniform(view):
    head, *rows = evidence.controls_table(view.controls)
    assert head == ["filters", "lack", "k9 frozen", "k9 thawed"]  # 15x15 filters were not run
    assert {row[0] for row in rows} == set(evidence.LACKS)
    for init, _, *gains in rows:
        assert gains == [gain(init, frozen=frozen, base_frozen=frozen) for frozen in (True, False)]
    frozen, thawed = standings(view.controls)
    assert "; not told apart from it: one-sigma; between it and uniform: " in frozen
    assert frozen.endswith("; no better than uniform: power.")
    assert thawed.startswith("k9 thawed: ")


def test_page_and_markdown_have_the_sections_in_order_and_fit_a_phone(view, browser, tmp_path):
    paths = evidence.write_evidence(view, tmp_path / "e.html", command="filtercov report e")
    beside = {f"e-{name}-small.{end}" for name in ("claim-c4", "controls") for end in ("html", "md", "csv")}
    assert {path.name for path in paths} == {"e.html", "e.md"} | beside
    markdown = (tmp_path / "e.md").read_text()
    order = ["## Findings", "## At the paper's size", "## The paper's claims", "## What does the work"]
    assert sorted(order, key=markdown.index) == order
    assert "| convmixer-64-8-k9-p2 |" in markdown  # C19 and C20, of what ships
    assert "](there.svg)" in evidence.evidence_markdown(view, image="there.svg")
    tab = browser.open(tmp_path / "e.html", width=390)
    assert tab.evaluate("document.querySelectorAll('svg.chart').length") == 2  # C4 and the controls
    assert "reproduce claim-c4 " in tab.evaluate("document.querySelector('section.card').textContent")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    said = tab.evaluate("[...document.querySelectorAll('td .words')].map(e => e.textContent)")
    assert said[: len(CLAIMS)] == [claim.says for claim in CLAIMS]
    verdicts = tab.evaluate("[...document.querySelectorAll('td .open, td .not-run')].map(e => e.textContent)")
    assert (set(verdicts), tab.errors, tab.requests) == ({"not run", "open"}, [], [])
    (tmp_path / "c.svg").write_text(picture(view.controls))
    tab = browser.open(tmp_path / "c.svg")
    blue = tab.evaluate("getComputedStyle(document.querySelector('circle.s0')).fill")
    assert (blue, tab.errors) == ("rgb(0, 114, 178)", [])


def test_runs_that_nobody_asked_for_settle_nothing_and_are_shown_by_what_differs_and_damage_is_said(tmp_path):
    for lr in (0.01, 0.02):
        for init in ("uniform", "orthogonal"):
            put(tmp_path, recipe("convmixer_8_2_k5_p2", init=init, train={"epochs": 2, "lr": lr}))
    view = evidence.read_view(tmp_path)
    assert {finding.verdict for finding in view.findings} == {"not run"}
    assert "The controls were not run." in evidence.evidence_markdown(view, image="there.svg")
    html = evidence.evidence_page(view, tmp_path / "e.html")
    assert re.findall("<h3>(convmixer.*?)</h3>", html) == [setting.title for setting in view.others]
    for setting, lr in zip(sorted(view.others, key=lambda each: each.title), (0.01, 0.02), strict=True):
        assert setting.title == f"convmixer_8_2_k5_p2 on cifar10-png.zip, 2 epochs, lr {lr}"
        assert [group.label for group in setting.groups] == ["thawed uniform", "thawed orthogonal"]
    whole = next((tmp_path / "runs").iterdir())
    whole.write_bytes(whole.read_bytes()[:-40])
    assert re.search(r"^Run .* is damaged", evidence.evidence_markdown(evidence.read_view(tmp_path)), re.MULTILINE)
    with pytest.raises(ConfigError):
        evidence.read_view(tmp_path / "nowhere")
