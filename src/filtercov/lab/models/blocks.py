"""The small parts both architectures share."""

from torch import Tensor, nn
from torch.nn.functional import layer_norm

from filtercov.nn.fused import DROPOUTS


class StochasticDepth(nn.Module):
    """Drop a residual branch of whole images with probability `rate` while training (Huang et al., 2016).

    Surviving branches are scaled by 1 / (1 - rate), so the expectation does not change; in evaluation nothing happens.

    >>> import torch
    >>> StochasticDepth(0.5).eval()(torch.ones(1, 1, 1, 1)).item()
    1.0
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """The (N, C, H, W) branch with some of its images zeroed."""
        if not self.training or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        return x * x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(keep).div_(keep)

    def extra_repr(self) -> str:  # noqa: D102
        return f"rate={self.rate:g}"


DROPOUTS[StochasticDepth] = "rate"


class LayerNorm2d(nn.LayerNorm):
    """Normalise an (N, C, H, W) map over its channels, pixel by pixel.

    In channels_last memory the permutation is a view, so this costs no copy.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised map, same shape."""
        x = layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


def depth_rates(rate: float, depth: int) -> list[float]:
    """Stochastic depth's linear rule: 0 at the first block, `rate` at the last.

    >>> depth_rates(0.2, 3)
    [0.0, 0.1, 0.2]
    """
    return [rate * block / max(depth - 1, 1) for block in range(depth)]
