"""The sampler: its distribution, exact rounding, and the same bits whatever torch's settings, layouts and threads."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import filtercov as fc
from filtercov.covariance import LayerStatistics, symmetric_root
from filtercov.errors import CovarianceError, ModelError
from filtercov.layers.sample import rounded
from tests.depthwise_layers import depthwise, double_by_default, network, seeded
from tests.processes import python
from tests.reference import distribution_faults, usable_covariance


@pytest.mark.parametrize(
    ("kernel_size", "sigma", "negative"), [(3, 0.5, "clip"), (7, 0.3, "abs"), ((1, 11), 1.0, "clip"), (8, 2.0, "abs")]
)
def test_filters_have_the_covariance_asked_for(kernel_size, sigma, negative):
    cov = fc.gaussian_covariance(kernel_size, sigma)
    weight = torch.empty(65_536, 1, *np.broadcast_to(kernel_size, 2), dtype=torch.float64)
    fc.covariance_normal_(weight, cov, negative=negative, seed=0)
    assert distribution_faults(weight.flatten(1).numpy(), usable_covariance(cov, negative)) == []


def test_the_same_seed_gives_the_same_bits_in_every_memory_layout():
    view = torch.empty(128, 9, 9, 1).permute(0, 3, 2, 1)[::2]
    weights = [torch.empty(64, 1, 9, 9), torch.empty(64, 1, 9, 9).contiguous(memory_format=torch.channels_last), view]
    strides = [weight.stride() for weight in weights]
    for weight in weights:
        fc.covariance_normal_(weight, fc.gaussian_covariance(9, 1.2), seed=7)
        assert torch.equal(weight, weights[0])
    assert [weight.stride() for weight in weights] == strides


SCRIPT = """
import hashlib, numpy as np, torch, filtercov as fc
torch.set_num_threads({threads})
net = torch.nn.Sequential(*(torch.nn.Conv2d(c, c, k, groups=c) for c, k in [(700, 9), (96, 31), (300, 13)]))
fc.init_(net, "cifar-p2", seed=0)
factor = np.random.default_rng(0).normal(size=(225, 225))
weight = fc.covariance_normal_(torch.empty(500, 1, 15, 15), factor @ factor.T, seed=0)
data = b"".join(p.detach().numpy().tobytes() for p in [*(layer.weight for layer in net), weight])
print(hashlib.sha256(data).hexdigest())
"""


def test_the_number_of_threads_does_not_change_a_bit():
    one, four = (
        python(SCRIPT.format(threads=threads), OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads).stdout
        for threads in ("1", "4")
    )
    assert one == four


MEAN = np.linspace(-2, 3, 49)
COVARIANCE = fc.gaussian_covariance(7, 0.9)
STATISTICS = fc.FilterStatistics((LayerStatistics("a", (7, 7), 9, MEAN, COVARIANCE),))
SOURCE = network(7, 7, seed=1)


@pytest.mark.parametrize(
    "fill",
    [
        lambda net: fc.init_(net, "cifar-p2", scale="match", seed=5),
        lambda net: fc.init_(net, STATISTICS, seed=5),
        lambda net: fc.init_(net),  # from the global generator of the CPU
        lambda net: fc.covariance_normal_(net[0].weight, COVARIANCE, np.ones(49), seed=5),
        lambda net: fc.copy_filters_(net, SOURCE),
    ],
)
def test_torchs_settings_change_no_bit_of_the_filters(fill):
    fill(expected := network(7, 7))
    assert not torch.equal(expected[0].weight, network(7, 7)[0].weight)
    meta, half = torch.device("meta"), torch.autocast("cpu", torch.bfloat16)
    for setting in (double_by_default(), meta, half, torch.inference_mode()):
        net = network(7, 7)
        with setting:
            fill(net)
        assert all(torch.equal(layer.weight, other.weight) for layer, other in zip(net, expected, strict=True))
        assert net[0].weight.requires_grad


@pytest.mark.parametrize(
    ("weight", "cov", "mean", "error"),
    [
        (torch.ones(4, 1, 9, 9), np.eye(49), None, CovarianceError),
        (torch.ones(4, 1, 3, 3), np.eye(9), np.ones(4), CovarianceError),
        (torch.ones(4, 1, 3, 3), np.eye(9), np.full(9, np.nan), CovarianceError),
        (torch.ones(8, 1, 3, 3, dtype=torch.float16), 1e12 * np.eye(9), None, CovarianceError),  # too large
        (torch.ones(4, 9), np.eye(9), None, ModelError),
        (torch.ones(4, 1, 3, 3, dtype=torch.int8), np.eye(9), None, ModelError),
        (torch.ones(4, 1, 3, 3, device="meta"), np.eye(9), None, ModelError),
        (np.ones((4, 1, 3, 3)), np.eye(9), None, ModelError),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(weight, cov, mean, error):
    with pytest.raises(error):
        fc.covariance_normal_(weight, cov, mean)
    assert getattr(weight, "is_meta", False) or (weight == 1).all()


def nearest(value, dtype):
    """The number of a type that is nearest to a double, of two the one with an even last bit, by exact comparison."""
    kind = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    guess = torch.tensor(value, dtype=torch.float64).to(dtype)
    bits = guess.view(kind) + torch.tensor([-1, 0, 1], dtype=kind)
    candidates = [(float(x), int(b)) for x, b in zip(bits.view(dtype), bits, strict=True) if torch.isfinite(x)]
    return min(candidates, key=lambda c: (abs(Fraction(c[0]) - Fraction(value)), c[1] & 1))[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_number_goes_to_the_nearest_one_of_the_type(dtype):
    rng = np.random.default_rng(0)
    precision = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}[dtype]
    middles = 1 + (2 * rng.integers(0, 2 ** (precision - 1), 25) + 1) * 2.0**-precision
    hard = np.concatenate([middles + sign * 2.0**-e for sign in (-1, 1) for e in (30, 40, 52)] + [middles])
    values = np.concatenate([rng.normal(size=100), hard, -hard, hard * 2.0**-8])
    got = rounded(values, dtype).double().numpy()
    np.testing.assert_array_equal(got, [nearest(x, dtype) for x in values])


@pytest.mark.parametrize(
    ("dtype", "source", "options"),
    [
        (torch.bfloat16, STATISTICS, {}),
        (torch.float16, lambda _: COVARIANCE, {"scale": 0.37}),
        (torch.float32, STATISTICS, {"scale": "match"}),
    ],
)
def test_filters_of_a_narrow_type_are_those_in_double_precision_rounded_once(dtype, source, options):
    torch.manual_seed(0)
    nets = [depthwise(500).to(dtype) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())  # scale="match" looks at the weights there were
    nets[1].double()
    for net in nets:
        fc.init_(net, source, seed=2, **options)
    exact = nets[1].weight.detach().numpy()
    assert torch.equal(nets[0].weight.detach(), rounded(exact, dtype))
    if not options:  # what the sum is: the draws by the root, plus the mean
        drawn = torch.randn(500, 49, generator=seeded(2)).double().numpy()
        np.testing.assert_allclose(exact.reshape(500, 49), drawn @ symmetric_root(COVARIANCE) + MEAN, atol=1e-12)
