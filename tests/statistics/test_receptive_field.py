"""The effective receptive field, against one gradient per channel, in networks that are left exactly as they were."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from filtercov.errors import ModelError
from filtercov.statistics.receptive_field import receptive_field


def network(channels: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, channels, 3, padding=1, stride=2),
        nn.BatchNorm2d(channels),
        nn.GELU(),
        nn.Conv2d(channels, channels, 5, padding=2, groups=channels),
        nn.Dropout(0.5),
        nn.Conv2d(channels, channels, 1),
        nn.Flatten(),
        nn.LazyLinear(4),
    )


def slow_field(body: nn.Module, example: torch.Tensor) -> np.ndarray:
    """Σ over images and channels of (∂y_c/∂x)², one channel and one image at a time, in double precision."""
    body = body.double().eval()
    total = torch.zeros(example.shape[2:], dtype=torch.float64)
    for image in example.double():
        x = image[None].clone().requires_grad_()
        y = body(x)
        for channel in range(y.shape[1]):
            [gradient] = torch.autograd.grad(y[0, channel, y.shape[2] // 2, y.shape[3] // 2], x, retain_graph=True)
            total += gradient[0].square().sum(dim=0)
    return (total / total.sum()).numpy()


def test_the_field_is_the_squared_gradient_of_every_channel_at_the_centre() -> None:
    net = network()
    example = torch.randn(3, 2, 24, 24)
    net(example)  # gives the lazy layer its weights
    field = receptive_field(net, example)
    assert field.layer == "5"
    expected = slow_field(nn.Sequential(*list(net)[:6]), example)
    # Random signs estimate the sum over channels: 8 of them for each of 3 images.
    assert np.abs(field.shares - expected).sum() < 0.5
    outside = expected == 0
    assert (field.shares[outside] == 0).all()
    assert outside.mean() > 0.5
    y, x = np.indices(expected.shape)
    centre = [(expected * place).sum() for place in (y, x)]
    radius = math.sqrt((expected * ((y - centre[0]) ** 2 + (x - centre[1]) ** 2)).sum())
    assert field.radius.value == pytest.approx(radius, rel=0.1)
    assert field.centre == pytest.approx(centre, abs=0.5)


@pytest.mark.parametrize("size", [(21,), (5, 7, 9)])
def test_a_linear_layer_of_one_channel_shows_its_filter(size: tuple[int, ...]) -> None:
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(size)]
    layer = kind(1, 1, 3, padding=1, bias=False)
    field = receptive_field(layer, torch.randn(1, 1, *size))
    weight = layer.weight.detach().double().numpy()[0, 0]
    expected = np.zeros(size)
    expected[tuple(slice(k // 2 - 1, k // 2 + 2) for k in size)] = weight**2 / (weight**2).sum()
    np.testing.assert_allclose(field.shares, expected, atol=1e-6)
    assert field.widest == pytest.approx(math.sqrt(sum((k * k - 1) / 12 for k in size)))


def test_the_model_is_left_exactly_as_it_was() -> None:
    net = network()
    net(torch.randn(2, 2, 12, 12)).sum().backward()
    net[1].eval()
    before = [*net.state_dict().values(), *(parameter.grad for parameter in net.parameters())]
    copies = [tensor.clone() for tensor in before]
    example = torch.randn(2, 2, 12, 12, generator=torch.Generator().manual_seed(0))
    random = torch.random.get_rng_state()
    one = receptive_field(net, example)
    with torch.no_grad():
        again = receptive_field(net, example)
    assert np.array_equal(one.shares, again.shares)
    assert one.radius == again.radius
    assert torch.equal(torch.random.get_rng_state(), random)
    assert all(map(torch.equal, before, copies))
    assert [module.training for module in net] == [True, False, *[True] * 6]
    assert not example.requires_grad


def test_the_radius_stands_beside_that_of_independent_filters() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(16, 16, 7, padding=3, groups=16) for _ in range(2)))
    example = torch.randn(1, 16, 31, 31)
    before = receptive_field(nn.DataParallel(net), example)
    for layer in net:
        nn.init.zeros_(layer.weight)
        layer.weight.data[:, 0, 3, 3] = 1.0
    after = receptive_field(net, example)
    assert after.radius.value == pytest.approx(0.0, abs=1e-6)
    assert after.radius.beyond_chance
    assert not before.radius.beyond_chance  # PyTorch's uniform weights are independent
    # Two layers of independent 7x7 filters: variances 4 along each of two axes, twice.
    assert before.radius.chance == pytest.approx(4.0, rel=0.1)
    assert after.radius.chance == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize(
    "net",
    [nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 3, groups=4)), nn.Conv2d(4, 4, 3)],
    ids=["parametrised", "none"],
)
def test_without_depthwise_filters_to_draw_anew_there_is_no_chance_level(net: nn.Module) -> None:
    field = receptive_field(net, torch.randn(1, 4, 9, 9))
    assert field.radius.chance is None
    assert "no depthwise filters" in field.radius.reason


def test_what_cannot_be_looked_at_is_refused() -> None:
    net, image = nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten()), torch.ones(1, 2, 8, 8)
    for wrong in (torch.ones(3, 3), image.byte(), image.to("meta"), [image], torch.ones(1, 2, 2, 2, 2, 2)):
        with pytest.raises(ModelError, match="needed example inputs"):
            receptive_field(net, wrong)
    with pytest.raises(ModelError, match="running the model on it failed"):
        receptive_field(net, torch.ones(1, 5, 8, 8))
    for blind in (nn.Flatten(), nn.Sequential(nn.AdaptiveAvgPool2d(1)), nn.Hardtanh(0.0, 0.5).requires_grad_(False)):
        with pytest.raises(ModelError, match=r"saw none|finite gradient"):
            receptive_field(blind, image)
    with pytest.raises(ModelError, match="a finite gradient at the input"):
        receptive_field(nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Threshold(1e9, 0.0)), image)
