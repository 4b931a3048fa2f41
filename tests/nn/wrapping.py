"""What people do to a module without a hook: give it another forward."""

from torch import nn


def double_output_(module: nn.Module) -> None:
    """Make a module return twice what it computes, by a forward of its own."""
    forward = module.forward
    module.forward = lambda *args: 2 * forward(*args)
