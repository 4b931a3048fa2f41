"""Depthwise convolution in one to three dimensions and with strides: filtercov beside PyTorch, forward and backward.

Contestants take turns and the best time of each counts. Above 1 means filtercov is faster than the PyTorch column it is
compared with: the same layout, and the better of both. Where PyTorch's own choice of layout is poor, the second is the
harder test. Results and the machine they come from: docs/depthwise.md.

    python benchmarks/dimensions.py [--threads 2] [--seconds 1]
"""

from functools import partial

import torch
from depthwise import begin, best_times
from torch import Tensor

from filtercov.nn.conv_operators import (
    depthwise_conv,
    depthwise_conv_input_grad,
    depthwise_conv_weight_grad,
    reference_forward,
    reference_input_grad,
    reference_weight_grad,
)
from filtercov.nn.geometry import Geometry, parse_geometry
from filtercov.nn.layout import dense

# Shape, kernel, stride, padding, dilation: speech (Conformer, Vocos, Mamba), volumes (MedNeXt), images that are halved.
CASES = [
    ((8, 256, 400), 31, 1, 15, 1),
    ((8, 144, 1000), 31, 1, 15, 1),
    ((8, 512, 256), 7, 1, 3, 1),
    ((4, 1536, 512), 4, 1, 3, 1),
    ((2, 32, 32, 32, 32), 3, 1, 1, 1),
    ((2, 32, 32, 32, 32), 5, 1, 2, 1),
    ((2, 32, 32, 32, 32), 7, 1, 3, 1),
    ((16, 96, 56, 56), 3, 2, 1, 1),
    ((16, 96, 56, 56), 5, 2, 2, 1),
    ((16, 96, 56, 56), 7, 2, 3, 1),
    ((16, 96, 28, 28), 7, 1, 9, 3),
    ((16, 48, 28, 28), (1, 11), 1, (0, 5), 1),
    ((16, 48, 28, 28), (11, 1), 1, (5, 0), 1),
    ((16, 96, 56, 56), 3, 1, 1, 1),
    ((16, 96, 56, 56), 5, 1, 2, 1),
    ((16, 96, 56, 56), 7, 1, 3, 1),
    ((64, 256, 16, 16), 9, 1, 4, 1),
]
PASSES = ("forward", "input gradient", "weight gradient")
NATIVELY = 7  # all passes


def times_of(which: str, images: dict[str, tuple[Tensor, Tensor]], weight: Tensor, how: Geometry, seconds: float):  # type: ignore[no-untyped-def]
    """Return the best time of each of ours and PyTorch's, by layout."""
    kernel = weight.shape[2:]
    contestants = {}
    for layout, (x, grad_y) in images.items():
        last, size = layout == "last", x.shape[2:]
        if which == "forward":
            ours = partial(depthwise_conv, x, weight, None, *how, NATIVELY)
            theirs = partial(reference_forward, x, weight, None, how)
        elif which == "input gradient":
            ours = partial(depthwise_conv_input_grad, grad_y, weight, *how, size, last, NATIVELY)
            theirs = partial(reference_input_grad, grad_y, weight, how, size)
        else:
            ours = partial(depthwise_conv_weight_grad, grad_y, x, *how, kernel, NATIVELY)
            theirs = partial(reference_weight_grad, grad_y, x, how, kernel)
        contestants |= {f"ours {layout}": ours, f"theirs {layout}": theirs}
    return best_times(contestants, seconds=seconds, rounds=1000)


def main() -> None:
    seconds = begin(__doc__)
    print("Milliseconds, channels first / last:\n")
    head = "".join(f"| {which}, PyTorch | ours " for which in PASSES)
    print(f"| images | kernel | stride, dilation {head}| all, first | all, last | all, better layouts |")
    print("|---|---|---" + "|---|---" * len(PASSES) + "|---|---|---|", flush=True)
    for shape, kernel, stride, padding, dilation in CASES:
        axes = len(shape) - 2
        taps = kernel if isinstance(kernel, tuple) else (kernel,) * axes
        how = parse_geometry(taps, stride=stride, padding=padding, dilation=dilation)
        weight, x = torch.randn(shape[1], 1, *taps), torch.randn(shape)
        grad_y = torch.randn(*shape[:2], *how.out_size(shape[2:], taps))
        images = {"first": (x, grad_y), "last": tuple(dense(t, channels_last=True) for t in (x, grad_y))}
        cells, totals = [], dict.fromkeys(["ours first", "ours last", "theirs first", "theirs last"], 0.0)
        for which in PASSES:
            best = times_of(which, images, weight, how, seconds)
            totals = {name: total + best[name] for name, total in totals.items()}
            cells += [
                f"{best[f'{who} first'] * 1e3:.2f} / {best[f'{who} last'] * 1e3:.2f}" for who in ("theirs", "ours")
            ]
        ratios = [totals[f"theirs {layout}"] / totals[f"ours {layout}"] for layout in ("first", "last")]
        theirs, ours = (min(totals[f"{who} {layout}"] for layout in ("first", "last")) for who in ("theirs", "ours"))
        shown = " | ".join(f"{ratio:.2f}×" for ratio in (*ratios, theirs / ours))
        extent = "×".join(map(str, taps))
        print(f"| {shape} | {extent} | {stride}, {dilation} | {' | '.join(cells)} | {shown} |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
