"""What the tests of `filtercov.nn` share: operators that were called, oracles in float64, and shapes to try."""

import random
from itertools import chain
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from filtercov.nn import native_status
from filtercov.nn.geometry import Geometry

needs_native = pytest.mark.skipif(not native_status().available, reason="native kernels not built")
CHANNELS_LAST = torch.channels_last
CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def last(x):
    """Return an image of any number of axes with its channels last in memory."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def images(*shape):
    return last(torch.randn(shape))


def double_output_(module):
    """Do what wrappers do without a hook: give a module a forward of its own, which returns twice as much."""
    forward = module.forward
    module.forward = lambda *args: 2 * forward(*args)


class _Record(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name())
        return function(*args, **(kwargs or {}))


def called(function, *args):
    """Return the names of the operators that a call goes through, as PyTorch's dispatcher sees them."""
    with _Record() as record:
        function(*args)
    return record.names


def results(function, *inputs, grad_y=None):
    """Return the output of a function of tensors, and their gradients: for `grad_y`, or of the sum of squares."""
    leaves = [tensor if tensor is None else tensor.detach().requires_grad_() for tensor in inputs]
    y = function(*leaves)
    wanted = [leaf for leaf in leaves if leaf is not None]
    return [y.detach(), *torch.autograd.grad(y.square().sum() if grad_y is None else y, wanted, grad_y)]


def doubles(tensors):
    return [tensor if tensor is None else tensor.double() for tensor in tensors]


def assert_no_worse(ours, theirs, exact, *, times=2.0):
    """Raise if the float32 errors of ours are larger than a few times PyTorch's own."""
    for a, b, e in zip(ours, theirs, exact, strict=True):
        error, other = (a.double() - e).norm(), (b.double() - e).norm()
        assert error <= times * other + 1e-5 * e.norm() + 1e-9


def same_for_any_threads(run):
    """Return whether a function returns the same bits with 1, 2 and 3 threads."""
    before, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(run())
    finally:
        torch.set_num_threads(before)
    return all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


class Case(NamedTuple):
    """A convolution: of `batch` images with `channels` and `size`, by filters of `kernel`."""

    batch: int
    channels: int
    size: tuple
    kernel: tuple
    geometry: Geometry
    channels_last: bool = True

    @property
    def out(self):
        return self.geometry.out_size(self.size, self.kernel)

    def tensors(self, generator, largest=32):
        """Return x, weight, bias and grad_y of small integers, so few that float32 sums of them are exact."""

        def integers(*shape):
            return torch.randint(-largest, largest + 1, shape, generator=generator).float()

        x, grad_y = (integers(self.batch, self.channels, *size) for size in (self.size, self.out))
        x, grad_y = (last(x), last(grad_y)) if self.channels_last else (x, grad_y)
        return x, integers(self.channels, 1, *self.kernel), integers(self.channels), grad_y

    def exact(self, *tensors, dtype=torch.float64):
        """Return PyTorch's y, grad_x and grad_weight, in float64, of what `tensors` returns."""
        return exact_passes(*tensors, *self.geometry, dtype=dtype)


def exact_passes(x, weight, bias, grad_y, padding, stride, dilation, *, dtype=torch.float64):
    """Return y, grad_x and grad_weight in float64, by autograd through explicit padding and F.conv."""
    pairs = [padding[i : i + 2] for i in range(0, len(padding), 2)]
    edges = list(chain.from_iterable(reversed(pairs)))

    def convolve(x, weight):
        return CONVOLVE[len(stride)](functional.pad(x, edges), weight, bias.to(dtype), stride, 0, dilation, len(weight))

    return results(convolve, x.to(dtype), weight.to(dtype), grad_y=grad_y.to(dtype))


def centred(batch, channels, size, kernel, **more):
    """Return a convolution of stride 1 that keeps the size."""
    axes = len(size)
    kernel = kernel if isinstance(kernel, tuple) else (kernel,) * axes
    padding = tuple(chain.from_iterable((taps // 2, (taps - 1) // 2) for taps in kernel))
    return Case(batch, channels, size, kernel, Geometry(padding, (1,) * axes, (1,) * axes), **more)


def random_cases(axes, count, seed):
    """Yield convolutions of every awkward kind: thin images, kernels larger than the image, ragged channels."""
    rng = random.Random(seed)
    most_size, most_kernel = {1: 60, 2: 20, 3: 8}[axes], {1: 40, 2: 11, 3: 6}[axes]
    for i in range(count):
        channels = (1, 7, 13, 20, 55, 113, 129)[i % 7]
        most = most_size if channels < 32 else max(2, most_size // 2)
        size = tuple(1 if i % 5 == 0 and rng.random() < 0.5 else rng.randint(1, most) for _ in range(axes))
        kernel = tuple(rng.choice((1, 3, 5, rng.randint(1, most_kernel))) for _ in range(axes))
        stride = tuple(rng.randint(1, 3) if i % 4 == 1 else 1 for _ in range(axes))
        dilation = tuple(rng.randint(1, 4) if i % 4 == 3 else 1 for _ in range(axes))
        padding = []
        for extent, span in zip(size, Geometry((), stride, dilation).spans(kernel), strict=True):
            before, after = ((span - 1) // 2, span // 2) if i % 2 else (rng.randint(0, span), rng.randint(0, span))
            padding += [before + max(0, span - extent - before - after), after]
        batch = 0 if i % 50 == 0 else rng.randint(1, 3)
        yield Case(batch, channels, size, kernel, Geometry(tuple(padding), stride, dilation), i % 7 < 4)
