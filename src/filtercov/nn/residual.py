"""ConvMixer's residual around a sequence that ends in GELU and BatchNorm2d, added by the operator that does both.

A residual is whatever has timm's name for what it is around, `fn`, perhaps with a `drop_path` after it.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]

from filtercov.nn.replacement import Replacement, does_nothing
from filtercov.nn.routing import is_watched
from filtercov.nn.sequential import FusedSequential, pair_of, run_fused


class FusedResidual(Replacement):
    """What x + fn(x) does differently: nothing but time and memory can tell."""

    if TYPE_CHECKING:  # what every residual has; TorchScript would take it for a type it must obey
        fn: Any

    def forward(self, x: Tensor) -> Tensor:
        """Return the (N, C, H, W) output of the branch plus its input."""
        if is_scripting():  # TorchScript compiles this branch alone, and knows no `super()`
            return self.plain_forward(x)
        if not self._unnoticed():
            return self.plain_forward(x)
        return run_fused(list(self.fn), x, residual=x)

    def _unnoticed(self) -> bool:
        """Return whether nobody can tell that the sequence is not called, but what is in it."""
        parts = [module for name, module in self.named_children() if name != "fn"]
        return (
            type(self.fn) in (nn.Sequential, FusedSequential)
            and all(does_nothing(part) for part in parts)
            and not is_watched(self.fn, *parts)
        )


def ends_in_pair(branch: nn.Module) -> bool:
    """Return whether a branch is a sequence that ends in GELU and BatchNorm2d, which alone are worth it.

    >>> ends_in_pair(nn.Sequential(nn.Conv2d(1, 4, 1), nn.GELU(), nn.BatchNorm2d(4)))
    True
    """
    layers = list(branch) if type(branch) in (nn.Sequential, FusedSequential) else []  # type: ignore[call-overload]
    pair = pair_of(*layers[-2:]) if len(layers) > 1 else None
    return pair is not None and pair.gelu_first
