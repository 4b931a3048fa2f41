"""What people get wrong at first is answered with one sentence that says what was meant, and changes nothing."""

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import CovarianceError, FiltercovError, ModelError, SourceError
from filtercov.plan import InitPlan
from tests.depthwise_layers import network, state, unchanged

STATS = fc.FilterStatistics
NEEDS_A_MODEL = [
    fc.init_,
    fc.freeze_,
    fc.nn.accelerate_,
    STATS.from_model,
    lambda model: fc.copy_filters_(network(7, 7, 7), model),
    lambda model: STATS.from_checkpoint("no.pth", like=model),
]


@pytest.mark.parametrize(
    ("mistake", "kind", "sentence"),
    [
        *[(lambda net, call=call: call(net.state_dict()), ModelError, "got a state dict") for call in NEEDS_A_MODEL],
        (lambda _: fc.init_(nn.Conv2d(3, 8, 3)), ModelError, "needed at least one depthwise .* among its Conv2d"),
        (lambda _: fc.init_(nn.Conv2d), ModelError, "got the class Conv2d; pass the model itself"),
        (lambda _: fc.init_("net.pth"), ModelError, r"got str; .*FilterStatistics.from_checkpoint\(path\)"),
        (lambda net: fc.init_(net, generator=0), SourceError, r"needed a torch.Generator .* got 0; .* seed="),
        (lambda net: fc.init_(net, seed="x"), SourceError, "seed: needed a whole number"),
        (lambda net: fc.init_(net, seed=0, generator=torch.Generator()), SourceError, "got both"),
        (lambda net: fc.fit_schedule(net), SourceError, r"got Sequential; .*FilterStatistics.from_model\(model\)"),
        (lambda net: fc.init_(net, 0.5), SourceError, r"got 0.5; for one σ everywhere pass lambda layer: 0.5"),
        (lambda net: fc.init_(net, "imagenet"), SourceError, "unknown preset 'imagenet'.*did you mean"),
        (lambda net: fc.init_(net, "efficientnet-lite0"), SourceError, "are written 'stats:efficientnet-lite0'"),
        (lambda net: fc.init_(net, min_kernel_size=9), ModelError, "none of 3 .*3 × 7x7 is .*pass min_kernel_size=7"),
        (lambda net: fc.init_(net, network(7, 7, 7)), SourceError, r"got a model, .*from_model\(.* or .*copy_filters_"),
        (lambda net: STATS.from_model(net).at("0.5"), CovarianceError, "a number from 0 .* got '0.5'"),
        (lambda net: InitPlan(fc.depthwise_layers(net), "stats:a", who="x"), SourceError, r"^x: .* pass .*load\('a'\)"),
    ],
)
def test_a_mistake_is_one_sentence_that_says_what_was_meant(mistake, kind, sentence):
    net = network(7, 7, 7)
    before = state(net)
    with pytest.raises(kind, match=sentence) as caught:
        mistake(net)
    assert isinstance(caught.value, FiltercovError)
    assert "\n" not in str(caught.value)
    assert unchanged(net, before)


def test_a_seed_is_a_new_generator_with_that_seed():
    one, two, other = (network(7, 7) for _ in range(3))
    state = torch.random.get_rng_state()
    fc.init_(one, seed=np.int64(3))
    fc.init_(two, generator=torch.Generator().manual_seed(3))
    fc.init_(other, seed=4)
    assert torch.equal(one[1].weight, two[1].weight)
    assert not torch.equal(one[1].weight, other[1].weight)
    a, b = (fc.covariance_normal_(torch.empty(8, 1, 3, 3), np.eye(9), seed=5) for _ in range(2))
    assert torch.equal(a, b)
    assert torch.equal(torch.random.get_rng_state(), state)
