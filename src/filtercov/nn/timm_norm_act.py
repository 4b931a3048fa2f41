"""timm's BatchNorm2d with an activation, fused. Imported only where timm's has been: filtercov does not need timm."""

from timm.layers.activations import GELU
from timm.layers.norm_act import BatchNormAct2d

from filtercov.nn.batch_norms import ACTIVATION_NAMES
from filtercov.nn.norm_act_module import FusedNormAct


class FusedBatchNormAct2d(FusedNormAct, BatchNormAct2d):
    """`timm.layers.norm_act.BatchNormAct2d` with norm and activation as one operator on the CPU."""


ACTIVATION_NAMES[GELU] = "gelu"
