"""The explore page does the library's mathematics, and its controls do what they say, in a real browser."""

import base64
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import filtercov
from filtercov.covariance.root import covariance_root, gaussian_roots
from filtercov.errors import CovarianceError
from filtercov.lab.report.explore import explore_page
from filtercov.lab.report.page import write_output
from filtercov.lab.report.pictures import covariance_limit, covariance_picture, palette

CASES = [(3, 0.08), (4, 0.7), (7, 0.16), (12, 0.5), (15, 5.0), (24, 1.2), (31, 6.0)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_output(tmp_path_factory.mktemp("explore") / "explore.html", explore_page())


@pytest.fixture
def open_at(browser, written):
    """Opens the page at an address; in the end no page has reported an error."""
    tabs = []

    def opened(fragment="", **look):
        tabs.append(browser.open(written, fragment=fragment, **look))
        return tabs[-1]

    yield opened
    assert [tab.errors for tab in tabs] == [[]] * len(tabs)


@pytest.fixture
def tab(open_at):
    return open_at()


def js(tab, expression):
    """The value of an expression of arrays, which travel as text: JSON keeps every bit of a double."""
    return np.array(json.loads(tab.evaluate(f"JSON.stringify(Array.from({expression}))")))


def sigmas(tab):
    return js(tab, "Array.from({length: state.depth}, (_, i) => sigmaAt(state, relativeDepth(i, state.depth)))")


def finish(tab):
    """Wait until the page has drawn everything and written its address."""
    tab.settle()
    tab.wait_for("!asked && finished === drawing && location.hash === formatState(state)")


def shown(tab):
    """What the page shows: numbers, texts, and the pixels of its pictures."""
    finish(tab)
    return tab.evaluate(
        "({strip: document.querySelectorAll('#strip button').length,"
        "label: document.querySelector('#strip button').ariaLabel,"
        "facts: element('layer-facts').textContent, title: element('layer-title').textContent,"
        "python: element('python').textContent, address: location.hash,"
        "spectrum: element('spectrum').innerHTML, schedule: element('schedule').innerHTML,"
        "covariance: element('covariance').toDataURL(), filters: element('filters').toDataURL()})"
    )


def changed(before, after):
    return {name for name in before if before[name] != after[name]}


def network(count, kernel_size):
    return nn.Sequential(*(nn.Conv2d(4, 4, kernel_size, groups=4) for _ in range(count)))


def test_covariance_spectrum_and_filters_are_the_librarys(tab):
    for k, sigma in CASES:
        cov = filtercov.gaussian_covariance(k, sigma)
        rows = js(tab, f"covariance({k}, {sigma}).subarray(0, {3 * k**3})").reshape(-1, k * k)  # some: they are text
        np.testing.assert_allclose(rows, cov[: len(rows)], atol=1e-14, rtol=0)
        found = js(tab, f"decompose({k}, {sigma}).eigenvalues")
        np.testing.assert_allclose(found, np.linalg.eigvalsh(cov)[::-1], atol=1e-12, rtol=0)
        mass = tab.evaluate(f"negativeMass(decompose({k}, {sigma}).eigenvalues)")
        assert mass == pytest.approx(covariance_root(cov, k, negative="clip").negative_mass, abs=1e-12)
        for negative in ("clip", "abs"):  # filters are normal numbers times the symmetric root
            (root,) = gaussian_roots(k, [sigma], negative=negative)
            z, expected = js(tab, f"normals(3, {k * k})").reshape(k, k), np.zeros((k, k))
            expected[root.window] = (z[root.window].ravel() @ root.matrix).reshape(z[root.window].shape)
            found = js(tab, f"timesRoot(normals(3, {k * k}), decompose({k}, {sigma}), '{negative}')").reshape(k, k)
            np.testing.assert_allclose(found, expected, atol=1e-6)  # roots near zero, over a thousand pixels


@pytest.mark.parametrize("schedule", ["sigma0=0.02&v=0&a=0", "sigma0=0.5&v=0.5&a=3", "sigma0=3&v=4&a=8"])
def test_the_curve_lies_where_the_numbers_on_the_axis_say(open_at, schedule):
    tab = open_at(f"depth=4&{schedule}")
    finish(tab)
    numbers, heights = (
        js(tab, f"[...document.querySelectorAll('#schedule .shown text[text-anchor=end]')].map(t => Number({what}))")
        for what in ("t.textContent", "t.getAttribute('y')")
    )
    dots = js(tab, "[...document.querySelectorAll('#schedule circle')].map(c => Number(c.getAttribute('cy')))")
    assert (len(numbers) >= 3, numbers[0]) == (True, 0)
    assert numbers[-1] >= sigmas(tab).max() >= numbers[-1] / 3
    np.testing.assert_allclose(dots, np.interp(sigmas(tab), numbers, heights - 4), atol=0.11)  # labels hang 4 below


@pytest.mark.parametrize(
    ("k", "sigma", "said"), [(31, 30.0, "One pixel in 2"), (15, 0.1, "middle 3×3 of 15×15"), (9, 3.0, "")]
)
def test_covariances_are_cut_and_coloured_as_in_python(open_at, k, sigma, said):
    tab = open_at(f"k={k}&depth=1&sigma0={sigma}&v=0&a=0")
    tab.evaluate(f"change({{ sigma0: {sigma} }})")
    finish(tab)
    cov = filtercov.gaussian_covariance(k, sigma)
    assert tab.evaluate(f"covarianceLimit({k}, {sigma})") == pytest.approx(covariance_limit(cov), rel=1e-12)
    assert said in tab.evaluate("element('cut').textContent")
    expected, n = covariance_picture(cov, k, size=1), tab.evaluate(f"shownPixels({k}, {sigma}).length")
    assert len(expected.levels) == n * n + 2 * (n - 1)  # n blocks of n numbers and gaps of 2
    url = tab.evaluate("element('covariance').toDataURL()")
    drawn = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))))
    cell = max(1, round((424 - 2 * (n - 1)) / (n * n)))
    here = np.add.outer(np.arange(n) * (n * cell + 2), cell * np.arange(n)).ravel()
    there = np.add.outer(np.arange(n) * (n + 2), np.arange(n)).ravel()
    found, wanted = (
        drawn[np.ix_(here, here)][..., :3].astype(int),
        palette()[expected.levels[np.ix_(there, there)]].astype(int),
    )
    assert np.abs(found - wanted).max() <= 12  # a level in 255 may round the other way


