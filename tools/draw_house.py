"""Draw docs/images/house.svg, the plan of the package, from its imports: `python -m tools.draw_house`.

Where a room lies is decided here; which rooms there are and who imports whom is read from the sources, and
`tests/docs/test_docs.py` compares the picture with them.
"""

from pathlib import Path
from typing import Any

from tests.test_layering import LABORATORY, LEAVES, LIBRARY, imports

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "house.svg"
WIDTH, HEIGHT, HALF, TALL = 780, 726, 66, 44

# The centre of every room, and what it is for. Rooms that do not exist (yet) are not drawn.
ROOMS: dict[str, tuple[int, int, str]] = {
    "lab.report": (230, 136, "tables, figures, pages"),
    "lab.reproduction": (405, 136, "a table from Python"),
    "lab.comparison": (560, 136, "on one's own images"),
    "lab.demonstration": (700, 136, "in minutes"),
    "lab.costs": (690, 206, "what it would take"),
    "lab.bench": (85, 206, "steps on this machine"),
    "lab.experiments": (490, 206, "runs, the paper's tables"),
    "lab.models": (150, 286, "networks by name"),
    "lab.training": (370, 286, "fit, resumable"),
    "lab.data": (590, 286, "images and batches"),
    "jax": (85, 396, "for JAX"),
    "keras": (235, 396, "for Keras"),
    "filters": (430, 396, "change, all or none"),
    "nn": (695, 396, "fast convolution"),
    "plan": (310, 466, "which layer gets what"),
    "statistics": (540, 466, "measure, save, load"),
    "schedule": (125, 536, "σ by depth"),
    "structure": (385, 536, "numbers beside chance"),
    "layers": (640, 536, "which layers, in order"),
    "covariance": (300, 616, "the mathematics"),
    "files": (500, 616, "whole or not at all"),
    "errors": (320, 684, ""),
    "printable": (460, 684, ""),
}
# Where an arrow leaves and arrives, in pixels from the centres of the two rooms, if not at their centres.
ENDS = {
    ("lab.report", "lab.experiments"): (50, -30),
    ("lab.report", "lab.models"): (-30, 0),
    ("lab.report", "lab.training"): (20, -30),
    ("lab.reproduction", "lab.training"): (-50, 10),
    ("lab.experiments", "lab.models"): (-50, 40),
    ("lab.experiments", "lab.training"): (-20, 30),
    ("lab.experiments", "lab.data"): (20, -20),
    ("filters", "plan"): (-40, 30),
    ("filters", "covariance"): (0, 35),
    ("filters", "layers"): (66, 0),
    ("jax", "plan"): (45, -50),
    ("jax", "schedule"): (0, -20),
    ("jax", "covariance"): (-50, -66),
    ("keras", "plan"): (20, -10),
    ("keras", "schedule"): (-30, 20),
    ("keras", "covariance"): (-10, -45),
    ("plan", "schedule"): (-45, 45),
    ("plan", "covariance"): (0, 5),
    ("statistics", "schedule"): (-50, 62),
    ("statistics", "structure"): (-40, 30),
    ("structure", "covariance"): (-20, 40),
    ("statistics", "covariance"): (-25, 55),
    ("statistics", "layers"): (40, -30),
    ("statistics", "files"): (0, 10),
    ("schedule", "covariance"): (40, -60),
    ("layers", "files"): (-20, 45),
    ("nn", "layers"): (0, 40),
}
# The control points of arrows that go around something.
BENDS = {
    ("filters", "layers"): "580 396 640 430",
    ("keras", "covariance"): "212 490 220 550",
    ("jax", "covariance"): "20 520 20 616",
}
LEAVE_SIDEWAYS = {("filters", "layers")}
ARRIVE_SIDEWAYS = {("jax", "covariance")}

