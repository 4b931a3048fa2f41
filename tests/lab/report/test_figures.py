"""The paper's figures: right parts, both formats, the same file every time."""

import math

import numpy as np
import pytest
from PIL import Image

from filtercov.covariance import to_block
from filtercov.lab.report.figures import (
    COLUMN_WIDTH,
    covariances_figure,
    filters_figure,
    save_figure,
    styled,
    write_figures,
)
from filtercov.lab.report.pictures import construction_parts, levels, symmetric_limit


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


def test_figures_are_written_in_both_formats_as_wide_as_a_column_and_the_same_every_time(tmp_path):
    written = {path.name: path for path in write_figures(tmp_path / "new" / "place")}
    names = ("construction", "covariances", "filters", "schedule")
    assert set(written) == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    for name in names:
        with Image.open(written[f"{name}.png"]) as drawn:
            assert 0.9 * COLUMN_WIDTH < drawn.width / 300 < 1.1 * COLUMN_WIDTH
        assert written[f"{name}.svg"].read_text().startswith("<?xml")
    with styled():
        bar = covariances_figure().axes[-1]
        assert dict(zip(bar.get_yticks(), [t.get_text() for t in bar.get_yticklabels()], strict=True)) == {
            -1: "−",
            0: "0",
            1: "+",
        }
        first, second, other = (save_figure(filters_figure(seed=seed), "svg") for seed in (3, 3, 4))
    assert first == second != other


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e300])
def test_scale_is_symmetric_for_any_size_of_numbers(value):
    values = np.array([-value, 0.0, value])
    found = levels(values, symmetric_limit(values)).tolist()
    assert found == ([127, 127, 127] if value == 0 else [0, 127, 254])
