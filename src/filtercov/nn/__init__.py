"""Fast depthwise convolution for training on the CPU, drop-in for PyTorch's.

`DepthwiseConv2d` and `depthwise_conv2d` compute what `nn.Conv2d` and `F.conv2d` compute, those of one and three
dimensions likewise; `accelerate_` puts them into any model, `restore_` takes them out, `native_status` says whether the
native kernels are in use, and `keep_freed_memory` spares every step the system's clearing of its pages. On a GPU,
`accelerate_` with an example measures whether the Triton kernels of `filtercov.nn.gpu` are faster.
"""

from filtercov.nn.acceleration import Acceleration, accelerate_, keep_freed_memory, restore_
from filtercov.nn.conv import (
    DepthwiseConv1d,
    DepthwiseConv2d,
    DepthwiseConv3d,
    depthwise_conv1d,
    depthwise_conv2d,
    depthwise_conv3d,
)
from filtercov.nn.fused import FusedSequential
from filtercov.nn.native import NativeStatus, native_status

__all__ = [
    "Acceleration",
    "DepthwiseConv1d",
    "DepthwiseConv2d",
    "DepthwiseConv3d",
    "FusedSequential",
    "NativeStatus",
    "accelerate_",
    "depthwise_conv1d",
    "depthwise_conv2d",
    "depthwise_conv3d",
    "keep_freed_memory",
    "native_status",
    "restore_",
]
