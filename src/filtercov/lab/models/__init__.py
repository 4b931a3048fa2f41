"""The paper's networks, by name.

>>> from filtercov.lab import models
>>> net = models.create("convmixer_32_8_k9_p2", num_classes=10, in_channels=3)
>>> models.parse("convnext_atto_p1").kernel_size
7

Building uses each architecture's own initialisation; `filtercov.init_` gives the filters a covariance.
"""

from filtercov.lab.models.convmixer import ConvMixer, ConvMixerSpec
from filtercov.lab.models.convnext import ConvNeXt, ConvNeXtSpec
from filtercov.lab.models.lookup import GRAMMAR, create, parse

__all__ = ["GRAMMAR", "ConvMixer", "ConvMixerSpec", "ConvNeXt", "ConvNeXtSpec", "create", "parse"]
