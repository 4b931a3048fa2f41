"""Layers that cost memory traffic and hardly arithmetic: filtercov beside PyTorch, forward and backward.

BatchNorm2d with the activation after it, which run as one operator, and depthwise filters of one tap, which multiply.
Contestants take turns and the best time of each counts; above 1 means filtercov is faster. Images lie channels last,
those of one tap also channels first. Results and the machine they come from: docs/depthwise.md.

    python benchmarks/elementwise.py [--threads 1] [--seconds 1]
"""

from collections.abc import Callable
from functools import partial

import torch
from depthwise import begin, best_times
from torch import Tensor, nn

from filtercov.nn import DepthwiseConv2d, FusedSequential

NORM_SHAPES = [(16, 64, 64, 64), (16, 16, 64, 64), (16, 240, 16, 16), (16, 480, 8, 8), (16, 40, 16, 16)]
ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.Identity,
    partial(nn.ReLU, inplace=True),
    partial(nn.ReLU6, inplace=True),
    partial(nn.Hardswish, inplace=True),
    partial(nn.SiLU, inplace=True),
    nn.GELU,
]
TAP_SHAPES = [(8, 48, 64, 64), (16, 48, 64, 64), (8, 48, 32, 32), (16, 48, 32, 32), (8, 384, 8, 8), (16, 384, 8, 8)]


def step(layer: nn.Module, x: Tensor, grad_y: Tensor) -> None:
    """Compute the gradients of the input and of every parameter that trains."""
    wanted = [x, *(parameter for parameter in layer.parameters() if parameter.requires_grad)]
    torch.autograd.grad(layer(x), wanted, grad_y)


def compare(theirs: nn.Module, ours: nn.Module, x: Tensor, seconds: float) -> str:
    """Return the cells of a table: milliseconds of both, and how many times as fast ours is."""
    x, grad_y = x.requires_grad_(), torch.randn_like(x)
    contestants = {"theirs": partial(step, theirs, x, grad_y), "ours": partial(step, ours, x, grad_y)}
    best = best_times(contestants, seconds=seconds, rounds=1000)
    return f"{best['theirs'] * 1e3:.2f} | {best['ours'] * 1e3:.2f} | {best['theirs'] / best['ours']:.2f}×"


def norms(seconds: float) -> None:
    """Print a row for each activation and image."""
    print("| norm and | images | PyTorch, ms | ours | faster |\n|---|---|---|---|---|", flush=True)
    for activation in ACTIVATIONS:
        for shape in NORM_SHAPES:
            x = torch.randn(shape).to(memory_format=torch.channels_last)
            layers = nn.BatchNorm2d(shape[1]), activation()
            cells = compare(nn.Sequential(*layers), FusedSequential(*layers), x, seconds)
            print(f"| {type(layers[1]).__name__} | {shape} | {cells} |", flush=True)


def one_tap(seconds: float) -> None:
    """Print a row for each image and layout, trained and frozen."""
    print("| images | channels | filters | PyTorch, ms | ours | faster |\n|---|---|---|---|---|---|", flush=True)
    for shape in TAP_SHAPES:
        for layout, memory_format in (("first", torch.contiguous_format), ("last", torch.channels_last)):
            for frozen in (False, True):
                x = torch.randn(shape).to(memory_format=memory_format)
                theirs, ours = (kind(shape[1], shape[1], 1, groups=shape[1]) for kind in (nn.Conv2d, DepthwiseConv2d))
                ours.passes = 0  # multiply, also where `nn/routing.py` leaves it to PyTorch
                for layer in (theirs, ours):
                    layer.requires_grad_(not frozen)
                cells = compare(theirs, ours, x, seconds)
                print(f"| {shape} | {layout} | {'frozen' if frozen else 'trained'} | {cells} |", flush=True)


def main() -> None:
    seconds = begin(__doc__)
    norms(seconds)
    print()
    one_tap(seconds)


if __name__ == "__main__":
    main()
