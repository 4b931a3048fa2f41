"""What a network costs, counted by running it once: for planning runs that are equal in compute."""

from torch import Tensor, nn

from filtercov.depthwise.running import run_once


def flops(model: nn.Module, image_size: int) -> int:
    """Return the multiply-adds of one image's forward pass through convolutions and linear layers.

    The training state, the weights and BatchNorm's statistics stay as they were.

    >>> flops(nn.Conv2d(1, 4, 3, padding=1), image_size=8)
    2304
    """
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    total = 0

    def count(module: nn.Module, output: Tensor) -> None:
        nonlocal total
        # Each output value is a dot product with one row of the weight.
        total += output.numel() * module.weight[0].numel()  # type: ignore[index]

    modules = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    run_once(model, first.weight.new_zeros(1, first.in_channels, image_size, image_size), watch=modules, see=count)
    return total


def parameters(model: nn.Module) -> int:
    """Return the number of parameters, trainable or frozen.

    >>> parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters())
