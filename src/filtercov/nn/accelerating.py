"""Put filtercov's layers into an existing model, and make it PyTorch's own again."""

from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from filtercov.errors import ConfigError, ModelError
from filtercov.layers.find import check_model, is_depthwise, is_uninitialised, unwrap
from filtercov.nn import library
from filtercov.nn.layouts import is_moved, restore_layouts_, to_channels_last_
from filtercov.nn.memory import keep_freed_memory
from filtercov.nn.strided_pointwise import StridedPointwiseConv2d, is_endangered
from filtercov.nn.swaps import BLOCK, DEPTHWISE, GELU, LAYERS, NORM_ACT, PAIRS, POINTWISE, RESIDUAL, Toggle, toggles
from filtercov.nn.tuning import SECONDS, Candidate, Tuner, check_on_cpu
from filtercov.nn.tuning_report import Tuning
from filtercov.printable import counted

_ENDANGERED = (nn.Conv2d, StridedPointwiseConv2d)


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate_` did, by name: layers swapped, norms and blocks fused, layers left alone and why, made safe.

    `fused` are norms with their activations, in a row or as one module, `residuals` those that the pair before them
    adds, `activations` the GELUs that stand alone. With an example to measure with, `tuning` has what was measured, and
    `products` are the 1x1 convolutions that became products of matrices. `keeps_memory` says whether the process was
    told to keep what it frees.
    """

    swapped: tuple[str, ...]
    fused: tuple[str, ...]
    blocks: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    made_safe: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    tuning: Tuning | None = None
    residuals: tuple[str, ...] = ()
    activations: tuple[str, ...] = ()
    keeps_memory: bool = False

    def __str__(self) -> str:
        """Return one line, one more for each layer left alone, and what was measured."""
        one = len(self.fused) == 1
        lines = [
            f"{counted(len(self.swapped), 'depthwise convolution')} swapped, "
            f"{counted(len(self.fused), 'norm')} fused with {'its activation' if one else 'their activations'}"
        ]
        if self.blocks:
            lines.append(f"{counted(len(self.blocks), 'ConvNeXt block')} fused")
        if self.residuals:
            them = "it" if len(self.residuals) == 1 else "them"
            lines.append(f"{counted(len(self.residuals), 'residual')} added by the pair before {them}")
        if self.activations:
            lines.append(f"{counted(len(self.activations), 'GELU')} computed by filtercov's kernels")
        if self.products:
            lines.append(f"{counted(len(self.products), '1x1 convolution')} run as products of matrices")
        if self.made_safe:
            lines.append(
                f"{counted(len(self.made_safe), 'strided 1x1 convolution')} kept out of a memory fault of PyTorch's"
            )
        if self.keeps_memory:
            lines.append("this process keeps the memory it frees, for the next step")
        lines += [f"left alone: {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join([*lines, *([str(self.tuning)] if self.tuning else [])])


def accelerate_(
    model: nn.Module, *, example_input: Any = None, seconds: float = SECONDS, keep_memory: bool = True
) -> Acceleration:
    """Make every depthwise convolution of a model a `DepthwiseConv1d`, 2d or 3d, in place; move it to channels_last.

    Modules stay the same objects: parameters, optimisers, hooks and state_dict keys are untouched. But filters are laid
    out anew in memory, which optimisers with `fused=True` do not notice once they have taken a step: make these
    afterwards, as for `model.to(memory_format=...)`, and again after `restore_`.

    Where there are native kernels, a BatchNorm2d and the activation after it (or the GELU before it) run as one
    operator: in an `nn.Sequential`, which becomes a `FusedSequential`, in torchvision's `Conv2dNormActivation` and in
    timm's `BatchNormAct2d`; a GELU by itself is computed by them. Blocks of timm's and our ConvNeXt run what follows
    their depthwise layer as one, and residuals of timm's and our ConvMixer are added by the operator before them.
    Layers with a class of their own (subclasses, parametrised ones) are left alone and reported. Strided 1x1
    convolutions of a few channels, whose weight gradient corrupts memory in channels_last (docs/depthwise.md), become
    `StridedPointwiseConv2d`. `restore_` undoes it all.

    With an example (a tensor, or a tuple or dict of what the model's forward takes) each layer, and the layout of the
    whole, becomes what is fastest on this machine for inputs like it, which may be what it was: the time for that is
    about `seconds`, and the report has what was measured. A step is timed forward and backward if the model is in
    training mode and gradients are on and asked for, forward otherwise. Modes, buffers, gradients and random numbers
    stay as they were.

    With `keep_memory`, and a model on the CPU, the process keeps what it frees from then on, where its C library is
    glibc: otherwise activations go back to the system after every step, and their pages are cleared when the next one
    asks for them. That lasts as long as the process.

    `ModelError` is raised for what is no model, has layers that saw no input yet or cannot run the example,
    `ConfigError` for a bad `seconds`.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8), nn.GELU(), nn.BatchNorm2d(8))
    >>> report = accelerate_(net)
    >>> report.swapped, type(net[0]).__name__
    (('0',), 'DepthwiseConv2d')
    """
    check_model(model)
    for name, module in model.named_modules():
        if is_uninitialised(module):
            raise ModelError(
                f"accelerate_: {name} is a {type(module).__name__} that has seen no input yet; run the model once on "
                "an example first"
            )
    library.available()  # says why, once, if nothing will be faster
    keeps_memory = keep_memory and _is_on_cpu(model) and keep_freed_memory()
    done = _by_thresholds_(model) if example_input is None else _tune_(model, example_input, seconds)
    return replace(done, keeps_memory=keeps_memory)


def _is_on_cpu(model: nn.Module) -> bool:
    return any(parameter.is_cpu for parameter in model.parameters())


def _by_thresholds_(model: nn.Module) -> Acceleration:
    found = toggles(model)
    plain = {toggle.name for toggle in found if toggle.setting == toggle.plain}
    endangered = _endangered(model)
    _set_(model, found, Candidate(tuple(toggle.usual for toggle in found), channels_last=True), endangered)
    return _report(model, found, made_safe=tuple(endangered), newly=plain)


def restore_(model: nn.Module) -> tuple[str, ...]:
    """Make filtercov's convolutions and sequences PyTorch's own; return their names.

    This undoes `accelerate_`, for exporting a model to where there is no filtercov: modules, parameters, hooks and
    state_dict stay, and what `accelerate_` moved to channels_last lies in memory as it did before. Layers that were
    built as filtercov's become PyTorch's too. Subclasses of them are left alone.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8))
    >>> report = accelerate_(net)
    >>> restore_(net), type(net[0]).__name__
    (('0',), 'Conv2d')
    """
    check_model(model)
    ours = {toggle.module: toggle for toggle in toggles(model) if toggle.setting != toggle.plain}
    restored = []
    for name, module in model.named_modules():
        if module in ours:
            ours[module].set_(ours[module].plain)
            restored.append(name)
        elif type(module) is StridedPointwiseConv2d:
            module.__class__ = nn.Conv2d  # type: ignore[assignment]
            restored.append(name)
    restore_layouts_(model)
    return tuple(restored)


def _tune_(model: nn.Module, example: Any, seconds: float) -> Acceleration:
    """Keep what is fastest; if the example does not fit, everything is as it was."""
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise ConfigError(f"accelerate_: seconds must be a number of at least 0, got {seconds!r}")
    check_on_cpu(model)
    before, moved, safe = [(t, t.setting) for t in toggles(model)], is_moved(model), _safe(model)
    restore_(model)
    found, endangered = toggles(model), _endangered(model)
    try:
        tuner = Tuner(unwrap(model), example, found, list(endangered.values()), seconds=seconds)
        outcome = tuner.run()
    except BaseException:
        for toggle, setting in before:
            toggle.set_(setting)
        _make_safe_(safe)
        if moved:
            to_channels_last_(model)
        raise
    made_safe = endangered if outcome.candidate.channels_last or not tuner.harmless else {}
    _set_(model, found, outcome.candidate, made_safe)
    return _report(model, found, made_safe=tuple(made_safe), tuning=outcome.report)


def _set_(model: nn.Module, found: list[Toggle], candidate: Candidate, endangered: dict[str, nn.Conv2d]) -> None:
    before = [(toggle, toggle.setting) for toggle in found]
    for toggle, setting in zip(found, candidate.settings, strict=True):
        toggle.set_(setting)
    _make_safe_(endangered)
    try:
        if candidate.channels_last:
            to_channels_last_(model)
    except BaseException as error:
        for toggle, setting in before:
            toggle.set_(setting)
        for module in endangered.values():
            module.__class__ = nn.Conv2d
        if not isinstance(error, Exception):
            raise
        raise ModelError(
            f"accelerate_: the model cannot be laid out channels last ({error}); nothing was changed"
        ) from error


def _make_safe_(endangered: dict[str, nn.Conv2d]) -> None:
    for module in endangered.values():
        module.__class__ = StridedPointwiseConv2d


def _endangered(model: nn.Module) -> dict[str, nn.Conv2d]:
    return {name: m for name, m in model.named_modules() if type(m) is nn.Conv2d and is_endangered(m)}


def _safe(model: nn.Module) -> dict[str, nn.Conv2d]:
    return {name: m for name, m in model.named_modules() if type(m) is StridedPointwiseConv2d}


def _report(
    model: nn.Module,
    found: list[Toggle],
    *,
    made_safe: tuple[str, ...],
    newly: set[str] | None = None,
    tuning: Tuning | None = None,
) -> Acceleration:
    """Return what was done; `newly` are the toggles that were PyTorch's before, all if not given."""
    ours = [toggle for toggle in found if toggle.setting.kind is not toggle.plain.kind]
    swapped, blocks, residuals, products, activations = (
        tuple(t.name for t in ours if t.swap is swap and (newly is None or t.name in newly))
        for swap in (DEPTHWISE, BLOCK, RESIDUAL, POINTWISE, GELU)
    )
    fused = [part.name for t in ours if t.swap in (PAIRS, LAYERS, NORM_ACT) for part in t.parts]
    skipped = _skipped(model, found)
    return Acceleration(swapped, tuple(fused), blocks, skipped, made_safe, products, tuning, residuals, activations)


def _skipped(model: nn.Module, found: list[Toggle]) -> dict[str, str]:
    """Return the layers with a class of their own that are like those that change, and why they were left alone."""
    skipped, changing = {}, {toggle.module for toggle in found}
    for name, module in model.named_modules():
        if module in changing:
            continue
        kind = type(module).__name__
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and is_depthwise(module):
            skipped[name] = f"it is a {kind}, which may compute something else"
        elif isinstance(module, nn.Conv2d) and type(module) not in _ENDANGERED and is_endangered(module):
            skipped[name] = f"it is a {kind}; PyTorch's weight gradient of it may corrupt memory"
    return skipped