@pytest.mark.parametrize(
    ("fragment", "layers", "k"), [("", 8, 9), ("k=3&depth=4&sigma0=0.25&v=0.1&a=0.5&negative=abs&seed=12", 4, 3)]
)
def test_the_line_of_python_does_what_the_page_shows_and_it_opens_on_what_init_does(open_at, fragment, layers, k):
    tab = open_at(fragment)
    line = shown(tab)["python"]
    model, default = network(layers, k), network(layers, k)
    report = eval(line, {"filtercov": filtercov, "model": model})
    assert [row.sigma for row in report.initialised] == pytest.approx(sigmas(tab).tolist())
    assert ('negative="abs"' in line, "seed=12" in line) == (bool(fragment), bool(fragment))
    if not fragment:
        filtercov.init_(default, seed=0)
        assert all(torch.equal(a.weight, b.weight) for a, b in zip(model, default, strict=True))


def test_random_numbers_are_normal_independent_and_seeded(tab):
    z = js(tab, "normals(7, 100000)")
    assert [z.mean(), z.var(), (z[1:] * z[:-1]).mean()] == pytest.approx([0.0, 1.0, 0.0], abs=0.02)
    assert (z**4).mean() == pytest.approx(3.0, abs=0.15)
    assert np.array_equal(js(tab, "normals(7, 5)"), z[:5])
    assert not np.isin(js(tab, "normals(8, 50)"), z[:50]).any()


