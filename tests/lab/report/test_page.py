"""Pages carry all they need, keep to their policy, and follow light, dark and paper."""

from pathlib import Path

import pytest

from filtercov.errors import StorageError
from filtercov.lab.report.page import copyable, embedded_json, page, table, text, write_output
from tests.browser import Browser


def test_colours_follow_the_system_and_the_printer(browser: Browser, tmp_path: Path) -> None:
    tab = browser.open(write_output(tmp_path / "p.html", page("p", "<p>words</p>")), dark=True)
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = tab.evaluate(background)
    tab.emulate(dark=False)
    light = tab.evaluate(background)
    tab.emulate(dark=True, paper=True)
    assert (dark, light, tab.evaluate(background)) == ("rgb(21, 24, 28)", "rgb(255, 255, 255)", "rgb(255, 255, 255)")


def test_wide_tables_scroll_inside_themselves_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    wide = table([f"column {i}" for i in range(30)], [list(range(1000, 1030))])
    tab = browser.open(write_output(tmp_path / "p.html", page("p", wide)), width=390)
    assert tab.evaluate("document.documentElement.scrollWidth") == 390


def test_copy_button_copies_or_selects_the_code(browser: Browser, tmp_path: Path) -> None:
    tab = browser.open(write_output(tmp_path / "p.html", page("p", copyable('init_(net, "a<b")'))))
    tab.evaluate("void (navigator.clipboard.writeText = async text => { window.copied = text })")
    tab.click("[data-copy]")
    assert tab.evaluate("window.copied") == 'init_(net, "a<b")'
    tab.evaluate("void (navigator.clipboard.writeText = () => Promise.reject())")
    tab.click("[data-copy]")
    assert tab.evaluate("getSelection().toString()") == 'init_(net, "a<b")'


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    name = "</script><script>window.broken = 1</script>\"'&"
    body = f'<p title="{text(name)}">{text(name)}</p>' + embedded_json("data", {"name": name})
    tab = browser.open(write_output(tmp_path / "p.html", page(name, body)))
    assert tab.evaluate("window.broken") is None
    assert tab.evaluate("document.querySelector('p').title") == name
    assert tab.evaluate("JSON.parse(document.getElementById('data').textContent).name") == name


def test_unwritable_place_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"page\.html: cannot be written .*; choose another place"):
        write_output(tmp_path / "file" / "page.html", "x")
    assert (tmp_path / "file").read_text() == "in the way"
