"""What the native kernels are held against: PyTorch's convolution in float64, and the shapes to try."""

import random
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.nn.arguments import Convolution, out_size

CHANNELS = (1, 7, 13, 20, 55, 113, 127, 129, 257)
CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


class Case(NamedTuple):
    """A convolution: of `batch` images with `channels` and `size`, by filters of `kernel`."""

    batch: int
    channels: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    how: Convolution
    channels_last: bool = True

    @property
    def out(self) -> tuple[int, ...]:
        """The size of what comes out."""
        return out_size(self.size, self.kernel, self.how)


def centred(
    batch: int, channels: int, size: tuple[int, ...], kernel: int | tuple[int, ...], *, channels_last: bool = True
) -> Case:
    """Return a convolution of stride 1 that keeps the size, by a filter of a kernel or as wide along every axis."""
    axes = len(size)
    kernel = kernel if isinstance(kernel, tuple) else (kernel,) * axes
    padding = tuple(chain.from_iterable((taps // 2, (taps - 1) // 2) for taps in kernel))
    return Case(batch, channels, size, kernel, Convolution(padding, (1,) * axes, (1,) * axes), channels_last)


def float64_passes(case: Case, x: Tensor, weight: Tensor, bias: Tensor, grad_y: Tensor) -> tuple[Tensor, ...]:
    """Return y, grad_x and grad_weight, by autograd through an explicit zero-padding and an unpadded convolution."""
    x = x.double().requires_grad_()
    weight = weight.double().requires_grad_()
    pairs = [case.how.padding[i : i + 2] for i in range(0, len(case.how.padding), 2)]
    padded = functional.pad(x, list(chain.from_iterable(reversed(pairs))))
    convolve = CONVOLVE[len(case.size)]
    y = convolve(padded, weight, bias.double(), case.how.stride, 0, case.how.dilation, case.channels)
    grad_x, grad_weight = torch.autograd.grad(y, (x, weight), grad_y.double())
    return y.detach(), grad_x, grad_weight


def tensors(case: Case, *, largest: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return x, weight, bias and grad_y of small whole numbers, images in the case's layout."""

    def integers(*shape: int) -> Tensor:
        return torch.randint(-largest, largest + 1, shape, generator=generator).float()

    def image(size: tuple[int, ...]) -> Tensor:
        values = integers(case.batch, case.channels, *size)
        return values.movedim(1, -1).contiguous().movedim(-1, 1) if case.channels_last else values

    return (
        image(case.size),
        integers(case.channels, 1, *case.kernel),
        integers(case.channels),
        image(case.out),
    )


KERNELS = {
    1: [(3,), (4,), (7,), (31,), (64,)],
    2: [(3, 3), (5, 5), (7, 7), (9, 9), (15, 15), (4, 6), (1, 19), (2, 31), (1, 11), (11, 1)],
    3: [(3, 3, 3), (5, 5, 5), (7, 7, 7), (1, 3, 5), (4, 2, 6), (6, 1, 1), (1, 5, 1), (3, 4, 1)],
}
MOST_SIZE, MOST_KERNEL = {1: 60, 2: 20, 3: 8}, {1: 40, 2: 9, 3: 5}


def shapes(axes: int, count: int, seed: int) -> Iterator[Case]:
    """Yield cases of every awkward kind: each of CHANNELS in turn, thin images, kernels larger than the image."""
    rng = random.Random(seed)
    for i in range(count):
        channels = CHANNELS[i % len(CHANNELS)]
        # Large channel counts get small images, so that thousands of shapes stay cheap.
        most = MOST_SIZE[axes] if channels < 32 else max(2, MOST_SIZE[axes] // 2)
        size = tuple(1 if i % 5 == 0 and rng.random() < 0.5 else rng.randint(1, most) for _ in range(axes))
        kernel = tuple(rng.randint(1, MOST_KERNEL[axes]) for _ in range(axes))
        if i % 3 == 0:
            kernel = rng.choice(KERNELS[axes])
        stride, dilation = [1] * axes, [1] * axes
        if i % 4 == 1:
            stride = [rng.randint(1, 3) for _ in range(axes)]
        elif i % 4 == 3:
            dilation = [rng.randint(1, 4) for _ in range(axes)]
        padding = []
        for j in range(axes):
            across = dilation[j] * (kernel[j] - 1) + 1
            before, after = rng.randint(0, across), rng.randint(0, across)
            if i % 2 == 0:  # what networks use
                before, after = (across - 1) // 2, across // 2
            padding += [before + max(0, across - size[j] - before - after), after]
        batch = 0 if i % 50 == 0 else rng.randint(1, 3)
        how = Convolution(tuple(padding), tuple(stride), tuple(dilation))
        yield Case(batch, channels, size, kernel, how, channels_last=i % 7 < 4)
