"""The paper's figures: right parts, both formats, the same file every time."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import filtercov as fc
from filtercov.covariance import to_block
from filtercov.lab.report.figures import (
    COLUMN_WIDTH,
    covariances_figure,
    filters_figure,
    save_figure,
    styled,
    write_figures,
)
from filtercov.lab.report.inspect_target import model_target, read_target
from filtercov.lab.report.pictures import construction_parts, levels, symmetric_limit

NAMES = ["construction", "covariances", "filters", "schedule"]


def test_parts_of_the_construction_are_the_papers() -> None:
    k, sigma, c = 5, math.pi / 2, 2
    parts = construction_parts(k, sigma)
    blocks = {name: to_block(part, k) for name, part in parts.items()}
    Z = np.array([[math.exp(-((i - c) ** 2 + (j - c) ** 2) / (2 * sigma)) for j in range(k)] for i in range(k)])
    np.testing.assert_allclose(blocks["M"], np.kron(Z, np.ones((k, k))))
    np.testing.assert_allclose(blocks["S"], np.kron(np.ones((k, k)), Z))
    shifted = np.block([[np.roll(Z, (i - c, j - c), axis=(0, 1)) for j in range(k)] for i in range(k)])
    np.testing.assert_allclose(blocks["C"], shifted)
    made = 0.5 * (blocks["M"] * (blocks["C"] - blocks["S"]) + blocks["C"] * blocks["S"])
    np.testing.assert_allclose(blocks["Σ"], made, atol=1e-15)


def test_figures_are_written_in_both_formats_as_wide_as_a_column_and_the_same_every_time(tmp_path: Path) -> None:
    written = write_figures(tmp_path / "new" / "place")
    assert sorted(path.name for path in written) == sorted(
        f"{name}.{kind}" for name in NAMES for kind in ("png", "svg")
    )
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as drawn:
                assert 0.9 * COLUMN_WIDTH < drawn.width / 300 < 1.1 * COLUMN_WIDTH
        else:
            assert path.read_text().startswith("<?xml")
    with styled():
        first, second, other = (save_figure(filters_figure(None, seed=seed), "svg") for seed in (3, 3, 4))
    assert first == second != other


def test_learned_filters_stand_beside_the_drawn_ones(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(64, 64, k, groups=64) for k in (3, 7, 7, 7, 7)))
    with styled():
        figure = filters_figure(model_target(net, "net"))
        titles = [axes.get_title() for axes in figure.get_axes() if axes.get_title()]
        labels = [axes.get_ylabel() for axes in figure.get_axes() if axes.get_ylabel()]
        covariances = covariances_figure(model_target(net, "net"))
    assert titles == ["learned", "drawn from their covariance", "closed form"]
    assert labels == ["layer 2", "layer 4", "layer 5"]  # those with kernels large enough to have structure
    assert "learned" in [axes.get_ylabel() for axes in covariances.get_axes()]
    fc.FilterStatistics.from_model(net).save(tmp_path / "s.safetensors")
    with styled():
        figure = filters_figure(read_target(tmp_path / "s.safetensors"))
    assert "learned" not in [axes.get_title() for axes in figure.get_axes()]


def test_wherever_a_fitted_sigma_is_shown_its_quality_is_too() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(64, 64, 7, groups=64) for _ in range(4)))
    noise = model_target(net, "noise")
    fc.init_(net, "cifar-p2", seed=0)
    drawn = model_target(net, "drawn")
    shown = {}
    with styled():
        for target in (noise, drawn):
            covariances, filters = covariances_figure(target), filters_figure(target)
            under = [axes.get_xlabel() for axes in covariances.get_axes() if axes.get_xlabel()]
            rows = [axes.get_xlabel() for axes in filters.get_axes() if axes.get_xlabel()]
            assert len(under) == 4
            assert len(rows) == 3
            fit = fc.fit_schedule(target.statistics).fit
            said = " ".join(covariances.get_supxlabel().split())
            assert f"The schedule: {fit}." in said
            for i, label in enumerate(under):
                likeness, chance = (float(part.strip("()")) for part in label.split())
                assert likeness == pytest.approx(fit.along[i], abs=0.006)
                assert chance == pytest.approx(fit.layers[i].chance, abs=0.006)
            assert f"likeness {fit.along[0]:.2f}, by chance {fit.layers[0].chance:.2f}" in rows[0]
            shown[target.label] = said
    assert "noise: no layer is more like the closed form" in shown["noise"]
    assert "follows 4 of 4 layers" in shown["drawn"]


def test_no_closed_form_is_drawn_beside_filters_that_do_not_vary() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(16, 16, 7, groups=16) for _ in range(3)))
    nn.init.ones_(net[1].weight)
    with styled():
        in_part = [axes.get_xlabel() for axes in covariances_figure(model_target(net, "in part")).get_axes()]
        nn.init.ones_(net[0].weight)
        nn.init.ones_(net[2].weight)
        flat = model_target(net, "flat")
        covariances, filters = covariances_figure(flat), filters_figure(flat)
    assert [label == "–\n(–)" for label in in_part if label] == [False, True, False]
    assert covariances.get_supxlabel() == "The schedule: no layer has filters that vary."
    titles = [axes.get_title() for axes in (*covariances.get_axes(), *filters.get_axes()) if axes.get_title()]
    assert titles == ["layer 1", "layer 2", "layer 3", "learned", "drawn from their covariance"]
    assert not any(axes.get_xlabel() for axes in (*covariances.get_axes(), *filters.get_axes()))


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e300])
def test_scale_is_symmetric_for_any_size_of_numbers(value: float) -> None:
    values = np.array([-value, 0.0, value])
    found = levels(values, symmetric_limit(values)).tolist()
    assert found == ([127, 127, 127] if value == 0 else [0, 127, 254])
