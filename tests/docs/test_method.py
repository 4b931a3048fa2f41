"""The copy-and-paste version of the method, in docs/method.md, gives the library's filters."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import filtercov
from filtercov.covariance import gaussian_covariance

PAGE = Path(__file__).parents[2] / "docs" / "method.md"
CODE = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]


@pytest.fixture(scope="module")
def pasted():
    names = {}
    exec(CODE, names)
    return names


def test_it_is_short_and_needs_no_filtercov():
    assert len([line for line in CODE.splitlines() if line.strip()]) <= 25
    assert "filtercov" not in CODE


@pytest.mark.parametrize(("k", "sigma"), [(3, 0.5), (5, 0.15), (9, 0.9), (15, 5.0)])
def test_its_covariance_is_the_librarys(pasted, k, sigma):
    np.testing.assert_allclose(pasted["closed_form"](k, sigma), gaussian_covariance(k, sigma), rtol=0, atol=1e-14)


def test_its_filters_are_those_of_init_from_the_same_random_numbers(pasted, monkeypatch):
    def network():
        return nn.Sequential(*(nn.Conv2d(8, 8, k, groups=8) for k in (7, 3, 5, 9)), nn.Conv2d(8, 8, 5))

    drawn = iter([torch.randn(8, k * k, generator=torch.Generator().manual_seed(k)) for k in (7, 5, 9)])
    ours, theirs = network(), network()
    theirs.load_state_dict(ours.state_dict())
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *_, **__: next(drawn).double())
    pasted["init_depthwise_"](theirs)
    monkeypatch.setattr(torch, "randn", randn)
    for index, k in ((0, 7), (2, 5), (3, 9)):
        depth = index / 3
        cov = gaussian_covariance(k, 0.15 + 0.25 * depth + 0.5 * depth**2)
        generator = torch.Generator().manual_seed(k)
        filtercov.covariance_normal_(ours[index].weight, cov, generator=generator)
    for mine, pasted_layer in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.weight, pasted_layer.weight, rtol=0, atol=1e-6)
