"""Where the time of a training step goes on the CPU, by PyTorch's profiler."""

from collections.abc import Callable

import torch

KINDS = ("depthwise", "matrix products", "norms", "rest")

_PRODUCTS = ("convolution", "conv1d", "conv2d", "conv3d", "linear", "::mm", "addmm", "matmul", "::bmm", "baddbmm")
_NORMS = ("batch_norm", "layer_norm", "group_norm")


def step_shares(step: Callable[[], object]) -> dict[str, float]:
    """Return the shares of a step's time by kind of operator; they add up to 1."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as measured:
        step()
    totals = dict.fromkeys(KINDS, 0.0)
    for event in measured.key_averages(group_by_input_shape=True):
        totals[_kind(event.key.lower(), event.input_shapes)] += event.self_cpu_time_total
    return {kind: total / sum(totals.values()) for kind, total in totals.items()}


def _kind(operator: str, shapes: list[list[int]]) -> str:
    if "filtercov" in operator and ("depthwise" in operator or "channel_sum" in operator):
        return "depthwise"
    if any(name in operator for name in _NORMS):
        return "norms"
    if any(name in operator for name in _PRODUCTS):
        # A depthwise filter is the only (C, 1, *kernel) tensor among a convolution's arguments.
        convolves = "conv" in operator and any(len(shape) >= 3 and shape[1] == 1 for shape in shapes)
        return "depthwise" if convolves else "matrix products"
    return "rest"
