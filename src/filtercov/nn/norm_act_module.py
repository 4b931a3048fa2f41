"""A module that is BatchNorm2d and an activation in one, as timm's: the operator that does both computes it."""

from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]

from filtercov.nn.batch_norms import activation_of, is_affine, norm_act, unnoticed, worth_a_call
from filtercov.nn.replacement import Replacement, does_nothing


class FusedNormAct(Replacement):
    """What such a module does differently: nothing but time and memory can tell.

    It is a BatchNorm2d with timm's names for what follows the norm, `drop` and `act`.
    """

    if TYPE_CHECKING:  # what every such module has; TorchScript would take these for types it must obey
        drop: Any
        act: Any

    def forward(self, x: Tensor) -> Tensor:
        """Return the (N, C, H, W) activation of the norm of x."""
        if is_scripting():  # TorchScript compiles this branch alone, and knows no `super()`
            return self.plain_forward(x)
        norm = cast(nn.BatchNorm2d, self)
        if (
            is_norm_act(self)
            and does_nothing(self.drop)
            and unnoticed(norm, x, self.act, self.drop)
            and worth_a_call(x)
        ):
            return norm_act(norm, self.act, x)
        return self.plain_forward(x)


def is_norm_act(module: nn.Module) -> bool:
    """Return whether a BatchNorm2d with a `drop` and an `act` is affine, and has an activation that there is."""
    return is_affine(cast(nn.BatchNorm2d, module)) and activation_of(cast(nn.Module, module.act)) is not None
