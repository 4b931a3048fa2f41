"""timm's residual of ConvMixer, fused. Imported only where timm's has been: filtercov itself does not need timm."""

from timm.models.convmixer import Residual

from filtercov.nn.residual import FusedResidual


class FusedConvMixerResidual(FusedResidual, Residual):
    """`timm.models.convmixer.Residual`, added in the same pass as BatchNorm on the CPU."""
