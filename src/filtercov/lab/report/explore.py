"""The page of `filtercov explore`: the closed form under one's fingers, computed by the page itself.

Its scripts lie beside this file, one idea each, and are put into the page as they are. They do the library's
mathematics again in JavaScript; tests/lab/report/test_explore.py compares the two in a browser.
"""

from __future__ import annotations

from inspect import signature

from filtercov.covariance.root import WINDOW_DECAY, WINDOW_ERROR
from filtercov.filters import init_
from filtercov.lab.report import style
from filtercov.lab.report.charts import Axis, decades, round_axis, stage
from filtercov.lab.report.figures import KERNEL, LAYERS
from filtercov.lab.report.inspect_pictures import FINEST
from filtercov.lab.report.page import Origin, asset, embedded_json, page, text
from filtercov.schedule import PRESETS

# In the order in which they build on each other.
SCRIPTS = (
    "explore_eigen.js",
    "explore_math.js",
    "explore_random.js",
    "explore_state.js",
    "drawing.js",
    "explore_draw.js",
    "explore_strip.js",
    "explore_app.js",
)

# σ reaches from the smallest that a control allows to about σ0 + v + a/2 at their largest.
SIGMA_TOPS = [top * 10.0**exponent for exponent in (-2, -1, 0, 1) for top in (2, 4, 6, 10)]


def explore_page(*, command: str = "") -> str:
    """Return the page, with the library's presets and colours in it, and the `command` that made it.

    It opens on what `init_` does by default, for the paper's ConvMixer-256/8 with 9×9 filters.

    >>> "imagenet-thawed" in explore_page()
    True
    """
    buttons = "".join(f'<button type="button" data-preset="{text(name)}">{text(name)}</button>' for name in PRESETS)
    chosen = signature(init_).parameters
    settings = {
        "start": {
            "preset": chosen["source"].default,
            "negative": chosen["negative"].default,
            "k": KERNEL,
            "depth": LAYERS,
        },
        "window": {"error": WINDOW_ERROR, "decay": WINDOW_DECAY},
        "finest": FINEST,
        "presets": {name: {"sigma0": p.sigma0, "v": p.v, "a": p.a} for name, p in PRESETS.items()},
        "palette": style.palette().tolist(),
    }
    parts = {"presets": buttons, "schedule": schedule_stage(), "spectrum": spectrum_stage()}
    body = asset("explore.html") + embedded_json("settings", settings)
    for name, part in parts.items():
        body = body.replace(f"<!-- {name} -->", part)
    scripts = [asset(name) for name in SCRIPTS]
    return page(
        "Explore filter covariances · filtercov",
        body,
        origin=Origin(command=command),
        styles=[asset("explore.css")],
        scripts=scripts,
    )


def schedule_stage() -> str:
    """Return the axes of σ over depth, for every round largest σ."""
    depth = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))
    ranges = [round_axis(0.0, top) for top in SIGMA_TOPS]
    return stage("schedule", depth, ranges, x_label="relative depth d", y_label="σ")


def spectrum_stage() -> str:
    """Return the axes of eigenvalues by rank, over the largest one."""
    label = "eigenvalues, from the largest to the most negative"
    return stage("spectrum", Axis(0.0, 1.0, ()), [decades(1e-6, 1.0)], x_label=label, y_label="|λ| / λ₁")