@pytest.mark.parametrize(
    ("control", "changes"),
    [
        ("k", {"facts", "spectrum", "covariance", "filters"}),
        ("depth", {"strip", "facts", "title", "schedule", "covariance"}),
        ("sigma0", {"label", "facts", "python", "schedule", "spectrum", "covariance", "filters"}),
        ("v", {"python", "schedule", "spectrum", "covariance", "filters"}),
        ("a", {"python", "schedule", "spectrum", "filters"}),
    ],
)
def test_sliders_work_by_keyboard_and_change_what_they_say(tab, control, changes):
    before = shown(tab)
    value = float(tab.evaluate(f"element('{control}').value"))
    tab.evaluate(f"element('{control}').focus()")
    tab.press("ArrowRight")
    assert changes | {"address"} <= changed(before, shown(tab))
    moved, typed = (float(tab.evaluate(f"element('{name}').value")) for name in (control, f"{control}-number"))
    assert typed == moved > value


def test_negative_mode_and_seed_change_only_what_they_are_about_and_the_address_keeps_all(tab, open_at):
    tab.click("#strip button:nth-child(3)")
    first = shown(tab)
    tab.click("[name=negative][value=abs]")
    mirrored = shown(tab)
    assert changed(first, mirrored) == {"filters", "python", "address", "spectrum"}
    tab.click("#again")
    again = shown(tab)
    assert changed(mirrored, again) == {"filters", "python", "address"}
    assert tab.evaluate("element('seed').value") == "1"
    assert shown(open_at(again["address"].removeprefix("#"))) == again


def test_layers_are_chosen_by_mouse_touch_and_keyboard(open_at):
    tab = open_at(width=390, height=844, touch=True)
    tab.tap("#strip button:nth-child(2)")
    assert shown(tab)["title"] == "Layer 2 of 8"
    tab.emulate()
    tab.click("#strip button:nth-child(7)")
    assert shown(tab)["title"] == "Layer 7 of 8"
    tab.press("Tab")
    tab.press("Enter")
    assert shown(tab)["title"] == "Layer 8 of 8"
    assert tab.evaluate("element('strip').querySelectorAll('[aria-pressed=true]').length") == 1


def test_presets_are_the_librarys_and_a_schedule_that_python_refuses_is_a_sentence(open_at):
    with pytest.raises(CovarianceError, match=re.escape("-0.2")):
        filtercov.QuadraticSchedule(0.3, -2.0, 4.0)
    tab = open_at("sigma0=0.3&v=-2&a=4")
    finish(tab)
    assert "σ(0.5) = -0.2" in tab.evaluate("element('problem').textContent")
    assert tab.evaluate("element('problem').hidden") is False
    for name, schedule in filtercov.PRESETS.items():
        tab.click(f'[data-preset="{name}"]')
        after = shown(tab)
        assert tab.evaluate("[state.sigma0, state.v, state.a]") == [schedule.sigma0, schedule.v, schedule.a]
        assert f'"{name}"' in after["python"]
        assert f"σ = {float(f'{schedule(4 / 7):.3g}'):g}," in after["facts"]
        assert tab.evaluate("document.querySelectorAll('[data-preset][aria-pressed=true]').length") == 1
    assert tab.evaluate("element('problem').hidden") is True


@pytest.mark.parametrize("fragment", ["k=banana&depth=&seed=1e999", "k=-4&depth=1e9&layer=99&negative=maybe", "%E0%="])
def test_a_broken_address_gives_a_working_page(open_at, fragment):
    tab = open_at(fragment)
    finish(tab)
    k, depth, layer = tab.evaluate("[state.k, state.depth, state.layer]")
    assert (3 <= k <= 31, 1 <= depth <= 24, 0 <= layer < depth) == (True, True, True)
