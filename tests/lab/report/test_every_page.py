"""What holds of every page: it fits each window and paper, is whole without a network, can be heard and seen, and ends
with what made it: version, and the command, ready to be pasted."""

import html
import json
import re
import shlex
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.lab.experiments.records import DrawingRecord, Trained
from filtercov.lab.report import page
from filtercov.lab.report.explore import explore_page
from filtercov.lab.report.groups import FinishedRun, Group, groups_page
from filtercov.lab.report.inspect import look, measure_target
from filtercov.lab.report.inspect_target import model_target
from filtercov.lab.report.results import results_page, write_reports
from tests.lab.report.results_records import SPEEDS, TABLE, cell, record
from tests.lab.report.watched_files import KINDS, watched

HOSTILE = '<img src=x onerror="window.broken=1">'
CURVES = [
    cell(f"thawed/{init}", e + 1.0, e + 2.0, epochs=e, trained=Trained("net_k9", "toys", e))
    for init in ("uniform", "closed-form")
    for e in (2, 5, 9)
]
DRAWN = tuple(DrawingRecord(kind, f"The {kind}") for kind in ("sawtooth", "construction", "schedule"))
LONG = shlex.join(["filtercov", "inspect", "it's <b>odd</b> & long" + "g" * 80, "deep/" * 12, "--out", "a b.html"])
NAMED = {"button", "slider", "spinbutton", "radio", "image", "img", "form", "region"}


def groups(_):
    filters = {f"layer {i}": (np.random.default_rng(i).normal(size=(9, 5, 5)), np.ones((9, 5, 5))) for i in range(4)}
    runs = [FinishedRun(seed, (50.0, 60.0 + seed), 0.1, filters) for seed in range(3)]
    own = Group(HOSTILE, runs)
    return groups_page("Mine", [own, Group("ours", runs, own)], command=LONG)


def inspected(_):
    torch.manual_seed(0)
    sizes = ((5, 5), (17, 17), (1, 9), (9,))  # thinned out and one-dimensional ones among them
    net = nn.Sequential(*(KINDS[len(size)](40, 40, size, groups=40) for size in sizes))
    return measure_target(model_target(net, HOSTILE), model_target(net, "other")).page(command=LONG)


PAGES = {
    "table": lambda _: results_page(TABLE, command=LONG),
    "curves": lambda _: results_page(record(*CURVES, chart="lines")),
    "speeds": lambda _: results_page(SPEEDS),
    "drawings": lambda _: results_page(record(drawings=DRAWN)),
    "groups": groups,
    "inspect": inspected,
    "watched": lambda path: look(str(watched(path / "f.watched"))).page(),
    "explore": lambda _: explore_page(command=LONG),
}


@pytest.mark.parametrize("make", PAGES.values(), ids=PAGES)
def test_it_fits_its_window_and_everything_on_it_is_drawn_and_has_a_name(browser, tmp_path, make):
    tab = browser.open(page.write_output(tmp_path / "p.html", make(tmp_path)))
    for looks in ({"width": 390}, {"width": 390, "dark": True}, {"paper": True, "width": 720}, {}):
        tab.emulate(**looks)
        tab.settle()
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        cut = "e => e.clientWidth && e.scrollWidth > e.clientWidth + 1"
        assert not tab.evaluate(f"[...document.querySelectorAll('footer *')].some({cut})")
    tab.evaluate("Promise.all([...document.images].map(i => { i.loading = 'eager'; return i.decode() }))")
    assert tab.evaluate("[...document.images].every(i => i.naturalWidth > 0 && i.alt)")
    boxes = "[...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect())"
    small = "box => box.width && (box.width < 80 || box.height < 40)"  # those folded away have no width
    assert not tab.evaluate(f"{boxes}.some({small})")
    nodes = tab.page.context.new_cdp_session(tab.page).send("Accessibility.getFullAXTree")["nodes"]
    shown = [node for node in nodes if not node["ignored"] and node["role"]["value"] in NAMED]
    assert [node for node in shown if not node.get("name", {}).get("value")] == []
    assert tab.evaluate("document.querySelector('.lead').textContent.length") > 10
    assert (tab.evaluate("window.broken"), tab.errors, tab.requests) == (None, [], [])


@pytest.fixture
def opened(browser, tmp_path):
    return lambda title, body, **looks: browser.open(
        page.write_output(tmp_path / "p.html", page.page(title, body)), **looks
    )


def test_colours_follow_the_system_and_the_printer(opened):
    tab = opened("p", "<p>words</p>", dark=True)
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = tab.evaluate(background)
    tab.emulate(dark=False)
    light = tab.evaluate(background)
    tab.emulate(dark=True, paper=True)
    assert (dark, light, tab.evaluate(background)) == ("rgb(21, 24, 28)", "rgb(255, 255, 255)", "rgb(255, 255, 255)")


def test_copy_button_copies_or_selects_the_code(opened):
    tab = opened("p", page.copyable('init_(net, "a<b")'))
    tab.evaluate("void (navigator.clipboard.writeText = async text => { window.copied = text })")
    tab.click("[data-copy]")
    assert tab.evaluate("window.copied") == 'init_(net, "a<b")'
    tab.evaluate("void (navigator.clipboard.writeText = () => Promise.reject())")
    tab.click("[data-copy]")
    assert tab.evaluate("getSelection().toString()") == 'init_(net, "a<b")'


def facts(shown: str) -> list[tuple[str, str]]:
    """The footer's terms and what is said of each."""
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", shown.partition("<footer>")[2])
    return [(term, html.unescape(re.sub("<[^>]*>", "", said)).removesuffix("Copy")) for term, said in found]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def weights(tmp_path, monkeypatch) -> Path:
    """A checkpoint with an awkward name in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("my $net & 'co'.pth")
    torch.save(nn.Sequential(nn.Conv2d(16, 16, 5, groups=16)).state_dict(), path)
    return path


def test_a_page_ends_with_the_version_and_the_command_as_typed(weights):
    words = ["inspect", str(weights), "--against", str(weights), "--json", "--out", "page one.html"]
    assert [layer["cosine"] for layer in json.loads(run(*words))["layers"]] == pytest.approx([1.0])
    (_, made), (_, command) = facts(Path("page one.html").read_text())
    assert made == f"filtercov {version('filtercov')}"
    assert shlex.split(command) == ["filtercov", *words]
    assert facts(look(str(weights)).page()) == [("made by", made)]


def test_an_index_links_the_pages_of_several_experiments(tmp_path):
    command = "filtercov report 'made up'"
    index, *_ = write_reports([TABLE, replace(TABLE, scale="smoke")], tmp_path / "report.html", command=command)
    links = re.findall(r'href="(report[^"]*)"', index.read_text())
    assert links == ["report-made-up-small.html", "report-made-up-smoke.html"]
    assert '<p class="lead">2 experiments; 2 runs missing.</p>' in index.read_text()
    kinds = (".html", ".md", ".csv")
    assert all((tmp_path / link).with_suffix(kind).exists() for link in links for kind in kinds)
    assert [facts(path.read_text())[1:] for path in (index, tmp_path / links[0])] == [[("with", command)]] * 2


def test_the_explorer_is_opened_where_there_is_a_screen(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    run("explore", "--out", str(tmp_path / "a.html"))
    monkeypatch.setenv("DISPLAY", ":0")
    run("explore", "--out", str(tmp_path / "b.html"), "--no-open")
    run("explore", "--out", str(tmp_path / "c.html"))
    assert opened == [(tmp_path / "c.html").as_uri()]
