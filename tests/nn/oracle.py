"""What the native kernels are held against: PyTorch's convolution in float64, and the shapes to try."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.nn.library import Geometry

CHANNELS = (1, 7, 13, 20, 55, 113, 127, 129, 257)


def out_padding(g: Geometry) -> tuple[int, int, int, int]:
    """Return (left, right, top, bottom) zeros around the input, negative where it is cropped."""
    right = g.out_width + g.kernel_width - 1 - g.width - g.pad_left
    bottom = g.out_height + g.kernel_height - 1 - g.height - g.pad_top
    return g.pad_left, right, g.pad_top, bottom


def float64_passes(g: Geometry, x: Tensor, weight: Tensor, bias: Tensor, grad_y: Tensor) -> tuple[Tensor, ...]:
    """Return y, grad_x and grad_weight, by autograd through an explicit zero-padding and an unpadded convolution."""
    x = x.double().requires_grad_()
    weight = weight.double().requires_grad_()
    y = functional.conv2d(functional.pad(x, out_padding(g)), weight, bias.double(), groups=g.channels)
    grad_x, grad_weight = torch.autograd.grad(y, (x, weight), grad_y.double())
    return y.detach(), grad_x, grad_weight


def integers(*shape: int, largest: int, generator: torch.Generator) -> Tensor:
    """Return small whole numbers as float32, images in channels_last."""
    values = torch.randint(-largest, largest + 1, shape, generator=generator).float()
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def tensors(g: Geometry, *, largest: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return x, weight, bias and grad_y for a geometry."""
    return (
        integers(g.batch, g.channels, g.height, g.width, largest=largest, generator=generator),
        integers(g.channels, 1, g.kernel_height, g.kernel_width, largest=largest, generator=generator).contiguous(),
        integers(g.channels, largest=largest, generator=generator),
        integers(g.batch, g.channels, g.out_height, g.out_width, largest=largest, generator=generator),
    )


def shapes(count: int, seed: int) -> Iterator[Geometry]:
    """Yield geometries of every awkward kind: each of CHANNELS in turn, thin images, kernels larger than the image."""
    rng = random.Random(seed)
    for i in range(count):
        channels = CHANNELS[i % len(CHANNELS)]
        # Large channel counts get small images, so that thousands of shapes stay cheap.
        most = 20 if channels < 32 else 9
        height, width = rng.randint(1, most), rng.randint(1, most)
        if i % 5 == 0:
            height, width = rng.choice([(1, width), (height, 1), (1, 1)])
        kernel = rng.randint(1, 9), rng.randint(1, 9)
        if i % 3 == 0:
            kernel = rng.choice([(3, 3), (5, 5), (7, 7), (9, 9), (15, 15), (4, 6), (1, 19), (2, 31)])
        top, bottom = rng.randint(0, kernel[0]), rng.randint(0, kernel[0])
        left, right = rng.randint(0, kernel[1]), rng.randint(0, kernel[1])
        if i % 2 == 0:  # what networks use
            top, bottom, left, right = (kernel[0] - 1) // 2, kernel[0] // 2, (kernel[1] - 1) // 2, kernel[1] // 2
        out = height + top + bottom - kernel[0] + 1, width + left + right - kernel[1] + 1
        if min(out) < 1:
            top, left, out = top + 1 - min(out[0], 1), left + 1 - min(out[1], 1), (max(out[0], 1), max(out[1], 1))
        batch = 0 if i % 50 == 0 else rng.randint(1, 3)
        yield Geometry(batch, channels, height, width, *kernel, top, left, *out)
