"""ConvMixer: Trockman & Kolter, "Patches Are All You Need?", TMLR 2023 (arXiv 2201.09792).

A patch embedding, then `depth` times a depthwise convolution with a residual around it (spatial mixing) and a pointwise
one (channel mixing), each followed by GELU and BatchNorm; mean over pixels; a linear classifier. Module names are
timm's, so state dicts load both ways. Stochastic depth, at the end of the file, is ConvNeXt's too.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from filtercov.nn import DepthwiseConv2d
from filtercov.nn.fused import DROPOUTS, FusedResidual


@dataclass(frozen=True)
class ConvMixerSpec:
    """The numbers in a name such as `convmixer_256_8_k9_p2`."""

    width: int
    depth: int
    kernel_size: int
    patch_size: int

    @property
    def name(self) -> str:
        """The name this was parsed from."""
        return f"convmixer_{self.width}_{self.depth}_k{self.kernel_size}_p{self.patch_size}"


class Residual(nn.Module):
    """x + fn(x), where training may drop fn(x)."""

    def __init__(self, fn: nn.Module, *, drop_path_rate: float) -> None:
        super().__init__()
        self.fn = fn
        self.drop_path = StochasticDepth(drop_path_rate)

    def forward(self, x: Tensor) -> Tensor:
        """The mixed (N, C, H, W) map."""
        return self.drop_path(self.fn(x)) + x  # type: ignore[no-any-return]


class FastResidual(FusedResidual, Residual):
    """`Residual`, added in the same pass as BatchNorm: what `accelerate_` makes of it."""


class ConvMixer(nn.Sequential):
    """The network of a `ConvMixerSpec`, from images to logits, initialised by PyTorch's defaults as the paper's is.

    >>> import torch
    >>> net = ConvMixer(ConvMixerSpec(8, 2, kernel_size=3, patch_size=2), num_classes=10, in_channels=1)
    >>> net(torch.zeros(4, 1, 28, 28)).shape
    torch.Size([4, 10])
    """

    def __init__(self, spec: ConvMixerSpec, *, num_classes: int, in_channels: int, drop_path_rate: float = 0.0) -> None:
        super().__init__()
        self.spec = spec
        patches = nn.Conv2d(in_channels, spec.width, spec.patch_size, stride=spec.patch_size)
        self.stem = nn.Sequential(patches, nn.GELU(), nn.BatchNorm2d(spec.width))
        self.blocks = nn.Sequential(*(_block(spec, rate) for rate in depth_rates(drop_path_rate, spec.depth)))
        self.pooling = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(spec.width, num_classes)


def _block(spec: ConvMixerSpec, drop_path_rate: float) -> nn.Sequential:
    width = spec.width
    spatial = DepthwiseConv2d(width, width, spec.kernel_size, groups=width, padding="same")
    return nn.Sequential(
        Residual(nn.Sequential(spatial, nn.GELU(), nn.BatchNorm2d(width)), drop_path_rate=drop_path_rate),
        nn.Conv2d(width, width, 1),
        nn.GELU(),
        nn.BatchNorm2d(width),
    )


class StochasticDepth(nn.Module):
    """Drop a residual branch of whole images with probability `rate` while training (Huang et al., 2016).

    Surviving branches are scaled by 1 / (1 - rate), so the expectation does not change; in evaluation nothing happens.
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


DROPOUTS[StochasticDepth] = "rate"


def depth_rates(rate: float, depth: int) -> list[float]:
    """Stochastic depth's linear rule: 0 at the first block, `rate` at the last.

    >>> depth_rates(0.2, 3)
    [0.0, 0.1, 0.2]
    """
    return [rate * block / max(depth - 1, 1) for block in range(depth)]
