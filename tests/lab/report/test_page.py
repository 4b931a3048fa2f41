"""Pages carry all they need, keep to their policy, and follow light, dark and paper."""

import pytest

from filtercov.errors import StorageError
from filtercov.lab.report.page import copyable, embedded_json, page, text, write_output


@pytest.fixture
def opened(browser, tmp_path):
    return lambda title, body, **look: browser.open(write_output(tmp_path / "p.html", page(title, body)), **look)


def test_colours_follow_the_system_and_the_printer(opened):
    tab = opened("p", "<p>words</p>", dark=True)
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = tab.evaluate(background)
    tab.emulate(dark=False)
    light = tab.evaluate(background)
    tab.emulate(dark=True, paper=True)
    assert (dark, light, tab.evaluate(background)) == ("rgb(21, 24, 28)", "rgb(255, 255, 255)", "rgb(255, 255, 255)")


def test_copy_button_copies_or_selects_the_code(opened):
    tab = opened("p", copyable('init_(net, "a<b")'))
    tab.evaluate("void (navigator.clipboard.writeText = async text => { window.copied = text })")
    tab.click("[data-copy]")
    assert tab.evaluate("window.copied") == 'init_(net, "a<b")'
    tab.evaluate("void (navigator.clipboard.writeText = () => Promise.reject())")
    tab.click("[data-copy]")
    assert tab.evaluate("getSelection().toString()") == 'init_(net, "a<b")'


def test_hostile_names_stay_text(opened):
    name = "</script><script>window.broken = 1</script>\"'&"
    tab = opened(name, f'<p title="{text(name)}">{text(name)}</p>' + embedded_json("data", {"name": name}))
    assert tab.evaluate("window.broken") is None
    assert tab.evaluate("document.querySelector('p').title") == name
    assert tab.evaluate("JSON.parse(document.getElementById('data').textContent).name") == name


def test_unwritable_place_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"page\.html: cannot be written .*; choose another place"):
        write_output(tmp_path / "file" / "page.html", "x")
    assert (tmp_path / "file").read_text() == "in the way"
