"""Any model by name: one of ours, or, where timm is installed, one of timm's."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from filtercov.errors import ModelError
from filtercov.lab import models


def find(name: str, *, num_classes: int = 1000, in_channels: int = 3, drop_path_rate: float = 0.0) -> nn.Module:
    """Build the model called `name`; `timm:NAME` asks for timm's even where the name could be ours.

    >>> type(find("convmixer_16_2_k5_p2", num_classes=10)).__name__
    'ConvMixer'
    """
    if is_ours(name):
        return models.create(name, num_classes=num_classes, in_channels=in_channels, drop_path_rate=drop_path_rate)
    # A rate of 0 is every model's default, and not every model has the argument.
    more = {"drop_path_rate": drop_path_rate} if drop_path_rate else {}
    timm = import_timm()
    try:
        built = timm.create_model(name.removeprefix("timm:"), num_classes=num_classes, in_chans=in_channels, **more)
    except Exception as error:  # timm raises whatever the model's own code raises
        raise ModelError(f"{name}: timm cannot build it ({error})") from None
    if not isinstance(built, nn.Module):
        raise ModelError(f"{name}: timm built a {type(built).__name__}, not a module")
    return built


def is_ours(name: str) -> bool:
    """Return whether a name is of one of our models, False if it is one of timm's; any other is a `ModelError`.

    What follows `timm:` is left to timm, when the model is built.

    >>> is_ours("convnext_atto_p4")
    True
    """
    if name.startswith("timm:"):
        return False
    try:
        models.parse(name)
    except ModelError as not_ours:
        try:
            known = import_timm().is_model(name)
        except ModelError as missing:
            raise ModelError(f"{not_ours}; {missing}") from None
        if not known:
            raise ModelError(f"{not_ours}; timm has no model of that name either") from None
        return False
    return True


def import_timm() -> Any:
    """Import timm, or say what keeps it from being imported."""
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError as error:
        raise ModelError(
            f"timm's models need {error.name}, which is not installed; install it with `pip install {error.name}`"
        ) from None
    except (ImportError, RuntimeError) as error:  # torchvision's, if it was built for another torch
        raise ModelError(
            f"timm's models need timm, which cannot be imported here ({error}); install a torchvision that was built "
            "for this torch, both from the same index"
        ) from None
