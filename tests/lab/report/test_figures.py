"""The paper's figures: right parts, files that need nothing else, the same every time, in the colours of RdBu."""

import base64
import hashlib
import io
import math
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from filtercov import PRESETS
from filtercov.covariance import to_block
from filtercov.lab.report.figures import construction, write_figures
from filtercov.lab.report.pictures import construction_parts, levels, palette, symmetric_limit

SVG = "{http://www.w3.org/2000/svg}"


def test_parts_of_the_construction_are_the_papers():
    k, sigma, c = 5, math.pi / 2, 2
    blocks = {name: to_block(part, k) for name, part in construction_parts(k, sigma).items()}
    Z = np.array([[math.exp(-((i - c) ** 2 + (j - c) ** 2) / (2 * sigma)) for j in range(k)] for i in range(k)])
    np.testing.assert_allclose(blocks["M"], np.kron(Z, np.ones((k, k))))
    np.testing.assert_allclose(blocks["S"], np.kron(np.ones((k, k)), Z))
    shifted = np.block([[np.roll(Z, (i - c, j - c), axis=(0, 1)) for j in range(k)] for i in range(k)])
    np.testing.assert_allclose(blocks["C"], shifted)
    made = 0.5 * (blocks["M"] * (blocks["C"] - blocks["S"]) + blocks["C"] * blocks["S"])
    np.testing.assert_allclose(blocks["Σ"], made, atol=1e-15)


def test_figures_are_whole_svg_files_with_their_pictures_inside_and_name_schedules_from_top_to_bottom(tmp_path):
    texts = {path.name: path.read_text() for path in write_figures(tmp_path / "new" / "place")}
    assert list(texts) == ["construction.svg", "schedule.svg", "covariances.svg", "filters.svg"]
    roots = [ElementTree.fromstring(text) for text in texts.values()]
    assert all(root.tag == f"{SVG}svg" and root.get("aria-label") for root in roots)
    assert "var(" not in "".join(texts.values())  # which programs that print SVG files do not know
    found = [[image.get("href") for image in root.iter(f"{SVG}image")] for root in roots]
    assert [len(images) for images in found] == [6, 0, 8, 6]
    drawn = Image.open(io.BytesIO(base64.b64decode(found[0][2].removeprefix("data:image/png;base64,"))))
    assert np.array_equal(np.asarray(drawn), construction()["C"].levels)
    again = {path.name: path.read_text() for path in write_figures(tmp_path)}
    assert again == texts
    names = [(float(text.get("y")), text.text) for text in roots[1].findall(f"{SVG}text")]  # where their lines end
    assert [name.split()[0] for _, name in names] == sorted(PRESETS, key=lambda name: -PRESETS[name](1.0))
    assert all(below - above > 12 for (above, _), (below, _) in pairwise(names))


def test_colours_are_those_of_matplotlibs_rdbu_and_symmetric_for_any_size_of_numbers():
    checksum = "79875fece5e6291b65b77edaba94d0b5cf02ed173d7630d0037dc338fb77acc9"  # of its RdBu_r in 255 steps
    assert hashlib.sha256(palette().tobytes()).hexdigest() == checksum
    for value in (0.0, 1e-300, 1e300):
        values = np.array([-value, 0.0, value])
        found = levels(values, symmetric_limit(values)).tolist()
        assert found == ([127, 127, 127] if value == 0 else [0, 127, 254])
