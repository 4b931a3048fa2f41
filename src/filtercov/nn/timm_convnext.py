"""timm's ConvNeXt block, fused. Imported only where timm's has been: filtercov itself does not need timm."""

from timm.layers.activations import GELU
from timm.layers.drop import DropPath
from timm.layers.mlp import Mlp
from timm.layers.norm import LayerNorm, LayerNorm2d
from timm.models.convnext import ConvNeXtBlock
from torch import nn

from filtercov.nn.convnext_block import FusedBlock
from filtercov.nn.gelu import NativeGELU
from filtercov.nn.replacement import DROPOUTS
from filtercov.nn.timm_norm_act import NativeTimmGELU


class FusedConvNeXtBlock(FusedBlock, ConvNeXtBlock):
    """`timm.models.convnext.ConvNeXtBlock` with everything after the depthwise layer fused on the CPU."""

    mlps = (Mlp,)
    norms = (nn.LayerNorm, LayerNorm, LayerNorm2d)
    activations = (nn.GELU, NativeGELU, GELU, NativeTimmGELU)


DROPOUTS[DropPath] = "drop_prob"
