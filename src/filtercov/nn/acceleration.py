"""Put filtercov's layers into an existing model, and make it PyTorch's own again."""

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from filtercov.errors import ModelError
from filtercov.layers.find import check_model, is_depthwise, is_uninitialised, unwrap
from filtercov.layers.running import blaming_the_example, unchanged
from filtercov.nn import gpu, native
from filtercov.nn.conv import is_endangered
from filtercov.nn.layout import restore_layouts_, to_channels_last_
from filtercov.nn.routing import on_gpu
from filtercov.nn.swap import DEPTHWISE, SAFE, toggles
from filtercov.nn.timing import Step, usual_clock
from filtercov.nn.tune import SECONDS, Tuner, Tuning

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1  # as a threshold of trimming


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate_` did: names of the modules that are filtercov's now, by kind, and layers left alone, and why.

    With an example to measure with, `tuning` has what was measured. `keeps_memory` says whether the process was told to
    keep what it frees.
    """

    changed: dict[str, tuple[str, ...]]
    skipped: dict[str, str]
    tuning: Tuning | None = None
    keeps_memory: bool = False

    def __str__(self) -> str:
        """The changes, a line for each layer left alone, and the measurements."""
        counts = [f"{len(names)} × {kind}" for kind, names in self.changed.items()]
        lines = [f"changed: {', '.join(counts) or 'nothing'}"]
        lines += ["this process keeps the memory it frees, for the next step"] * self.keeps_memory
        lines += [f"left alone: {name or 'the model'}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join([*lines, *([str(self.tuning)] if self.tuning else [])])


def accelerate_(
    model: nn.Module, *, example_input: Any = None, seconds: float = SECONDS, keep_memory: bool = True
) -> Acceleration:
    """Make every depthwise convolution of a model a `DepthwiseConv1d`, 2d or 3d, in place; move it to channels_last.

    Modules stay the same objects: parameters, optimisers, hooks and state_dict keys are untouched. But filters move in
    memory, which optimisers with `fused=True` do not notice once they have taken a step: make these afterwards, as for
    `model.to(memory_format=...)`, and again after `restore_`, which undoes it all.

    Norms with their activations, GELUs, residuals of ConvMixers and blocks of ConvNeXts are fused: docs/depthwise.md
    has the list. Layers with a class of their own (subclasses, parametrised ones) are left alone and reported.

    With an example (a tensor, or a tuple or dict of what the model's forward takes) each layer, and the layout of the
    whole, becomes what is fastest on this machine for inputs like it, which may be what it was; that takes about
    `seconds`. A step is timed forward and backward if the model is in training mode and gradients are on, forward
    otherwise. Modes, buffers, gradients and random numbers stay as they were. With `keep_memory`, and a model on the
    CPU, the process keeps the memory it frees from then on. A model on a GPU stays as it is without an example; with
    one, its depthwise convolutions alone are timed and perhaps swapped (docs/gpu.md).

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8), nn.GELU(), nn.BatchNorm2d(8))
    >>> report = accelerate_(net)
    >>> report.changed["depthwise"], type(net[0]).__name__
    (('0',), 'DepthwiseConv2d')
    """
    check_model(model)
    for name, module in model.named_modules():
        if is_uninitialised(module):
            raise ModelError(
                f"accelerate_: {name} is a {type(module).__name__} that has seen no input yet; run the model once on "
                "an example first"
            )
    parameters = list(model.parameters())
    all_on_gpu = bool(parameters) and all(map(on_gpu, parameters))
    if all_on_gpu and example_input is None:
        return Acceleration(
            {}, {"": "on a GPU only a measurement tells; accelerate_(model, example_input=images) makes it"}
        )
    if not all_on_gpu:
        native.available()  # says why, once, if nothing will be faster
    on_cpu = not all_on_gpu and any(parameter.is_cpu for parameter in parameters)
    keeps_memory = keep_memory and on_cpu and keep_freed_memory()
    tuning = None
    if example_input is not None:
        _check_example(model, example_input)
        restore_(model)
    # On a GPU only depthwise convolutions change: the other swaps, and the fault, are of the CPU.
    found = [toggle for toggle in toggles(model) if toggle.swap is DEPTHWISE or not all_on_gpu]
    for toggle in found:
        if example_input is None or toggle.swap is SAFE:
            toggle.set_(toggle.default)
    if example_input is None:
        to_channels_last_(model)
    else:
        measured = [toggle for toggle in found if toggle.swap is not SAFE]
        first = next(iter(parameters), torch.empty(0))
        with torch.cuda.device_of(first):  # type: ignore[no-untyped-call]
            clock = gpu.cuda_clock() if first.is_cuda else usual_clock()
            tuning = Tuner(unwrap(model), example_input, measured, seconds=seconds, clock=clock).run_()
    changed: dict[str, tuple[str, ...]] = {}
    for toggle in found:
        if toggle.setting is not None:
            changed[toggle.swap.kind] = (*changed.get(toggle.swap.kind, ()), *toggle.parts)
    return Acceleration(changed, _skipped(model, {toggle.module for toggle in found}), tuning, keeps_memory)


def restore_(model: nn.Module) -> tuple[str, ...]:
    """Make filtercov's convolutions and sequences PyTorch's own; return their names.

    This undoes `accelerate_`, for exporting a model to where there is no filtercov: modules, parameters, hooks and
    state_dict stay, and what `accelerate_` moved to channels_last gets its old layout. Layers that were built as
    filtercov's become PyTorch's too. Subclasses of them are left alone.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8))
    >>> report = accelerate_(net)
    >>> restore_(net), type(net[0]).__name__
    (('0',), 'Conv2d')
    """
    check_model(model)
    ours = [toggle for toggle in toggles(model) if toggle.setting is not None]
    for toggle in ours:
        toggle.set_(None)
    restore_layouts_(model)
    return tuple(toggle.name for toggle in ours)


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, to use again; return whether its C library can (glibc's).

    A training step frees its activations once they have had their gradients. glibc gives them back to the system, which
    clears each page before it hands it out again, in every step: docs/depthwise.md has what that costs. With this, the
    process holds its peak of memory until it ends.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or none that can be asked
        return False
    # Blocks from mmap are given back one by one, however the heap is kept; so all blocks come from the heap.
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))


def _check_example(model: nn.Module, example: Any) -> None:
    """Raise unless the model runs on the example, where it can be timed; nothing is changed."""
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1 or not {device.type for device in devices} <= {"cpu", "cuda"}:
        raise ModelError(
            "example_input: layers are timed on the CPU or on one GPU, but the model has parameters on "
            f"{', '.join(sorted(map(str, devices)))}; leave the example out, or move the model"
        )
    inner = unwrap(model)
    with unchanged(inner), blaming_the_example():
        Step(inner, example)()


def _skipped(model: nn.Module, found: set[nn.Module]) -> dict[str, str]:
    """The layers of classes of their own that are like those that change, and why they were left alone."""
    skipped = {}
    for name, module in model.named_modules():
        kind = type(module).__name__
        if module in found or not isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            continue
        if is_depthwise(module):
            skipped[name] = f"it is a {kind}, which may compute something else"
        elif isinstance(module, nn.Conv2d) and is_endangered(module) and not on_gpu(module.weight):
            skipped[name] = f"it is a {kind}; PyTorch's weight gradient of it may corrupt memory"
    return skipped
