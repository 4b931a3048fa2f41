"""Models to look at by name: ours as they start, timm's with their pretrained weights."""

from __future__ import annotations

import torch
from torch import nn

from filtercov.errors import ModelError
from filtercov.lab.models.lookup import find, import_timm
from filtercov.lab.report.inspect_target import Target, model_target

UNTRAINED = "not trained: these are the filters the network starts with"


def named_target(name: str, *, untrained: bool = False) -> Target:
    """Build one of our models, or `timm:NAME` with its pretrained weights unless `untrained`.

    >>> len(named_target("convmixer_16_3_k5_p2").statistics.layers)
    3
    """
    if name.startswith("timm:") and not untrained:
        return model_target(_pretrained(name), name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model_target(find(name), name, notes=(UNTRAINED,))


def _pretrained(name: str) -> nn.Module:
    timm = import_timm()
    try:
        model: nn.Module = timm.create_model(name.removeprefix("timm:"), pretrained=True)
    except Exception as error:  # timm, its hub and the network raise many kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{name}: cannot be had with pretrained weights ({reason}); name a checkpoint file, or add --untrained to "
            "look at the network as it starts"
        ) from None
    return model
