"""The page of `filtercov explore`: the closed form under one's fingers, computed by the page itself.

Its scripts do the library's mathematics again in JavaScript; tests/lab/report/test_explore.py compares the two in a
browser.
"""

from __future__ import annotations

from inspect import signature

from filtercov.covariance.root import WINDOW_DECAY, WINDOW_ERROR
from filtercov.filters import init_
from filtercov.lab.report.charts import legend, log_axis, round_axis, stage
from filtercov.lab.report.page import asset, embedded_json, page, text
from filtercov.lab.report.pictures import FINEST, SUPPORT, palette
from filtercov.schedule import PRESETS

KERNEL, LAYERS = 9, 8  # the paper's ConvMixer-256/8
# σ reaches from the smallest that a control of explore.html allows to about σ0 + v + a/2 at their largest.
SIGMA_TOPS = [top * 10.0**exponent for exponent in (-2, -1, 0, 1) for top in (2, 4, 6, 10)]
EIGENVALUES = [("positive", "mark s0"), ("negative, dropped", "ring s1"), ("negative, mirrored", "mark s1")]


def explore_page(*, command: str = "") -> str:
    """The page, with the library's presets and colours in it, and the `command` that made it.

    It opens on what `init_` does by default, for the paper's ConvMixer-256/8 with 9×9 filters.
    """
    chosen = signature(init_).parameters
    start = {"preset": chosen["source"].default, "negative": chosen["negative"].default, "k": KERNEL, "depth": LAYERS}
    settings = {
        "start": start,
        "window": {"error": WINDOW_ERROR, "decay": WINDOW_DECAY},
        "finest": FINEST,
        "support": SUPPORT,
        "presets": {name: {"sigma0": p.sigma0, "v": p.v, "a": p.a} for name, p in PRESETS.items()},
        "palette": palette().tolist(),
    }
    ranges = [round_axis(0.0, top) for top in SIGMA_TOPS]
    rank = "rank / number of pixels"
    spectrum = stage("spectrum", [log_axis([1e-6, 1.0])], x_label=rank, y_label="eigenvalue, |λ| / λ₁")
    parts = {
        "presets": "".join(
            f'<button type="button" data-preset="{text(name)}">{text(name)}</button>' for name in PRESETS
        ),
        "schedule": stage("schedule", ranges, x_label="relative depth d", y_label="σ"),
        "spectrum": spectrum + legend(EIGENVALUES),
    }
    body = asset("explore.html") + embedded_json("settings", settings)
    for name, part in parts.items():
        body = body.replace(f"<!-- {name} -->", part)
    scripts = ["drawing.js", "explore_math.js", "explore.js"]
    return page("Explore filter covariances · filtercov", body, command=command, scripts=scripts)
