"""The page of a watched run in a real browser: the player shows the moments as they were, by mouse, key and finger."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

import filtercov as fc
from filtercov.lab.report.inspect import look
from filtercov.lab.report.page import write_output
from filtercov.lab.report.pictures import palette
from tests.lab.report.watched_files import SIZES, watched


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return watched(tmp_path_factory.mktemp("run") / "f.watched", [0.0, 0.2, 0.4, 0.7, 1.0])


@pytest.fixture(scope="module")
def written(path):
    return write_output(path.parent / "page.html", look(str(path)).page())


@pytest.fixture
def tab(browser, written):
    opened = browser.open(written)
    yield opened
    assert opened.errors == []


def go(tab, moment, layer=0):
    tab.evaluate(f"choose({layer}), goTo({moment})")
    tab.settle()


def pixels(tab, canvas):
    """The colours of a canvas, (height, width, 4)."""
    url = tab.evaluate(f"document.querySelector('{canvas}').toDataURL()")
    return np.array(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGBA")).astype(int)


def assert_shows(picture, tiles, columns, limit=None):
    """Every tile is at its place, with gaps of one pixel, on a scale to `limit` or else to its own largest number."""
    for index, tile in enumerate(tiles):
        flat = np.hstack(list(tile)) if tile.ndim == 3 else np.atleast_2d(tile)
        height, width = flat.shape
        top, left = index // columns * (height + 1), index % columns * (width + 1)
        shown = picture[top : top + height, left : left + width]
        levels = np.round(127 + 127 * np.clip(flat / (limit or np.abs(flat).max()), -1, 1)).astype(int)
        assert np.abs(shown[..., :3] - palette()[levels]).max() <= 6
        assert (shown[..., 3] == 255).all()


def test_every_pixel_is_that_of_the_moment(tab, path):
    for layer, place in [*((layer, 4) for layer in range(len(SIZES))), (1, 0), (1, 2)]:
        size, moment = SIZES[layer], fc.Watched.load(path)[place]
        go(tab, place, layer)
        cov = moment.statistics[str(layer)].covariance
        limit = max(np.abs(cov - np.diag(np.diag(cov))).max(), np.abs(cov).max() / 16)
        for canvas in ("#covariance", f"#strip button:nth-child({layer + 1}) canvas"):
            columns = 1 if len(size) == 1 else size[-1]
            assert_shows(pixels(tab, canvas), cov.reshape(-1, *size), columns, limit)
        assert_shows(pixels(tab, "#filters"), moment.filters[str(layer)], {1: 2, 2: 4, 3: 2}[len(size)])


def test_the_slider_moves_pictures_numbers_and_cursors(tab, path):
    assert tab.evaluate("element('moment').ariaLabel") == "moment of 5"
    for place in (0, 2, 4):
        tab.page.locator("#moment").fill(str(place))
        tab.settle()
        step = 10 * place
        assert tab.evaluate("element('now').textContent") == f"step {step}"
        assert tab.evaluate("element('moment').ariaValueText") == f"step {step}, moment {place + 1} of 5"
        assert f"at step {step}" in tab.evaluate("element('covariance').ariaLabel")
        moved = tab.evaluate("document.querySelector('.cursor').getAttribute('transform')")
        assert float(moved[10:].split()[0]) == pytest.approx(place / 4 * (330 - 46 - 12), abs=0.01)
    assert tab.evaluate("document.querySelector('.cursor').getAttribute('d')") == "M46 30V182"  # from top to bottom
    facts, rings = "element('facts').textContent", "element('depths').querySelectorAll('.ring').length"
    go(tab, 4, 1)
    record = fc.Watched.load(path)[4].to_records()[1]
    said = f"σ {record['sigma']:.3g} · likeness {record['likeness']:.2f}, by chance"
    assert (tab.evaluate(facts)[: len(said)], tab.evaluate(rings)) == (said, 2)
    go(tab, 0, 1)
    said = "no structure beyond chance: likeness"
    assert (tab.evaluate(facts)[: len(said)], tab.evaluate(rings)) == (said, 5)


def test_play_goes_through_all_moments_and_stops_at_the_last(tab):
    go(tab, 0)
    tab.page.click("#play")
    assert tab.evaluate("element('play').textContent") == "Pause"
    tab.wait_for("playing === null")
    assert tab.evaluate("[place, element('play').textContent, element('now').textContent]") == [4, "Play", "step 40"]
    tab.page.click("#play")  # once more, from the beginning
    tab.wait_for("place > 0 && place < 4")
    tab.page.click("#play")
    tab.settle()
    assert tab.evaluate("playing === null && Number(element('moment').value) === place")


def test_keys_move_and_play(tab):
    now = "Number(element('moment').value)"
    tab.press("ArrowLeft")  # nothing has the focus
    assert tab.evaluate(now) == 3
    tab.press("ArrowRight")
    tab.press("ArrowRight")
    assert tab.evaluate(now) == 4
    tab.evaluate("element('moment').focus()")
    tab.press("ArrowLeft")  # which the slider does already
    assert (tab.evaluate("place"), tab.evaluate(now)) == (3, 3)
    tab.page.keyboard.press(" ")
    assert tab.evaluate("playing !== null")
    tab.page.keyboard.press(" ")
    assert tab.evaluate("playing === null")
    tab.evaluate("goTo(2), document.querySelector('#strip button:nth-child(3)').focus()")
    tab.press(" ")  # presses the button
    assert tab.evaluate("[layer, playing === null]") == [2, True]
    tab.press("ArrowRight")
    assert tab.evaluate("place") == 3
    tab.evaluate("document.querySelector('.scroll').focus()")
    tab.press("ArrowRight")  # which scrolls the table
    assert tab.evaluate("place") == 3


def test_fingers_choose_layers_and_play(browser, written):
    tab = browser.open(written, touch=True, width=390, height=844)
    tab.tap("#strip button:nth-child(2)")
    assert tab.evaluate("element('layer-title').textContent") == "Layer 2 of 5: 1"
    assert tab.evaluate("document.querySelector('#strip button:nth-child(2)').ariaPressed") == "true"
    assert tab.evaluate("document.querySelectorAll('.line.chosen').length") > 0
    tab.page.tap("#play")
    tab.wait_for("playing !== null")
    sizes = tab.evaluate("['play', 'moment'].map(id => element(id).getBoundingClientRect().height)")
    assert min(sizes) >= 44
    assert tab.errors == []


def test_charts_draw_no_sigma_where_chance_would_have_one_too_and_paper_has_the_moment_and_no_slider(tab):
    chart = "document.querySelector('[aria-label=\"NAME of each layer over time\"]')"
    layers = f"[...{chart}.querySelectorAll('[data-layer]')].map(e => Number(e.dataset.layer))"
    for name in ("σ", "likeness"):
        assert set(tab.evaluate(layers.replace("NAME", name))) == {1, 2, 3}
    assert set(tab.evaluate(layers.replace("NAME", "‖W − W₀‖ / ‖W₀‖"))) == {0, 1, 2, 3, 4}
    tab.emulate(paper=True, width=720)
    assert tab.evaluate("['play', 'moment'].every(id => element(id).offsetHeight === 0)")
    assert tab.evaluate("element('now').innerText") == "step 40"
    assert tab.evaluate("['covariance', 'filters'].every(id => element(id).offsetHeight > 100)")


def test_a_single_moment_is_shown_and_cannot_be_played(browser, tmp_path):
    out = write_output(tmp_path / "p.html", look(str(watched(tmp_path / "one", [0.0]))).page())
    tab = browser.open(out)
    assert tab.evaluate("[element('play').disabled, element('moment').disabled]") == [True, True]
    assert tab.evaluate("element('now').textContent") == "step 0"
    assert np.ptp(pixels(tab, "#covariance")[..., 0]) > 50
    tab.press("ArrowRight")
    assert tab.errors == []
