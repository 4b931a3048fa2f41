"""timm's modules, fused. Imported only where timm has been: filtercov itself does not need it."""

from timm.layers.activations import GELU
from timm.layers.drop import DropBlock2d, DropPath
from timm.layers.mlp import Mlp
from timm.layers.norm import LayerNorm, LayerNorm2d
from timm.layers.norm_act import BatchNormAct2d
from timm.models.convmixer import Residual
from timm.models.convnext import ConvNeXtBlock
from torch import nn

from filtercov.nn import fused


class NativeTimmGELU(fused.NativeActivation, GELU):
    """`timm.layers.activations.GELU`, computed by filtercov's kernels on the CPU."""


class FusedBatchNormAct2d(fused.FusedNormAct, BatchNormAct2d):
    """`timm.layers.norm_act.BatchNormAct2d` with norm and activation as one operator on the CPU."""


class FusedConvMixerResidual(fused.FusedResidual, Residual):
    """`timm.models.convmixer.Residual`, added in the same pass as BatchNorm on the CPU."""


class FusedConvNeXtBlock(fused.FusedBlock, ConvNeXtBlock):
    """`timm.models.convnext.ConvNeXtBlock` with everything after the depthwise layer fused on the CPU."""

    mlps = (Mlp,)
    norms = (nn.LayerNorm, LayerNorm, LayerNorm2d)


fused.ACTIVATION_NAMES.update({GELU: "gelu", NativeTimmGELU: "gelu"})
fused.DROPOUTS.update({DropBlock2d: "drop_prob", DropPath: "drop_prob"})
