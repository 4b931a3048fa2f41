"""The copy-and-paste version of the method, in docs/method.md, gives the library's filters."""

import torch
from torch import nn

import filtercov
from filtercov.covariance import gaussian_covariance
from tests.pages import python_blocks, run_page


def test_it_is_short_and_needs_no_filtercov():
    (code,) = python_blocks("method.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    assert "filtercov" not in code


def test_its_filters_are_those_of_init_from_the_same_random_numbers(monkeypatch):
    net = nn.Sequential(*(nn.Conv2d(8, 8, k, groups=8) for k in (7, 3, 5, 9)), nn.Conv2d(8, 8, 5))
    before = [layer.weight.detach().clone() for layer in net]
    drawn = iter([torch.randn(8, k * k, generator=torch.Generator().manual_seed(k)) for k in (7, 5, 9)])
    with monkeypatch.context() as patched:
        patched.setattr(torch, "randn", lambda *_, **__: next(drawn).double())
        run_page("method.md")["init_depthwise_"](net)
    for index, k in ((0, 7), (2, 5), (3, 9)):
        cov = gaussian_covariance(k, 0.15 + 0.25 * index / 3 + 0.5 * (index / 3) ** 2)
        filtercov.covariance_normal_(before[index], cov, generator=torch.Generator().manual_seed(k))
    for layer, expected in zip(net, before, strict=True):
        torch.testing.assert_close(layer.weight, expected, rtol=0, atol=1e-6)