STYLE = """
  .card { fill: #fbfbfd } .floor { fill: #eef0f8; stroke: #b9c0d8 } .room { fill: #ffffff; stroke: #6b78a8 }
  text { font: 13px system-ui, sans-serif; fill: #1d2233; text-anchor: middle }
  .name { font-weight: 600 } .what { font-size: 10.5px; fill: #55607f } .label { text-anchor: start; fill: #55607f }
  .arrow { fill: none; stroke: #7c88b4; stroke-width: 1.4; marker-end: url(#head) } .between { stroke-width: 3 }
  #head path { fill: #7c88b4 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1e2129 } .floor { fill: #272b37; stroke: #454c63 } .room { fill: #1e2129; stroke: #8a96c4 }
    text { fill: #e6e8f0 } .what, .label { fill: #a9b1cc } .arrow { stroke: #8a96c4 } #head path { fill: #8a96c4 }
  }
"""


def arrows() -> set[tuple[str, str]]:
    """Return who imports whom on each floor; everyone may import the leaves, which needs no arrow."""
    floors = [LIBRARY.keys() - LEAVES, LABORATORY.keys() - {"lab"}]
    pairs: set[tuple[Any, Any]] = {(part, imported) for _, part, imported, _ in imports()}
    return {(a, b) for a, b in pairs if a != b and any(a in floor and b in floor for floor in floors)}


def arrow(pair: tuple[str, str]) -> str:
    """Return one arrow: from the bottom of a room to the top of one below it, sideways on the same level."""
    (ax, ay, _), (bx, by, _) = ROOMS[pair[0]], ROOMS[pair[1]]
    out, into = ENDS.get(pair, (0, 0))
    if ay == by:
        side = HALF if bx > ax else -HALF
        start, end = (ax + side, ay), (bx - side, by)
    else:
        down = TALL // 2 if by > ay else -TALL // 2
        start = (ax + out, ay if pair in LEAVE_SIDEWAYS else ay + down)
        end = (bx + into, by if pair in ARRIVE_SIDEWAYS else by - down)
    curve = f"C{BENDS[pair]} {end[0]} {end[1]}" if pair in BENDS else f"L{end[0]} {end[1]}"
    return f'<path class="arrow" data-from="{pair[0]}" data-to="{pair[1]}" d="M{start[0]} {start[1]}{curve}"/>'


def room(name: str) -> str:
    """Return one room with its name and purpose."""
    x, y, what = ROOMS[name]
    tall = TALL if what else 26
    title = f'<text class="name" x="{x}" y="{y - 2 if what else y + 4}">{name.removeprefix("lab.")}</text>'
    purpose = f'<text class="what" x="{x}" y="{y + 14}">{what}</text>' if what else ""
    box = f'<rect class="room" x="{x - HALF}" y="{y - tall // 2}" width="{2 * HALF}" height="{tall}" rx="5"/>'
    return f'<g data-part="{name}">{box}{title}{purpose}</g>'


def house() -> str:
    """Return the picture."""
    parts = [name for name in ROOMS if name in LIBRARY | LABORATORY]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>The parts of filtercov and who imports whom</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" '
        'markerUnits="userSpaceOnUse"><path d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        '<g data-part="cli"><path class="floor" d="M10 88L390 10L770 88z"/><text class="name" x="390" y="54">cli</text>'
        '<text class="what" x="390" y="72">parse, call one function of either floor, print</text></g>',
        '<rect class="floor" x="10" y="98" width="760" height="224"/>',
        '<text class="label" x="20" y="118">filtercov.lab</text>',
        '<rect class="floor" x="10" y="354" width="760" height="296"/>',
        '<text class="label" x="20" y="642">filtercov</text>',
        '<rect class="floor" x="10" y="660" width="760" height="50"/>',
        '<text class="label" x="20" y="689">everyone may import</text>',
        '<path class="arrow between" data-from="lab" data-to="filtercov" d="M390 322L390 352"/>',
        '<text class="label" x="402" y="343">the library knows of no laboratory</text>',
        *map(arrow, sorted(arrows())),
        *map(room, parts),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(house(), encoding="utf-8")
