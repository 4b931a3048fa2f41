"""Make a model PyTorch's own again."""

from torch import nn

from filtercov.depthwise.model import check_model
from filtercov.nn.depthwise import DepthwiseConv2d
from filtercov.nn.layouts import restore_layouts_
from filtercov.nn.sequential import FusedSequential
from filtercov.nn.strided_pointwise import StridedPointwiseConv2d

_ORIGINALS: dict[type[nn.Module], type[nn.Module]] = {
    DepthwiseConv2d: nn.Conv2d,
    StridedPointwiseConv2d: nn.Conv2d,
    FusedSequential: nn.Sequential,
}


def restore_(model: nn.Module) -> tuple[str, ...]:
    """Make filtercov's convolutions `nn.Conv2d` and every `FusedSequential` an `nn.Sequential`; return their names.

    This undoes `accelerate_`, for exporting a model to where there is no filtercov: modules, parameters, hooks and
    state_dict stay, and what `accelerate_` moved to channels_last lies in memory as it did before. Layers that were
    built as filtercov's become PyTorch's too. Subclasses of them are left alone.

    >>> from filtercov.nn import accelerate_
    >>> net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8))
    >>> report = accelerate_(net)
    >>> restore_(net), type(net[0]).__name__
    (('0',), 'Conv2d')
    """
    check_model(model)
    restored = []
    for name, module in model.named_modules():
        if type(module) in _ORIGINALS:
            module.__class__ = _ORIGINALS[type(module)]
            restored.append(name)
    restore_layouts_(model)
    return tuple(restored)
