"""ConvNeXt: Liu et al., "A ConvNet for the 2020s", CVPR 2022 (arXiv 2201.03545); atto to nano are timm's sizes.

Four stages of blocks: depthwise convolution, LayerNorm, a two-layer perceptron over channels, layer scale, residual.
Module names are timm's, so state dicts load both ways. The stem reduces by the patch size and each stage but the first
halves, so 32 pixels become 16, 8, 4, 2 with patches of 2. timm's `patch_size=2` halves in the first stage too (8, 4, 2,
1 pixels): `convnext_atto_p2_s2` is that network. docs/training.md says why `p2` alone means the other.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from filtercov.lab.models.convmixer import StochasticDepth, depth_rates
from filtercov.nn import DepthwiseConv2d
from filtercov.nn.fused import FusedBlock

# Channels of the first stage, which each later stage doubles, and blocks of the four.
SIZES = {
    "atto": (40, (2, 2, 6, 2)),
    "femto": (48, (2, 2, 6, 2)),
    "pico": (64, (2, 2, 6, 2)),
    "nano": (80, (2, 2, 8, 2)),
    "tiny": (96, (3, 3, 9, 3)),
}
LAYER_SCALE = 1e-6  # γ of an untrained block, timm's


@dataclass(frozen=True)
class ConvNeXtSpec:
    """The architecture that a name such as `convnext_atto_p1` or `convnext_atto_div8_p2_k9` describes."""

    size: str
    patch_size: int
    kernel_size: int = 7
    divide: int = 1  # every width divided by this: the paper's 1/8-width references
    first_stride: int = 1  # of the first stage: 2 is timm's rule for patches of 2
    layer_scale: float = LAYER_SCALE

    @property
    def name(self) -> str:
        """The canonical name: what is default is left out.

        >>> ConvNeXtSpec("atto", patch_size=1, divide=8).name
        'convnext_atto_div8_p1'
        """
        divide = f"_div{self.divide}" if self.divide != 1 else ""
        kernel = f"_k{self.kernel_size}" if self.kernel_size != 7 else ""
        stride = f"_s{self.first_stride}" if self.first_stride != 1 else ""
        scale = "_ls1" if self.layer_scale == 1.0 else ""
        return f"convnext_{self.size}{divide}_p{self.patch_size}{stride}{kernel}{scale}"


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


class Block(nn.Module):
    """x + γ ⊙ perceptron(norm(depthwise(x))), where training may drop the second term."""

    def __init__(self, width: int, spec: ConvNeXtSpec, *, drop_path_rate: float) -> None:
        super().__init__()
        self.pointwise_convs = pointwise_convs = spec.size != "tiny"  # as timm has it
        self.conv_dw = DepthwiseConv2d(width, width, spec.kernel_size, groups=width, padding="same")
        self.norm = LayerNorm2d(width) if pointwise_convs else nn.LayerNorm(width, eps=1e-6)
        self.mlp = Perceptron(width, pointwise_convs=pointwise_convs)
        self.gamma = nn.Parameter(torch.full((width,), spec.layer_scale))
        self.drop_path = StochasticDepth(drop_path_rate)

    def forward(self, x: Tensor) -> Tensor:
        """The mixed (N, C, H, W) map."""
        branch = self.conv_dw(x)
        if self.pointwise_convs:
            branch = self.mlp(self.norm(branch))
        else:
            branch = self.mlp(self.norm(branch.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return self.drop_path(branch * self.gamma.view(1, -1, 1, 1)) + x  # type: ignore[no-any-return]


class Perceptron(nn.Sequential):
    """Channels to four times as many, GELU, and back: as 1×1 convolutions on NCHW or linear layers on NHWC."""

    def __init__(self, width: int, *, pointwise_convs: bool) -> None:
        product = partial(nn.Conv2d, kernel_size=1) if pointwise_convs else nn.Linear
        layers = {"fc1": product(width, 4 * width), "act": nn.GELU(), "fc2": product(4 * width, width)}
        super().__init__(OrderedDict(layers))


class FastBlock(FusedBlock, Block):
    """The same block, fused where that cannot be noticed."""

    mlps = (Perceptron,)
    norms = (nn.LayerNorm, LayerNorm2d)


class ConvNeXt(nn.Sequential):
    """The network of a `ConvNeXtSpec`, from images to logits; weights truncated normal (.02), biases zero.

    >>> net = ConvNeXt(ConvNeXtSpec("atto", patch_size=1, divide=8), num_classes=10, in_channels=3)
    >>> net(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, spec: ConvNeXtSpec, *, num_classes: int, in_channels: int, drop_path_rate: float = 0.0) -> None:
        super().__init__()
        self.spec = spec
        first_width, depths = SIZES[spec.size]
        widths = [first_width * factor // spec.divide for factor in (1, 2, 4, 8)]
        rates = iter(depth_rates(drop_path_rate, sum(depths)))

        patches = nn.Conv2d(in_channels, widths[0], spec.patch_size, stride=spec.patch_size)
        self.stem = nn.Sequential(patches, LayerNorm2d(widths[0]))
        self.stages = nn.Sequential()
        before = widths[0]
        for width, depth, stride in zip(widths, depths, (spec.first_stride, 2, 2, 2), strict=True):
            blocks = nn.Sequential(*(FastBlock(width, spec, drop_path_rate=next(rates)) for _ in range(depth)))
            downsample: nn.Module = nn.Identity()
            if stride > 1:
                downsample = nn.Sequential(LayerNorm2d(before), nn.Conv2d(before, width, stride, stride=stride))
            self.stages.append(nn.Sequential(OrderedDict(downsample=downsample, blocks=blocks)))
            before = width
        pooling = {"pool": nn.AdaptiveAvgPool2d(1), "norm": LayerNorm2d(before), "flatten": nn.Flatten()}
        self.head = nn.Sequential(OrderedDict(**pooling, fc=nn.Linear(before, num_classes)))
        self.apply(_init_weights_)


def _init_weights_(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
