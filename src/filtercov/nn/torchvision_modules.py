"""torchvision's convolution, norm and activation in a row, fused. Imported only where torchvision has been."""

from torchvision.ops.misc import Conv2dNormActivation

from filtercov.nn.fused import FusedLayers


class FusedConv2dNormActivation(FusedLayers, Conv2dNormActivation):
    """`torchvision.ops.Conv2dNormActivation` with norm and activation as one operator on the CPU."""
