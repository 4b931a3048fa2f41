"""The sampler against its distribution, with planted faults to show that the tests could tell."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import filtercov as fc
from filtercov.errors import CovarianceError, ModelError
from tests.distribution import distribution_faults
from tests.reference import usable_covariance

N = 65_536


def draw(cov, kernel_size, *, negative="clip", mean=None, seed=0, count=N):
    shape = (kernel_size,) * 2 if isinstance(kernel_size, int) else kernel_size
    weight = torch.empty(count, 1, *shape, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    fc.covariance_normal_(weight, cov, mean, negative=negative, generator=generator)
    return weight.reshape(count, -1).numpy()


@pytest.mark.parametrize("negative", ["clip", "abs"])
@pytest.mark.parametrize(("kernel_size", "sigma"), [(3, 0.5), (7, 0.3), (9, 1.9), ((1, 11), 1.0), (8, 2.0)])
def test_filters_have_the_covariance_asked_for(kernel_size, sigma, negative):
    cov = fc.gaussian_covariance(kernel_size, sigma)
    samples = draw(cov, kernel_size, negative=negative)
    assert distribution_faults(samples, usable_covariance(cov, negative)) == []


def test_init_draws_from_the_closed_form_of_its_schedule():
    net = torch.nn.Conv2d(N, N, 7, groups=N, bias=False)
    fc.init_(net, fc.QuadraticSchedule(0.6, 0.1, 0.2), generator=torch.Generator().manual_seed(0))
    samples = net.weight.detach().double().reshape(N, -1).numpy()
    assert distribution_faults(samples, usable_covariance(fc.gaussian_covariance(7, 0.6), "clip")) == []


@pytest.mark.parametrize(
    "fault",
    [
        lambda cov: fc.to_block(cov, 7),  # the block form where the flat one belongs
        lambda _: fc.gaussian_covariance(7, 0.6**2),  # σ² for σ
        lambda cov: 2 * cov,  # the ½ dropped
        lambda cov: usable_covariance(cov, "abs"),  # the other way with negative eigenvalues
    ],
)
def test_the_distribution_test_notices_planted_faults(fault):
    cov = fc.gaussian_covariance(7, 0.6)
    asymmetric = fault(cov)
    samples = draw((asymmetric + asymmetric.T) / 2, 7)
    assert distribution_faults(samples, usable_covariance(cov, "clip")) != []


def test_the_mean_is_added():
    mean = np.linspace(-1, 1, 9)
    samples = draw(fc.gaussian_covariance(3, 0.5), 3, mean=mean)
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=5 * 0.8 / np.sqrt(N))


def test_a_rank_deficient_covariance_gives_filters_in_its_span():
    filters = np.random.default_rng(0).normal(size=(4, 5, 5))
    mean, cov = fc.empirical_covariance(filters)
    samples = draw(cov, 5, mean=mean, count=100)
    assert np.linalg.matrix_rank(samples - mean, tol=1e-5) == 3


def reference_weight(seed=7):
    weight = torch.empty(64, 1, 9, 9)
    return fc.covariance_normal_(weight, fc.gaussian_covariance(9, 1.2), generator=torch.Generator().manual_seed(seed))


def test_the_same_seed_gives_the_same_bits_in_every_memory_layout():
    expected = reference_weight()
    for layout in (torch.contiguous_format, torch.channels_last):
        weight = torch.empty(64, 1, 9, 9).contiguous(memory_format=layout)
        strides = weight.stride()
        fc.covariance_normal_(weight, fc.gaussian_covariance(9, 1.2), generator=torch.Generator().manual_seed(7))
        assert weight.stride() == strides
        assert torch.equal(weight, expected)
    view = torch.empty(128, 9, 9, 1).permute(0, 3, 2, 1)[::2]
    fc.covariance_normal_(view, fc.gaussian_covariance(9, 1.2), generator=torch.Generator().manual_seed(7))
    assert torch.equal(view, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_types_are_the_double_precision_filters_rounded_once(dtype):
    cov, generator = fc.gaussian_covariance(9, 1.2), torch.Generator()
    exact = fc.covariance_normal_(torch.empty(8, 1, 9, 9).double(), cov, generator=generator.manual_seed(3))
    rounded = fc.covariance_normal_(torch.empty(8, 1, 9, 9, dtype=dtype), cov, generator=generator.manual_seed(3))
    assert torch.equal(rounded, exact.to(dtype))


def test_init_and_covariance_normal_agree_on_every_filter_that_has_no_empty_margin():
    net = torch.nn.Conv2d(32, 32, 9, groups=32)
    fc.init_(net, fc.QuadraticSchedule(0.7, 0, 0), generator=torch.Generator().manual_seed(5))
    weight = torch.empty(32, 1, 9, 9)
    fc.covariance_normal_(weight, fc.gaussian_covariance(9, 0.7), generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(net.weight.detach(), weight, rtol=0, atol=1e-6)


def test_filters_with_an_empty_margin_have_the_closed_forms_covariance():
    net = torch.nn.Conv2d(65536, 65536, 11, groups=65536)
    fc.init_(net, fc.QuadraticSchedule(0.1, 0, 0), generator=torch.Generator().manual_seed(5))
    filters = net.weight.detach().double().flatten(1)
    assert not filters.reshape(-1, 11, 11)[:, [0, 1, -2, -1]].any()
    wanted = fc.symmetric_root(fc.gaussian_covariance(11, 0.1))
    wanted = torch.from_numpy(wanted @ wanted)
    error = (filters.T @ filters / len(filters) - wanted).norm()
    standard = ((wanted.norm() ** 2 + wanted.trace() ** 2) / len(filters)).sqrt()
    assert error <= 1.5 * standard


SCRIPT = """
import hashlib, numpy as np, torch, filtercov as fc
torch.set_num_threads({threads})
net = torch.nn.Sequential(*(torch.nn.Conv2d(c, c, k, groups=c) for c, k in [(700, 9), (96, 31), (300, 13)]))
generator = torch.Generator().manual_seed(0)
fc.init_(net, "cifar-p2", generator=generator)
factor = np.random.default_rng(0).normal(size=(225, 225))
weight = fc.covariance_normal_(torch.empty(500, 1, 15, 15), factor @ factor.T, generator=generator)
data = b"".join(p.detach().numpy().tobytes() for p in [*(layer.weight for layer in net), weight])
print(hashlib.sha256(data).hexdigest())
"""


def test_the_number_of_threads_does_not_change_a_bit():
    digests = set()
    for threads in ("1", "2", "4"):
        environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        script = SCRIPT.format(threads=threads)
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(run.stdout.strip())
    assert len(digests) == 1


def test_the_global_generator_is_the_default_as_in_torch_nn_init():
    torch.manual_seed(11)
    first = fc.covariance_normal_(torch.empty(4, 1, 5, 5), np.eye(25))
    second = fc.covariance_normal_(torch.empty(4, 1, 5, 5), np.eye(25))
    torch.manual_seed(11)
    again = fc.covariance_normal_(torch.empty(4, 1, 5, 5), torch.eye(25))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("weight", "cov", "mean", "error", "message"),
    [
        (
            torch.ones(4, 1, 9, 9),
            np.eye(49),
            None,
            CovarianceError,
            r"9x9 filters need a \(81, 81\) .*resize_covariance\(cov, 7, 9\)",
        ),
        (torch.ones(4, 1, 3, 3), np.full((9, 9), np.inf), None, CovarianceError, "81 nan or inf"),
        (torch.ones(4, 1, 3, 3), np.triu(np.ones((9, 9))), None, CovarianceError, "differs from its transpose"),
        (torch.ones(4, 1, 3, 3), np.eye(9), np.ones(4), CovarianceError, r"need a \(9,\) mean, got \(4,\)"),
        (torch.ones(4, 1, 3, 3), np.eye(9), np.full(9, np.nan), CovarianceError, "mean: needed finite"),
        (torch.ones(4, 9), np.eye(9), None, ModelError, "needed a convolution weight"),
        (torch.ones(4, 1, 3, 3, dtype=torch.int8), np.eye(9), None, ModelError, "floating-point weight"),
        (torch.ones(4, 1, 3, 3, device="meta"), np.eye(9), None, ModelError, "meta device"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(weight, cov, mean, error, message):
    with pytest.raises(error, match=message):
        fc.covariance_normal_(weight, cov, mean)
    assert weight.device.type == "meta" or (weight == 1).all()


def test_filters_too_large_for_the_weights_type_are_not_written():
    weight = torch.ones(8, 1, 3, 3, dtype=torch.float16)
    with pytest.raises(CovarianceError, match=r"covariance_normal_: needed filters that torch\.float16 can hold"):
        fc.covariance_normal_(weight, 1e12 * np.eye(9), seed=0)
    assert (weight == 1).all()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(1, 1, 3, 3).expand(4, 1, 3, 3), "whose numbers share memory with each other, .*clone it first"),
        ([[[[1.0]]]], r"as a torch\.Tensor, got list"),
        (np.ones((4, 1, 3, 3)), r"as a torch\.Tensor, got ndarray"),
        (torch.nn.LazyConv2d(4, 3).weight, "got that of a lazy layer without one yet; run the model once"),
        (torch.ones(4, 1, 3, 3).to_sparse(), r"a dense weight, got one of layout torch\.sparse_coo; .*to_dense"),
        (torch.ones(4, 1, 3, 3).to_mkldnn(), r"a dense weight, got one of layout torch\._mkldnn; .*to_dense"),
    ],
    ids=["expanded", "list", "array", "lazy", "sparse", "mkldnn"],
)
def test_what_cannot_be_filled_is_refused_and_no_random_number_is_drawn(weight, message):
    state = torch.random.get_rng_state()
    with pytest.raises(ModelError, match=f"^covariance_normal_: needed .*{message}"):
        fc.covariance_normal_(weight, np.eye(9))
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_covariance_with_the_negative_bit_is_what_it_shows():
    drawn = [torch.empty(4, 1, 3, 3) for _ in range(2)]
    fc.covariance_normal_(drawn[0], torch.eye(9, dtype=torch.float64), seed=0)
    fc.covariance_normal_(drawn[1], torch._neg_view(-torch.eye(9, dtype=torch.float64)), seed=0)
    assert torch.equal(*drawn)
