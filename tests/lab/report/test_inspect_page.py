"""The inspect page and its pictures, in a real browser and on disk."""

import base64
import io

import numpy as np
from PIL import Image

import filtercov as fc
from filtercov.lab.report.inspect import inspect
from filtercov.lab.report.page import write_output
from filtercov.lab.report.pictures import covariance_picture, filters_picture, palette, shown_pixels
from tests.lab.report.watched_files import network


def test_page_of_forty_layers_is_small_and_links_lead_to_the_layers(browser, tmp_path):
    html = inspect(network([(7, 7)] * 40, count=40)).page()
    assert len(html) < 6_000_000
    path = write_output(tmp_path / "p.html", html)
    place = "document.querySelector(location.hash).getBoundingClientRect().top"
    tab = browser.open(path, width=390)
    assert tab.evaluate("document.querySelectorAll('.card').length") == 40
    tab.page.click(".strip a:nth-child(25)")
    tab.wait_for(f"0 <= {place} && {place} < 40")  # a scroll may begin late
    assert tab.evaluate("document.querySelector(location.hash).innerText").startswith("25. 24")
    assert (tab.errors, tab.requests) == ([], [])


def test_page_shows_the_numbers_that_json_has_grey_where_they_are_no_more_than_chance(browser, tmp_path):
    net = network([(5, 5), (7, 7), (3, 5), (1, 1)], count=96)
    fc.init_(net, lambda _: 0.5, filter_fn=lambda layer: layer.name == "1", seed=0)
    report = inspect(net, against=net)
    tab = browser.open(write_output(tmp_path / "p.html", report.page()))
    cells = "[...document.querySelectorAll('#numbers tr')].map(r => [...r.children].map(e => e.WHAT))"
    head, *rows = tab.evaluate(cells.replace("WHAT", "textContent"))
    _, *quiet = tab.evaluate(cells.replace("WHAT", "querySelector('.quiet') !== null"))
    names = {"σ": "sigma", "centred": "centredness", "Kronecker": "kronecker_residual", "mean": "mean_share"}
    names |= {"cosine": "cosine", "scale": "scale"}

    def number(value, digits=2):
        return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")

    for row, grey, layer in zip(rows, quiet, report.as_json()["layers"], strict=True):
        shown, dim = (dict(zip(head, each, strict=True)) for each in (row, grey))
        assert {column: shown[column] for column in names} == {name: number(layer[key]) for name, key in names.items()}
        assert shown["likeness"] == f"{number(layer['likeness'])} ({number(layer['likeness_chance'])})"
        ranks = [number(layer[f"effective_rank{end}"], 1) for end in ("", "_chance")]
        assert shown["rank"] == f"{ranks[0]} ({ranks[1]})"
        beyond = [layer[f"{number}_beyond_chance"] for number in ("likeness", "likeness", "effective_rank")]
        assert [dim[column] for column in ("σ", "likeness", "rank")] == [not each for each in beyond]
    assert [grey[3] for grey in quiet] == [True, False, True, True]
    assert "1 of 4 layers is more like the closed form" in report.page()
    tab.emulate(width=390)
    right = "document.querySelector('#numbers tbody td:nth-child(5)').getBoundingClientRect().right"
    assert tab.evaluate(right) <= 390  # σ and likeness are in sight on a phone


def test_pictures_show_the_block_form_pixel_by_pixel():
    cov = np.random.default_rng(0).normal(size=(15, 15))
    cov += cov.T
    picture = covariance_picture(cov, (3, 5), limit=2.0, size=10)
    png = base64.b64decode(picture.data_url.removeprefix("data:image/png;base64,"))
    drawn = np.array(Image.open(io.BytesIO(png)).convert("RGBA"))
    assert drawn.shape == (3 * 3 + 2 * 2, 5 * 5 + 4 * 2, 4)
    for i, j, y, x in np.ndindex(3, 5, 3, 5):
        value = cov[i * 5 + j, y * 5 + x]
        level = round(127 + 127 * min(max(value / 2.0, -1), 1))
        assert np.abs(drawn[i * 5 + y, j * 7 + x, :3].astype(int) - palette()[level]).max() <= 3
    assert (drawn[3:5, :, 3] == 0).all()
    filters = np.stack([np.full((3, 3), 1.0), np.full((3, 3), -100.0), np.zeros((3, 3))])
    levels = filters_picture(filters, columns=3, size=9).levels
    assert [levels[0, x] for x in (0, 5, 10)] == [254, 0, 127]  # each on its own scale


def test_blank_borders_are_cut_off_and_the_picture_says_so():
    cov = fc.gaussian_covariance(15, 0.5)
    cut, whole = covariance_picture(cov, 15, size=300), covariance_picture(np.eye(225), 15, size=300)
    assert (cut.cut, whole.cut) == ("middle 5×5 of 15×15 pixels", "")
    middle = [i * 15 + j for i in range(5, 10) for j in range(5, 10)]
    alone = covariance_picture(cov[np.ix_(middle, middle)], 5, size=300)
    assert np.array_equal(cut.levels, alone.levels)
    for corner in (0, 14, 210, 224):
        off_centre = np.zeros((225, 225))
        off_centre[corner, corner] = 1.0
        assert covariance_picture(off_centre, 15, size=300).cut == ""
    assert covariance_picture(np.eye(31**2), 31, size=300).cut == "one pixel in 2 of 31×31"
    assert shown_pixels((31,), 0)[1].tolist() == [*range(1, 31, 2)]  # the centre among them
