"""The page of `filtercov explore`: the closed form under one's fingers, computed by the page itself.

Its scripts lie beside this file, one idea each, and are put into the page as they are. They do the library's
mathematics again in JavaScript; tests/report/test_explore.py compares the two in a browser.
"""

from __future__ import annotations

from filtercov.lab.report import style
from filtercov.lab.report.page import asset, embedded_json, page, text
from filtercov.schedule.schedules import PRESETS

# In the order in which they build on each other.
SCRIPTS = (
    "explore_eigen.js",
    "explore_math.js",
    "explore_random.js",
    "explore_state.js",
    "explore_draw.js",
    "explore_strip.js",
    "explore_app.js",
)


def explore_page() -> str:
    """Return the page, with the library's presets and colours in it.

    >>> "imagenet-thawed" in explore_page()
    True
    """
    buttons = "".join(f'<button type="button" data-preset="{text(name)}">{text(name)}</button>' for name in PRESETS)
    settings = {
        "presets": {name: {"sigma0": p.sigma0, "v": p.v, "a": p.a} for name, p in PRESETS.items()},
        "palette": style.palette().tolist(),
    }
    body = asset("explore.html").replace("<!-- presets -->", buttons) + embedded_json("settings", settings)
    scripts = [asset(name) for name in SCRIPTS]
    return page("Explore filter covariances · filtercov", body, styles=[asset("explore.css")], scripts=scripts)
