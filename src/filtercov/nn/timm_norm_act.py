"""timm's BatchNorm2d with an activation, and its GELU. Imported only where they have been: filtercov needs no timm."""

from timm.layers.activations import GELU
from timm.layers.drop import DropBlock2d
from timm.layers.norm_act import BatchNormAct2d

from filtercov.nn.batch_norms import ACTIVATION_NAMES
from filtercov.nn.gelu import NativeActivation
from filtercov.nn.norm_act_module import FusedNormAct
from filtercov.nn.replacement import DROPOUTS


class FusedBatchNormAct2d(FusedNormAct, BatchNormAct2d):
    """`timm.layers.norm_act.BatchNormAct2d` with norm and activation as one operator on the CPU."""


class NativeTimmGELU(NativeActivation, GELU):
    """`timm.layers.activations.GELU`, computed by filtercov's kernels on the CPU."""


ACTIVATION_NAMES.update({GELU: "gelu", NativeTimmGELU: "gelu"})
DROPOUTS[DropBlock2d] = "drop_prob"
