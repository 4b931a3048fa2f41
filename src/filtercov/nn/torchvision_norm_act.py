"""torchvision's convolution, norm and activation in a row, fused. Imported only where torchvision's has been."""

from torchvision.ops.misc import Conv2dNormActivation

from filtercov.nn.sequential import FusedLayers


class FusedConv2dNormActivation(FusedLayers, Conv2dNormActivation):
    """`torchvision.ops.Conv2dNormActivation` with norm and activation as one operator on the CPU."""
