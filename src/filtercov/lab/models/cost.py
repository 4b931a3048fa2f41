"""What a network costs, counted by running it once: for planning runs that are equal in compute."""

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from filtercov.layers.running import run_once


def flops(model: nn.Module, image_size: int) -> int:
    """Return the multiply-adds of one image's forward pass, as torch's counter finds them: half of what it calls flops.

    The training state, the weights and BatchNorm's statistics stay as they were.

    >>> flops(nn.Conv2d(1, 4, 3, padding=1), image_size=8)
    2304
    """
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    with FlopCounterMode(display=False) as counter:
        run_once(model, first.weight.new_zeros(1, first.in_channels, image_size, image_size))
    return int(counter.get_total_flops()) // 2


def parameters(model: nn.Module) -> int:
    """Return the number of parameters, trainable or frozen.

    >>> parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters())
