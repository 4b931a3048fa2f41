"""Depthwise convolution modules."""

from torch import nn


class DepthwiseConv2d(nn.Conv2d):
    """A depthwise convolution."""
