"""Trained filters made to fit: interpolated and selected ones, compared with slow loops."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import ModelError
from filtercov.lab.experiments.adapting import interpolate_weights_, select_weights_


def network(channels, kernel_size, layers=2, dtype=torch.float32):
    torch.manual_seed(channels)
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(kernel_size)]
    return nn.Sequential(*(kind(channels, channels, kernel_size, groups=channels, dtype=dtype) for _ in range(layers)))


def stages(widths, kernel_size=3):
    return nn.Sequential(*(nn.Conv2d(width, width, kernel_size, groups=width) for width in widths))


def weights(net):
    return [(layer.name, layer.weight) for layer in fc.depthwise_layers(net)]


def interpolated_by_loops(old, new_size):
    """Each new pixel a mean of old ones, weighted by how near they are along each axis, from the middles of pixels."""
    new = np.zeros(new_size)
    for place in itertools.product(*map(range, new_size)):
        nearest = []
        for i, k, k_new in zip(place, old.shape, new_size, strict=True):
            x = min(max((i + 0.5) * k / k_new - 0.5, 0), k - 1)
            low = math.floor(x)
            nearest.append([(low, 1 - (x - low)), (min(low + 1, k - 1), x - low)])
        for corner in itertools.product(*nearest):
            new[place] += math.prod(share for _, share in corner) * old[tuple(at for at, _ in corner)]
    return new


@pytest.mark.parametrize(
    ("old", "new"),
    [((3, 3), (7, 7)), ((3, 5), (4, 5)), ((3,), (8,)), ((1, 1), (3, 3)), ((3,) * 3, (5,) * 3)],
)
def test_enlarged_filters_are_interpolated_linearly(old, new):
    source, target = network(4, old, dtype=torch.float64), network(4, new, dtype=torch.float64)
    report = interpolate_weights_(target, weights(source))
    assert [row.source_layer for row in report] == ["0", "1"]
    for before, after in zip(source, target, strict=True):
        for small, large in zip(before.weight.detach()[:, 0], after.weight.detach()[:, 0], strict=True):
            np.testing.assert_allclose(large.numpy(), interpolated_by_loops(small.numpy(), new), atol=1e-14)


def test_enlarging_to_the_same_size_copies_and_depth_is_matched_as_in_direct_transfer():
    source, target, copied = network(4, (5, 5), layers=3), network(4, (5, 5), layers=5), network(4, (5, 5), layers=5)
    interpolate_weights_(target, weights(source))
    fc.copy_filters_(copied, source)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(target, copied, strict=True))


def test_selection_takes_evenly_spaced_filters_of_the_first_layers_of_each_stage():
    source, target = stages([12, 12, 12, 24, 24]), stages([6, 6, 10])
    report = select_weights_(target, weights(source))
    assert [row.source_layer for row in report] == ["0", "1", "3"]
    assert torch.equal(target[0].weight, source[0].weight[::2])  # every second, where half as many are wanted
    assert torch.equal(target[1].weight, source[1].weight[::2])
    expected = torch.stack([source[3].weight[i * 24 // 10] for i in range(10)])
    assert torch.equal(target[2].weight, expected)


@pytest.mark.parametrize(
    ("carry", "source", "target"),
    [
        (interpolate_weights_, stages([6], 5), stages([6], 3)),  # smaller filters
        (interpolate_weights_, stages([4], 3), stages([6], 5)),  # more of them
        (interpolate_weights_, network(6, (3,)), stages([6], 5)),  # of other dimensions
        (select_weights_, stages([4]), stages([6])),  # more filters
        (select_weights_, stages([8], 5), stages([6], 3)),  # of another size
        (select_weights_, stages([8, 8]), stages([4, 4, 4])),  # more layers
        (select_weights_, stages([8, 8]), stages([4, 6])),  # more stages
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(carry, source, target):
    before = [layer.weight.detach().clone() for layer in target]
    with pytest.raises(ModelError):
        carry(target, weights(source))
    assert all(torch.equal(layer.weight, old) for layer, old in zip(target, before, strict=True))
