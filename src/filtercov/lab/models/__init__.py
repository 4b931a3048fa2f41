"""The paper's networks, by name.

>>> from filtercov.lab import models
>>> net = models.create("convmixer_32_8_k9_p2", num_classes=10, in_channels=3)
>>> models.parse("convnext_atto_p1").smallest_image
8

Building uses each architecture's own initialisation; filters are given a covariance by `filtercov.init_`.
"""

from torch import nn

from filtercov.errors import ModelError
from filtercov.lab.models.convmixer import ConvMixer, ConvMixerSpec
from filtercov.lab.models.convnext import ConvNeXt, ConvNeXtSpec
from filtercov.lab.models.cost import flops, parameters
from filtercov.lab.models.names import GRAMMAR, names, parse

__all__ = [
    "GRAMMAR",
    "ConvMixer",
    "ConvMixerSpec",
    "ConvNeXt",
    "ConvNeXtSpec",
    "create",
    "flops",
    "names",
    "parameters",
    "parse",
]


def create(name: str, *, num_classes: int, in_channels: int = 3, drop_path_rate: float = 0.0) -> nn.Module:
    """Build the network `name` describes; `drop_path_rate` is stochastic depth's rate at the last block.

    >>> create("convnext_atto_div8_p1", num_classes=10).spec.name
    'convnext_atto_div8_p1'
    """
    if num_classes < 1 or in_channels < 1:
        raise ModelError(f"a model needs at least 1 class and 1 channel, got {num_classes} and {in_channels}")
    if not 0.0 <= drop_path_rate < 1.0:
        raise ModelError(f"drop_path_rate is a probability below 1, got {drop_path_rate}")
    spec = parse(name)
    if isinstance(spec, ConvMixerSpec):
        return ConvMixer(spec, num_classes=num_classes, in_channels=in_channels, drop_path_rate=drop_path_rate)
    return ConvNeXt(spec, num_classes=num_classes, in_channels=in_channels, drop_path_rate=drop_path_rate)
