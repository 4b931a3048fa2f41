"""What holds of every page: it fits each window and paper, is whole without a network, and can be heard and seen."""

import shlex

import numpy as np
import pytest
import torch
from torch import nn

from filtercov.files import Source
from filtercov.lab.experiments.records import DrawingRecord, Trained
from filtercov.lab.report import page
from filtercov.lab.report.explore import explore_page
from filtercov.lab.report.groups import FinishedRun, Group, groups_page
from filtercov.lab.report.inspect import look, measure_target
from filtercov.lab.report.inspect_target import model_target
from filtercov.lab.report.results import results_page
from tests.lab.report.results_records import SPEEDS, TABLE, cell, record
from tests.lab.report.watched_files import KINDS, watched

HOSTILE = '<img src=x onerror="window.broken=1">'
CURVES = [
    cell(f"thawed/{init}", e + 1.0, e + 2.0, epochs=e, trained=Trained("net_k9", "toys", e))
    for init in ("uniform", "closed-form")
    for e in (2, 5, 9)
]
DRAWN = tuple(DrawingRecord(kind, f"The {kind}") for kind in ("sawtooth", "construction", "schedule"))
LONG = page.Origin(
    (Source("a place/with a long name/" + "deep/" * 12 + "weights.safetensors", "ab" * 32), Source("timm:some_net")),
    shlex.join(["filtercov", "inspect", "it's <b>odd</b> & long" + "g" * 80, "--out", "a b.html"]),
)
NAMED = {"button", "slider", "spinbutton", "radio", "image", "img", "form", "region"}


def groups(_):
    filters = {f"layer {i}": (np.random.default_rng(i).normal(size=(9, 5, 5)), np.ones((9, 5, 5))) for i in range(4)}
    runs = [FinishedRun(seed, (50.0, 60.0 + seed), 0.1, filters) for seed in range(3)]
    own = Group(HOSTILE, runs)
    return groups_page("Mine", [own, Group("ours", runs, own)], origin=LONG)


def inspected(_):
    torch.manual_seed(0)
    sizes = ((5, 5), (17, 17), (1, 9), (9,))  # thinned out and one-dimensional ones among them
    net = nn.Sequential(*(KINDS[len(size)](40, 40, size, groups=40) for size in sizes))
    return measure_target(model_target(net, HOSTILE), model_target(net, "other")).page(command=LONG.command)


PAGES = {
    "table": lambda _: results_page(TABLE, command=LONG.command),
    "curves": lambda _: results_page(record(*CURVES, chart="lines")),
    "speeds": lambda _: results_page(SPEEDS),
    "drawings": lambda _: results_page(record(drawings=DRAWN)),
    "groups": groups,
    "inspect": inspected,
    "watched": lambda path: look(str(watched(path / "f.watched"))).page(),
    "explore": lambda _: explore_page(command=LONG.command),
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
